"""Better choices for later runs, made in the background.

A provisional choice is replaced by one by times of this machine, for all sizes that it serves. A
choice that was made for other sizes is replaced by one of its own, where that is estimated to be
faster. ``Session(tune="background")`` replaces a plan by one by measured times.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

from optimizer.pipeline import optimise
from ptensor.background_work import checkpoint
from resolver.lowered import LoweredGraph
from vtensor.language.graph import Graph
from vtensor.language.imported import logger
from vtensor.language.index import importing
from vtensor.runtime.execution.plan import Plan
from vtensor.runtime.planning.background import PlanStays
from vtensor.runtime.planning.choosing import resolved_of
from vtensor.runtime.planning.options import Options
from vtensor.runtime.recording.workspace import Workspace

#: Share of a plan's time that a better one has to spare by estimate. Where no plan is exchanged, a
#: choice for other sizes may be off the best by so much.
SLACK = 0.02

#: Seconds that a solver has in the background.
TIME_LIMIT = 2.0

#: The log message where times cannot be measured.
FAILED = "%s: times cannot be measured in the background, so its plan stays as it is: %s"

_log = logger(__name__)


def measured(graph: Graph, options: Options, seconds: float) -> LoweredGraph:
    """Make a choice by times of this machine.

    Args:
        graph: simplified.
        options: how plans are made.
        seconds: that a solver has.
    """
    _import_libraries()
    settings = replace(options.settings, time_limit=seconds)
    resolved = resolved_of(graph, replace(options, settings=settings))
    return optimise(resolved, options.passes, settings)


def own_choice(plan: Plan, graph: Graph, options: Options) -> LoweredGraph:
    """Make a choice for the sizes of a plan whose choice was made for others.

    Raises:
        PlanStays: it would take about as long.
    """
    from optimizer.bound import excess, total_ns

    lowered = plan.graph
    off = excess(lowered, options.settings)
    if off <= SLACK:
        raise PlanStays(f"it takes at most {off:.1%} more than the best by estimate")
    settings = replace(options.settings, time_limit=TIME_LIMIT)
    own = optimise(resolved_of(graph, options), options.passes, settings)
    before, after = (total_ns(one, settings) for one in (lowered, own))
    if before - after <= SLACK * before:
        raise PlanStays(f"one of its own takes {(before - after) / before:.1%} less")
    return own


def tuned(plan: Plan, graph: Graph, options: Options, workspace: Workspace) -> Plan:
    """Return the plan by measured times that takes a plan's place.

    Args:
        plan: made without measurements.
        graph: simplified with the options' later settings.
        options: how the plan was made; ``later`` says what differs.
        workspace: what plans share.

    Raises:
        PlanStays: without them the same is as fast, and the plan was chosen for its own sizes.
        VTensorError: times cannot be measured.
    """
    from vtensor.runtime.planning.tuned import plan_of

    settings = options.later or options.settings
    options = replace(options, settings=settings, later=None, progress=None)
    own = plan.taken_from is None
    try:
        made = plan_of(graph, options, workspace)
    except Exception as error:  # of any kind that a library raises: the present plan is right
        checkpoint()  # a closed session logs nothing
        _log.warning(FAILED, graph.name, error)
        raise
    if own and all(step.ns is None for step in made.steps):
        raise PlanStays("with measured times none is faster")
    return made


def _import_libraries() -> None:
    """Import what measuring needs: after a plan from the cache nothing of it is there yet."""
    from libdesc.registry import ready
    from optimizer.detached_import import import_on_thread
    from optimizer.solver import solver_name

    for library in ready().libraries.values():
        if not library.absent:
            library.version()
    import_on_thread("pulp")
    if solver_name() == "HiGHS":
        with importing:  # a fork waits for that
            import_module("highspy")
