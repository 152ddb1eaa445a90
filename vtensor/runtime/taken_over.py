"""Plans for other sizes of what was chosen: as it was, or with some nodes chosen anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from optimizer.pipeline import import_passes, optimise
from resolver.lowered import LoweredGraph, OpNode
from resolver.proof import Proof
from resolver.strategy import Strategy, StrategyRefused
from vtensor.errors import VTensorError
from vtensor.language.graph import Graph
from vtensor.language.imported import logger
from vtensor.language.records import dataclass
from vtensor.runtime.better import UNPROVEN, Better
from vtensor.runtime.burden import burden
from vtensor.runtime.keys import PlanKey
from vtensor.runtime.options import Options
from vtensor.runtime.outline import Sized
from vtensor.runtime.own_plan import SLACK, TIME_LIMIT, own_plan
from vtensor.runtime.plan import Plan
from vtensor.runtime.planning import partly_optimised, resolved_of, sound
from vtensor.runtime.provisional import chosen_soon
from vtensor.runtime.workspace import Workspace

#: Which part of a plan's nodes may be chosen anew; with more, all are.
MOST = 0.5

#: How often nodes are added to those that are chosen anew: somebody may wait, and each time all is
#: recorded.
WIDENED = 8

T = TypeVar("T")

REFUSED = "%s: no plan from that of %s: %s"

_log = logger(__name__)


@dataclass(frozen=True)
class Known:
    """A strategy, what it was made for, and what Transforms took there (``burden``).

    Attributes:
        foreseen: there was no plan of it, but only what one would be of.
        provisional: as of a plan that was made of it.
        cached: it was read from the cache on disk.
    """

    strategy: Strategy
    key: PlanKey
    burden: float
    foreseen: bool = False
    provisional: bool = False
    cached: bool = False


def taken(
    known: Known,
    key: PlanKey,
    graph: Graph,
    options: Options,
    workspace: Workspace,
    sized: Sized | None = None,
) -> Plan:
    """The plan of a graph as a strategy has it; for what it was made for, with its certificate.

    Raises:
        StrategyRefused, VTensorError: it does not fit, or would be too slow.
    """
    strategy, own = known.strategy, known.key == key
    lowered = sized.on(strategy) if sized is not None else strategy.on(graph)
    if own:
        lowered = replace(lowered, certificate=known.strategy.chosen.certificate)
    taken_from = None if own else known.key.shapes
    proof = sized.proof(strategy) if sized is not None else None
    return _plan(known, lowered, graph, options, workspace, taken_from, proof=proof)


def refitted(
    known: Known,
    faults: frozenset[str],
    graph: Graph,
    options: Options,
    workspace: Workspace,
) -> Plan:
    """The plan of a graph as a strategy has it but for some nodes, which libraries take otherwise.

    Raises:
        StrategyRefused, VTensorError: libraries do not, or with Transforms that take long.
    """
    lowered, anew = _refit(known, faults, graph, options)
    return _plan(known, lowered, graph, options, workspace, known.key.shapes, anew)


def _refit(
    known: Known, faults: frozenset[str], graph: Graph, options: Options
) -> tuple[LoweredGraph, tuple[str, ...]]:
    """What was chosen but for some nodes; the names of those that are otherwise.

    Raises:
        StrategyRefused, VTensorError: as for ``refitted``.
    """
    from resolver.refit import refitted

    options = _told(known, options)
    before = known.strategy.roughly(graph)
    lowered, anew = refitted(before, faults)
    if [*lowered.transforms()] != [*before.transforms()]:
        more = burden(lowered, options) - burden(before, options)
        if more > SLACK:
            raise StrategyRefused(f"Transforms would take {more:.1%} more of the time", faults)
        lowered = replace(lowered, certificate=None)  # it says nothing of these
    return lowered, anew


def refit_or_anew(
    known: Known, faults: frozenset[str], graph: Graph, options: Options
) -> LoweredGraph:
    """What is chosen for a graph which a strategy does not fit.

    Raises:
        VTensorError: nothing can be.
    """
    try:
        return _refit(known, faults, graph, options)[0]
    except (StrategyRefused, VTensorError) as why:
        _log.debug(REFUSED, graph.name, known.key.shapes, why)
    options = _told(known, options)
    options = replace(options, settings=replace(options.settings, time_limit=TIME_LIMIT))
    return _chosen(known, resolved_of(graph, options), options)


def _told(known: Known, options: Options) -> Options:
    """What is chosen by where a strategy does not fit: as for that, no times of this machine."""
    return options.soon if known.provisional else options


def mended(
    known: Known,
    faults: frozenset[str],
    graph: Graph,
    options: Options,
    workspace: Workspace,
) -> Plan:
    """The plan of a graph as a strategy has it but for some nodes, and those around them.

    Raises:
        StrategyRefused, VTensorError: too much does not fit, or it would be too slow.
    """
    kept = known.strategy.kept(graph, faults)
    lowered, anew = _around(known, kept, graph, options)
    if len(anew) > MOST * len(lowered.operators):
        raise StrategyRefused(f"{len(anew)} nodes would have other variants")
    return _plan(known, lowered, graph, options, workspace, known.key.shapes, anew)


def widened(make: Callable[[frozenset[str]], T], faults: frozenset[str]) -> T:
    """What is made with some nodes decided anew; with more of them, as long as others do not fit.

    Raises:
        Exception: as ``make``.
    """
    for _ in range(WIDENED):
        try:
            return make(faults)
        except StrategyRefused as why:
            if why.nodes <= faults:
                raise
            faults |= why.nodes
    return make(faults)


def _around(
    known: Known, kept: Mapping[str, OpNode], graph: Graph, options: Options
) -> tuple[LoweredGraph, tuple[str, ...]]:
    """A graph in which nodes are as they were chosen before; the names of the others."""
    from resolver.evaluate import resolve
    from resolver.extend import extend

    resolved = extend(resolve(graph, options.entry, options.preferences, kept), options.delivery)
    anew = frozenset(node.name for node in resolved.operators if node.name not in kept)
    lowered = _chosen(known, resolved, _told(known, options), anew)
    before = {name: node.variant for name, node in kept.items()}
    return lowered, tuple(
        node.name for node in lowered.operators if before.get(node.name) != node.variant
    )


def _chosen(
    known: Known, resolved: LoweredGraph, options: Options, only: frozenset[str] | None = None
) -> LoweredGraph:
    """A resolved graph optimised, of which some nodes may change; soon, where what is known was."""
    if known.provisional:
        return chosen_soon(resolved, options, only)
    if only is not None:
        return partly_optimised(resolved, options, only)
    return optimise(resolved, options.passes, options.settings)


def _plan(
    known: Known,
    lowered: LoweredGraph,
    graph: Graph,
    options: Options,
    workspace: Workspace,
    taken_from: Mapping[str, tuple[int, ...]] | None,
    anew: Sequence[str] = (),
    proof: Proof | None = None,
) -> Plan:
    """The plan of a lowered graph whose variants were chosen for other sizes.

    Raises:
        StrategyRefused, VTensorError: libraries do not take it so, or it would be too slow.
    """
    if options.deterministic and burden(lowered, options) > known.burden + SLACK:
        from optimizer.bound import excess

        if excess(lowered, options.settings) > SLACK:
            raise StrategyRefused("Transforms take more of the time than they did")
    sound(lowered, graph, options, workspace, proof)
    plan = Plan(
        lowered,
        graph.constants,
        workspace,
        options.progress,
        options.preferences,
        partial(resolved_of, graph, options),
        confirming=True,
        taken_from=taken_from,
        anew=anew,
    )
    plan.provisional = known.provisional
    plan.origin = replace(plan.origin, cached=known.cached)
    if not options.deterministic:
        make = partial(own_plan, lambda: (lowered, graph), known.key.shapes, options, workspace)
        may_be_better(plan, lowered.certificate is not None, make)
    return plan


def may_be_better(plan: Plan, proven: bool, make: Callable[[], Plan]) -> None:
    """A plan whose variants were chosen for other sizes may get another one's place."""
    if not proven:
        plan.better = Better(make, UNPROVEN, ready=import_passes)
