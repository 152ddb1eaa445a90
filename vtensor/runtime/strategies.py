"""Plans for new sizes from what was chosen for others."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from libdesc.registry import ready
from optimizer.pipeline import import_passes, optimise
from ptensor.stopping import go_on
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
from vtensor.runtime.options import Options, transferable
from vtensor.runtime.outline import Outline, Sized
from vtensor.runtime.own_plan import SLACK, TIME_LIMIT, own_plan
from vtensor.runtime.plan import Plan
from vtensor.runtime.planning import partly_optimised, resolved_of, sound
from vtensor.runtime.provisional import chosen_soon
from vtensor.runtime.workspace import Workspace

if TYPE_CHECKING:
    from vtensor.runtime.blueprint import Blueprint
    from vtensor.runtime.drawing_notes import DrawingNotes

#: Strategies that are kept for the same inputs in other sizes: the first that were made.
KEPT = 8

#: How many of them are tried, the nearest first, before nodes of the nearest are chosen anew.
TRIED = 2

#: Which part of a plan's nodes may be chosen anew; with more, all are.
MOST = 0.5

#: How often nodes are added to those that are chosen anew: somebody may wait, and each time all is
#: recorded.
WIDENED = 8

#: Kinds of inputs of which there are strategies: entry layouts, inner values that are delivered.
KINDS = 32

T = TypeVar("T")

REFUSED = "%s: no plan from that of %s: %s"

_log = logger(__name__)


@dataclass(frozen=True)
class Known:
    """A strategy, what it was made for, and what Transforms took there (``burden``).

    Attributes:
        foreseen: there was no plan of it, but only what one would be of.
        provisional: as of a plan that was made of it.
    """

    strategy: Strategy
    key: PlanKey
    burden: float
    foreseen: bool = False
    provisional: bool = False


#: Strategies that do not fit a graph, each with the nodes that do not; None is a library's error.
Refused = dict[Known, frozenset[str] | None]


class Strategies:
    """The strategies of a session's plans.

    Only plans of the whole pipeline are taken over, by estimated time: the paper's levels stay what
    they are, and what was measured holds for its own sizes.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, list[Known]] = {}

    def keep(
        self, key: PlanKey, chosen: LoweredGraph, options: Options, provisional: bool = False
    ) -> Known | None:
        """Remember what was chosen for a plan, for other sizes; None where there is enough."""
        if not transferable(options) or self._full(key, provisional):
            return None
        part = burden(chosen, options) if options.deterministic else 0.0  # asked of no other
        known = Known(Strategy.of(chosen), key, part, provisional=provisional)
        self.add(known)
        return known

    def add(self, known: Known) -> None:
        """Remember a strategy, unless there are enough for its kind of inputs."""
        if not self._full(known.key, known.provisional):
            self._known.setdefault(_kind(known.key), []).append(known)
        if len(self._known) > KINDS:
            del self._known[next(iter(self._known))]

    def _full(self, key: PlanKey, provisional: bool) -> bool:
        """There are enough; provisional ones make room for another that is not."""
        kept = self._known.get(_kind(key), [])
        if len(kept) >= KEPT and not provisional:
            kept[:] = _measured(kept)
        return len(kept) >= KEPT

    def confirm(self, key: PlanKey) -> None:
        """Those for inputs of this kind are not provisional any more."""
        kept = self._known.get(_kind(key), [])
        kept[:] = [replace(one, provisional=False) for one in kept]

    def measured(self, key: PlanKey) -> bool:
        """There are strategies for inputs of this kind, and they are not provisional."""
        return bool(_measured(self._known.get(_kind(key), ())))

    def plan(
        self,
        key: PlanKey,
        graph: Graph,
        options: Options,
        workspace: Workspace,
        sized: Sized | None = None,
        refused: Refused | None = None,
        mending: bool = True,
    ) -> Plan | None:
        """A plan from the nearest strategy that fits; else from the nearest, with other variants
        around what does not fit. None where that fails, too.

        Args:
            key: what it is for.
            graph: simplified.
            options, workspace: as for ``plan_of``.
            sized: the graph, where an outline has made it.
            refused: strategies that were tried for this graph before; those of now are put there.
            mending: look for other variants, too.
        """
        refused = {} if refused is None else refused
        for one in self._nearest(key):
            if one in refused:
                continue
            try:
                plan = taken(one, key, graph, options, workspace, sized)
                if sized is not None:
                    plan.drawing = _drawing(one.strategy, sized, options, workspace)
                return plan
            except (StrategyRefused, VTensorError) as why:
                _log.debug(REFUSED, graph.name, one.key.shapes, why)
                refused[one] = why.nodes if isinstance(why, StrategyRefused) else None
        faults = [(one, nodes) for one, nodes in refused.items() if nodes is not None]
        for one, nodes in faults[:mending]:
            for way in (_refitted, _mended):
                make = partial(way, one, graph=graph, options=options, workspace=workspace)
                try:
                    plan = _widened(make, nodes)
                except (StrategyRefused, VTensorError) as why:
                    _log.debug(REFUSED, graph.name, one.key.shapes, why)
                else:
                    kept = self.keep(key, plan.graph, options, plan.provisional)
                    if sized is not None and kept is not None:
                        plan.drawing = _drawing(kept.strategy, sized, options, workspace)
                    return plan
        return None

    def drawn_of(self, key: PlanKey, outline: Outline) -> Known | None:
        """A strategy for inputs of this kind of which there is a blueprint; None where there is
        none.
        """
        return next((one for one in self._nearest(key) if outline.drawn.get(one.strategy)), None)

    def refused(
        self,
        key: PlanKey,
        given: Sequence[int],
        outlines: Sequence[Outline],
        workspace: Workspace,
    ) -> bool:
        """Whether libraries refuse what is drawn for inputs of this kind; not where nothing is.

        Args:
            key, given, outlines, workspace: as for ``drawn``.
        """
        known = self._nearest(key)
        drawn = [found for one in known for at in outlines if (found := at.drawn.get(one.strategy))]
        return bool(drawn) and all(one.refusing(given, workspace, {}) for one in drawn)

    def foresee(
        self,
        key: PlanKey,
        sized: Sized,
        options: Options,
        workspace: Workspace,
        told: Callable[[], Known | None],
        also: Sequence[Sequence[int]] = (),
        notes: DrawingNotes | None = None,
    ) -> LoweredGraph | None:
        """Draw what a plan would be of, as ``plan`` finds it; where that fails, nothing is there.

        Args:
            key, options, workspace: as for ``plan``.
            sized: the graph, of an outline.
            told: what another process has chosen for it.
            also: other open sizes: what libraries refuse there is chosen anew, too.
            notes: what notes how it is drawn.

        Returns:
            What was chosen; None where a strategy fits that was known, or it is provisional.
        """
        faults, nearest = list[tuple[Known, frozenset[str]]](), self._nearest(key)
        found = told() if all(one.key != key for one in nearest) else None
        for one in [found, *nearest] if found is not None else nearest:
            try:
                drawn: Blueprint | None = sized.outline.drawn.get(one.strategy)
                if one.strategy not in sized.outline.drawn:
                    _draw(one.strategy, sized, options, workspace, notes)
                elif drawn is not None:
                    rows = (drawn.refusing(one, workspace, {}) for one in (sized.given, *also))
                    if names := frozenset[str]().union(*rows):
                        raise StrategyRefused("libraries do not take all as it was", names)
                if one is found:
                    self.add(one)
                return None
            except StrategyRefused as why:
                _log.debug(REFUSED, sized.graph.name, one.key.shapes, why)
                faults.append((one, why.nodes))
        for one, nodes in faults[:1]:
            about: Any = {"sized": sized, "options": options, "workspace": workspace}
            make = partial(_drawn_anew, one, **about, notes=notes)
            lowered, strategy = _widened(make, nodes)
            self.add(Known(strategy, key, 0.0, foreseen=True, provisional=one.provisional))
            return None if one.provisional else lowered
        return None

    def let_go(self, key: PlanKey, outline: Outline) -> None:
        """Let go of blueprints of provisional strategies, and so of what they have packed, once
        another one is drawn.
        """
        known, drawn = self._known.get(_kind(key), ()), outline.drawn
        if any(drawn.get(one.strategy) for one in _measured(known)):
            for one in known:
                if one.provisional:
                    drawn.pop(one.strategy, None)

    def _nearest(self, key: PlanKey) -> list[Known]:
        """What is tried for inputs, in order; what is for more dims of one element, or for fewer,
        only where nothing is nearer. Provisional ones are where there are no others.
        """
        known: Sequence[Known] = self._known.get(_kind(key), ())
        known = _measured(known) or known
        found = sorted(known, key=lambda one: one.key.apart(key))[:TRIED]
        return found[:1] + [one for one in found[1:] if one.key.ones == key.ones]

    def drawn(
        self,
        key: PlanKey,
        given: Sequence[int],
        outlines: Sequence[Outline],
        options: Options,
        workspace: Workspace,
        refused: Refused,
    ) -> Plan | None:
        """The plan of a blueprint; None where there is none for these sizes.

        Args:
            key, options, workspace: as for ``plan``.
            given, outlines: open sizes, and what may hold for them.
            refused: where there is none, what the nearest strategies' blueprints say is put there.
        """
        if options.deterministic:  # a plan is then compared with one of its own
            return None
        told: dict[Any, Any] = {}
        for known in self._asked(key, outlines, provisional=options.first is not None):
            for outline in outlines:
                blueprint: Blueprint | None = outline.drawn.get(known.strategy)
                if blueprint is None or (known.key == key and not known.foreseen):
                    continue
                again = _Again(known, key, outline, given, options, workspace)
                plan = blueprint.plan(given, workspace, again.plan, told)
                if plan is not None:
                    plan.taken_from = None if known.key == key else known.key.shapes
                    plan.provisional = known.provisional
                    make = partial(own_plan, again.graphs, known.key.shapes, options, workspace)
                    may_be_better(plan, blueprint.proven, make)
                    return plan
        for known in self._nearest(key):
            drawn = [blueprint for one in outlines if (blueprint := one.drawn.get(known.strategy))]
            for blueprint in drawn if known.key != key else ():
                if names := blueprint.refusing(given, workspace, told):
                    refused[known] = names
        return None

    def _asked(
        self, key: PlanKey, outlines: Sequence[Outline], provisional: bool
    ) -> Sequence[Known]:
        """Those whose blueprints are asked: provisional ones as long as no other is drawn."""
        known = self._known.get(_kind(key), ())
        measured = _measured(known)
        drawn = any(outline.drawn.get(one.strategy) for one in measured for outline in outlines)
        return known if provisional and not drawn else measured


