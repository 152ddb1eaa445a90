"""Plans for new sizes from what was chosen for others."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from libdesc.registry import ready
from ptensor.stopping import go_on
from resolver.lowered import LoweredGraph
from resolver.strategy import Strategy, StrategyRefused
from vtensor.errors import VTensorError
from vtensor.language.graph import Graph
from vtensor.language.imported import logger
from vtensor.language.records import dataclass
from vtensor.runtime.burden import burden
from vtensor.runtime.keys import PlanKey
from vtensor.runtime.options import Options, transferable
from vtensor.runtime.outline import Outline, Sized
from vtensor.runtime.own_plan import own_plan
from vtensor.runtime.plan import Plan
from vtensor.runtime.planning import resolved_of, sound
from vtensor.runtime.taken_over import (
    REFUSED,
    Known,
    may_be_better,
    mended,
    refit_or_anew,
    refitted,
    taken,
    widened,
)
from vtensor.runtime.workspace import Workspace

if TYPE_CHECKING:
    from vtensor.runtime.blueprint import Blueprint
    from vtensor.runtime.drawing_notes import DrawingNotes

#: Strategies that are kept for the same inputs in other sizes: the first that were made.
KEPT = 8

#: How many of them are tried, the nearest first, before nodes of the nearest are chosen anew.
TRIED = 2

#: Kinds of inputs of which there are strategies: entry layouts, inner values that are delivered.
KINDS = 32

_log = logger(__name__)

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
            kept = self._known.setdefault(_kind(known.key), [])
            if len(kept) >= KEPT:  # provisional ones make room
                kept[:] = _measured(kept)
            kept.append(known)
        if len(self._known) > KINDS:
            del self._known[next(iter(self._known))]

    def _full(self, key: PlanKey, provisional: bool) -> bool:
        """Return whether there are enough; only provisional ones count provisional ones."""
        kept: Sequence[Known] = self._known.get(_kind(key), ())
        return len(kept if provisional else _measured(kept)) >= KEPT

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
            for way in (refitted, mended):
                make = partial(way, one, graph=graph, options=options, workspace=workspace)
                try:
                    plan = widened(make, nodes)
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
    ) -> bool:
        """Whether libraries refuse what is drawn for inputs of this kind; not where nothing is that
        has such sizes.

        Args:
            key, given, outlines: as for ``drawn``.
        """
        known, refuses = self._nearest(key), False
        for outline in [one for one in outlines if one.sizes(given) is not None]:
            for blueprint in (outline.drawn.get(one.strategy) for one in known):
                go_on()
                if blueprint and not (refuses := bool(blueprint.declining(given))):
                    return False
        return refuses

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
                    names = drawn.refusing(sized.given, workspace, {})
                    for given in also:
                        go_on()
                        names |= drawn.declining(given)
                    if names:
                        raise StrategyRefused("libraries do not take all as it was", names)
                if one is found:
                    self.add(one)
                return None
            except StrategyRefused as why:
                _log.debug(REFUSED, sized.graph.name, one.key.shapes, why)
                faults.append((one, why.nodes))
        for one, nodes in faults[:1]:
            if self._full(key, one.provisional):  # nobody would ask for it
                return None
            about: Any = {"sized": sized, "options": options, "workspace": workspace}
            make = partial(_drawn_anew, one, **about, notes=notes)
            lowered, strategy = widened(make, nodes)
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


def _drawing(
    strategy: Strategy, sized: Sized, options: Options, workspace: Workspace
) -> Callable[[DrawingNotes | None], None] | None:
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
        Exception: as ``refit_or_anew`` and ``_draw``.
    """
    lowered = refit_or_anew(known, faults, sized.graph, options)
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
