"""The plan that is chosen for sizes that have one taken from others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from optimizer.pipeline import optimise
from resolver.lowered import LoweredGraph
from vtensor.runtime.better import NotBetter
from vtensor.runtime.options import Options
from vtensor.runtime.planning import recorded, resolved_of

if TYPE_CHECKING:
    from vtensor.language.graph import Graph
    from vtensor.runtime.plan import Plan
    from vtensor.runtime.workspace import Workspace

#: How much of a plan's time a better one has to spare by estimate. Where no plan is exchanged, it
#: is how much larger a part of a plan's time Transforms may take than in the sizes that they were
#: chosen for; and where nodes are asked anew one by one, than before.
SLACK = 0.02

#: Seconds that a solver has in the background.
TIME_LIMIT = 2.0


def own_plan(
    given: Callable[[], tuple[LoweredGraph, Graph]],
    taken_from: Mapping[str, tuple[int, ...]],
    options: Options,
    workspace: Workspace,
) -> Plan:
    """A plan that is chosen for its own sizes.

    Raises:
        NotBetter: it would take about as long as the lowered graph, which has others' choices.
    """
    from optimizer.bound import excess, total_ns

    lowered, graph = given()
    off = excess(lowered, options.settings)
    if off <= SLACK:
        raise NotBetter(f"it takes at most {off:.1%} more than the best by estimate")
    settings = replace(options.settings, time_limit=TIME_LIMIT)
    options = replace(options, progress=None, settings=settings)

    def choose() -> Plan:
        resolved = resolved_of(graph, options)
        found = optimise(resolved, options.passes, settings)
        before, after = (total_ns(one, settings) for one in (lowered, found))
        if before - after <= SLACK * before:
            raise NotBetter(f"one of its own takes {(before - after) / before:.1%} less")
        return recorded(graph, resolved, found, options, workspace)

    plan = workspace.executor.planning(choose)
    plan.replaces = taken_from
    return plan
