"""The packer: it packs constants as the rows of a packing table say, for a first plan and for a
plan from the cache.

While the calling thread records, a native thread reads and packs weights, touches the pages of
memory for them, and compiles kernels. None of that needs Python. At the end the calling thread
helps and waits. It also packs large constants, on all threads, and those that native code cannot
pack.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from libdesc.native_trace import Foreign
from optimizer.constants.originals import Original
from ptensor.buffer import Buffer, TensorStorage
from ptensor.layout import Layout
from ptensor.pages import passing
from ptensor.transform import pack
from resolver.values import Value
from vtensor.language.dtype import exponent
from vtensor.runtime.execution.executor import Executor
from vtensor.runtime.recording.packing_table import SOURCE, TARGET, ConstantRow, PackingStep
from vtensor.storage.open_file import OpenFile, Stretch

if TYPE_CHECKING:
    from ptensor.evaluation import Step
    from vtensor.errors import VTensorError
    from vtensor.runtime import _replay

    #: Called with the storage of a packed constant, and whether its subnormals were set to zero.
    Done = Callable[[TensorStorage, bool], None]

Array = np.ndarray[Any, Any]

#: The fewest bytes of weights whose pages a thread touches early. For fewer, the page faults take
#: less time than a thread.
MIN_BYTES_TOUCHED = 4 << 20

#: The most bytes of weights whose pages are touched early. Further pages would be touched too late.
MAX_BYTES_TOUCHED = 1 << 29

#: The fewest bytes of a row (a contiguous range of a file) that are worth a system call of their
#: own.
MIN_ROW_BYTES = 1 << 9


class Expected:
    """Memory for weights, allocated before the weights' layouts are known. A thread touches its
    pages meanwhile.

    Args:
        nbytes: the bytes of the weights in their file.
    """

    def __init__(self, nbytes: int) -> None:
        from vtensor.runtime import _replay

        self._process = os.getpid()
        self.thread = _replay.Aside()
        self._arena = _replay.Arena(min(nbytes, MAX_BYTES_TOUCHED))
        self.thread.bring(self._arena.memory())

    @property
    def lost(self) -> bool:
        """True if this process is a fork, in which the thread does not run."""
        return os.getpid() != self._process

    def room(self, nbytes: int) -> Array:
        """Return ``nbytes`` bytes of the memory. Pages that were touched beyond these go back to
        the system.
        """
        self.thread.leave_pages()
        self._arena.grow(nbytes)
        self._arena.leave(nbytes)
        return self._arena.memory()[:nbytes]


class FileSlice(NamedTuple):
    """A part of an array in a file, as native code can read it: some rows of bytes with equal
    distances.

    The elements may have to be multiplied by factors.

    Attributes:
        stretch: the bytes of the array in its file.
        offset: the offset of the part's first row in the array, in bytes.
        rows: the number of rows (contiguous ranges of bytes) of the part.
        row: the number of bytes of a row.
        step: the distance in bytes between the begins of two consecutive rows.
        factors: the factors of the part's elements as floats, and the number of adjacent elements
            that each factor multiplies; None if elements are not multiplied.
    """

    stretch: Stretch
    offset: int
    rows: int
    row: int
    step: int
    factors: tuple[list[float], int] | None

    @property
    def nbytes(self) -> int:
        """The bytes of the part's elements."""
        return self.rows * self.row

    @property
    def place(self) -> tuple[OpenFile, int, int, int, int]:
        """The part as the argument ``source`` of ``_replay.Aside.run``: the file, the part's offset
        in the file, ``rows``, ``row`` and ``step``.
        """
        begin = self.stretch.offset + self.offset
        return self.stretch.file, begin, self.rows, self.row, self.step

    @property
    def is_whole(self) -> bool:
        """True if the part is the whole array and its elements are not multiplied by factors."""
        return self.offset == 0 and self.nbytes == self.stretch.nbytes and self.factors is None

    @classmethod
    def of(cls, row: ConstantRow) -> FileSlice | None:
        """Return the part of a file that has the source elements of a row of the packing table.

        Returns None if the source array is in memory, or if native code cannot make the changes of
        the row.
        """
        source, step_input = row.source, row.step_input
        stretch = source.reader if isinstance(source, Original) else None
        if not isinstance(stretch, Stretch) or stretch.nbytes != source.nbytes:
            return None
        sizes, size, left = [*source.shape], source.dtype.itemsize, [*row.changes]
        offset, rows, nbytes = 0, 1, source.nbytes
        step = nbytes
        if left and left[0].taken is not None:
            axis, begin, end = left.pop(0).taken or (0, 0, 0)
            if not (0 <= axis < len(sizes) and 0 <= begin < end <= sizes[axis]):
                return None
            inner = prod(sizes[axis + 1 :]) * size
            offset, rows = begin * inner, prod(sizes[:axis])
            nbytes, step = (end - begin) * inner, sizes[axis] * inner
            sizes[axis] = end - begin
            if rows > 1 and nbytes < MIN_ROW_BYTES:
                return None
        factors = None
        if left and left[0].factor is not None and source.dtype == np.float32:
            factors = _spread(left.pop(0).factor, sizes)
            if factors is None:
                return None
        as_read = step_input.layout == Layout.plain(step_input.dims) and sizes == [
            *step_input.dims.values()
        ]
        if left or not as_read or rows * nbytes == 0:
            return None
        return cls(stretch, offset, rows, nbytes, step, factors)


