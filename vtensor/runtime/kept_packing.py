"""Large arrays of a model, packed as an entry of the cache says: by two threads, where there are
two, each an array of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from optimizer.computed import Made, Taken, cut, multiplied
from ptensor.buffer import Buffer
from ptensor.layout import Layout
from ptensor.pages import passing
from vtensor.frontends.open_file import OpenFile, Stretch
from vtensor.language.dtype import exponent
from vtensor.runtime.executor import Executor
from vtensor.runtime.unread import Unread
from vtensor.runtime.weights import LARGE, clear_subnormals, may_be_subnormal

if TYPE_CHECKING:
    from optimizer.originals import Original, Step

Array = np.ndarray[Any, Any]

#: The kinds of slots of a step that packs a weight, beside scratch, which is its bytes.
SOURCE, TARGET = "source", "target"

#: The access that a packing step has to each kind of slot.
_ACCESS: Mapping[str | int, str] = {SOURCE: "read", TARGET: "write"}


class KeptPacking:
    """Packs arrays, one after the other; ``finish`` waits for the last.

    Args:
        original: returns the large array of a name, changed by steps.
        blob: bytes that the entry speaks of.
        natives, alone: steps, for all threads and for one.
        max_bytes: what scratch may take.
    """

    def __init__(
        self,
        original: Callable[[str, list[Step]], Original],
        blob: Array,
        natives: Sequence[Any],
        alone: Sequence[Any],
        max_bytes: int,
    ) -> None:
        from vtensor.runtime import _replay

        self._original, self._blob, self._max_bytes = original, blob, max_bytes
        self._natives, self._alone = natives, alone
        self._aside = _replay.Aside() if _replay.threads() > 1 else None
        self._files = set[OpenFile]()  # of which something is read meanwhile
        self._folded: list[tuple[str, Array, str]] = []  # what was multiplied meanwhile
        self._large: Callable[[], None] | None = None  # packs what is being read

    def close(self) -> None:
        """Nothing is packed any more: where something failed, no thread and no memory stays."""
        self._aside = self._large = None

    def pack(
        self,
        room: Array,
        name: str,
        steps: list[Step],
        begin: int,  # noqa: ARG002
        nbytes: int,
        changes: list[list[Any]],
        kind: list[Any],
        factor: bool,
        native: int | None,
        slots: list[Any],
    ) -> None:
        """Read an array, and have it in memory as a step wants it; arguments as the entry has them.

        Raises:
            Exception: of any kind, where it is none here.
        """
        from vtensor.runtime import _replay

        given = self._original(name, steps)
        made = [_made(self._blob, one) for one in changes]
        layout = Layout(kind[2])
        if native is not None:
            if sorted(one for one in slots if isinstance(one, str)) != [SOURCE, TARGET]:
                raise ValueError(f"{name} is packed from and to something else")
            step = (self._natives if nbytes >= LARGE else self._alone)[native]
            access = [row[2] for row in _replay.describe(step)["slots"]]
            if access != [_ACCESS.get(one, "scratch") for one in slots]:
                raise ValueError(f"{name} is packed by a step with other slots")
            if sum(one for one in slots if isinstance(one, int)) > self._max_bytes:
                raise ValueError("so much scratch is none")
        several = nbytes >= LARGE

        def run(source: Array) -> None:
            """Pack it here."""
            for one in made:
                source = one.function(source)
            if any(one.factor is not None for one in made):
                _see_finite(name, source, kind[0])
            source = source.reshape(-1).view(np.uint8)
            if native is None:
                room[:] = source
                return
            memory = {SOURCE: source, TARGET: room}
            with _threads(several):
                own = [_slot(memory, one) for one in slots]
                Executor.run_step((self._natives if several else self._alone)[native], own)
            if factor:
                clear_subnormals(kind[0], layout, room)

        unread = self._unread(given, made, kind[0], layout)
        aside = self._aside
        if aside is None or unread is None:
            run(given.now())
        elif native is None or several:
            as_it_is = native is None and room.nbytes == unread.nbytes
            self._read(unread, given, room if as_it_is else None, run)
        else:
            memory = {SOURCE: None, TARGET: room}
            own = [_slot(memory, one) for one in slots]
            lost = room if factor and may_be_subnormal(kind[0], layout) else None
            aside.run([(self._alone[native], own)], lost, unread.place, unread.factors)
            self._files.add(unread.stretch.file)
            if unread.factors is not None:
                self._folded.append((name, room, kind[0]))

    def finish(self) -> None:
        """See that all of them are packed.

        Raises:
            Exception: of any kind, where one cannot be.
        """
        if self._aside is not None:
            self._aside.wait()
            for file in self._files:
                file.check()
        large, self._large = self._large, None
        if large is not None:
            large()
        folded, self._folded = self._folded, []
        for name, room, dtype in folded:
            _see_finite(name, room, dtype)

    def _unread(
        self, given: Original, made: Sequence[Made], dtype: str, layout: Layout
    ) -> Unread | None:
        """Where an array lies in a file, if another thread can do with it what is to be done."""
        reader, sizes = given.reader, [*given.shape]
        if not isinstance(reader, Stretch) or reader.nbytes != given.nbytes:
            return None
        if made and layout.stored(dtype).numpy != given.dtype:  # nobody could see that it is finite
            return None
        for one in made:
            if one.taken is not None:
                axis, begin, end = one.taken
                sizes[axis] = end - begin
        return Unread.of(reader, given.shape, given.dtype, made, sizes)

    def _read(
        self, unread: Unread, given: Original, room: Array | None, run: Callable[[Array], None]
    ) -> None:
        """Have an array read meanwhile, into its room if it stays as it is; else one at a time,
        since each has much memory until it is packed.
        """
        aside = self._aside
        if aside is None or not unread.as_it_is:
            run(given.now())
            return
        if room is None:
            self.finish()
        into = passing((unread.nbytes,), np.dtype(np.uint8)) if room is None else room
        aside.read(unread.stretch.file, unread.stretch.offset, into)
        self._files.add(unread.stretch.file)
        if room is None:
            self._large = lambda: run(into.view(given.dtype).reshape(given.shape))


def _made(blob: Array, change: list[Any]) -> Made:
    """What is done with an array."""
    if (taken := part_of(change)) is not None:
        return Made(lambda array: cut(array, taken), taken, taken=taken)
    factor = factor_of(blob, *change)
    return Made(lambda array: multiplied(array, factor), None, factor)


def _see_finite(name: str, array: Array, dtype: str) -> None:
    """See that what is folded is finite.

    A team of this thread would stay, and while the process has more threads in teams than
    processors libgomp's threads hardly spin: each of the first runs took twice its time.

    Raises:
        ValueError: it is not.
    """
    from vtensor.runtime import _replay

    with Executor.alone():
        finite = _replay.finite([array], [exponent(dtype)])
    if not finite:
        raise ValueError(f"{name} is folded, and not finite")


def _threads(several: bool) -> Any:
    return nullcontext() if several else Executor.alone()


def taken_of(memory: Array, begin: int, nbytes: int) -> Array:
    """Some bytes.

    Raises:
        ValueError: there are none such.
    """
    if not 0 <= begin <= begin + nbytes <= memory.nbytes:
        raise ValueError(f"no {nbytes} bytes from {begin} on")
    return memory[begin : begin + nbytes]


def part_of(change: list[Any]) -> Taken | None:
    """The part that is taken of a weight; None of what it is multiplied by."""
    if len(change) == 2:
        return None
    axis, begin, end = map(int, change)
    return axis, begin, end


def factor_of(blob: Array, sizes: list[int], at: int) -> Array:
    """What a weight is multiplied by."""
    return taken_of(blob, at, 8 * prod(sizes)).view(np.float64).reshape(sizes)


def _slot(given: Mapping[str, Any], one: str | int) -> Any:
    return Buffer.allocate(one).memory if isinstance(one, int) else given[one]
