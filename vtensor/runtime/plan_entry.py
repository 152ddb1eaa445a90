"""The plan of one key as the cache has it, or is to have it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from libdesc.native_trace import NativeTrace
from libdesc.tracing import tracing
from vtensor.language.imported import logger
from vtensor.language.interrupts import MALFORMED, pass_signals
from vtensor.language.records import replace
from vtensor.language.trace import NotSaved
from vtensor.runtime.programs import FIRST, check_ends, is_kept, program_name, read_program

if TYPE_CHECKING:
    from vtensor.frontends.surface import Surface
    from vtensor.runtime.entries import Entries
    from vtensor.runtime.keys import PlanKey
    from vtensor.runtime.options import Options
    from vtensor.runtime.plan import Plan
    from vtensor.runtime.source import Source
    from vtensor.runtime.strategy_cache import Found, Network
    from vtensor.runtime.workspace import Workspace

_log = logger(__name__)


class PlanEntry:
    """The plan of one key.

    Args:
        source, key, options, workspace: what the plan is made of.
        entries: the cache; None where nothing of this session is kept.
    """

    def __init__(
        self,
        source: Source,
        key: PlanKey,
        options: Options,
        workspace: Workspace,
        entries: Entries | None,
    ) -> None:
        self._source, self._key, self._options = source, key, options
        self._workspace, self._entries = workspace, entries
        self._looks = entries is not None and is_kept(key, options)
        self._named: tuple[Surface | None, str] = None, ""

    def _name(self, provisional: bool) -> str:
        surface = self._source.surface
        assert surface is not None, "only of a known model plans are kept"
        if surface is not self._named[0]:  # planning may find out more of the model
            threads = self._workspace.executor.threads
            self._named = surface, program_name(surface, self._key, self._options, threads)
        name = self._named[1]
        return f"{FIRST}{name}" if provisional else name

    def plan(self, full: Callable[[bytes], Plan]) -> Plan | None:
        """The plan as it was kept; None where none was, or it does not hold here.

        Where the session takes such, it may be a provisional one.

        Args:
            full: makes the same plan node by node, of what was chosen.
        """
        plan = self._kept(False, full)
        if plan is None and self._options.first is not None:
            plan = self._kept(True, full)
        return plan

    def _kept(self, provisional: bool, full: Callable[[bytes], Plan]) -> Plan | None:
        surface = self._source.surface
        if not self._looks or surface is None or self._entries is None:
            return None
        name = self._name(provisional)
        program = read_program(self._entries, name, surface, self._workspace)
        if program is None:
            return None
        self._looks = not program.hopeless
        try:
            plan = program.plan(full) if self._looks else None
            if plan is not None:
                check_ends(plan, self._key, self._source.inputs, self._source.outputs)
        except MemoryError:
            raise
        except MALFORMED as why:  # of any kind, of whatever an entry says
            pass_signals(why)
            _log.debug("%s: what is kept is not taken: %s", name, why)
            return None
        if plan is not None:
            plan.provisional = provisional
            plan.origin = replace(plan.origin, cached=True)
        return plan

    def can_note(self, network: Network) -> bool:
        """Whether a plan can be kept as it runs, if it is made now."""
        first = not len(self._workspace.recipes)  # of earlier steps nobody has noted anything
        return self._looks and first and self._source.may_keep(network.looked_at)

    def noted(self, network: Network, find: Callable[[], Found | None]) -> Found | None:
        """The plan that a strategy on disk gives, which is kept as it runs, where it can be.

        Args:
            network: what it is made of.
            find: makes it.
        """
        if not self.can_note(network):
            return find()
        trace = NativeTrace()
        try:
            return self._noted(network, find, trace)
        except MemoryError:
            raise
        except MALFORMED as why:  # whatever is not for natives that are noted
            pass_signals(why)
            _log.debug("%s: %s", network.name, why)
            return find()
        finally:
            trace.forget()

    def _noted(
        self, network: Network, find: Callable[[], Found | None], trace: NativeTrace
    ) -> Found | None:
        """The same, written down if it is found."""
        with tracing(trace):
            found = find()
        assert self._entries is not None, "else nobody looks"
        looked_at = network.looked_at
        assert looked_at is not None, "else no plan is noted"
        if found is not None and self._source.keep_surface(looked_at) is not None:
            first, measured = found.plan.provisional, self._entries.read(network.name)
            name, chosen = self._name(first), self._entries.read(network.first)
            if not first:
                chosen = measured
            if not first or measured is None:  # else another process has a better one by now
                payload = self._payload(name, network, found, chosen, trace)
                self._entries.write(name, payload)
        return found

    def _payload(
        self,
        name: str,
        network: Network,
        found: Found,
        strategy: bytes | None,
        trace: NativeTrace,
    ) -> bytes:
        from vtensor.runtime.program_notes import Notes

        plan, rows = found.plan, self._workspace.recipes.last
        large = {id(one.whole): name for name, one in self._source.large.items()}
        graph = network.graph
        notes = Notes(plan, graph.constants, large, rows, trace, graph.applied)
        try:
            notes.check()
            return notes.payload(name, strategy or b"")
        except NotSaved as why:  # nor is it tried again
            _log.debug("%s: %s", name, why)
            return json.dumps({"name": name}).encode()
