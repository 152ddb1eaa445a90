"""The plans of a model in the cache: symbolic plans with their choices, and packed small weights.

An entry is named after the fingerprint of all that its plan depends on: the model without its large
arrays (their values decide no choice), the session's options, libraries and processor. An entry
holds no code and no address. Everything in it is checked when it is read; in place of a damaged or
foreign entry, the planner makes the plan from scratch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from libdesc.plugins import no_plugins
from ptensor.background_work import checkpoint
from vtensor.isa import isa_cap
from vtensor.language.process.imported import blake2b, logger
from vtensor.language.symbolic.rows import REFUSALS, NotSaved
from vtensor.runtime.execution.processors import processor
from vtensor.runtime.planning.choice import MOST_CHOICES, Choice
from vtensor.runtime.planning.keys import PlanKey
from vtensor.runtime.planning.options import Options, cache_of
from vtensor.runtime.planning.source import Source
from vtensor.runtime.recording.workspace import Workspace
from vtensor.storage.entries import Entries

if TYPE_CHECKING:
    from vtensor.frontends.files.fingerprint import ModelFingerprint

_log = logger(__name__)


class SavedPlans:
    """The cached plans of a session's model.

    Args:
        source: the model.
        entries: the cache.
        workspace: the arena, weights and executors that plans share.
    """

    def __init__(self, source: Source, entries: Entries, workspace: Workspace) -> None:
        self._source, self._entries, self._workspace = source, entries, workspace

    @classmethod
    def of(cls, source: Source, options: Options, workspace: Workspace) -> SavedPlans | None:
        """Return the saved plans of a session; None if the session caches no plans."""
        entries = cache_of(options)
        return None if entries is None else cls(source, entries, workspace)

    def read_own(self, key: PlanKey, options: Options) -> Iterator[Choice]:
        """Yield the choice that is saved for exactly the sizes of ``key``; yield nothing if none is
        saved.

        Args:
            key: input shapes, element types and layouts.
            options: the session's options.
        """
        return (choice for _, choice in self._read(key, options, 0, exact=True))

    def read(self, key: PlanKey, options: Options, begin: int) -> Iterator[tuple[int, Choice]]:
        """Yield the saved choices that may serve the sizes of ``key`` and other sizes.

        An entry is read only when its choice is requested.

        Args:
            key: the key of the inputs; the choices are for its ranks, layouts and deciding values.
            options: the session's options.
            begin: the number of such entries to skip, because they were read before.

        Yields:
            A pair (count, choice): the number of entries read so far, and the choice of the last
            one.
        """
        return self._read(key, options, begin, exact=False)

    def _read(
        self, key: PlanKey, options: Options, begin: int, *, exact: bool
    ) -> Iterator[tuple[int, Choice]]:
        model_fingerprint = self._source.fingerprint
        if model_fingerprint is None or not _is_cacheable(options):
            return
        from vtensor.runtime.cache.codec import decoded

        names = self._names(model_fingerprint, key, options, exact=exact)
        for number, name in enumerate(names[begin:], begin + 1):
            payload = self._entries.read(name)
            if payload is None:
                return
            arguments = key, options, model_fingerprint, self._workspace
            try:
                choice = decoded(name, payload, self._entries.read, *arguments)
            except REFUSALS as why:  # the entry may be damaged in any way
                _log.debug("%s is not taken: %s", name, why)
            else:
                choice.exact = exact and not options.deterministic
                yield number, choice

    def write(self, choice: Choice, options: Options) -> None:
        """Save a choice and its plan, unless the cache holds the same choice.

        A choice of a deterministic session is saved under the exact sizes that it was made for. It
        serves no other sizes, so it must not take the place of a choice that does.

        Args:
            choice: a choice of this session.
            options: the options that the choice was made with.
        """
        if choice.saved or not _is_cacheable(options):
            return
        model_fingerprint = self._source.save_fingerprint(choice.observed)
        if model_fingerprint is None:
            return
        from vtensor.runtime.cache.codec import encoded, inputs_data, payload_data

        inputs = inputs_data(choice.key)
        try:
            alone = choice.exact or options.deterministic
            for name in self._names(model_fingerprint, choice.key, options, exact=alone):
                checkpoint()
                payload = self._entries.read(name)
                head = {} if payload is None else payload_data(payload)
                weights = head.get("weights")
                whole = weights is None or self._entries.read(weights) is not None
                refined = head.get("provisional") is True and not choice.provisional
                if whole and not refined and head.get("name") == name:
                    if head.get("inputs") == inputs:
                        break  # another process made the same choice
                    continue  # a choice for other sizes stays
                entry, small = encoded(name, choice, self._source, options)
                for other, blob in small.items():
                    if self._entries.read(other) is None:
                        self._entries.write(other, blob)
                self._entries.write(name, entry)
                break
        except NotSaved as why:
            _log.debug("%s: its choice is not saved: %s", choice.key.shapes, why)
        choice.saved = True  # set last: a save that is stopped is repeated

    def _names(
        self, model_fingerprint: ModelFingerprint, key: PlanKey, options: Options, *, exact: bool
    ) -> list[str]:
        """Return the names of the entries that may hold a choice for ``key``, in the order in which
        they are read.

        Args:
            model_fingerprint, options: the model and the session's options.
            key: the key that the entries are for.
            exact: True for the entry of exactly these sizes; False for the entries of choices that
                may serve other sizes.
        """
        scope = key if exact else (key.kind, key.closed_values)
        digest = entry_digest(model_fingerprint, scope, options, self._workspace.executor.threads)
        return [f"plan-{digest}-{number}" for number in range(1 if exact else MOST_CHOICES)]


def entry_digest(model: ModelFingerprint, scope: object, options: Options, threads: int) -> str:
    """Return the digest, in hex, of everything that the choice in an entry depends on.

    Args:
        model: the fingerprint of the model.
        scope: the inputs for which the choice holds. For a choice that serves no other sizes: its
            key. For any other choice: the kind of its key, and the values that decide shapes.
        options, threads: the session's options and number of kernel threads.
    """
    settings = options.settings
    facts = (
        *(model.digest, model.code, processor(), isa_cap(), threads, scope),
        *(options.passes, options.preferences, options.tolerance),
        *(settings.objective, settings.solver, settings.clock is None, settings.speeds is None),
        sorted(options.delivery.items()),
    )
    return blake2b(repr(facts).encode(), digest_size=16).hexdigest()


def _is_cacheable(options: Options) -> bool:
    """Return whether plans are cached: not with plug-ins, a progress callback or a lock file."""
    return no_plugins() and not (options.progress or options.lock)
