"""What libraries reach on this machine, for the costs of plans: measured once, and kept on disk.

Each library with a ``peaks`` handler runs the first product and the first copy that it offers, on
one thread: about 30 ms for oneDNN with AVX-512, 100 ms with SSE4.1. One thread, since a team's
times say more about what else runs on the machine than about the library; a plan's choice is
between libraries on the same threads, so that the number of threads cancels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from libdesc.library import RegisteredLibrary
from libdesc.registry import ready
from libdesc.schema import Rates
from ptensor.evaluation import Step
from vtensor.language.imported import logger
from vtensor.language.interrupts import pass_signals
from vtensor.language.wording import reason
from vtensor.runtime.execution.executor import Executor

#: So many bytes are copied: twice that is more than a core's own caches hold.
COPY_BYTES = 1 << 24

#: A step is repeated for so many nanoseconds, and the best time counts.
ENOUGH_NS = 8_000_000

#: The kinds of steps that a library is to have.
KINDS = ("product", "copy")

#: A speed is kept as the nanoseconds of so many operations or bytes; what is not between these
#: bounds is no speed of a machine.
COUNT, LEAST_NS, MOST_NS = 10**9, 10**3, 10**12

_known: dict[tuple[str, str], Rates | None] = {}

_log = logger(__name__)


def speeds() -> Mapping[str, Rates]:
    """What each library reaches with one thread; of those that can show it, by name."""
    found = {one.name: _speed(one) for one in ready().libraries.values() if one.shows_peaks}
    return {name: rates for name, rates in found.items() if rates is not None}


def _speed(library: RegisteredLibrary) -> Rates | None:
    """From this process, else from the disk, else measured; None where that fails."""
    key = library.name, library.version()
    if key not in _known:
        _known[key] = _looked_up(library)
    return _known[key]


def _looked_up(library: RegisteredLibrary) -> Rates | None:
    """From the disk, else measured."""
    from vtensor.runtime.tuning.timings import Timings  # with a database, which few sessions need
    from vtensor.runtime.tuning.tuner import environment

    timings = Timings(environment(1, [library]))
    rows = [(f"peak {kind}", library.name) for kind in KINDS]
    found = [timings.get(*row) or 0 for row in rows]
    if not _sensible(found):
        try:
            found = _measured(library)
        except Exception as error:  # of the library: plans do without
            pass_signals(error)
            _log.warning("%s: its speed cannot be measured: %s", library.name, reason(error))
            return None
        if not _sensible(found):
            return None
        for row, ns in zip(rows, found, strict=True):
            timings.put(*row, ns)
    gflops, gbytes = (COUNT / ns for ns in found)
    return Rates(gflops, gbytes, library.rates.call_us)


def _sensible(found: Sequence[int]) -> bool:
    return all(LEAST_NS <= ns <= MOST_NS for ns in found)


def _measured(library: RegisteredLibrary) -> list[int]:
    """Nanoseconds of ``COUNT`` operations, and of as many bytes; 0 where no step shows it."""
    found, executor = dict.fromkeys(KINDS, 0), Executor.of(1)

    def measure() -> list[int]:
        for kind, step, count in library.peaks(COPY_BYTES):
            if found.get(kind) == 0:
                found[kind] = round(executor.run(partial(_least_ns, step)) * COUNT / count)
            if all(found.values()):
                break
        return [found[kind] for kind in KINDS]

    return executor.planning(measure)


def _least_ns(step: Step) -> int:
    from vtensor.runtime.tuning.peaks import times_of

    return min(times_of(step, ENOUGH_NS))
