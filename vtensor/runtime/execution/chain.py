"""Runs in segments as one native call.

Values that one segment computes decide which segment follows, and by which plan. A run that Python
leads notes its course in a chain; later runs follow the chain as long as values decide the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from vtensor.runtime.execution.direct import DirectRequest
    from vtensor.runtime.execution.lanes import Lanes
    from vtensor.runtime.execution.request import LastRun

Array = np.ndarray[Any, Any]

#: Where a value comes from, as ``_replay.Chain`` takes it: (link, index of the link's output).
Source = tuple[int, int]

#: Links that have run natively, each with its outputs.
Done = list[tuple[int, list[Array]]]

#: The most links and ends of a chain. Each link keeps a plan in memory.
MOST_LINKS = 128


class Part(Protocol):
    """The runner of a segment."""

    def note_run(self, last: LastRun) -> None:
        """Record a run of the segment in which Python took no part."""


class Chain:
    """The courses of earlier runs of a model in segments, for the same wanted outputs.

    Args:
        outputs: the names of the wanted outputs; None is all.
        inputs: the names of the model's inputs.
        lanes: the lanes of the session.
    """

    def __init__(self, outputs: Sequence[str] | None, inputs: Sequence[str], lanes: Lanes) -> None:
        from vtensor.runtime import _replay

        failures = _replay.StepFailed, _replay.Stopped, _replay.Circular, _replay.Busy, MemoryError
        self.outputs, self.inputs, self._lanes = outputs, inputs, lanes
        self.native = _replay.Chain(inputs, failures)
        #: The segment of each link, its request, and the names of its outputs.
        self.links: dict[int, tuple[Part, DirectRequest, Sequence[str]]] = {}

    @property
    def full(self) -> bool:
        """Whether the chain may not grow."""
        return len(self.native) >= MOST_LINKS

    def run(self, arrays: object) -> tuple[list[Array] | None, Done]:
        """Run segments as far as earlier runs have noted their course.

        Args:
            arrays: the inputs, by name.

        Returns:
            The outputs, or None if the end was not reached; the links that have run.
        """
        lanes, run = self._lanes, object()
        lane = lanes.idle if lanes.runs else lanes.every[0]
        if lane is None or type(arrays) is not dict:
            return None, []
        try:
            lanes.runs[run] = lane
            numbers, values, outputs = self.native.run(arrays, lane)
        finally:
            lanes.runs.pop(run, None)
        for number in numbers:
            part, direct, _ = self.links[number]
            part.note_run(direct.last_run)
        return outputs, [*zip(numbers, values, strict=True)]

    def last_run(self, done: Done) -> LastRun:
        """Return the last run of the last of some links."""
        return self.links[done[-1][0]][1].last_run


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
        if len(self._sources) < len(inputs):  # two names have one array
            self.stop()
        self._asked = [(source, False, array) for source, array in self._sources.values()]

    def stop(self) -> None:
        """Note nothing more: what follows has to be decided in Python."""
        self._noted = False
        self._sources, self._asked = {}, []
        self._done.clear()

    def asks(self, array: Array | None) -> None:
        """Note that a value decides which segment follows."""
        found = self._sources.get(id(array))
        if found is None or not found[1].flags.c_contiguous:
            self.stop()
        else:
            self._asked.append((found[0], True, found[1]))

    def outputs_of(self, part: Part, names: Sequence[str]) -> list[Array] | None:
        """Return the outputs of a segment that has run natively; None if it has not."""
        if not self._done:
            return None
        number, values = self._done.popleft()
        if self._chain.links[number][::2] != (part, names):
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
        feeds = [*zip(inputs, sources, strict=True)]
        number = self._chain.native.link(*self._place(), direct.requests, [*names], feeds)
        self._chain.links[number] = part, direct, names
        self._goes_on(number, outputs)

    def ends(self, outputs: Sequence[tuple[Array, bool]]) -> None:
        """Note the outputs of the run, each with whether it was copied from the array given."""
        found = [(self._sources.get(id(array)), copied) for array, copied in outputs]
        ends = [(row[0], copied) for row, copied in found if row is not None]
        if self._noted and len(ends) == len(found) and not self._chain.full:
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
