"""Plans for new sizes from what was chosen for others."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from libdesc.transforms import LayoutChange
from optimizer.estimate import Estimate
from optimizer.pipeline import MEASURED
from resolver.lowered import LoweredGraph
from resolver.strategy import Strategy, StrategyRefused
from vtensor.errors import VTensorError
from vtensor.language.graph import Graph
from vtensor.runtime.plan import Plan
from vtensor.runtime.planning import Options, resolved_of, sound
from vtensor.runtime.workspace import Workspace

Shapes = Mapping[str, tuple[int, ...]]

#: Strategies that are kept for the same inputs in other sizes, the last made ones.
KEPT = 4

#: How much larger a part of a plan's time Transforms may take than where they were proven the
#: least; with more, other sizes get a plan of their own.
SLACK = 0.02

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Known:
    """A strategy, the shapes that it was made for, and what Transforms took there (``burden``)."""

    strategy: Strategy
    shapes: Shapes
    burden: float

    def unlike(self, shapes: Shapes) -> int:
        """How many sizes are 1 in one of both alone: what is broadcast there is not here."""
        pairs = (zip(self.shapes[name], shapes[name], strict=True) for name in shapes)
        return sum((a == 1) != (b == 1) for a, b in chain.from_iterable(pairs))


class Strategies:
    """The strategies of a session's plans.

    Only plans of the whole pipeline are taken over, by estimated time: the paper's levels stay what
    they are, and what was measured holds for its own sizes.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, list[Known]] = {}

    def keep(self, kind: Hashable, shapes: Shapes, plan: Plan, options: Options) -> None:
        """Remember what was chosen for a plan, for inputs of this kind in other sizes."""
        if _applies(options):
            strategy = Strategy.of(plan.graph)
            known = Known(strategy, dict(shapes), burden(plan.graph, options))
            self._known[kind] = [known, *self._known.get(kind, ())][:KEPT]

    def plan(
        self, kind: Hashable, shapes: Shapes, graph: Graph, options: Options, workspace: Workspace
    ) -> Plan | None:
        """A plan from the first strategy that fits; None where none does.

        Args:
            kind: what is the same in all sizes.
            shapes: of the inputs.
            graph: simplified.
            options, workspace: as for ``plan_of``.
        """
        for known in sorted(self._known.get(kind, ()), key=lambda one: one.unlike(shapes)):
            try:
                return _taken(known, shapes, graph, options, workspace)
            except (StrategyRefused, VTensorError) as why:  # a library may refuse it, too
                _log.debug("%s: no plan from that for %s: %s", graph.name, known.shapes, why)
        return None


def burden(graph: LoweredGraph, options: Options) -> float:
    """Which part of a plan's estimated time its Transforms take."""
    clock, changes = Estimate(options.preferences, options.settings.speeds), 0
    for node in graph.transforms():
        source, target = graph.values[node.input], graph.values[node.output]
        changes += clock.transform(source.tensor(), LayoutChange(source.layout, target.layout))
    if not changes:
        return 0.0
    return changes / (changes + sum(clock.node(node, graph.tensors) for node in graph.operators))


def _applies(options: Options) -> bool:
    settings = options.settings
    timed = settings.objective in ("", "time") and settings.clock is None
    return timed and MEASURED in options.passes


def _taken(
    known: Known, shapes: Shapes, graph: Graph, options: Options, workspace: Workspace
) -> Plan:
    """The plan of a graph as a strategy has it; for the shapes that it was made for, all of it.

    Raises:
        StrategyRefused, VTensorError: it does not fit, or would be too slow.
    """
    lowered, own = known.strategy.on(graph), known.shapes == shapes
    if own:
        lowered = replace(lowered, certificate=known.strategy.chosen.certificate)
    if burden(lowered, options) > known.burden + SLACK:
        raise StrategyRefused("Transforms take more of the time than they did")
    sound(lowered, graph, options, workspace)
    return Plan(
        lowered,
        graph.constants,
        workspace,
        options.progress,
        options.preferences,
        partial(resolved_of, graph, options),
        confirming=True,
        taken_from=None if own else known.shapes,
    )
