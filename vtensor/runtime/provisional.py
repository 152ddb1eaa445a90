"""A first plan by what libraries declare, and the one by times of this machine behind it.

Measuring takes longer than all else that a first answer waits for, and rarely changes much of a
plan; to ask libraries for other variants is next. So the first plan of a network does without the
one, and without the other where it could gain little: elsewhere it asks about the nodes that could
gain. Once it has run for as long as it took to make, the other plan is made between runs and takes
its place, for other sizes and later processes, too.
"""

from __future__ import annotations

from importlib import import_module

from optimizer.pipeline import ASKING, READING, optimise
from resolver.lowered import LoweredGraph, OpNode
from vtensor.language.graph import Graph
from vtensor.language.index import importing
from vtensor.language.records import replace
from vtensor.runtime.burden import avoidable, nearby
from vtensor.runtime.options import Options
from vtensor.runtime.plan import Plan
from vtensor.runtime.planning import partly_optimised, recorded, resolved_of
from vtensor.runtime.workspace import Workspace

#: Where Transforms and reference code take no more than this part of a plan's time by estimate,
#: libraries are not asked whether they read what lies otherwise.
ENOUGH = 0.05

#: Nor, up to this part, are they asked for other variants. A first plan runs for as long as it took
#: to make, and asking is a quarter to a half of that: it has to spare as much of each run.
WORTH = 0.25

#: Else they are asked about nodes that are so many nodes away from a Transform's ends, or from
#: reference code, and no farther: most of a network has nothing to gain.
HOPS = 2


def first_plan(graph: Graph, options: Options, workspace: Workspace) -> Plan:
    """The provisional plan of a graph whose sizes are known.

    Args:
        graph: simplified.
        options: how it is made; of a session whose first plan is provisional.
        workspace: what it shares with other plans.

    Raises:
        NoInvokerError, BudgetError: as ``plan_of``.
    """
    resolved = resolved_of(graph, options)
    plan = recorded(graph, resolved, chosen_soon(resolved, options), options, workspace)
    plan.provisional = True
    return plan


def chosen_soon(
    resolved: LoweredGraph, options: Options, only: frozenset[str] | None = None
) -> LoweredGraph:
    """A resolved graph optimised as for a provisional plan.

    Args:
        resolved, options: as for ``optimise``.
        only: nodes that may change; None is all.
    """
    quick = [name for name in options.passes if name not in (*ASKING, READING)]
    lowered = optimise(resolved, quick, options.settings)
    if (spared := avoidable(lowered, options)) <= ENOUGH:
        return lowered
    reading = [name for name in options.passes if name == READING]
    lowered = optimise(lowered, reading, replace(options.settings, light=True))
    if spared <= WORTH or avoidable(lowered, options) <= WORTH:
        return lowered
    near = nearby(lowered, HOPS)
    near = near if only is None else near & only
    lowered = partly_optimised(resolved, options, near)
    if any(node.name not in near for node in lowered.operators):
        lowered = replace(lowered, certificate=None)  # nobody asked about the others
    return lowered


def measured(
    first: Plan,
    graph: Graph,
    options: Options,
    workspace: Workspace,
    limit: float,
) -> Plan:
    """The plan by times of this machine; the first one where these choose no other.

    Args:
        first: what was chosen without.
        graph: the simplified graph that it is of.
        options: how plans are made.
        workspace: what they share.
        limit: seconds that a solver has.
    """
    settings = replace(options.settings, time_limit=limit)
    options = replace(options, progress=None, settings=settings)

    def choose() -> Plan:
        _import_libraries()
        resolved = resolved_of(graph, options)
        lowered = optimise(resolved, options.passes, options.settings)
        if confirmed(first, lowered):
            return first
        return recorded(graph, resolved, lowered, options, workspace)

    return workspace.executor.planning(choose)


def confirmed(first: Plan, lowered: LoweredGraph) -> bool:
    """Whether a first plan's choice is the measured one; it says then what was measured."""
    if first.taken_from is not None or _choice(lowered) != _choice(first.graph):
        return False
    first.nodes = replace(first.nodes, graph=lowered)
    return True


def _import_libraries() -> None:
    """Import what measuring needs: behind a plan that was kept as it runs nothing is there yet."""
    from libdesc.registry import ready as registry
    from optimizer.apart import apart
    from optimizer.solver import solver_name

    for library in registry().libraries.values():
        if not library.absent:
            library.version()
    apart("pulp")
    if solver_name() == "HiGHS":
        with importing:
            import_module("highspy")


def _choice(graph: LoweredGraph) -> object:
    """What two plans have in common that run the same steps."""
    nodes = [
        (
            one.name,
            one.inputs,
            one.outputs,
            replace(one.variant, ns=None, basis="declared", refused=()),
        )
        if isinstance(one, OpNode)
        else one
        for one in graph.nodes
    ]
    return nodes, {name: one.layout for name, one in graph.values.items()}, graph.outputs
