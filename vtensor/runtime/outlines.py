"""The outlines of a session's network, and which of them serves which sizes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping

from ptensor.stopping import go_on
from vtensor.language.graph import Graph
from vtensor.language.imported import logger
from vtensor.language.interrupts import MALFORMED, pass_signals
from vtensor.language.trace import Trace
from vtensor.runtime.feeds import Array
from vtensor.runtime.keys import PlanKey
from vtensor.runtime.outline import Outline, Sized
from vtensor.runtime.source import Source

#: Outlines that are kept for inputs of one kind, the last used ones: each serves a range of sizes.
KEPT = 4

#: Kinds of inputs of which there are outlines.
KINDS = 8

#: How often inputs of a kind may have none, until none is looked for: sizes may be impossible.
TRIES = 3

_log = logger(__name__)


class Outlines:
    """Makes the simplified graph of a network for each choice of its open sizes.

    Used by one thread at a time.

    Args:
        source: what graphs are made from.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._kept: dict[Hashable, list[Outline]] = {}  # the last used one is last
        self._failed: dict[Hashable, int] = {}
        self._applied: Collection[tuple[str, str]] = frozenset()

    def graph(
        self,
        key: PlanKey,
        simplified: Callable[[Graph], Graph],
        applied: Collection[tuple[str, str]],
        traces: bool = True,
    ) -> Sized | None:
        """The simplified graph for these inputs; None where it has to be made otherwise.

        Args:
            key: what it is for; there was a graph before for other sizes.
            simplified: simplifies a graph.
            applied: what that depends on: where rules are looked for.
            traces: an outline is made where there is none for these sizes.
        """
        if applied != self._applied:
            self._kept.clear()
            self._applied = frozenset(applied)
        known, given, kind = self._place(key)
        if not given or self._failed.get(kind, 0) >= TRIES:
            return None
        kept = self._kept[kind] = self._kept.pop(kind, [])
        if len(self._kept) > KINDS:
            del self._kept[next(iter(self._kept))]
        for outline in kept:
            if (graph := outline.graph(given)) is not None:
                kept.remove(outline)
                kept.insert(0, outline)
                return Sized(graph, outline, given)
        if not traces:
            return None
        made = self._traced(key, known, simplified)
        go_on()
        graph = made.graph(given) if made is not None else None
        if made is None or graph is None:
            if kind in self._failed or len(self._failed) < KINDS:
                self._failed[kind] = self._failed.get(kind, 0) + 1
            return None
        kept.insert(0, made)
        del kept[KEPT:]
        return Sized(graph, made, given)

    def of(self, key: PlanKey) -> tuple[list[int], list[Outline]]:
        """The open sizes of these inputs, and the outlines for such."""
        _, given, kind = self._place(key)
        return given, self._kept.get(kind, [])

    def _place(self, key: PlanKey) -> tuple[Mapping[str, Array], list[int], Hashable]:
        """The inputs whose values decide shapes, the open sizes, and what outlines are kept by."""
        known = key.known
        values = tuple((one.name, one.value) for one in key.inputs if one.value is not None)
        return known, self._source.open_sizes(key.shapes, known), (key.kind, values)

    def _traced(
        self,
        key: PlanKey,
        known: Mapping[str, Array],
        simplified: Callable[[Graph], Graph],
    ) -> Outline | None:
        trace = Trace()
        try:
            with self._source.looking() as looked_at:
                graph = self._source.traced(key.shapes, known, key.inner, trace)
                made = None if graph is None else Outline(simplified(graph), trace)
        except MALFORMED as why:  # of any kind: sizes are no numbers here, which few expect
            pass_signals(why)
            _log.debug("the sizes of %s are not traced: %s", key.shapes, why)
            return None
        if made is not None:
            made.looked_at = looked_at
        return made
