"""The blueprints of a session on disk: written down once they are drawn, read where they serve."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from ptensor.stopping import go_on
from vtensor.errors import BudgetError
from vtensor.language.imported import logger
from vtensor.language.interrupts import MALFORMED, pass_signals
from vtensor.language.records import replace
from vtensor.language.trace import NotSaved
from vtensor.runtime.kept_blueprints import KeptBlueprint, KeptBlueprints, blueprint_names
from vtensor.runtime.programs import KeptPlan, check_ends, is_kept

if TYPE_CHECKING:
    from vtensor.runtime.blueprint import Blueprint
    from vtensor.runtime.drawing_notes import DrawingNotes
    from vtensor.runtime.entries import Entries
    from vtensor.runtime.keys import PlanKey
    from vtensor.runtime.options import Options
    from vtensor.runtime.outline import Sized
    from vtensor.runtime.plan import Plan
    from vtensor.runtime.source import Source
    from vtensor.runtime.strategy_cache import Network
    from vtensor.runtime.taken_over import Known
    from vtensor.runtime.workspace import Workspace

_log = logger(__name__)


class BlueprintEntries:
    """The blueprints of a session's model.

    Used by one thread at a time.

    Args:
        source: the model.
        entries: the cache.
        workspace: what plans share.
    """

    def __init__(self, source: Source, entries: Entries, workspace: Workspace) -> None:
        self._source, self._entries, self._workspace = source, entries, workspace
        self._known: dict[str, KeptBlueprints] = {}

    def of(
        self, key: PlanKey, options: Options, kept: KeptPlan | None, provisional: bool
    ) -> KeptBlueprints | tuple[KeptBlueprint, ...]:
        """Those that may serve a key, in order.

        Args:
            key, options: what a plan is for.
            kept: a plan that was taken as it was kept: what it has packed is theirs, too.
            provisional: those of provisional choices.
        """
        names = self._names(key, options, provisional)
        if not names or self._source.surface is None:
            return ()
        [first, *_] = names
        if first not in self._known:
            others = {} if kept is None else kept.weights.packed
            about = self._source.surface, self._workspace, others, kept and kept.packed
            self._known[first] = KeptBlueprints(self._entries, names, *about)
        return self._known[first]

    def plan(
        self,
        key: PlanKey,
        options: Options,
        kept: KeptPlan | None,
        full: Callable[[KeptBlueprint], Plan],
    ) -> tuple[Plan, KeptBlueprint] | None:
        """The plan of one of them, and which; None where none serves. Those of provisional choices
        come last, for options that take such.

        Args:
            key, options, kept: as for ``of``.
            full: makes the same plan node by node.
        """
        given = self._source.open_sizes(key.shapes, key.known)
        if not given:
            return None
        measured = () if kept is not None and kept.provisional else (False,)
        kinds = (*measured, True) if options.first is not None else measured
        for one in chain.from_iterable(self.of(key, options, kept, kind) for kind in kinds):
            try:
                if one.fails or not (one.made or one.serves(given)):
                    continue
                one.fails = True  # until it is made; sizes that it refuses say nothing of others
                one.make()
                one.fails = False
                plan = one.plan(given, self._workspace, partial(full, one), {})
                if plan is not None:
                    check_ends(plan, key, self._source.inputs, self._source.outputs)
            except BudgetError:  # as whoever makes the plan
                raise
            except MALFORMED as why:  # of any kind, of whatever an entry says
                pass_signals(why)
                _log.debug("%s: what is kept for other sizes is not taken: %s", key.shapes, why)
                continue
            if plan is not None:
                plan.taken_from = one.shapes
                plan.provisional = one.provisional
                plan.origin = replace(plan.origin, cached=True)
                return plan, one
        return None

    def forget(self) -> None:
        """Let go of what was read, and of the weights with it."""
        self._known = {}

    def notes(self, key: PlanKey, options: Options) -> DrawingNotes | None:
        """What is to note drawings for a key, so that they can be written down."""
        if not self._names(key, options, provisional=False):
            return None
        from vtensor.runtime.drawing_notes import DrawingNotes

        return DrawingNotes()

    def keep(
        self,
        network: Network,
        known: Known,
        strategy: bytes,
        sized: Sized,
        traced: Callable[[], Sized | None],
    ) -> None:
        """Write down what was drawn of a strategy, if there is room.

        Where nobody has noted that, it is traced once more, to see which arrays somebody looks at,
        and drawn once more, while somebody notes what is called.

        Args:
            network: what it was drawn for.
            known: the strategy.
            strategy: as an entry of its own says it.
            sized: has what was drawn.
            traced: traces the graph.
        """
        key, surface = network.key, self._source.surface
        name = self._free(key, network.options, known, strategy)
        if name is None or surface is None:
            return
        from vtensor.runtime.blueprint_notes import payload
        from vtensor.runtime.drawing_notes import DrawingNotes

        again = DrawingNotes()
        try:
            blueprint: Blueprint | None = sized.outline.drawn[known.strategy]
            notes = blueprint.notes if blueprint is not None else None
            if notes is None or notes.over:
                if (made := traced()) is None:
                    return
                sized, notes, blueprint = made, again, None
            if more := sized.outline.looked_at - surface.looked_at:
                raise NotSaved(f"it looks at {len(more)} more arrays")
            if blueprint is None:
                blueprint = self._drawn(sized, known, network.options, notes)
            go_on()
            large = {id(one.whole): array for array, one in self._source.large.items()}
            constants, applied = sized.graph.constants, network.graph.applied
            about = large, notes.trace, applied, strategy, known.key.shapes
            told = payload(name, blueprint, constants, *about)
        except NotSaved as why:
            _log.debug("%s: %s", name, why)
        else:
            self._entries.write(name, told)
        finally:
            again.forget()

    def _free(self, key: PlanKey, options: Options, known: Known, strategy: bytes) -> str | None:
        """The name of an entry that is still to be written; None where there is no room, or another
        process has drawn the same.
        """
        surface, given = self._source.surface, self._source.open_sizes(key.shapes, key.known)
        for name in self._names(key, options, known.provisional):
            found = self._entries.read(name)
            if found is None or surface is None:
                return name
            try:
                one = KeptBlueprint(name, found, surface, self._workspace, {})
                if one.chosen == strategy and one.serves(given):
                    return None
            except MALFORMED as why:  # of any kind, of whatever an entry says
                pass_signals(why)
                _log.debug("%s: what is kept is not taken: %s", name, why)
        return None

    def _drawn(
        self, sized: Sized, known: Known, options: Options, notes: DrawingNotes
    ) -> Blueprint:
        """A strategy drawn, and noted.

        Raises:
            Exception: of any kind, where it cannot be.
        """
        from vtensor.runtime.blueprint import Blueprint
        from vtensor.runtime.planning import sound

        go_on()
        lowered, proof = sized.on(known.strategy), sized.proof(known.strategy)
        sound(lowered, sized.graph, options, self._workspace, proof)
        go_on()
        return Blueprint(sized, known.strategy, self._workspace, notes)

    def _names(self, key: PlanKey, options: Options, provisional: bool) -> list[str]:
        surface, threads = self._source.surface, self._workspace.executor.threads
        if surface is None or not is_kept(key, options):
            return []
        return blueprint_names(surface, key, options, threads, provisional)
