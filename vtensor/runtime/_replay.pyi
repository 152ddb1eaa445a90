"""Runs the steps of native/include/vtensor/step.h."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

import numpy
import numpy.typing

class StepFailed(RuntimeError):
    """
    A native step failed; its own reason.

    Attributes:
        index: of the step, in its program.
        bad_input: the step says that the numbers which it was given are at fault.
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
    number of OpenMP threads that the step finds (0: what this thread has). ``sizes`` are those
    that the step takes. ``queue`` is a capsule named "vtensor.queue", for a step that is for a
    device; whoever made the queue waits for it. The interpreter's lock is released meanwhile.

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
    What a step says of itself.

    ``kernel``: its name; ``slots``: (name, bytes, access) each, access being "read", "write",
    "read write" or "scratch"; ``planes``: the bytes of each plane of each slot; ``alignment``: in
    bytes, enough for every address; ``sizes``: how many it takes; ``device``: in whose queue it
    works, or None for the CPU. Raises as ``execute``.
    """

def set_threads(threads: int) -> None:
    """
    Set the number of OpenMP threads of the calling thread. ValueError outside 1 to 1024.
    """

def threads() -> int:
    """The number of OpenMP threads of the calling thread."""

def load_ahead(path: str) -> None:
    """
    Have another thread load a shared library, which somebody is about to load.

    Whether that can be is for that one to say.
    """

def finite(buffers: Sequence[object], exponents: Sequence[tuple[int, int]]) -> bool:
    """
    Whether all numbers in these buffers are finite.

    ``exponents``: for each buffer (bytes of an element: 1, 2, 4 or 8; the bits that are all set
    where one is infinite or no number), such as (4, 0x7f800000); without bits, nobody looks.

    Raises:
        TypeError: no buffer.
        ValueError: a buffer is not contiguous; there is not one exponent a buffer, nor none at
            all; elements of other sizes.
    """

def clear_subnormals(buffer: object) -> bool:
    """
    Set the floats of a buffer to zero that are below 2^-126; whether something was set.

    Where a sixteenth of them has none such, it stays as it is.

    Raises:
        TypeError: no buffer.
        ValueError: it is not contiguous, or cannot be written to.
    """

def offsets(
    nbytes: Sequence[int], first: Sequence[int], last: Sequence[int]
) -> tuple[list[int], int]:
    """
    Where pieces of memory lie in one arena: an offset for each, and the arena's size.

    ``nbytes``: of each piece; ``first``, ``last``: the steps from which and up to which it is
    needed, both included. Those that are needed at once lie apart. The largest piece comes first,
    each into the smallest gap that it fits into; where that needs more than what is needed at once,
    other orders are tried too.

    Raises:
        ValueError: the three are not of one length, or a number is out of range.
    """

class Aside:
    """
    A thread that runs steps while its maker goes on.

    It runs them on itself alone, in any order; it ends with this.
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
        Have steps run, one after the other.

        ``pieces``: each a step and its memory, as ``execute`` takes them. Where a step reads, None
        stands for bytes of a file: ``source`` is that, or its descriptor, which stays open; their
        offset, the number of rows, the bytes of a row, and those from one row to the next. They are
        f32 numbers where they are multiplied by ``factors``, in f64: one after the other, each for
        so many. In the end ``factor`` loses its subnormal floats, as by ``clear_subnormals``.
        Memory and file live as long.

        Raises:
            TypeError, ValueError: as ``execute``, for what is no step, no memory or no file.
            Stopped: a forked process has this from its parent.
        """

    def read(self, file: object, offset: int, into: object) -> None:
        """
        Have bytes of a file (or of a descriptor) read, as many as there is memory, in pieces.

        Raises:
            TypeError, ValueError: this is no memory, no file, or no place.
            Stopped: a forked process has this from its parent.
        """

    def bring(self, pages: object) -> None:
        """
        Have the system clear these pages as long as no step is to be run.

        Those before are left. ``pages`` live until these are.
        """

    def leave_pages(self) -> None:
        """No page is brought any more when this is done."""

    def wait(self) -> list[bool]:
        """
        Wait until all steps were run; this thread runs some of them.

        Returns:
            Of each ``run`` since the last time, whether its factor had subnormals.

        Raises:
            StepFailed: a step failed; ``index`` is the place of its ``run``.
            ValueError: memory is not what a step takes; ``index`` likewise.
            OSError, EOFError: a file cannot be read, or is shorter.
        """

class Arena:
    """
    Memory of one run at a time, which programs share.

    Pages of zeros from the system, aligned to 2 MiB and huge where it has them; those that nothing
    touches take no memory.

    Raises:
        MemoryError: there are not so many.
    """

    def __init__(self, nbytes: int = 0) -> None: ...
    @property
    def nbytes(self) -> int:
        """The size now."""

    def grow(self, nbytes: int) -> None:
        """
        Have as many bytes at least, elsewhere if these are more; nothing is said of what is there.

        Old pages that nobody looks at are among the new ones; others live on with a view or a run.
        """

    def bring(self, begin: int, nbytes: int) -> None:
        """
        Have the system clear the pages of these bytes now, where it can.

        Whoever is the first to touch a page waits for that. Runs may go on meanwhile.
        """

    def leave(self, begin: int) -> None:
        """
        Let the system have the pages from a byte on: nobody looks at what is there.
        """

    def close(self) -> None:
        """
        No run that needs it begins any more (Stopped); one that has it goes on.
        """

    def memory(self) -> numpy.typing.NDArray[numpy.uint8]:
        """The bytes that there are now, as an array that keeps them alive."""

class Program:
    """
    Recorded steps, run one after the other without Python.

    ``regions``: an object with a buffer is a constant, which is held; an Arena, as large as it
    is now, stands for the pages that it has when a run starts; a number is that of the bytes that a
    run binds. ``steps``: a native step with (region, byte offset) for each plane of each slot, or a
    callable, which has no slots and is called with the interpreter's lock. ``size_count``: how many
    sizes each run is given; ``step_sizes``: by the index of a step that takes sizes, which of the
    run's they are. Places are for the largest sizes; what a run binds may be as small as its sizes
    need. ``repeatable``: the steps change nothing that they read, but what they have written; then
    checks that steps leave to the end of a run are made once for all of them, and a run that fails
    one is made again. Steps that call Python, or work in a device's queue, are never repeated.

    Raises:
        TypeError: neither a step nor a callable, or no buffer.
        ValueError: a step is malformed, or a slot lies outside of its region or misaligned in it,
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
    """A native step that does nothing, to measure what any step costs."""

