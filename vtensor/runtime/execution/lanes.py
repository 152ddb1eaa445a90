"""Where the runs of a session go: side by side in lanes, and one after another in each."""

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

#: What ``hint=`` may be: one run at a time on all threads, or as many as there are threads.
HINTS = ("latency", "throughput")


def executors_of(threads: int | None, streams: int | None, hint: str) -> list[Executor]:
    """The executors of a session.

    Args:
        threads: of all runs together; None is every processor that the process may use.
        streams: how many runs side by side; None is what the hint says.
        hint: ``"latency"`` or ``"throughput"``.

    Raises:
        InputError: one of them is wrong.
    """
    if hint not in HINTS:
        raise InputError(f"hint={hint!r} must be one of {', '.join(HINTS)}")
    if streams is None:
        streams = budget_of(threads) if hint == "throughput" else 1
    return Executor.for_streams(threads, streams)


@dataclass(frozen=True, eq=False)
class Lane:
    """One run at a time.

    Attributes:
        executor: whose thread and team it has.
        arena: the memory of values between steps.
    """

    executor: Executor
    arena: Arena


@dataclass(frozen=True, eq=False)
class Lanes:
    """The lanes of a session, all with as many threads.

    Args:
        every: at least one.

    Attributes:
        runs: the runs that are under way, each an object of its own, with its lane.
    """

    every: Sequence[Lane]
    runs: dict[object, Lane] = field(default_factory=dict)
    _turns: Iterator[Lane] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_turns", cycle(self.every))

    @property
    def threads(self) -> int:
        """Of all together."""
        return sum(lane.executor.threads for lane in self.every)

    @property
    def busy(self) -> bool:
        """A run is under way."""
        return bool(self.runs)

    @property
    def idle(self) -> Lane | None:
        """A lane in which nothing runs, or None.

        Two threads that ask at the same time may get the same one; their runs then queue.
        """
        if not self.runs:
            return self.every[0]
        taken = self.runs.values()
        return next((lane for lane in self.every if lane not in taken), None)

    def run(self, work: Callable[[Lane], T]) -> T:
        """Do it in a lane that is idle; where none is, in the next one, whose runs queue."""
        lane = (self.idle if self.runs else self.every[0]) or next(self._turns)
        run = object()
        try:
            self.runs[run] = lane
            return work(lane)
        finally:
            self.runs.pop(run, None)
