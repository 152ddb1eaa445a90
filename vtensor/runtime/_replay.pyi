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
        bad_input: whether the step reports wrong values in its input.
    """

    index: int = -1

    bad_input: bool = False

class Circular(RuntimeError):
    """A job cannot begin: the team's thread waits for the thread that asks for the job."""

class Stopped(RuntimeError):
    """A run ended between two steps, or never began: its team or arena is closed."""

class NoThreads(RuntimeError):
    """The system does not let this process start the threads of a team."""

class Busy(RuntimeError):
    """A run cannot begin: another run is using its program or its arena."""

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
    number of OpenMP threads for the step (0: the calling thread's number). ``sizes`` are the
    sizes that the step takes, if any. ``queue`` is a capsule named "vtensor.queue", needed by a
    step of a device; the caller then waits for the queue. The interpreter's lock is released
    while the step runs.

    Raises:
        TypeError: ``step`` is no step, an object has no buffer, or ``queue`` is no queue.
        ValueError: the step is of another ABI version or malformed; a buffer is missing, too
            small, not contiguous in C order, read-only where the step writes, misaligned, or is
            scratch that overlaps another; the step does not take ``sizes``, or needs a queue;
            ``threads`` is out of range (1 to 1024).
        StepFailed: the step failed.
    """

def describe(step: object) -> dict[str, Any]:
    """
    Return the description of a step as a dict.

    ``kernel``: its name; ``slots``: for each slot (name, bytes of its planes together, access),
    access being "read", "write", "read write" or "scratch"; ``planes``: for each slot the bytes
    of each plane; ``alignment``: in bytes, enough for every address; ``sizes``: the number of
    sizes that it takes; ``device``: the device whose queue it uses, or None for the CPU. Raises
    as ``execute``.
    """

def set_threads(threads: int) -> None:
    """
    Set the number of OpenMP threads of the calling thread. ValueError outside 1 to 1024.
    """

def threads() -> int:
    """Return the number of OpenMP threads of the calling thread."""

def load_ahead(path: str) -> None:
    """
    Begin to load a shared library on another thread, ahead of an import that needs it.

    Failures are ignored: the import reports them.
    """

def finite(buffers: Sequence[object], exponents: Sequence[tuple[int, int]]) -> bool:
    """
    Return whether all numbers in these buffers are finite.

    ``exponents``: for each buffer (bytes of an element: 1, 2, 4 or 8; the bits that are all
    set in infinities and NaN), such as (4, 0x7f800000); a buffer whose bits are 0 counts as
    finite. Without exponents the result is True.

    Raises:
        TypeError: an object has no buffer.
        ValueError: a buffer is not contiguous; ``exponents`` is neither empty nor as long as
            ``buffers``; elements have another size.
    """

def clear_subnormals(buffer: object) -> bool:
    """
    Set the subnormal f32 numbers of a buffer to zero; return whether there were any.

    Subnormal is a number below 2^-126. A sixteenth of the numbers is searched first: if none of
    these is subnormal, nothing changes and the result is False.

    Raises:
        TypeError: ``buffer`` has no buffer.
        ValueError: it is not contiguous, or read-only.
    """

def offsets(
    nbytes: Sequence[int], first: Sequence[int], last: Sequence[int]
) -> tuple[list[int], int]:
    """
    Return the byte offsets of pieces of memory in one arena, and the arena's bytes.

    ``nbytes``: the size of each piece; ``first``, ``last``: the indices of the first and the
    last step that need it. Pieces that a step needs at the same time do not overlap. Each
    piece, the largest first, is put into the smallest gap that holds it; if the arena is then
    larger than the memory needed at one time, other orders are tried too.

    Raises:
        ValueError: the three are not of one length, or a number is out of range.
    """

class Aside:
    """
    A worker thread that runs queued items, while its maker goes on.

    Each call of ``run`` or ``read`` queues items, which may run in any order. The thread ends
    with this object.
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
        Queue one item: to read bytes of a file, then to run steps one after the other.

        If unfinished items hold more than 32 MiB, the call waits for all of them first.

        Args:
            pieces: pairs of a step and its memory, as for ``execute``; None in place of memory that
                the step reads stands for the bytes of the file.
            factor: a buffer whose subnormal floats are cleared at the end, as by
                ``clear_subnormals``; it, all memory and the file are kept alive until then.
            source: the file or its descriptor, which the caller keeps open; the offset of the first
                row, the number of rows, the bytes of a row, and the bytes from the beginning of a
                row to that of the next.
            factors: a list of numbers, and how many f32 numbers of the file each of them
                multiplies, in f64; the list repeats.

        Raises:
            TypeError, ValueError: as ``execute``; also if ``source`` or ``factors`` is invalid.
            Stopped: the thread was inherited by a forked process, where it does not run.
        """

    def read(self, file: object, offset: int, into: object) -> None:
        """
        Queue the reading of a file or descriptor, from byte ``offset`` on, into a buffer.

        ``into``: the buffer, which is filled.

        Raises:
            TypeError, ValueError: the memory, the file or the offset is invalid.
            Stopped: the thread was inherited by a forked process, where it does not run.
        """

    def bring(self, pages: object) -> None:
        """
        Touch pages while nothing is queued, so that the system provides them early.

        ``pages``: a writable buffer, kept alive until the next call, which ends the touching of
        earlier pages. Objects of this class together touch at most 512 MiB.
        """

    def leave_pages(self) -> None:
        """Stop touching pages, and wait until the thread touches none."""

    def wait(self) -> list[bool]:
        """
        Wait until all items are over; the calling thread runs some of them.

        Returns:
            For each ``run`` since the last call, whether its ``factor`` had subnormals.

        Raises:
            StepFailed: a step failed; ``index`` counts ``run`` calls since ``wait``, from 0.
            ValueError: memory is not what a step takes; ``index`` likewise.
            OSError, EOFError: a file cannot be read, or is shorter.
        """

class Arena:
    """
    Memory that programs share, for one run at a time.

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
        Grow to at least ``nbytes``; if the size changes, the content is undefined.

        Old pages are reused, unless an array of ``memory`` or a run still needs them.
        """

    def bring(self, begin: int, nbytes: int) -> None:
        """
        Make the system provide the pages of ``nbytes`` bytes from ``begin`` on now.

        If it cannot, it provides each page at the first access, which waits for that. Runs may use
        the arena meanwhile.
        """

    def leave(self, begin: int) -> None:
        """Give the pages from byte ``begin`` on back to the system; their content is lost."""

    def close(self) -> None:
        """Refuse further runs, which raise Stopped; a run in progress continues."""

    def memory(self) -> numpy.typing.NDArray[numpy.uint8]:
        """Return the present bytes as an array, which keeps them alive."""

class Program:
    """
    Recorded steps, run one after the other without Python.

    Args:
        regions: the memory of slots. An object with a buffer is a constant, which is kept
            alive; an Arena stands for the pages that it has when a run starts, at least as
            many as now; a number is the size in bytes of memory that each run binds.
        steps: pairs of a native step and a (region, byte offset) for each plane of each slot;
            or of a callable, which is called with the interpreter's lock, and an empty list.
            Offsets hold for the largest sizes; bound memory may be as small as a run's sizes
            need.
        size_count: the number of sizes of each run.
        step_sizes: from the index of a step that takes sizes to their indices among the
            run's.
        repeatable: no step changes memory that it reads, except memory that the steps have
            written. Floating-point flags that steps leave unchecked (``doubt`` in step.h) are
            then checked once, at the end, and a run that raised one is repeated with steps
            that check themselves. A program that calls Python, or uses a device's queue, is
            never repeated.

    Raises:
        TypeError: a step is neither a step nor a callable, or a region has no buffer.
        ValueError: a step is malformed, or a slot is outside of its region or misaligned in it,
            writes a constant, or is scratch that overlaps another slot; a step takes another
            number of sizes, or a size that no run is given; steps are for several devices.
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
        """Return the number of steps."""

def empty_step() -> object:
    """
    Return a native step that does nothing, to measure the overhead of a step.
    """

T = TypeVar("T")

class Team:
    """
    A thread with an OpenMP team and a queue of work.

    Work that this thread asks for itself (a call-back step that runs a session of its own) runs
    at once. If no other work runs or waits, a program that does not call Python may run on its
    caller's thread: always if ``threads`` is 1, else after many runs of that caller in a row. A
    signal, such as Ctrl-C, asks the work to end; programs end between two steps. When the
    interpreter ends, all teams are closed.

    Args:
        threads: the number of threads of the OpenMP team, this one included.
        name: the thread's name, of which 15 bytes are used.
        waits_for_caller: called now and then by a thread whose work is in the queue. True means
            that the team's thread waits for that one, so that the work would never begin: the
            waiting thread gets Circular.

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
        Call a function on the team's thread, wait, and return its result.

        Raises:
            Stopped: the team is closed, or was before the function began.
            Circular: the team's thread waits for the calling thread; the function never begins.
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

        Returns whether all numbers in the bindings are finite.

        Args:
            bindings: a buffer for each region that is a number, in order.
            times: a buffer of two int64 for each step, which get its begin and its end in
                nanoseconds of the steady clock; None: no times.
            sizes: as many numbers as the program's ``size_count``.
            queue: a capsule named "vtensor.queue", for steps of a device; the caller then waits for
                the queue.
            exponents: for each binding, as for ``finite``; without exponents the result is True.

        Raises:
            TypeError, ValueError: a binding or ``times`` is no buffer, not contiguous, too small,
                misaligned, or read-only where a step writes, or is written and overlaps a region; a
                step does not take its sizes; a queue is missing, or none.
            StepFailed: a native step failed; ``index`` says which. A callable's own exception comes
                as it is.
            Stopped: the team was closed before the last step.
            Circular: as for ``call``.
            RuntimeError: another run, perhaps the one that calls this, uses the program or its
                arena.
        """

    def repeat(
        self,
        program: Program,
        bindings: Sequence[object],
        carried: tuple[
            Sequence[tuple[int, int]],
            int | None,
            int | None,
            Sequence[tuple[int, object]],
            Sequence[tuple[int, object]],
        ],
        first: int,
        most: int,
    ) -> tuple[int, bool]:
        """
        Run a program turn after turn, as the body of a loop, for about 50 ms at most.

        Returns the number of turns, and whether the condition would let a further turn follow.
        After an odd number of turns, the memory of both sides of each state has changed places.

        Args:
            bindings: as for ``run``.
            carried: (states, number, condition, sources, sinks), with bindings as indices. states:
                an input, and the output that is that input in the next turn; number: the input
                that is the turn's number (int64), or None; condition: the output whose first byte
                is 0 after the last turn, or None; sources: the inputs that are another row in each
                turn, with the rows; sinks: the bindings that are copied to a row after each turn,
                with the rows.
            first: the number of the first turn.
            most: the most turns.

        Raises:
            ValueError: the program calls Python; a binding does not exist or is of several states;
                both sides of a state differ in size; there is too little memory for rows.
            TypeError, StepFailed, Stopped, Circular, RuntimeError: as for ``run``.
        """

    @property
    def waiting(self) -> int:
        """The number of threads that wait for work of this team."""

    def close(self) -> None:
        """End the thread after the step in progress; work in its queue raises Stopped."""

class Crowding:
    """
    An estimate of whether other processes use the processors, too.

    It changes after several observations in a row: runs of teams observe now and then whether
    their threads had to wait for a processor.
    """

    def __init__(self) -> None: ...
    def observe(self, crowded: bool, waited: int = 0) -> bool:
        """
        Add an observation, and return the estimate.

        It is True if other processes seem to use the processors. ``crowded``: whether a team had to
        wait for processors; ``waited``: how long one of its threads waited, in nanoseconds.
        """

    def observe_together(self, idle: float, held_up: bool) -> bool:
        """
        Add an observation of two threads that share a processor; return the estimate.

        ``idle``: the part of the time, 0 to 1, in which the other processor was idle; below 0 if
        unknown. ``held_up``: whether another process used the shared processor.
        """

def share_processors(shared: bool, threads: int) -> None:
    """
    Set whether other processes use the processors: if so, waiting threads sleep sooner.

    Runs of teams may change it later. ``threads``: the team's number of threads.
    """

class Pace:
    """
    A schedule of runs under a CPU quota.

    A run waits before it begins, so that the system does not stop it in its middle. Teams use
    a schedule after ``limit_processors``.

    Args:
        processors: how many processors the process may use, on average over each period.
        period: the period of the quota, in nanoseconds.

    Raises:
        ValueError: ``processors`` or ``period`` is not above 0, or is infinite.
    """

    def __init__(self, processors: float, period: int) -> None: ...
    def wait(self, now: int, used: int, threads: int, run: int) -> int:
        """
        Return how long the next run has to wait before it begins, in nanoseconds.

        Args:
            now: the time on any clock, in nanoseconds.
            used: the processor time that the process has used until then, in nanoseconds.
            threads: the run's number of threads.
            run: the time that the last run took, in nanoseconds.

        Raises:
            ValueError: ``threads`` is out of range (1 to 1024), or ``run`` negative.
        """

def limit_processors(processors: float, period: int) -> None:
    """
    Set the CPU quota of this process, with which runs of all teams then comply.

    ``processors``: how many processors it may use, on average over each ``period``
    (nanoseconds); infinity: no quota.

    Raises:
        ValueError: ``processors`` or ``period`` is not above 0.
    """

class Request:
    """
    Runs of a program in one call, for inputs of known types and shapes.

    Args:
        team: the team that runs the program.
        names: the names of the wanted outputs.
        every: whether these are all outputs of the network.
        inputs: for each input its name, and the array's element type, shape and alignment in
            bytes.
        own: the bytes of each memory that a run allocates for outputs.
        outputs: for each output the index of its memory in ``own``, and the array's element
            type, shape and strides in bytes.
        exponents: for each of ``inputs``, then of ``own``, as for ``Team.run``.
        ndarray, empty, uint8: NumPy's.
        known: for each input whose value decides sizes its name, and the array's element type,
            shape and bytes; these are no inputs of the program.

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
        known: Sequence[tuple[str, object, Sequence[int], bytes]] = (),
    ) -> None: ...
    def run(self, names: object, arrays: object) -> list[Any] | Literal[False] | None:
        """
        Run the program and return the outputs as new arrays.

        Returns None, and runs nothing, if the general path has to decide: other outputs are wanted,
        an array is no NumPy array of the known type, shape, alignment and value in C order, or the
        calling thread is a team's. Returns False if numbers that must be finite are not.

        Args:
            names: a list of the names of the wanted outputs, or None for all.
            arrays: a dict from the names of inputs to their arrays.

        Raises:
            StepFailed, Stopped, Circular, RuntimeError: as ``Team.run``.
            ValueError: an array overlaps what the program writes.
            MemoryError: there is none for the outputs.
        """

class RequestTree:
    """
    A tree of requests, of which a run takes one path in one call.

    Values that earlier requests have computed decide which request follows. A value is given by
    its source: the index of the request that computes it, from 0 at the start of the path, and
    its index among the outputs of that request. (-1, i) is input i of the tree.

    Args:
        inputs: the names of the inputs.
        failures: the exceptions of a request that end a run, so that the caller repeats the
            request.
        ndarray: NumPy's.
    """

    def __init__(
        self, inputs: Sequence[str], failures: tuple[type[BaseException], ...], ndarray: object
    ) -> None: ...
    def __len__(self) -> int:
        """Return the number of requests and ends."""

    def add_request(
        self,
        after: int,
        asked: Sequence[tuple[tuple[int, int], bool]],
        seen: Sequence[object],
        requests: dict[Any, Any],
        names: list[str],
        feeds: Sequence[tuple[str, tuple[int, int]]],
        owner: object,
    ) -> int:
        """
        Add a request, or replace another one, and return its place.

        If the tree has the request already, nothing changes.

        Args:
            after: the place of the request that it follows; 0 is the start.
            asked: the sources of the values that decide what follows ``after``, in the order in
                which they are asked for, each with True if its elements decide, False if its type
                and shape alone do. What other values led to before is removed.
            seen: the arrays that these values were when the new request followed.
            requests: an object like ``Request`` for each lane; it may get more of them later.
            names: the names of the outputs, which ``Request.run`` is given.
            feeds: the names and the sources of the request's inputs.
            owner: an object that ``run`` returns with the outputs of the request.

        Raises:
            ValueError: a request or a value does not exist, or an array of ``seen`` is not dense.
        """

    def add_end(
        self,
        after: int,
        asked: Sequence[tuple[tuple[int, int], bool]],
        seen: Sequence[object],
        outputs: Sequence[tuple[tuple[int, int], bool]],
    ) -> None:
        """
        Add the end of a path; arguments and errors are those of ``add_request``.

        Args:
            outputs: the sources of the tree's outputs, each with True if the output is a copy.
        """

    def run(
        self, arrays: dict[str, object], lane: object
    ) -> tuple[list[tuple[int, Any, list[Any]]], list[Any] | None]:
        """
        Run requests until none follows, or the one that follows cannot run.

        Returns the requests that have run, each with its place, owner and outputs, and the outputs
        of the tree. The latter are None if the run did not reach an end: ``arrays`` has other
        names, a value was never seen, or a request has answered None or False, or has failed.
        """
