"""The speeds that libraries reach on this machine, for estimates. They are measured once and cached
on disk.

From each library with a ``peaks`` handler, the first matrix product and the first copy that it
offers are run on one thread. Times of several threads would depend on other processes of the
machine. A plan compares libraries on the same number of threads, so that this number cancels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from libdesc.library import RegisteredLibrary
from libdesc.registry import ready
from libdesc.schema import Rates
from ptensor.evaluation import Step
from vtensor.language.process.imported import logger
from vtensor.language.process.interrupts import pass_signals
from vtensor.language.wording import reason
from vtensor.runtime.execution.executor import Executor

#: The bytes copied by the step of kind ``copy``. Source and target together are larger than a
#: core's own caches.
COPY_BYTES = 1 << 24

#: The nanoseconds for which a step is repeated; the fastest run counts.
STEP_BUDGET_NS = 8_000_000

#: The kinds of steps that a library must offer to be calibrated.
STEP_KINDS = ("product", "copy")

#: A speed is saved as a time: that of this many arithmetic operations or bytes, in nanoseconds.
#: Times below ``MIN_NS`` or above ``MAX_NS`` are implausible for any machine and rejected.
OPERATIONS, MIN_NS, MAX_NS = 10**9, 10**3, 10**12

_known: dict[tuple[str, str], Rates | None] = {}

_log = logger(__name__)


def speeds() -> Mapping[str, Rates]:
    """Return the speeds of libraries on one thread, by name of the library.

    Libraries that have no ``peaks`` handler or cannot be measured are missing.
    """
    measured = {
        library.name: _speed(library)
        for library in ready().libraries.values()
        if library.shows_peaks
    }
    return {name: rates for name, rates in measured.items() if rates is not None}


def _speed(library: RegisteredLibrary) -> Rates | None:
    """Return a library's speed from memory, else from disk, else measured now.

    Returns None if measuring fails.
    """
    key = library.name, library.version()
    if key not in _known:
        _known[key] = _looked_up(library)
    return _known[key]


def _looked_up(library: RegisteredLibrary) -> Rates | None:
    """Return a library's speed from disk, else measured; None if measuring fails."""
    # Both load a database driver, which few sessions need.
    from vtensor.runtime.tuning.timings import Timings
    from vtensor.runtime.tuning.tuner import environment

    timings = Timings(environment(1, [library]))
    rows = [(f"peak {kind}", library.name) for kind in STEP_KINDS]
    times_ns = [timings.get(*row) or 0 for row in rows]
    if not _sensible(times_ns):
        try:
            times_ns = _measured(library)
        except Exception as error:  # an error of the library: its declared speed is used
            pass_signals(error)
            _log.warning("%s: its speed cannot be measured: %s", library.name, reason(error))
            return None
        if not _sensible(times_ns):
            return None
        for row, ns in zip(rows, times_ns, strict=True):
            timings.put(*row, ns)
    gflops, gbytes = (OPERATIONS / ns for ns in times_ns)
    return Rates(gflops, gbytes, library.rates.call_us)


def _sensible(times_ns: Sequence[int]) -> bool:
    return all(MIN_NS <= ns <= MAX_NS for ns in times_ns)


def _measured(library: RegisteredLibrary) -> list[int]:
    """Return two times in nanoseconds: of a matrix product and of a copy that a library offers.

    The first is scaled to ``OPERATIONS`` arithmetic operations, the second to as many bytes. A time
    is 0 if the library offers no such step.
    """
    times_ns, executor = dict.fromkeys(STEP_KINDS, 0), Executor.of(1)

    def measure() -> list[int]:
        for kind, step, count in library.peaks(COPY_BYTES):
            if times_ns.get(kind) == 0:
                times_ns[kind] = round(executor.run(partial(_least_ns, step)) * OPERATIONS / count)
            if all(times_ns.values()):
                break
        return [times_ns[kind] for kind in STEP_KINDS]

    return executor.planning(measure)


def _least_ns(step: Step) -> int:
    from vtensor.runtime.tuning.peaks import times_of

    return min(times_of(step, STEP_BUDGET_NS))
