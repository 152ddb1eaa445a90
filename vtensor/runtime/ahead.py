"""What is made beside runs, for sizes to come: strategies and blueprints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ptensor.stopping import go_on
from vtensor.runtime.better import Better
from vtensor.runtime.drawings import Drawings, attempt
from vtensor.runtime.keys import PlanKey
from vtensor.runtime.last_used import LastUsed, keeping
from vtensor.runtime.options import transferable
from vtensor.runtime.other_sizes import OtherSizes
from vtensor.runtime.plan import Plan
from vtensor.runtime.ready import ready_to_draw, ready_to_write
from vtensor.runtime.turns import Turn
from vtensor.runtime.written import Written

if TYPE_CHECKING:
    from vtensor.runtime.drawing_notes import DrawingNotes
    from vtensor.runtime.strategy_cache import Network

#: What is done one after the other; who wants a plan may stop each, which then begins anew.
Works = list[Callable[[], None]]

#: How often what is for other processes gives way to who wants a plan here. Where it did so each
#: time, a process of some seconds that had many sizes wrote nothing down.
GIVES_WAY = 2

#: Seconds for which what is for other processes may go on behind the end of this one, where making
#: a plan took so many at most: it takes up to twice as long. It is done once for a model.
LINGERS_S, LONG_S = 3.0, 1.0

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
        longest_s: seconds that making a plan took, at most: the first is made in full.
        drawings: the blueprints that are still to be drawn.
    """

    def __init__(
        self, others: OtherSizes, last: LastUsed, turn: Turn, keep: Callable[[Network], None]
    ) -> None:
        self._others, self._last, self._turn = others, last, turn
        self._graphs, self._workspace = others.graphs, others.graphs.workspace
        self.foreseen, self.longest_s = False, 0.0
        self.drawings = Drawings(self._workspace)
        self._written = Written(others, keep)
        self._works: list[Better[None]] = []
        self._closed = False
        #: Blueprints are on disk that serve the model.
        self._kept = False

    def close(self) -> list[Better[None]]:
        """Nobody wants it any more; what goes on for a while all the same, for other processes."""
        with keeping:
            self._closed = True
            works, self._works = self._works, []
        for work in works:
            work.stop()
        return [work for work in works if work.for_others]

    def was_made(self, plan: Plan) -> None:
        """See to it that what was chosen is written down, whether it runs or not."""
        if plan.writing is None:
            return
        if not (self._lingers_s and self._written.can_write):
            plan.written()
        elif (writing := plan.taken_writing()) is not None:
            self.write([writing])

    def has_run(self, plan: Plan) -> None:
        """See to what a plan that has run leaves: somebody waited for that run, which it would have
        slowed down.

        The blueprint of what was chosen for other sizes is drawn beside runs, or before the next
        plan but one. It is written down for other processes. If the cache has nothing of the model,
        the first plan is written down, too.
        """
        with keeping:
            drawing, plan.drawing = plan.drawing, None
        first = self._written.first(self._last) if plan.provisional else None
        if first is None or not (self._lingers_s and self._written.can_write):
            plan.written()  # it might be lost where it is left to others
        if drawing is None and first is None:
            return
        key, notes = self._last.key_of(plan), None
        if drawing is not None:
            notes = self._written.notes(key)
            self.drawings.add(partial(drawing, notes))
            self._beside(partial(self._in_turn, self.drawings.draw))
        works = [one for one in (plan.taken_writing(), first) if one is not None]
        self.write(works, [key] if key and drawing else [], notes)

    def write(
        self, works: Works, drawn: Sequence[PlanKey] = (), notes: DrawingNotes | None = None
    ) -> None:
        """Write down what is for other processes, once nothing is left to do for this one; for a
        moment also behind its end, unless it takes long.

        Args:
            works: write something down.
            drawn: of what may be drawn by then.
            notes: of that; they are then needed no longer.
        """
        if not self._written.can_write:
            return

        def write() -> None:
            ready_to_write()
            try:
                for work in works:
                    self._for_others(work)
                if drawn:
                    self._for_others(self.drawings.draw)
                for key in drawn:
                    self._for_others(partial(self._written.keep_drawn, key))
            finally:
                if notes is not None:
                    notes.forget()

        self._beside(write, reads=True, for_others=True, lingers_s=self._lingers_s)

    @property
    def _lingers_s(self) -> float:
        """Seconds for which what is for other processes may go on behind the end of this one."""
        return LINGERS_S if self.longest_s <= LONG_S else 0.0

    def foresee(self, key: PlanKey) -> None:
        """A plan is used again: once, be ready for other sizes, where there may be such."""
        self.foreseen = True
        options = self._graphs.options
        if options.deterministic or options.later or options.lock or not transferable(options):
            return
        known = {one.name for one in key.inputs if one.value is not None}
        source = self._graphs.source
        keys = [key.sized(one) for one in source.foreseen(key.shapes, known)]
        near = [key.sized(one) for one in source.near(key.shapes, known)]

        def draw() -> None:
            self._get_ready(partial(self._look, key))
            if not self._kept:
                self._draw(keys, near)
            self._workspace.make_room()

        if keys:
            self._beside(draw, reads=self._others.unread)

    def _draw(self, keys: Sequence[PlanKey], near: Sequence[PlanKey]) -> None:
        """Draw plans, and write down what was drawn.

        Args:
            keys: of plans that are foreseen, first of the sizes of a run.
            near: of sizes near those.
        """
        left, drawn, first = [*near], [*keys], keys[0]
        self.write([], drawn)
        self._get_ready(self._others.read)
        notes = self._written.notes(first)
        try:
            for one in keys:
                self._get_ready(partial(self._foresee, one, notes))
                self._for_others(partial(self._written.keep_drawn, one))
                for _ in range(NEAR if one is first else 0):
                    count = len(drawn)
                    self._get_ready(partial(self._foresee_near, left, drawn, notes))
                    if len(drawn) == count:
                        break
                    self._for_others(partial(self._written.keep_drawn, drawn[-1]))
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
        self,
        work: Callable[[], None],
        *,
        reads: bool = False,
        for_others: bool = False,
        lingers_s: float = 0.0,
    ) -> None:
        """Do it between runs, and a little beside them; what reads a model imports by itself.

        Args:
            work: does it.
            reads: it reads the model.
            for_others, lingers_s: as for ``Better``.
        """
        ready = None if reads else partial(ready_to_draw, self._graphs.source.reads_nodes)
        about: Any = {"for_others": for_others, "lingers_s": lingers_s}
        made = Better(work, "plans are made node by node", self.hurries, ready, **about)
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
        self._workspace.executor.planning(lambda: self._turn.ahead(work, times))

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
