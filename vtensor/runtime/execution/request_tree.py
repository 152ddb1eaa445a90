"""Runs of a model in segments as one native call.

Values that one segment computes decide which segment follows, and by which plan. A run that Python
leads adds its path to a tree of requests; later runs follow the tree as long as values decide the
same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from vtensor.runtime.execution.direct import DirectRequest
    from vtensor.runtime.execution.lanes import Lanes
    from vtensor.runtime.execution.plan import Plan
    from vtensor.runtime.execution.request import Copies
    from vtensor.storage.inputs import Port

Array = np.ndarray[Any, Any]

#: Where a value comes from, as ``_replay.RequestTree`` takes it: (index of a request on the path,
#: index of its output).
Source = tuple[int, int]

#: The most requests and ends of a tree, and the most steps of their plans, which stay in memory.
MOST_REQUESTS, MOST_STEPS = 128, 1 << 14

#: The most sets of wanted outputs for which a session has trees.
MOST_TREES = 4


class Part(Protocol):
    """The runner of a segment."""

    def note_run(self, plan: Plan, copied: Copies) -> None:
        """Record a plan and the copies of its run as the last run."""


class PartRequest(NamedTuple):
    """A segment's request in a tree: the segment's runner, the request, the names of outputs."""

    part: Part
    direct: DirectRequest
    names: Sequence[str]


#: Requests that have run natively: the place in the tree, the request, and its outputs.
Done = list[tuple[int, PartRequest, list[Array]]]


class RequestTree:
    """The paths of earlier runs of a model in segments, for the same wanted outputs.

    Args:
        inputs: the model's inputs.
        lanes: the lanes of the session.
    """

    def __init__(self, inputs: Sequence[Port], lanes: Lanes) -> None:
        from vtensor.runtime import _replay

        failures = _replay.StepFailed, _replay.Stopped, _replay.Circular, _replay.Busy, MemoryError
        self.inputs, self._lanes = [port.name for port in inputs], lanes
        self.native = _replay.RequestTree(self.inputs, failures, np.ndarray)
        #: The number of steps of the plans of all requests.
        self.steps = 0

    @property
    def full(self) -> bool:
        """Whether the tree may not grow."""
        return len(self.native) >= MOST_REQUESTS or self.steps >= MOST_STEPS

    def run(self, arrays: object) -> tuple[list[Array] | None, Done | None]:
        """Run requests along the path of an earlier run, as far as values decide as they did then.

        Args:
            arrays: the inputs, by name.

        Returns:
            The outputs, or None if the run did not reach the end of the path; the requests that
            have run, or None if the run would have to queue.
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
        for _, request, _ in done:
            request.part.note_run(*request.direct.last_run)
        return outputs, done


