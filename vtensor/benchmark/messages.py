"""What a worker says over its pipe: first that it listens, then an answer to each request.

It is asked with a Task, with a round's seconds, or None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vtensor.benchmark.peer import Array
from vtensor.language.records import dataclass


@dataclass(frozen=True)
class Started:
    """Unasked: the peer's module is imported. What is sent before might wait for ever."""


@dataclass(frozen=True)
class Loaded:
    """To a Task: seconds until the peer was ready, and until it had the outputs of a first run."""

    load_s: float
    first_s: float
    outputs: Sequence[Array]


@dataclass(frozen=True)
class Timed:
    """To a round's seconds: those that each run took, or until one more of several was done."""

    seconds: Sequence[float]


@dataclass(frozen=True)
class Finished:
    """To None: the most memory that the process held, and what the peer says of itself.

    ``no_limits`` says why there are no limits, where the peer has some and could not tell them.
    """

    peak_bytes: int | None
    conversions: int | None
    limits: Mapping[str, float]
    no_limits: str | None = None


@dataclass(frozen=True)
class Refused:
    """To anything: no. ``failed`` is False where the peer itself gave the reason."""

    reason: str
    failed: bool


Answer = Started | Loaded | Timed | Finished | Refused