def _spread(factor: Any, sizes: Sequence[int]) -> tuple[list[float], int] | None:
    """Return the elements of the array ``factor`` in order, and the number of adjacent elements
    that each multiplies.

    Returns None if the axes of ``factor`` that are not of size 1 are not adjacent, or if their
    sizes differ from those of the multiplied array.

    Args:
        factor: the array of factors, with an axis for each axis of the multiplied array.
        sizes: the sizes of the multiplied array.
    """
    if factor.ndim != len(sizes):
        return None
    along = [axis for axis, size in enumerate(factor.shape) if size != 1]
    first, last = (along[0], along[-1] + 1) if along else (0, 0)
    if tuple(factor.shape[first:last]) != tuple(sizes[first:last]):
        return None
    return factor.reshape(-1).tolist(), prod(sizes[last:])


class _Work(NamedTuple):
    """A constant that is being packed.

    Attributes:
        row: its row of the packing table.
        step: packs it; None stores the source array with the changes of ``row``.
        storage: the constant's storage. It is bound to ``room`` when the constant is packed.
        room: the memory for it.
        done: called when the constant is packed; None calls nothing.
    """

    row: ConstantRow
    step: PackingStep | None
    storage: TensorStorage
    room: Buffer
    done: Done | None

    def slots(self, input_memory: Array | None) -> list[Array | None]:
        """Return the memory of each slot of the native step; scratch is allocated.

        Args:
            input_memory: the memory of the step's input; None if it is read from a file.
        """
        memory = {SOURCE: input_memory, TARGET: self.room.memory}
        slots = self.step.slots if self.step is not None else ()
        return [Buffer.allocate(x).memory if isinstance(x, int) else memory[x] for x in slots]

    def finish(self, lost: bool) -> None:
        """Bind the constant to its memory and call ``done``.

        Args:
            lost: True if subnormal elements of the constant were set to zero.
        """
        self.storage.forget()
        self.storage.bind(self.room)
        if self.done is not None:
            self.done(self.storage, lost)


