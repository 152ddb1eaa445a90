"""What is made beside runs, for sizes to come: strategies, blueprints, and entries of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ptensor.stopping import Stopped, go_on
from vtensor.language import collector
from vtensor.runtime.better import Better
from vtensor.runtime.drawings import Drawings, attempt
from vtensor.runtime.keys import PlanKey
from vtensor.runtime.last_used import LastUsed, keeping
from vtensor.runtime.options import transferable
from vtensor.runtime.other_sizes import OtherSizes
from vtensor.runtime.plan import Plan
from vtensor.runtime.ready import ready_to_draw
from vtensor.runtime.turns import Turn

if TYPE_CHECKING:
    from vtensor.runtime.drawing_notes import DrawingNotes
    from vtensor.runtime.outline import Outline
    from vtensor.runtime.strategy_cache import Network
    from vtensor.runtime.taken_over import Known

#: What is done one after the other; who wants a plan may stop each, which then begins anew.
Works = list[Callable[[], None]]

#: How often what is for other processes gives way to who wants a plan here. Where it did so each
#: time, a process of some seconds that had many sizes wrote nothing down.
GIVES_WAY = 2

#: Seconds for which what is written for other processes may go on behind the end of this one: it
#: takes 0.1 to 0.4, for each model once.
LINGERS_S = 2.0

#: Drawings for sizes near those of a run, at most: more would take longer than they spare.
NEAR = 2


class Ahead:
    """Is ready for other sizes, on the thread for such work; who wants a plan goes first.

    Args:
        others: what is known for other sizes.
        last: the plans that are kept.
        turn: of those who make plans.
        keep: writes down a plan as it runs, by what it is made of.

    Attributes:
        foreseen: it is ready for other sizes, as far as it can be.
        writes: what writes plans down, once it is ready: that is for other processes.
        drawings: the blueprints that are still to be drawn.
    """

    def __init__(
        self, others: OtherSizes, last: LastUsed, turn: Turn, keep: Callable[[Network], None]
    ) -> None:
        self._others, self._last, self._turn, self._keep = others, last, turn, keep
        self._graphs, self._workspace = others.graphs, others.graphs.workspace
        self.foreseen = False
        self.writes: Works = []
        self.drawings = Drawings(self._workspace)
        self._works: list[Better[None]] = []
        self._closed = False
        #: Blueprints are on disk, behind a plan that was taken as it was kept.
        self._kept = False
        #: Strategies whose blueprints were written down, or could not be; each with its outline.
        self._written: list[tuple[Known, Outline]] = []

    def close(self) -> None:
        """Nobody wants it any more."""
        with keeping:
            self._closed = True
            works, self._works = self._works, []
        for work in works:
            work.stop()

    def has_run(self, plan: Plan) -> None:
        """See to what a plan that has run leaves for others: somebody waited for that run, which
        it would have slowed down.

        The blueprint of what was chosen for other sizes is drawn beside runs, or before the next
        plan but one. It is written down, as is a plan as it runs where nothing is of the model, for
        programs that are over soon, too: these would find no more the next time.
        """
        with keeping:
            drawing, plan.drawing = plan.drawing, None
        source = self._graphs.source
        unknown = plan.provisional and source.surface is None and source.may_keep(frozenset())
        if drawing is None and not unknown:
            return
        key = self._last.key_of(plan)
        blueprints = self._others.blueprints if key is not None else None
        notes = blueprints.notes(key, self._graphs.entering(key)) if blueprints and key else None
        if drawing is not None:
            self.drawings.add(partial(drawing, notes))
            self._beside(partial(self._in_turn, self.drawings.draw))
        if blueprints is not None and key is not None:
            first = self._last.first()  # a session that is closed has no plans
            writes = self.drawings.draw, partial(self._keep_first, first)
            self._write_soon([*writes, partial(self._keep_drawn, key)], notes)

    def _write_soon(self, writes: Works, notes: DrawingNotes | None = None) -> None:
        """Write down what is for other processes, once nothing is left to do for this one.

        Args:
            writes: do so.
            notes: are then needed no longer.
        """

        def write() -> None:
            for work in writes:
                self._for_others(work)
            if notes is not None:
                notes.forget()

        self._beside(write, lingers_s=LINGERS_S)

    def foresee(self, key: PlanKey) -> None:
        """A plan is used again: once, be ready for other sizes, where there may be such."""
        self.foreseen, (writes, self.writes) = True, (self.writes, [])
        options = self._graphs.options
        if options.deterministic or options.later or options.lock or not transferable(options):
            return
        known = {one.name for one in key.inputs if one.value is not None}
        source = self._graphs.source
        keys = [key.sized(one) for one in source.foreseen(key.shapes, known)]
        near = [key.sized(one) for one in source.near(key.shapes, known)]

        def draw() -> None:
            self._get_ready(partial(self._look, key))
            if self._kept or not keys:
                for work in writes:
                    self._for_others(work)
            else:
                self._draw(keys, near, writes)
            if keys:
                self._workspace.make_room()

        if keys or writes:
            self._beside(draw, reads=self._others.unread or not keys)

    def _draw(self, keys: Sequence[PlanKey], near: Sequence[PlanKey], writes: Works) -> None:
        """Draw plans, and write down what was drawn.

        Args:
            keys: of plans that are foreseen, first of the sizes of a run.
            near: of sizes near those.
            writes: is done once all are drawn: it is for other processes. A model is known by its
                outside only then, where this process is the first: what is drawn was not noted.
        """
        left, drawn = [*near], [*keys]
        first, blueprints = keys[0], self._others.blueprints
        if blueprints is not None:
            self._write_soon([*writes, partial(self._keep_every, drawn)])
        self._get_ready(self._others.read)
        notes = blueprints.notes(first, self._graphs.entering(first)) if blueprints else None
        try:
            for one in keys:
                self._get_ready(partial(self._foresee, one, notes))
                self._for_others(partial(self._keep_drawn, one))
                for _ in range(NEAR if one is first else 0):
                    count = len(drawn)
                    self._get_ready(partial(self._foresee_near, left, drawn, notes))
                    if len(drawn) == count:
                        break
                    self._for_others(partial(self._keep_drawn, drawn[-1]))
        finally:
            if notes is not None:
                notes.forget()
        self._get_ready(partial(self._forget_kept, first))

    def _forget_kept(self, key: PlanKey) -> None:
        """Blueprints that were kept are not asked any more, where this process has drawn one."""
        sized = self._others.sized(key, self._graphs.entering(key), traces=False)
        if sized is not None and self._others.strategies.drawn_of(key, sized.outline) is not None:
            self._others.forget()

    def hurries(self) -> bool:
        """Nothing runs that would be in the way, or somebody waits for a plan."""
        return not self._workspace.lanes.busy or bool(self._turn.waiting)

    def _beside(
        self, work: Callable[[], None], reads: bool = False, lingers_s: float = 0.0
    ) -> None:
        """Do it between runs, and a little beside them; what reads a model imports by itself."""
        if not reads:
            ready_to_draw(self._graphs.source.reads_nodes)
        made = Better(work, "plans are made node by node", self.hurries, None, lingers_s)
        with keeping:
            self._works = [*(one for one in self._works if not one.done), made]
            if self._closed:
                made.stop()
        made.wanted(lambda _: None)

    def _get_ready(self, work: Callable[[], None]) -> None:
        """Do what makes ready for other sizes; what goes wrong is noted."""
        self._in_turn(partial(attempt, work))

    def _for_others(self, work: Callable[[], None]) -> None:
        """Do what is for other processes alone."""
        self._in_turn(partial(attempt, work), GIVES_WAY)

    def _in_turn(self, work: Callable[[], None], times: int = 1) -> None:
        with self._workspace.executor.planning(), collector.later():
            self._turn.ahead(work, times)

    def _look(self, key: PlanKey) -> None:
        """See whether blueprints are kept, so that nothing is to be read nor drawn."""
        self._kept = self._others.unread and self._others.has_kept(key)

    def _foresee(
        self,
        key: PlanKey,
        notes: DrawingNotes | None,
        beside: Sequence[PlanKey] = (),
        traces: bool = True,
    ) -> None:
        """Draw what a plan would be of.

        Args:
            key: of the plan.
            notes: what notes how it is drawn.
            beside: of more sizes that this is to be for.
            traces: as for ``Outlines.graph``.
        """
        if self._workspace.full:  # weights in further forms would take the place of plans
            return
        options = self._graphs.entering(key)
        sized, disk = self._others.sized(key, options, traces), self._others.disk
        if sized is None:
            return
        go_on()
        network = self._graphs.network(key, sized.graph, options)
        told = partial(disk.foreseen, network) if disk is not None else lambda: None
        strategies = self._others.strategies
        also = [self._others.outlines.of(one)[0] for one in beside]
        chosen = strategies.foresee(key, sized, options, self._workspace, told, also, notes)
        strategies.let_go(key, sized.outline)
        if chosen is not None and disk is not None:
            disk.keep(network, chosen, network.ahead)

    def _foresee_near(
        self, left: list[PlanKey], drawn: list[PlanKey], notes: DrawingNotes | None
    ) -> None:
        """Draw what a plan would be of for sizes near those of a run, where libraries refuse what
        is drawn so far; it is to be for as many of them as can be.

        Args:
            left: of plans of sizes that have not been seen to; those that need nothing leave.
            drawn: gets the one that was drawn.
            notes: as for ``_foresee``.
        """
        strategies, outlines = self._others.strategies, self._others.outlines
        left[:] = [one for one in left if strategies.refused(one, *outlines.of(one))]
        if left:
            self._foresee(left[0], notes, left[1:], traces=False)
            drawn.append(left.pop(0))

    def _keep_first(self, first: tuple[Callable[[], Network], bool] | None) -> None:
        """Write down what others know the model by, if nobody has, and a plan as it runs."""
        source, works = self._graphs.source, self.writes
        if source.surface is not None:
            return
        if works:
            works[0]()
        elif first is not None:
            network, own = first[0](), first[1]
            if own:
                self._keep(network)
            elif network.looked_at is not None:
                source.keep_surface(network.looked_at)

    def _keep_every(self, keys: Sequence[PlanKey]) -> None:
        """Write down what was drawn of each."""
        for one in keys:
            self._keep_drawn(one)

    def _keep_drawn(self, key: PlanKey) -> None:
        """Write down what was drawn, for other processes."""
        options, others = self._graphs.entering(key), self._others
        if (blueprints := others.blueprints) is None or self._graphs.source.surface is None:
            return
        if (sized := others.sized(key, options, traces=False)) is None:
            return
        known = others.strategies.drawn_of(key, sized.outline)
        if known is None or (known, sized.outline) in self._written:
            return
        from vtensor.runtime.outlines import Outlines
        from vtensor.runtime.planning import simplified
        from vtensor.runtime.strategy_cache import StrategyCache

        self._written.append((known, sized.outline))
        network, applied = self._graphs.network(key, sized.graph, options), others.applied or ()
        told = options.soon if known.provisional else options
        simplify = partial(simplified, options=options, only=applied)
        traced = partial(Outlines(self._graphs.source).graph, key, simplify, applied)
        try:
            go_on()
            strategy = StrategyCache.payload(
                replace(network, key=known.key, options=told),
                sized.on(known.strategy),
                network.first if known.provisional else network.name,
            )
            blueprints.keep(network, known, strategy, sized, traced)
        except Stopped:  # who is stopped begins anew
            self._written.remove((known, sized.outline))
            raise
