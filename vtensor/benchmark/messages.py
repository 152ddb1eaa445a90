"""The messages of a worker process: first that it has started, then an answer to each request.

A request is a Task (a model to load), the seconds for which a round of runs is timed, or None at
the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vtensor.benchmark.peer import Array
from vtensor.language.records import dataclass


@dataclass(frozen=True)
class Started:
    """The first message, which answers no request: the worker has imported the peer's module.

    A request that is sent before this message might wait for ever.
    """


@dataclass(frozen=True)
class Loaded:
    """The answer to a Task.

    Attributes:
        load_s: the seconds until the model was loaded.
        first_s: the seconds until the first run had ended, loading included.
        outputs: the outputs of the first run.
    """

    load_s: float
    first_s: float
    outputs: Sequence[Array]


@dataclass(frozen=True)
class Timed:
    """The answer to a request to time a round of runs.

    Attributes:
        seconds: the time of each run; for concurrent runs, from the end of one run to the end of
            the next.
    """

    seconds: Sequence[float]


@dataclass(frozen=True)
class Finished:
    """The answer to the last request, None: facts about the process and the peer.

    Attributes:
        peak_bytes: the peak memory of the process; None if it is not known.
        conversions: the number of conversions in a run; None if it is not known.
        limits: lower bounds of the time of a run in seconds, by name of the bound.
        no_limits: why the limits could not be measured; None if they were.
        python_steps: the number of steps of a run that call back into Python; None if it is not
            known.
    """

    peak_bytes: int | None
    conversions: int | None
    limits: Mapping[str, float]
    no_limits: str | None = None
    python_steps: int | None = None


@dataclass(frozen=True)
class Refused:
    """The answer to a request that the peer refuses, or in which the peer failed.

    Attributes:
        reason: the message of the error.
        failed: True if the peer failed, False if it refuses the request.
    """

    reason: str
    failed: bool


Answer = Started | Loaded | Timed | Finished | Refused