class RunPath:
    """The path of a run that Python leads, which is added to a tree.

    Args:
        tree: the tree.
        done: the requests that have run natively; Python does not run them again.
    """

    def __init__(self, tree: RequestTree, done: Done) -> None:
        self._tree, self._done = tree, deque(done)
        self._place, self._length = 0, 0
        #: The sources of arrays by ``id``, with the arrays, whose ids are then not used again.
        self._sources: dict[int, tuple[Source, Array]] = {}
        #: The values that decide what follows the last request: the source, whether the elements
        #: decide or the type and shape alone, and the array.
        self._asked: list[tuple[Source, bool, Array]] = []
        self._added = True

    def begin(self, inputs: Mapping[str, Array]) -> None:
        """Add the arrays of the model's inputs, given by name."""
        self._add_values(-1, (inputs[name] for name in self._tree.inputs))
        self._asked = [(source, False, array) for source, array in self._sources.values()]
        two_names_of_one = len(self._sources) < len(inputs)
        if two_names_of_one or not all(map(_is_plain, inputs.values())):
            self.stop()

    def stop(self) -> None:
        """Add nothing more: Python has to decide what follows."""
        self._added = False
        self._sources, self._asked = {}, []
        self._done.clear()

    def decide_by(self, array: Array | None) -> None:
        """Record that a value decides which segment follows."""
        found = self._sources.get(id(array))
        if found is None or not _is_plain(found[1]):
            self.stop()
        else:
            self._asked.append((found[0], True, found[1]))

    def outputs_of(self, part: Part, names: Sequence[str]) -> list[Array] | None:
        """Return the outputs of a segment that has run natively; None if Python has to run it."""
        if not self._done:
            return None
        place, request, outputs = self._done.popleft()
        if request.part is not part or request.names != names:
            self.stop()
            return None
        self._move_to(place, outputs)
        return outputs

    def add(
        self,
        part: Part,
        direct: DirectRequest | None,
        names: Sequence[str],
        inputs: Mapping[str, Array],
        outputs: Sequence[Array],
    ) -> None:
        """Add a segment that has run.

        Args:
            part: the segment's runner.
            direct: the segment's request as one native call; None if there is none.
            names: the names of the outputs.
            inputs: the inputs, by name.
            outputs: the outputs, in order.
        """
        for name, *_ in () if direct is None else direct.known:
            self.decide_by(inputs[name])
        found = [self._sources.get(id(array)) for array in inputs.values()]
        sources = [row[0] for row in found if row is not None]
        if not self._added or direct is None or len(sources) < len(found) or self._tree.full:
            self.stop()
            return
        native, feeds = self._tree.native, [*zip(inputs, sources, strict=True)]
        request, before = PartRequest(part, direct, [*names]), len(native)
        place = native.add_request(*self._end(), direct.requests, [*names], feeds, request)
        if len(native) > before:
            self._tree.steps += direct.last_run[0].count
        self._move_to(place, outputs)

    def finish(self, outputs: Sequence[tuple[Array, bool]]) -> None:
        """Add the outputs of the run, each with True if the caller gets a copy of the array."""
        found = [(self._sources.get(id(array)), copied) for array, copied in outputs]
        ends = [(row[0], copied) for row, copied in found if row is not None]
        if self._added and self._length and len(ends) == len(found) and not self._tree.full:
            self._tree.native.add_end(*self._end(), ends)

    def _end(self) -> tuple[int, list[tuple[Source, bool]], list[Array]]:
        """Return the end of the path as the native tree's arguments ``after``, ``asked`` and
        ``seen``.
        """
        asked = [(source, elements) for source, elements, _ in self._asked]
        return self._place, asked, [array for *_, array in self._asked]

    def _move_to(self, place: int, outputs: Iterable[Array]) -> None:
        self._place, self._asked = place, []
        self._add_values(self._length, outputs)
        self._length += 1

    def _add_values(self, request: int, arrays: Iterable[Array]) -> None:
        for index, array in enumerate(arrays):
            self._sources.setdefault(id(array), ((request, index), array))


class RequestTrees:
    """The request trees of a model in segments, one for each of the last sets of wanted outputs."""

    def __init__(self) -> None:
        self._trees: dict[tuple[str, ...] | None, RequestTree] = {}

    def of(
        self, outputs: Sequence[str] | None, inputs: Sequence[Port], lanes: Lanes
    ) -> RequestTree | None:
        """Return the tree for wanted outputs; None if ``outputs`` is no list or tuple of names.

        Args:
            outputs: the names of the wanted outputs; None is all.
            inputs, lanes: the arguments of ``RequestTree``.
        """
        key = None
        if outputs is not None:
            if not isinstance(outputs, list | tuple) or not all(type(n) is str for n in outputs):
                return None
            key = tuple(outputs)
        tree = self._trees.get(key)
        if tree is None or tree.full:
            if len(self._trees) >= MOST_TREES:
                self._trees = {}
            tree = self._trees[key] = RequestTree(inputs, lanes)
        return tree


def _is_plain(array: Array) -> bool:
    """Return whether the native tree can compare an array."""
    return type(array) is np.ndarray and array.flags.c_contiguous and array.dtype.isnative