def _measured(known: Sequence[Known]) -> list[Known]:
    """Those that are not provisional."""
    return [one for one in known if not one.provisional]


@dataclass(frozen=True)
class _Again:
    """Makes a blueprint's plan node by node."""

    known: Known
    key: PlanKey
    outline: Outline
    given: Sequence[int]
    options: Options
    workspace: Workspace

    def graphs(self) -> tuple[LoweredGraph, Graph]:
        """What it is of, and the simplified graph."""
        graph = self.outline.graph(self.given)
        assert graph is not None, "the blueprint has asked its outline"
        return self.outline.lowered(self.known.strategy, graph), graph

    def plan(self) -> Plan:
        """The plan."""
        lowered, graph = self.graphs()
        return Plan(
            lowered,
            graph.constants,
            self.workspace,
            None,
            self.options.preferences,
            partial(resolved_of, graph, self.options),
            confirming=True,
            taken_from=self.known.key.shapes,
        )


def _kind(key: PlanKey) -> Hashable:
    """What strategies are for: what plans have in common, and the libraries that there are."""
    return key.kind, ready().version


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


def _refitted(
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
        StrategyRefused, VTensorError: as for ``_refitted``.
    """
    from resolver.refit import refitted

    before = known.strategy.roughly(graph)
    lowered, anew = refitted(before, faults)
    if [*lowered.transforms()] != [*before.transforms()]:
        more = burden(lowered, options) - burden(before, options)
        if more > SLACK:
            raise StrategyRefused(f"Transforms would take {more:.1%} more of the time", faults)
        lowered = replace(lowered, certificate=None)  # it says nothing of these
    return lowered, anew


def _refit_or_anew(
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
    options = replace(options, settings=replace(options.settings, time_limit=TIME_LIMIT))
    return _chosen(known, resolved_of(graph, options), options)


def _mended(
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


def _widened(make: Callable[[frozenset[str]], T], faults: frozenset[str]) -> T:
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
    lowered = _chosen(known, resolved, options, anew)
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
    if not options.deterministic:
        make = partial(own_plan, lambda: (lowered, graph), known.key.shapes, options, workspace)
        may_be_better(plan, lowered.certificate is not None, make)
    return plan


def may_be_better(plan: Plan, proven: bool, make: Callable[[], Plan]) -> None:
    """A plan whose variants were chosen for other sizes may get another one's place."""
    if not proven:
        plan.better = Better(make, UNPROVEN, ready=import_passes)


def _drawing(
    strategy: Strategy, sized: Sized, options: Options, workspace: Workspace
) -> Callable[[], None] | None:
    """What draws a strategy for the graphs of an outline; None where that was seen to already."""
    if options.deterministic or strategy in sized.outline.drawn:
        return None
    sized.outline.drawn[strategy] = None
    return partial(_draw, strategy, sized, options, workspace)


def _drawn_anew(
    known: Known,
    faults: frozenset[str],
    sized: Sized,
    options: Options,
    workspace: Workspace,
    notes: DrawingNotes | None,
) -> tuple[LoweredGraph, Strategy]:
    """What is chosen for a graph which a strategy does not fit, drawn.

    Raises:
        Exception: as ``_refit_or_anew`` and ``_draw``.
    """
    lowered = _refit_or_anew(known, faults, sized.graph, options)
    strategy = Strategy.of(lowered)
    _draw(strategy, sized, options, workspace, notes)
    return lowered, strategy


def _draw(
    strategy: Strategy,
    sized: Sized,
    options: Options,
    workspace: Workspace,
    notes: DrawingNotes | None = None,
) -> None:
    """Draw a strategy on an outline.

    Raises:
        Exception: of any kind; a ``StrategyRefused`` where the strategy does not fit the sizes.
    """
    from vtensor.runtime.blueprint import Blueprint

    lowered = sized.on(strategy)
    go_on()
    sound(lowered, sized.graph, options, workspace, sized.proof(strategy))
    go_on()
    sized.outline.drawn[strategy] = Blueprint(sized, strategy, workspace, notes)
    if notes is not None:
        workspace.recipes.adopt(notes.recipes)
