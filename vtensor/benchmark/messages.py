"""The messages of a worker: first that it has started, then an answer to each request.

A request is a Task, the seconds of a round, or None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vtensor.benchmark.peer import Array
from vtensor.language.records import dataclass


@dataclass(frozen=True)
class Started:
    """The first message, without a request: the peer's module is imported.

    A request that is sent earlier might wait for ever.
    """


@dataclass(frozen=True)
class Loaded:
    """The answer to a Task: seconds of loading and of a first run, and its outputs."""

    load_s: float
    first_s: float
    outputs: Sequence[Array]


@dataclass(frozen=True)
class Timed:
    """The answer to a round's seconds: the seconds of each run.

    For concurrent runs, the seconds from the end of one run to the next.
    """

    seconds: Sequence[float]


@dataclass(frozen=True)
class Finished:
    """The answer to None: facts about the process and the peer.

    Attributes:
        peak_bytes: the peak memory of the process; None if it is not known.
        conversions: the number of conversions in a run; None if it is not known.
        limits: lower bounds of the time of a run in seconds, by name.
        no_limits: why the limits could not be measured; None if they were.
    """

    peak_bytes: int | None
    conversions: int | None
    limits: Mapping[str, float]
    no_limits: str | None = None


@dataclass(frozen=True)
class Refused:
    """The answer to a request that the peer refuses, or at which it failed."""

    reason: str
    failed: bool


Answer = Started | Loaded | Timed | Finished | Refused
