"""What a process writes down for others: its first plan as it runs, and what it drew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ptensor.stopping import Stopped, go_on
from vtensor.runtime.keys import PlanKey
from vtensor.runtime.last_used import LastUsed, MadeOf
from vtensor.runtime.options import kept_in
from vtensor.runtime.other_sizes import OtherSizes
from vtensor.runtime.programs import is_kept

if TYPE_CHECKING:
    from vtensor.runtime.drawing_notes import DrawingNotes
    from vtensor.runtime.outline import Outline
    from vtensor.runtime.strategy_cache import Network
    from vtensor.runtime.taken_over import Known


class Written:
    """The entries of a session's model that it is to write. Used by one thread at a time, but for
    ``first``.

    Args:
        others: what is known for other sizes.
        keep: writes down a plan as it runs, by what it is made of.
    """

    def __init__(self, others: OtherSizes, keep: Callable[[Network], None]) -> None:
        self._others, self._graphs, self._keep = others, others.graphs, keep
        self._tried = False  # to write down the first plan
        #: Strategies whose blueprints were written down, or could not be; each with its outline.
        self._drawn: list[tuple[Known, Outline]] = []

    @property
    def can_write(self) -> bool:
        """There is a cache, and the model is one of which it holds anything."""
        source = self._graphs.source
        known = source.surface is not None or source.may_keep(frozenset())
        return known and kept_in(self._graphs.options) is not None

    def notes(self, key: PlanKey | None) -> DrawingNotes | None:
        """What is to note how something is drawn, where that can be written down."""
        blueprints = self._others.blueprints
        if key is None or blueprints is None:
            return None
        return blueprints.notes(key, self._graphs.entering(key))

    def first(self, last: LastUsed) -> Callable[[], None] | None:
        """Writes down what others know the model by, and the first plan as it runs, unless that is
        one of other sizes; None where there is nothing to write, or it was begun before.

        Args:
            last: the plans that are kept.
        """
        source = self._graphs.source
        if self._tried or source.surface is not None or not source.may_keep(frozenset()):
            return None
        made = last.made_of()  # a session that is closed has no plans
        if made is None or not is_kept(made.key, self._graphs.entering(made.key)):
            return None
        self._tried = True
        return partial(self._keep_first, made)

    def _keep_first(self, made: MadeOf) -> None:
        """As ``first`` says, unless somebody has done so meanwhile, or is to."""
        source = self._graphs.source
        if source.surface is not None or self._others.strategies.measured(made.key):
            return  # who measured a plan writes that one
        network = made.network()
        if made.own:
            self._keep(network)
        elif network.looked_at is not None:
            source.keep_surface(network.looked_at)

    def keep_drawn(self, key: PlanKey) -> None:
        """Write down what was drawn for a plan."""
        options, others = self._graphs.entering(key), self._others
        if (blueprints := others.blueprints) is None or self._graphs.source.surface is None:
            return
        if (sized := others.sized(key, options, traces=False)) is None:
            return
        known = others.strategies.drawn_of(key, sized.outline)
        if known is None or (known, sized.outline) in self._drawn:
            return
        from vtensor.runtime.outlines import Outlines
        from vtensor.runtime.planning import simplified
        from vtensor.runtime.strategy_cache import StrategyCache

        self._drawn.append((known, sized.outline))
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
            self._drawn.remove((known, sized.outline))
            raise
