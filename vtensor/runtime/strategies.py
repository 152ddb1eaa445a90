"""Plans for new sizes from what was chosen for others."""

from __future__ import annotations

import logging
from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import partial

from libdesc.registry import ready
from libdesc.transforms import LayoutChange
from optimizer.estimate import Estimate
from optimizer.pipeline import MEASURED
from resolver.lowered import LoweredGraph
from resolver.strategy import Strategy, StrategyRefused
from vtensor.errors import VTensorError
from vtensor.language.graph import Graph
from vtensor.runtime.keys import PlanKey
from vtensor.runtime.plan import Plan
from vtensor.runtime.planning import Options, resolved_of, sound
from vtensor.runtime.workspace import Workspace

#: Strategies that are kept for the same inputs in other sizes: the first that were made, so that
#: a shape that comes back gets the plan that it had.
KEPT = 8

#: Kinds of inputs of which there are strategies: entry layouts, inner values that are delivered.
KINDS = 32

#: How much larger a part of a plan's time Transforms may take than where they were proven the
#: least; with more, other sizes get a plan of their own.
SLACK = 0.02

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Known:
    """A strategy, what it was made for, and what Transforms took there (``burden``)."""

    strategy: Strategy
    key: PlanKey
    burden: float


class Strategies:
    """The strategies of a session's plans.

    Only plans of the whole pipeline are taken over, by estimated time: the paper's levels stay what
    they are, and what was measured holds for its own sizes.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, list[Known]] = {}

    def keep(self, key: PlanKey, plan: Plan, options: Options) -> None:
        """Remember what was chosen for a plan, for inputs of its kind in other sizes."""
        if not _applies(options):
            return
        if len(self._known.get(_kind(key), ())) < KEPT:
            self.add(Known(Strategy.of(plan.graph), key, burden(plan.graph, options)))

    def add(self, known: Known) -> None:
        """Remember a strategy, unless there are enough for its kind of inputs."""
        kept = self._known.setdefault(_kind(known.key), [])
        if len(kept) < KEPT:
            kept.append(known)
        if len(self._known) > KINDS:
            del self._known[next(iter(self._known))]

    def knows(self, key: PlanKey) -> bool:
        """There are strategies for inputs of this kind."""
        return _kind(key) in self._known

    def plan(
        self, key: PlanKey, graph: Graph, options: Options, workspace: Workspace
    ) -> Plan | None:
        """A plan from the first strategy that fits; None where none does.

        Args:
            key: what it is for.
            graph: simplified.
            options, workspace: as for ``plan_of``.
        """
        for known in self._known.get(_kind(key), ()):
            try:
                return _taken(known, key, graph, options, workspace)
            except (StrategyRefused, VTensorError) as why:  # a library may refuse it, too
                _log.debug("%s: no plan from that of %s: %s", graph.name, known.key.shapes, why)
        return None


def _kind(key: PlanKey) -> Hashable:
    """What strategies are for: what plans have in common, and the libraries that there are."""
    return key.kind, ready().version


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
    known: Known, key: PlanKey, graph: Graph, options: Options, workspace: Workspace
) -> Plan:
    """The plan of a graph as a strategy has it; for what it was made for, with its certificate.

    Raises:
        StrategyRefused, VTensorError: it does not fit, or would be too slow.
    """
    lowered, own = known.strategy.on(graph), known.key == key
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
        taken_from=None if own else known.key.shapes,
    )