T = TypeVar("T")

class Team:
    """
    A thread that owns an OpenMP team of so many threads; work queues there.

    Work that the thread itself asks for (a call-back step that runs a session of its own) runs at
    once. Where nobody else works or waits, a run without Python is its caller's own work: that of a
    team of one thread always, that of a larger one once its thread has run many in a row. A signal,
    as of Ctrl-C, asks the work to end: programs do between two steps. When the interpreter ends,
    all teams are closed. While work waits in the queue, ``waits_for_caller`` is asked now and
    then, on the thread whose work it is: yes means that it would wait for ever.

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

        Returns whether the numbers that the bindings hold then are all finite, where ``exponents``
        says of each what to look for, as for ``finite``; True where nobody looks.

        ``bindings``: a buffer for each region that is a number, in order. ``times``: int64, two for
        each step, which get its begin and its end in nanoseconds of the steady clock. ``sizes``: as
        many as the program is made for. ``queue``: a capsule named "vtensor.queue", for steps that
        are for a device; whoever made the queue waits for it.

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
        """How many callers wait for work to be done."""

    def close(self) -> None:
        """End the thread, after the step that runs. Work that waits is refused."""

class Crowding:
    """
    Whether others use the processors too, as looks at them say.

    Runs of teams look now and then: whether a thread had to wait for a processor.
    """

    def __init__(self) -> None: ...
    def observe(self, crowded: bool, waited: int = 0) -> bool:
        """
        Take what a look has found; returns the judgement of all so far.

        ``waited``: for how long a thread had to, in nanoseconds.
        """

    def observe_together(self, idle: float, held_up: bool) -> bool:
        """
        The same of threads that share a processor.

        ``idle``: the part of this time for which the other processor was; below 0: not known.
        ``held_up``: theirs was not their own.
        """

def share_processors(shared: bool, threads: int) -> None:
    """
    Say whether others use the processors too: a team's threads that wait then sleep sooner.

    Runs of teams say it themselves. ``threads``: of the team.
    """

class Pace:
    """
    When runs begin under a quota of processors, so that none is stopped for long.

    Runs of teams keep it where ``limit_processors`` said one. Times are in nanoseconds.

    Raises:
        ValueError: there are no processors, or no period.
    """

    def __init__(self, processors: float, period: int) -> None: ...
    def wait(self, now: int, used: int, threads: int, run: int) -> int:
        """
        For how long a run waits on so many threads, of which the last took ``run``.

        ``now``: by any clock; ``used``: the processors' time that the process has had until then.

        Raises:
            ValueError: ``threads`` is out of range (1 to 1024), or ``run`` negative.
        """

def limit_processors(processors: float, period: int) -> None:
    """
    Say how many processors this process may use in each period of nanoseconds.

    Runs of all teams keep to it. Infinity: there is no quota.

    Raises:
        ValueError: there are no processors, or no period.
    """

class Request:
    """
    Runs of a program whose inputs are arrays of known kinds, in one call.

    ``names``: of the outputs that it answers with; ``every``: they are all that there are.
    ``inputs``: of each its name, and element type, shape and alignment of the array. ``own``: the
    bytes of each output's memory, which each run makes. ``outputs``: in order, which memory each
    is in, and element type, shape and strides of the array. ``exponents``: as for ``Team.run``.
    ``ndarray``, ``empty``, ``uint8``: NumPy's.

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
        The outputs, as new arrays.

        Returns None where somebody has to look closer, and nothing has run: it is another request,
        an array is no plain one or of another kind, or the thread is a team's. Returns False where
        numbers are not finite that are to be.

        Raises:
            StepFailed, Stopped, Circular, RuntimeError: as ``Team.run``.
            ValueError: an array overlaps what the program writes.
            MemoryError: there is none for the outputs.
        """