class Packer:
    """A packer of constants, on a native thread as far as native code can pack them.

    Args:
        thread: packs and compiles; None if the calling thread does both.
        checks_finite: True checks that folded constants (multiplied by factors) are finite. It is
            needed if arrays may differ from those for which the plan was chosen.
    """

    def __init__(self, thread: _replay.Aside | None = None, checks_finite: bool = False) -> None:
        self._thread, self._checks_finite = thread, checks_finite
        self._runs: list[_Work | None] = []  # the thread's work, in order; None for a kernel
        self._files = set[OpenFile]()  # the files that the thread reads
        self._large: Callable[[], None] | None = None  # packs the array that the thread reads
        self._failed: BaseException | None = None

    def close(self) -> None:
        """Stop packing, end the thread and release all memory."""
        self._thread, self._large, self._runs = None, None, []

    def compile(self, step: Step) -> None:
        """Begin to compile a step's kernel on the thread, if its library can do so without Python.

        Any other use of the kernel waits until it is compiled.
        """
        if isinstance(step, Foreign):
            step = step.own
        compiling = getattr(type(step), "compiling", None)
        if compiling is not None and self._thread is not None:
            self._thread.run([(compiling(step), ())])
            self._runs.append(None)

    def pack(
        self,
        row: ConstantRow,
        step: PackingStep | None,
        room: Buffer,
        input_storage: TensorStorage | None = None,
        done: Done | None = None,
    ) -> TensorStorage:
        """Pack a constant and return its storage. If the thread packs it, the first use of the
        storage waits until that is done.

        Args:
            row: the constant's row of the packing table.
            step: the packing step; None stores the source array with the changes of ``row``.
            room: the memory for the constant.
            input_storage: the storage that the packing step reads; None to read the source array of
                ``row``, the constant's row of the packing table.
            done: called once the constant is packed.

        Raises:
            VTensorError, ValueError: the thread cannot pack the constant, so it is packed now, with
                the errors of ``wait``.
        """
        storage = _storage(row.value)
        work = _Work(row, step, storage, room, done)
        if self._starts(work, input_storage):
            storage.bind_later(lambda: self._filled(room))
        else:
            self._run(work, input_storage)
        return storage

    def wait(self) -> None:
        """Wait until all constants are packed; a failure is raised at each call.

        Raises:
            ModelError: a file was changed, or cannot be read.
            NativeError: a step failed.
            ValueError: a folded constant is not finite.
        """
        if self._failed is not None:
            raise self._failed
        try:
            self._wait()
            large, self._large = self._large, None
            if large is not None:
                large()
        except BaseException as error:
            self._failed = error
            raise

    def _filled(self, room: Buffer) -> Buffer:
        self.wait()
        return room

    def _starts(self, work: _Work, input_storage: TensorStorage | None) -> bool:
        """Let the thread pack a constant, or read its source array from the file. Return True.

        Returns False if the thread can do neither.

        Args:
            work: the constant.
            input_storage: the storage that the packing step reads; None to read the source array of
                ``work.row``, the constant's row of the packing table.
        """
        row, step, room, thread = work.row, work.step, work.room, self._thread
        if thread is None or step is None:
            return False
        part = FileSlice.of(row) if input_storage is None else None
        if row.is_large:
            if part is None or not part.is_whole:
                return False
            self.wait()  # one at a time, since its array takes much memory until it is packed
            into = Buffer(passing((part.nbytes,), np.dtype(np.uint8)))
            self._large = partial(self._run, work, _storage(row.step_input, into))
            thread.read(part.stretch.file, part.stretch.offset, into.memory)
        else:
            same_type = row.value.layout.stored(row.value.dtype).numpy == row.source.dtype
            if step.native is None or (self._checks(row) and not same_type):
                return False
            if input_storage is None and part is None:
                input_storage = row.storage()
            slots = work.slots(None if input_storage is None else input_storage.memory)
            place, factors = (None, None) if part is None else (part.place, part.factors)
            thread.run([(step.native, slots)], room.memory if row.clears else None, place, factors)
            self._runs.append(work)
        if part is not None:
            self._files.add(part.stretch.file)
        return True

    def _run(self, work: _Work, input_storage: TensorStorage | None) -> None:
        """Pack a constant on the calling thread.

        Args:
            work: the constant.
            input_storage: the storage that the packing step reads; None to read the source array of
                ``work.row``, the constant's row of the packing table.

        Raises:
            ModelError: a file was changed, or cannot be read.
            NativeError: the step failed.
            ValueError: a folded constant is not finite.
        """
        row, step, _, room, _ = work
        if step is None:
            input_storage = _storage(row.value, room)
            input_storage.data()[...] = pack(row.read(), [*row.step_input.dims], row.value.layout)
        elif input_storage is None:
            input_storage = row.storage()
        self._check_finite(row, input_storage.memory)
        with nullcontext() if row.is_large else Executor.alone():
            if step is not None and step.run is not None:
                step.run(input_storage, room)
            elif step is not None:
                slots = [slot for slot in work.slots(input_storage.memory) if slot is not None]
                try:
                    Executor.run_step(step.native, slots)
                except (RuntimeError, ValueError, TypeError) as error:
                    raise _error(error, step) from error
        work.finish(step is not None and row.clears and _clear_subnormals(room.memory))

    def _wait(self) -> None:
        runs, self._runs = self._runs, []
        files, self._files = self._files, set()
        if self._thread is None or not (runs or files):
            return
        try:
            lost = self._thread.wait()
        except (OSError, EOFError) as error:
            for file in files:
                file.check()
            why = error if isinstance(error, OSError) else None
            raise next(iter(files)).read_error(why) from error
        except (RuntimeError, ValueError, TypeError) as error:
            failed = runs[getattr(error, "index", 0)]
            raise _error(error, failed and failed.step) from error
        for file in files:
            file.check()
        for work, has_lost in zip(runs, lost, strict=True):
            if work is not None:
                self._check_finite(work.row, work.room.memory)
                work.finish(has_lost)

    def _checks(self, row: ConstantRow) -> bool:
        return self._checks_finite and row.is_folded

    def _check_finite(self, row: ConstantRow, memory: Array) -> None:
        """Check that the elements of a folded constant (multiplied by a factor) are finite.

        There is no check if the plan was chosen for this very array. The check runs on one thread:
        a team of threads would stay after the check, there would then be more threads in teams
        than processors, and all of libgomp's threads would sleep sooner between steps.

        Args:
            row: the constant's row of the packing table.
            memory: the bytes of the constant.

        Raises:
            ValueError: the constant is not finite.
        """
        from vtensor.runtime import _replay

        if self._checks(row):
            with Executor.alone():
                if not _replay.finite([memory], [exponent(row.value.dtype)]):
                    raise ValueError(f"{row.value.name} is folded, and not finite")


def _storage(value: Value, buffer: Buffer | None = None) -> TensorStorage:
    return TensorStorage(value.dtype, value.dims, value.layout, buffer, constant=True)


def _error(why: Exception, step: PackingStep | None) -> VTensorError:
    """Return the VTensorError for an error of a native step.

    Args:
        why: the error.
        step: the packing step that failed; None if a kernel failed to compile.
    """
    # Imported here: a cached plan records nothing.
    from vtensor.runtime.execution.evaluations import step_error

    return step_error(why, *(("", str) if step is None else (step.node, step.reword)))


def _clear_subnormals(memory: Array) -> bool:
    """Set subnormal elements to zero in the memory of a constant that is a factor of products.

    Returns whether there were any. Products with subnormals are slow. They add nothing to a sum
    with other terms, unless the other factor is beyond 1e30.

    Args:
        memory: the bytes of the constant, whose elements are 32-bit floats.
    """
    from vtensor.runtime import _replay

    return _replay.clear_subnormals(memory)
