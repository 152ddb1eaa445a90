"""Refining: better choices for later runs, made in the background.

A choice by times of this machine replaces a provisional one, for all sizes that it serves. A choice
for the exact sizes of a plan replaces one for other sizes, if its estimate is faster. With
``Session(tune="background")`` a plan by measured times replaces one by estimates.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

from optimizer.pipeline import optimise
from ptensor.background_work import checkpoint
from resolver.lowered import LoweredGraph
from vtensor.language.graph import Graph
from vtensor.language.index import importing
from vtensor.language.process.imported import logger
from vtensor.runtime.execution.plan import Plan
from vtensor.runtime.planning.background import PlanStays
from vtensor.runtime.planning.choosing import resolved_of
from vtensor.runtime.planning.options import Options
from vtensor.runtime.recording.workspace import Workspace

#: The share of a plan's estimated time that a refined plan has to save. In a session that does not
#: refine plans, it is the most by which a choice for other sizes may exceed the best choice.
SLACK = 0.02

#: Time limit of a solver in the background, in seconds.
TIME_LIMIT = 2.0

#: The log message if times cannot be measured.
NOT_MEASURED = "%s: times cannot be measured in the background, so its plan stays as it is: %s"

_log = logger(__name__)


def measured(graph: Graph, options: Options, seconds: float) -> LoweredGraph:
    """Return the choice, as a lowered graph, by times of this machine.

    Args:
        graph: the simplified graph.
        options: the options of plans.
        seconds: the time limit of the solver.
    """
    _import_libraries()
    settings = replace(options.settings, time_limit=seconds)
    resolved = resolved_of(graph, replace(options, settings=settings))
    return optimise(resolved, options.passes, settings)


def own_choice(plan: Plan, graph: Graph, options: Options) -> LoweredGraph:
    """Return the choice for the exact sizes of a plan whose choice was made for other sizes.

    Args:
        plan: the plan.
        graph: the simplified graph for the plan's sizes.
        options: the options of plans.

    Raises:
        PlanStays: the new choice saves at most ``SLACK`` of the plan's estimated time.
    """
    from optimizer.choice.bound import excess, total_ns

    lowered = plan.graph
    bound_excess = excess(lowered, options.settings)
    if bound_excess <= SLACK:
        raise PlanStays(f"it takes at most {bound_excess:.1%} more than the best by estimate")
    settings = replace(options.settings, time_limit=TIME_LIMIT)
    own_graph = optimise(resolved_of(graph, options), options.passes, settings)
    before, after = (total_ns(lowered_graph, settings) for lowered_graph in (lowered, own_graph))
    if before - after <= SLACK * before:
        raise PlanStays(f"one of its own takes {(before - after) / before:.1%} less")
    return own_graph


def tuned(plan: Plan, graph: Graph, options: Options, workspace: Workspace) -> Plan:
    """Return the plan by measured times that replaces a plan made without them.

    Args:
        plan: the plan that is replaced.
        graph: the simplified graph for the plan's sizes.
        options: the options of the plan; ``options.later`` has the settings of the replacement.
        workspace: the arena, weights and executors that plans share.

    Raises:
        PlanStays: the plan's choice was made for its own sizes, and no measured plan is faster.
        VTensorError: times cannot be measured.
    """
    from vtensor.runtime.planning.tuned import plan_of

    settings = options.later or options.settings
    options = replace(options, settings=settings, later=None, progress=None)
    has_own_choice = plan.taken_from is None
    try:
        replacement = plan_of(graph, options, workspace)
    except Exception as error:  # libraries raise any kind; the present plan is right
        checkpoint()  # stops here if the session was closed, which then logs nothing
        _log.warning(NOT_MEASURED, graph.name, error)
        raise
    if has_own_choice and all(step.ns is None for step in replacement.steps):
        raise PlanStays("with measured times none is faster")
    return replacement


def _import_libraries() -> None:
    """Import the modules for measuring, which a cached plan has not loaded."""
    from libdesc.registry import ready
    from optimizer.choice.solver import solver_name
    from optimizer.detached_import import import_on_thread

    for library in ready().libraries.values():
        if not library.absent:
            library.version()
    import_on_thread("pulp")
    if solver_name() == "HiGHS":
        with importing:  # forks wait for this lock
            import_module("highspy")
