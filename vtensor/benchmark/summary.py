"""What many times come to: their middle and their spread, and ratios with intervals.

Peers run in rounds, one after another, so that the times of one round are of one state of the
machine: a ratio is of two medians of the same round. A round is what the bootstrap draws.

Source: Efron and Tibshirani, An Introduction to the Bootstrap, chapter 13 (percentile intervals).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vtensor.language.records import dataclass

Rounds = Sequence[Sequence[float]]  # seconds of each run, by round
Logs = NDArray[np.float64]

#: How often rounds are drawn anew, and the part of what then comes that an interval holds.
DRAWS, CONFIDENCE = 2000, 0.95


@dataclass(frozen=True)
class Summary:
    """Seconds of a run."""

    median_s: float
    p99_s: float
    std_s: float
    min_s: float
    runs: int

    @classmethod
    def of(cls, rounds: Rounds) -> Summary:
        """Of all runs of all rounds.

        >>> Summary.of([[1.0, 3.0], [2.0]])
        Summary(median_s=2.0, p99_s=2.98, std_s=0.816496580927726, min_s=1.0, runs=3)
        """
        times = np.concatenate([np.asarray(one, np.float64) for one in rounds])
        middle, tail = np.quantile(times, [0.5, 0.99])
        return cls(float(middle), float(tail), float(times.std()), float(times.min()), times.size)


@dataclass(frozen=True)
class Ratio:
    """A ratio of times, and the ends of its interval."""

    value: float
    low: float
    high: float


def log_ratios(theirs: Rounds, ours: Rounds) -> Logs:
    """Of each round the logarithm of their median over ours."""
    pairs = zip(theirs, ours, strict=True)
    return np.array([np.log(np.median(a) / np.median(b)) for a, b in pairs])


def mean_ratio(models: Sequence[Logs], seed: int) -> Ratio:
    """The geometric mean over models, each of the geometric mean over its rounds.

    Args:
        models: the ``log_ratios`` of each, one model or more.
        seed: of the bootstrap, which draws rounds within each model.

    >>> mean_ratio([np.log([2.0, 2.0]), np.log([8.0, 8.0])], seed=0)
    Ratio(value=4.0, low=4.0, high=4.0)
    """
    rng = np.random.default_rng(seed)
    samples = [rng.choice(logs, (DRAWS, logs.size)).mean(axis=1) for logs in models]
    outside = (1 - CONFIDENCE) / 2
    ends = np.quantile(np.mean(samples, axis=0), [outside, 1 - outside])
    value, low, high = np.exp([np.mean([logs.mean() for logs in models]), *ends])
    return Ratio(*(round(float(number), 12) for number in (value, low, high)))
