"""How fast the machine is: measured, with the steps that a library has for it."""

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

#: What is copied is at least so large, in bytes, and so often the largest cache.
LEAST_BYTES, CACHES = 1 << 26, 4

#: Where Linux says how large caches are; where it does not, the least it is.
CACHE_FOLDER = Path("/sys/devices/system/cpu/cpu0/cache")

#: A step is repeated for so many nanoseconds, and the best time counts.
ENOUGH_NS = 60_000_000


@dataclass(frozen=True)
class Peaks:
    """What the machine reached with a budget of threads.

    Attributes:
        gflops: 10^9 operations a second, in a product of f32 matrices that caches hold.
        gbytes: 10^9 bytes a second, read and written, in a copy that no cache holds.
    """

    gflops: float
    gbytes: float

    def least_ns(self, operations: int, nbytes: int) -> float:
        """The least nanoseconds for so much: what takes longer, arithmetic or memory.

        >>> Peaks(gflops=100, gbytes=10).least_ns(operations=1000, nbytes=200)
        20.0

        Source: Williams, Waterman and Patterson, "Roofline", Comm. ACM 52(4), 2009.
        """
        return max(operations / self.gflops, nbytes / self.gbytes)


@cache
def peaks_of(threads: int) -> Peaks | None:
    """The peaks of a budget of threads, measured at the first call; None if no library has steps.

    It takes a fraction of a second, and memory for two times four of the largest caches.
    """
    best = Executor.of(threads).run(lambda: _measured(_copied_bytes()))
    return Peaks(best["product"], best["copy"]) if best.keys() >= {"product", "copy"} else None


def _copied_bytes() -> int:
    sizes = [file.read_text().strip() for file in CACHE_FOLDER.glob("index*/size")]  # "32768K"
    return max([LEAST_BYTES, *(CACHES * (int(size.rstrip("K")) << 10) for size in sizes)])


def _measured(nbytes: int) -> dict[str, float]:
    """Of each kind the largest number of counts a nanosecond."""
    best: dict[str, float] = defaultdict(float)
    for library in ready().libraries.values():
        for kind, step, count in library.peaks(nbytes):
            best[kind] = max(best[kind], count / min(times_of(step, ENOUGH_NS)))
    return best


def times_of(step: Step, enough_ns: int) -> Iterator[int]:
    """Nanoseconds of each run of a step, in memory of its own; at least three, and so many in all.

    To be called where steps run, as on an executor's thread.
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
    """What copies so many bytes with all threads of a team; with one if no library has a step.

    It is to be called where steps run, with the budget of threads for which it was made.
    """
    for library in ready().libraries.values():
        for kind, step, _ in library.peaks(nbytes):
            if kind == "copy":
                return _repeatable(step)
    return np.ones(nbytes, np.uint8).copy


def _repeatable(step: Step) -> Callable[[], object]:
    """A step in memory of its own."""
    from vtensor.runtime import _replay

    slots = [Buffer.allocate(size).memory for _, size, _ in _replay.describe(step)["slots"]]
    for memory in slots:
        memory.fill(63)  # as f32 0.747; pages that nobody wrote would all be one page
    return partial(_replay.execute, step, slots)
