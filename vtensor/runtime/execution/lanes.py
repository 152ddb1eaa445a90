"""Lanes of a session. A lane is one stream of runs with its own threads and memory.

Runs of different lanes are concurrent. Runs of one lane take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from itertools import cycle
from typing import TYPE_CHECKING, TypeVar

from vtensor.errors import InputError
from vtensor.language.records import dataclass
from vtensor.runtime.execution.executor import Executor, budget_of

if TYPE_CHECKING:
    from vtensor.runtime._replay import Arena

T = TypeVar("T")

#: The values of ``Session(hint=)``: one run at a time on all threads; or as many runs as threads.
HINTS = ("latency", "throughput")


def executors_of(threads: int | None, streams: int | None, hint: str) -> list[Executor]:
    """Return the executors of a session, one for each stream.

    Args:
        threads: the number of kernel threads of all streams together; None is every processor that
            the process may use.
        streams: the number of concurrent runs; None lets the hint decide.
        hint: ``"latency"`` (one stream) or ``"throughput"`` (one stream for each thread).

    Raises:
        InputError: an argument is out of range.
    """
    if hint not in HINTS:
        raise InputError(f"hint={hint!r} must be one of {', '.join(HINTS)}")
    if streams is None:
        streams = budget_of(threads) if hint == "throughput" else 1
    return Executor.for_streams(threads, streams)


@dataclass(frozen=True, eq=False)
class Lane:
    """A stream: its thread team and memory, for one run at a time.

    Attributes:
        executor: the executor that the runs of the lane use.
        arena: the memory of values between steps.
    """

    executor: Executor
    arena: Arena


@dataclass(frozen=True, eq=False)
class Lanes:
    """The lanes of a session, all with equally many threads.

    Args:
        every: the lanes, at least one.

    Attributes:
        runs: the lane of each run in progress; each key is an object made for the run.
    """

    every: Sequence[Lane]
    runs: dict[object, Lane] = field(default_factory=dict)
    _turns: Iterator[Lane] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_turns", cycle(self.every))

    @property
    def threads(self) -> int:
        """The number of kernel threads of all lanes together."""
        return sum(lane.executor.threads for lane in self.every)

    @property
    def busy(self) -> bool:
        """True if a run is in progress."""
        return bool(self.runs)

    @property
    def idle(self) -> Lane | None:
        """A lane in which no run is in progress; None if all lanes are busy.

        Two threads that ask at the same time may get the same lane. Their runs then take turns.
        """
        if not self.runs:
            return self.every[0]
        taken = self.runs.values()
        return next((lane for lane in self.every if lane not in taken), None)

    def run(self, work: Callable[[Lane], T]) -> T:
        """Call ``work`` with an idle lane and return its result.

        If all lanes are busy, the next lane in rotation is used.
        """
        lane = (self.idle if self.runs else self.every[0]) or next(self._turns)
        run = object()
        try:
            self.runs[run] = lane
            return work(lane)
        finally:
            self.runs.pop(run, None)
