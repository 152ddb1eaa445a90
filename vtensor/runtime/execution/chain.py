"""Runs in segments as one native call.

Values that one segment computes decide which segment follows, and by which plan. A run that Python
leads notes its course in a chain; later runs follow the chain as long as values decide the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from vtensor.runtime.execution.direct import DirectRequest
    from vtensor.runtime.execution.lanes import Lanes
    from vtensor.runtime.execution.request import LastRun

Array = np.ndarray[Any, Any]

#: Where a value comes from, as ``_replay.Chain`` takes it: (link, index of the link's output).
Source = tuple[int, int]

#: The most links and ends of a chain, and the most steps of the plans of its links, which it keeps
#: in memory.
MOST_LINKS, MOST_STEPS = 128, 1 << 14


class Part(Protocol):
    """The runner of a segment."""

    def note_run(self, last: LastRun) -> None:
        """Record a run of the segment in which Python took no part."""


class Owner(NamedTuple):
    """A segment that a link runs, its request, and the names of its outputs."""

    part: Part
    direct: DirectRequest
    names: Sequence[str]


#: Links that have run natively: number, owner and outputs of each.
Done = list[tuple[int, Owner, list[Array]]]


class Chain:
    """The courses of earlier runs of a model in segments, for the same wanted outputs.

    Args:
        inputs: the names of the model's inputs.
        lanes: the lanes of the session.
    """

    def __init__(self, inputs: Sequence[str], lanes: Lanes) -> None:
        from vtensor.runtime import _replay

        failures = _replay.StepFailed, _replay.Stopped, _replay.Circular, _replay.Busy, MemoryError
        self.inputs, self._lanes = inputs, lanes
        self.native = _replay.Chain(inputs, failures, np.ndarray)
        #: The number of steps of the plans of all links.
        self.steps = 0

    @property
    def full(self) -> bool:
        """Whether the chain may not grow."""
        return len(self.native) >= MOST_LINKS or self.steps >= MOST_STEPS

    def run(self, arrays: object) -> tuple[list[Array] | None, Done | None]:
        """Run segments as far as earlier runs have noted their course.

        Args:
            arrays: the inputs, by name.

        Returns:
            The outputs, or None if the end was not reached; the links that have run, or None if the
            run had to queue.
        """
        lanes, run = self._lanes, object()
        lane = lanes.idle if lanes.runs else lanes.every[0]
        if lane is None or type(arrays) is not dict:
            return None, None
        try:
            lanes.runs[run] = lane
            done, outputs = self.native.run(arrays, lane)
        finally:
            lanes.runs.pop(run, None)
        for _, owner, _ in done:
            owner.part.note_run(owner.direct.last_run)
        return outputs, done


class Course:
    """The course of a run in segments that Python leads, noted in a chain.

    Args:
        chain: the chain.
        done: the links that have run already; Python does not run these segments again.
    """

    def __init__(self, chain: Chain, done: Done) -> None:
        self._chain, self._done = chain, deque(done)
        self._at, self._depth = 0, 0
        #: The sources of arrays, by ``id``, with the arrays, so that these exist as long.
        self._sources: dict[int, tuple[Source, Array]] = {}
        #: The values that decide what follows the last link: their sources, whether their elements
        #: decide, or their types and shapes alone, and the arrays.
        self._asked: list[tuple[Source, bool, Array]] = []
        self._noted = True

    def begin(self, inputs: Mapping[str, Array]) -> None:
        """Give the arrays of the model's inputs, by name."""
        self._add(-1, (inputs[name] for name in self._chain.inputs))
        self._asked = [(source, False, array) for source, array in self._sources.values()]
        two_names_of_one = len(self._sources) < len(inputs)
        if two_names_of_one or not all(map(_is_plain, inputs.values())):
            self.stop()

    def stop(self) -> None:
        """Note nothing more: what follows has to be decided in Python."""
        self._noted = False
        self._sources, self._asked = {}, []
        self._done.clear()

    def asks(self, array: Array | None) -> None:
        """Note that a value decides what follows."""
        found = self._sources.get(id(array))
        if found is None or not _is_plain(found[1]):
            self.stop()
        else:
            self._asked.append((found[0], True, found[1]))

    def outputs_of(self, part: Part, names: Sequence[str]) -> list[Array] | None:
        """Return the outputs of a segment that has run natively; None if it has not."""
        if not self._done:
            return None
        number, owner, values = self._done.popleft()
        if owner.part is not part or owner.names != names:
            self.stop()
            return None
        self._goes_on(number, values)
        return values

    def ran(
        self,
        part: Part,
        direct: DirectRequest | None,
        names: Sequence[str],
        inputs: Mapping[str, Array],
        outputs: Sequence[Array],
    ) -> None:
        """Note that a segment has run.

        Args:
            part: the segment's runner.
            direct: its request as one native call; None if there is none.
            names: the names of its outputs.
            inputs: its inputs, by name.
            outputs: its outputs, in order.
        """
        for name, *_ in () if direct is None else direct.known:
            self.asks(inputs[name])
        found = [self._sources.get(id(array)) for array in inputs.values()]
        sources = [row[0] for row in found if row is not None]
        if not self._noted or direct is None or len(sources) < len(found) or self._chain.full:
            self.stop()
            return
        feeds, before = [*zip(inputs, sources, strict=True)], len(self._chain.native)
        owner = Owner(part, direct, [*names])
        number = self._chain.native.link(
            *self._place(), direct.requests, [*names], feeds, owner=owner
        )
        if len(self._chain.native) > before:
            self._chain.steps += direct.last_run[0].count
        self._goes_on(number, outputs)

    def ends(self, outputs: Sequence[tuple[Array, bool]]) -> None:
        """Note the outputs of the run, each with whether it was copied from the array given."""
        found = [(self._sources.get(id(array)), copied) for array, copied in outputs]
        ends = [(row[0], copied) for row, copied in found if row is not None]
        if self._noted and self._depth and len(ends) == len(found) and not self._chain.full:
            self._chain.native.end(*self._place(), ends)

    def _place(self) -> tuple[int, list[tuple[Source, bool]], list[Array]]:
        """Return the arguments ``after``, ``asked`` and ``seen`` of the native chain."""
        asked = [(source, elements) for source, elements, _ in self._asked]
        return self._at, asked, [array for *_, array in self._asked]

    def _goes_on(self, number: int, outputs: Iterable[Array]) -> None:
        self._at, self._asked = number, []
        self._add(self._depth, outputs)
        self._depth += 1

    def _add(self, link: int, arrays: Iterable[Array]) -> None:
        for index, array in enumerate(arrays):
            self._sources.setdefault(id(array), ((link, index), array))


def _is_plain(array: Array) -> bool:
    """Return whether a native chain can look at an array."""
    return type(array) is np.ndarray and array.flags.c_contiguous and array.dtype.isnative
