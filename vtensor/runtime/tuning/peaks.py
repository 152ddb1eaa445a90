"""The peaks of the machine: its highest rates of arithmetic and of memory, measured with steps that
libraries offer for the purpose.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from time import perf_counter_ns

import numpy as np

from libdesc.registry import ready
from ptensor.buffer import Buffer
from ptensor.evaluation import Step
from vtensor.language.records import dataclass
from vtensor.runtime.execution.executor import Executor

#: The least number of bytes copied, and the least multiple of the largest cache.
MIN_COPY_BYTES, COPIED_CACHES = 1 << 26, 4

#: Linux's folder of cache sizes; where it is missing, ``MIN_COPY_BYTES`` are copied.
CACHE_FOLDER = Path("/sys/devices/system/cpu/cpu0/cache")

#: The nanoseconds for which a step is repeated; the fastest run counts.
STEP_BUDGET_NS = 60_000_000


@dataclass(frozen=True)
class Peaks:
    """The machine's peaks with a number of threads.

    Attributes:
        gflops: 10^9 operations a second, in a product of f32 matrices that fit the caches.
        gbytes: 10^9 bytes a second, read and written, in a copy larger than any cache.
    """

    gflops: float
    gbytes: float

    def least_ns(self, operations: int, nbytes: int) -> float:
        """Return the least time for some work on this machine, in nanoseconds.

        It is the longer of two times: that of the arithmetic operations and that of the memory
        traffic.

        >>> Peaks(gflops=100, gbytes=10).least_ns(operations=1000, nbytes=200)
        20.0

        Source: Williams, Waterman and Patterson, "Roofline", Comm. ACM 52(4), 2009.
        """
        return max(operations / self.gflops, nbytes / self.gbytes)


@cache
def peaks_of(threads: int) -> Peaks | None:
    """Return the peaks with a number of threads; None if no library offers steps to measure them.

    The first call measures for a fraction of a second and needs memory of eight times the largest
    cache.
    """
    best = Executor.of(threads).run(lambda: _measured(_copied_bytes()))
    return Peaks(best["product"], best["copy"]) if best.keys() >= {"product", "copy"} else None


def _copied_bytes() -> int:
    sizes = [file.read_text().strip() for file in CACHE_FOLDER.glob("index*/size")]  # "32768K"
    return max([MIN_COPY_BYTES, *(COPIED_CACHES * (int(size.rstrip("K")) << 10) for size in sizes)])


def _measured(nbytes: int) -> dict[str, float]:
    """Return the best rate of any library for each kind of step, in arithmetic operations or bytes
    per nanosecond, by kind.

    Args:
        nbytes: the bytes that a copy has to move.
    """
    best: dict[str, float] = defaultdict(float)
    for library in ready().libraries.values():
        for kind, step, count in library.peaks(nbytes):
            best[kind] = max(best[kind], count / min(times_of(step, STEP_BUDGET_NS)))
    return best


def times_of(step: Step, enough_ns: int) -> Iterator[int]:
    """Yield the time in nanoseconds of one run after another of a step, on memory allocated here.

    There are at least three runs, and more until their times add up to ``enough_ns``. The generator
    must be used on the thread that runs steps, such as that of an executor.
    """
    run = _repeatable(step)
    run()
    total = runs = 0
    while runs < 3 or total < enough_ns:
        begin = perf_counter_ns()
        run()
        yield (took := perf_counter_ns() - begin)
        total, runs = total + took, runs + 1


def copying(nbytes: int) -> Callable[[], object]:
    """Return a function that copies ``nbytes`` bytes on all threads of a team.

    If no library offers a copy, NumPy copies on one thread. The function must be called on the
    thread that runs steps, with as many kernel threads as were set when it was made.
    """
    for library in ready().libraries.values():
        for kind, step, _ in library.peaks(nbytes):
            if kind == "copy":
                return _repeatable(step)
    return np.ones(nbytes, np.uint8).copy


def _repeatable(step: Step) -> Callable[[], object]:
    """Return a function that runs a step once for each call.

    The memory of the step is allocated here, once for all calls.
    """
    from vtensor.runtime import _replay

    slots = [Buffer.allocate(size).memory for _, size, _ in _replay.describe(step)["slots"]]
    for memory in slots:
        memory.fill(63)  # as f32 0.747; untouched pages would all map to one zero page
    return partial(_replay.execute, step, slots)
