"""Runs the steps of native/include/vtensor/step.h."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import numpy
import numpy.typing

class StepFailed(RuntimeError):
    """
    A native step failed; the message is the step's own.

    Attributes:
        index: the index of the step in its program.
        bad_input: whether the step reports that its input has wrong values.
    """

    index: int = -1

    bad_input: bool = False

class Circular(RuntimeError):
    """
    Work did not begin: the team's thread waits for the thread whose work it is.
    """

class Stopped(RuntimeError):
    """A run ended between two steps, or never began: its team is closed."""

class NoThreads(RuntimeError):
    """The system does not let this process start the threads of a team."""

class Busy(RuntimeError):
    """
    A run cannot begin inside of another of its program, or of one that shares an arena.
    """

def execute(
    step: object,
    slots: Sequence[object],
    threads: int = 0,
    sizes: Sequence[int] = (),
    queue: object | None = None,
) -> None:
    """
    Run a step once.

    ``step`` has a method ``__vtensor_step__`` (or is the capsule that it returns); ``slots``
    holds one object with a buffer for each plane of each slot, in order. ``threads`` is the
    number of OpenMP threads for the step (0: this thread's number). ``sizes`` are the step's
    sizes. ``queue`` is a capsule named "vtensor.queue", for the step of a device; the maker
    of the queue waits for it. The interpreter's lock is released meanwhile.

    Raises:
        TypeError: not a step, not a buffer, or not a queue.
        ValueError: the step is of another ABI version or malformed; a buffer is missing, too
            small, not contiguous in C order, read-only where the step writes, misaligned, or is
            scratch that overlaps another; the step takes other sizes, or a queue that is missing;
            ``threads`` is out of range (1 to 1024).
        StepFailed: the step failed.
    """

def describe(step: object) -> dict[str, Any]:
    """
    Return the description of a step.

    ``kernel``: its name; ``slots``: (name, bytes, access) each, access being "read", "write",
    "read write" or "scratch"; ``planes``: the bytes of each plane of each slot;
    ``alignment``: in bytes, enough for every address; ``sizes``: the number of its sizes;
    ``device``: the device whose queue it uses, or None for the CPU. Raises as ``execute``.
    """

def set_threads(threads: int) -> None:
    """
    Set the number of OpenMP threads of the calling thread. ValueError outside 1 to 1024.
    """

def threads() -> int:
    """Return the number of OpenMP threads of the calling thread."""

def load_ahead(path: str) -> None:
    """
    Load a shared library on another thread, ahead of the import that needs it.

    Failures are ignored: that import reports them.
    """

def finite(buffers: Sequence[object], exponents: Sequence[tuple[int, int]]) -> bool:
    """
    Return whether all numbers in these buffers are finite.

    ``exponents``: for each buffer (bytes of an element: 1, 2, 4 or 8; the bits that are all
    set in infinities and NaN), such as (4, 0x7f800000); a buffer without bits is not checked.

    Raises:
        TypeError: no buffer.
        ValueError: a buffer is not contiguous; ``exponents`` is neither empty nor as long as
            ``buffers``; elements have another size.
    """

def clear_subnormals(buffer: object) -> bool:
    """
    Set subnormal floats (below 2^-126) of a buffer to zero; return whether there were any.

    A sixteenth of the numbers is sampled first; without subnormals there, nothing changes.

    Raises:
        TypeError: no buffer.
        ValueError: it is not contiguous, or cannot be written to.
    """

def offsets(
    nbytes: Sequence[int], first: Sequence[int], last: Sequence[int]
) -> tuple[list[int], int]:
    """
    Return the offsets of pieces of memory in one arena, and the arena's size.

    ``nbytes``: the size of each piece; ``first``, ``last``: the first and the last step that
    needs it. Pieces that are needed at the same time do not overlap. Each piece, the largest
    first, is put into the smallest gap that holds it; if the arena is then larger than the
    memory needed at one time, other orders are tried too.

    Raises:
        ValueError: the three are not of one length, or a number is out of range.
    """

class Aside:
    """
    A thread that runs queued steps concurrently with its maker.

    Each ``run`` is one item of the queue; items may run in any order. The thread ends with this
    object.
    """

    def __init__(self) -> None: ...
    def run(
        self,
        pieces: Sequence[tuple[object, Sequence[object]]],
        factor: object | None = None,
        source: tuple[object, int, int, int, int] | None = None,
        factors: tuple[Sequence[float], int] | None = None,
    ) -> None:
        """
        Queue steps, which run one after the other.

        ``pieces``: pairs of a step and its memory, as for ``execute``. None in place of memory
        that a step reads stands for bytes of a file. ``source``: the file or its descriptor,
        which stays open, the offset of the bytes, the number of rows, the bytes of a row, and the
        bytes from one row to the next. ``factors``: numbers in f64, and how many f32 numbers of
        the file each of them multiplies, one after the other. ``factor``: a buffer whose
        subnormal floats are cleared at the end, as by ``clear_subnormals``. Memory and file are
        kept alive until then.

        Raises:
            TypeError, ValueError: as ``execute``; also if the file is no file.
            Stopped: the thread was inherited by a forked process, where it does not run.
        """

    def read(self, file: object, offset: int, into: object) -> None:
        """
        Queue the reading of bytes of a file or descriptor, which fill ``into``.

        Raises:
            TypeError, ValueError: the memory, the file or the offset is invalid.
            Stopped: the thread was inherited by a forked process, where it does not run.
        """

    def bring(self, pages: object) -> None:
        """
        Make the system provide zeroed pages while no step is queued.

        Pages of an earlier call are no longer provided. ``pages`` are kept alive until the next
        call.
        """

    def leave_pages(self) -> None:
        """Stop providing pages; wait until the thread has stopped."""

    def wait(self) -> list[bool]:
        """
        Wait until all steps were run; this thread runs some of them.

        Returns:
            For each ``run`` since the last call, whether its factor had subnormals.

        Raises:
            StepFailed: a step failed; ``index`` is the place of its ``run``.
            ValueError: memory is not what a step takes; ``index`` likewise.
            OSError, EOFError: a file cannot be read, or is shorter.
        """

class Arena:
    """
    Memory of one run at a time, which programs share.

    Zeroed pages from the system, aligned to 2 MiB, huge pages if there are any; pages that
    are never touched take no memory.

    Raises:
        MemoryError: there is not enough memory.
    """

    def __init__(self, nbytes: int = 0) -> None: ...
    @property
    def nbytes(self) -> int:
        """The present size in bytes."""

    def grow(self, nbytes: int) -> None:
        """
        Grow to at least so many bytes; if the size changes, the content is undefined.

        Old pages are reused, unless a view or a run still needs them.
        """

    def bring(self, begin: int, nbytes: int) -> None:
        """
        Make the system provide the pages of these bytes now, if it can.

        Otherwise the first access to each page waits for it. Runs may go on meanwhile.
        """

    def leave(self, begin: int) -> None:
        """Return the pages from a byte on to the system; their content is lost."""

    def close(self) -> None:
        """Refuse further runs (Stopped); a run in progress continues."""

    def memory(self) -> numpy.typing.NDArray[numpy.uint8]:
        """Return the present bytes as an array that keeps them alive."""

class Program:
    """
    Recorded steps, run one after the other without Python.

    ``regions``: an object with a buffer is a constant, which is kept alive; an Arena, of its
    present size, stands for its pages at the start of a run; a number is the size of memory
    that a run binds. ``steps``: a native step with (region, byte offset) for each plane of
    each slot, or a callable, which has no slots and is called with the interpreter's lock.
    ``size_count``: the number of sizes of each run; ``step_sizes``: by the index of a step
    with sizes, the places of its sizes among the run's. Offsets hold for the largest sizes;
    bound memory may be as small as a run's sizes need. ``repeatable``: no step changes memory
    that it reads, except memory that the steps have written; then checks that steps leave to
    the end of a run are made once for all steps, and a run that fails a check is repeated.
    Steps that call Python, or use a device's queue, are never repeated.

    Raises:
        TypeError: a step is neither a step nor a callable, or a region has no buffer.
        ValueError: a step is malformed, or a slot is outside of its region or misaligned in it,
            writes a constant, or is scratch that overlaps another slot; a step takes another number
            of sizes, or a size that no run is given; steps are for several devices.
    """

    def __init__(
        self,
        regions: Sequence[object],
        steps: Sequence[tuple[object, Sequence[tuple[int, int]]]],
        size_count: int = 0,
        step_sizes: Mapping[int, Sequence[int]] = {},
        repeatable: bool = False,
    ) -> None: ...
    def __len__(self) -> int:
        """The number of steps."""

def empty_step() -> object:
    """
    Return a native step that does nothing, to measure the overhead of a step.
    """

T = TypeVar("T")

class Team:
    """
    A thread with an OpenMP team of so many threads, and a queue of work.

    Work that the thread itself asks for (a call-back step that runs a session of its own)
    runs at once. If no other work runs or waits, a run without Python is executed on its
    caller's thread: always for a team of one thread, for a larger one after many runs in a
    row. A signal, such as Ctrl-C, asks the work to end; programs end between two steps. When
    the interpreter ends, all teams are closed. While work waits in the queue, its thread
    calls ``waits_for_caller`` now and then; True means that the work would wait for ever.

    Raises:
        ValueError: ``threads`` is out of range (1 to 1024).
        NoThreads: the system does not let this process start so many.
        Stopped: the interpreter is shutting down.
    """

    def __init__(
        self, threads: int, name: str, waits_for_caller: Callable[[], bool] | None = None
    ) -> None: ...
    def call(self, function: Callable[[], T]) -> T:
        """
        Call a function on the team's thread, and wait.

        Raises:
            Stopped: the team is closed, or was before the function began.
            Circular: the team's thread waits for this one; the function never begins.
        """

    def run(
        self,
        program: Program,
        bindings: Sequence[object],
        times: object | None = None,
        sizes: Sequence[int] = (),
        queue: object | None = None,
        exponents: Sequence[tuple[int, int]] = (),
    ) -> bool:
        """
        Run a program's steps, without the interpreter's lock, and wait.

        Returns whether all numbers in the bindings are finite afterwards. ``exponents``: as for
        ``finite``; without any, the result is True.

        ``bindings``: a buffer for each region that is a number, in order. ``times``: int64, two
        for each step, which get its begin and its end in nanoseconds of the steady clock.
        ``sizes``: as many as the program has. ``queue``: a capsule named "vtensor.queue", for
        steps of a device; the maker of the queue waits for it.

        Raises:
            TypeError, ValueError: a binding or ``times`` is no buffer, not contiguous, too small,
                misaligned, or read-only where a step writes, or is written and overlaps a region; a
                step does not take its sizes; a queue is missing, or none.
            StepFailed: a native step failed; ``index`` says which. A callable's own exception comes
                as it is.
            Stopped: the team was closed before the last step.
            Circular: as for ``call``.
            RuntimeError: the program, or one with its arena, is to run inside of its own run.
        """

    @property
    def waiting(self) -> int:
        """The number of callers that wait for their work."""

    def close(self) -> None:
        """
        End the thread after the step in progress, and refuse the work in its queue.
        """

class Crowding:
    """
    An estimate of whether other processes use the processors, too.

    Runs of teams observe now and then whether a thread had to wait for a processor.
    """

    def __init__(self) -> None: ...
    def observe(self, crowded: bool, waited: int = 0) -> bool:
        """
        Add an observation; return the estimate.

        ``waited``: how long a thread waited for a processor, in nanoseconds.
        """

    def observe_together(self, idle: float, held_up: bool) -> bool:
        """
        Add an observation of threads that share a processor; return the estimate.

        ``idle``: the part of the time in which the other processor was idle; below 0 if unknown.
        ``held_up``: whether another process used their processor.
        """

def share_processors(shared: bool, threads: int) -> None:
    """
    Set whether other processes use the processors, so that waiting threads sleep sooner.

    Runs of teams set it themselves. ``threads``: the team's number of threads.
    """

class Pace:
    """
    The starts of runs under a quota of processors, so that none is stopped.

    Runs of teams use it after ``limit_processors``. Times are in nanoseconds.

    Raises:
        ValueError: there are no processors, or no period.
    """

    def __init__(self, processors: float, period: int) -> None: ...
    def wait(self, now: int, used: int, threads: int, run: int) -> int:
        """
        Return how long the next run has to wait.

        ``now``: the time on any clock; ``used``: the processor time that the process has used
        until then; ``threads``: the run's number of threads; ``run``: the time that the last run
        took.

        Raises:
            ValueError: ``threads`` is out of range (1 to 1024), or ``run`` negative.
        """

def limit_processors(processors: float, period: int) -> None:
    """
    Set how many processors this process may use in each period of nanoseconds.

    Runs of all teams comply. Infinity means no quota.

    Raises:
        ValueError: there are no processors, or no period.
    """

class Request:
    """
    Runs of a program in one call, for inputs of known types and shapes.

    ``names``: the names of the wanted outputs; ``every``: whether these are all outputs.
    ``inputs``: for each its name, and the array's element type, shape and alignment. ``own``:
    the bytes of each memory that a run allocates for outputs. ``outputs``: for each the index
    of its memory, and the array's element type, shape and strides. ``exponents``: as for
    ``Team.run``. ``ndarray``, ``empty``, ``uint8``: NumPy's.

    Raises:
        ValueError: the program calls Python; there is not one input, or memory, for each region
            that a run binds; an output is in none of them; a number is out of range.
    """

    def __init__(
        self,
        team: Team,
        program: Program,
        names: list[str],
        every: bool,
        inputs: Sequence[tuple[str, object, Sequence[int], int]],
        own: Sequence[int],
        outputs: Sequence[tuple[int, object, tuple[int, ...], tuple[int, ...]]],
        exponents: Sequence[tuple[int, int]],
        ndarray: object,
        empty: object,
        uint8: object,
    ) -> None: ...
    def run(self, names: object, arrays: object) -> list[Any] | Literal[False] | None:
        """
        Run the program and return the outputs as new arrays.

        Returns None, and runs nothing, if the general path has to decide: the request is another
        one, an array is not plain or of another type or shape, or the thread is a team's. Returns
        False if numbers that must be finite are not.

        Raises:
            StepFailed, Stopped, Circular, RuntimeError: as ``Team.run``.
            ValueError: an array overlaps what the program writes.
            MemoryError: there is none for the outputs.
        """
