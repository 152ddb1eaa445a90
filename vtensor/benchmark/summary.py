"""Statistics of times: median and spread, and ratios with confidence intervals.

Peers take turns in each round, so that the times of one round are measured in one state of the
machine. A ratio divides two median times of the same round. The bootstrap draws rounds at random.

Source: Efron and Tibshirani, An Introduction to the Bootstrap, chapter 13 (percentile intervals).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vtensor.language.records import dataclass

Rounds = Sequence[Sequence[float]]  # seconds of each run, by round
Logs = NDArray[np.float64]

#: The number of bootstrap samples, and the confidence level of intervals.
DRAWS, CONFIDENCE = 2000, 0.95


@dataclass(frozen=True)
class Summary:
    """Statistics of the times of several runs, in seconds; ``runs`` is the number of runs."""

    median_s: float
    p99_s: float
    std_s: float
    min_s: float
    runs: int

    @classmethod
    def of(cls, rounds: Rounds) -> Summary:
        """Return the statistics of all runs, given the seconds of each run by round.

        >>> Summary.of([[1.0, 3.0], [2.0]])
        Summary(median_s=2.0, p99_s=2.98, std_s=0.816496580927726, min_s=1.0, runs=3)
        """
        times = np.concatenate([np.asarray(seconds, np.float64) for seconds in rounds])
        middle, tail = np.quantile(times, [0.5, 0.99])
        return cls(float(middle), float(tail), float(times.std()), float(times.min()), times.size)


@dataclass(frozen=True)
class Ratio:
    """A ratio of times, and the ends ``low`` and ``high`` of the ratio's confidence interval."""

    value: float
    low: float
    high: float


def log_ratios(theirs: Rounds, ours: Rounds) -> Logs:
    """Return for each round the natural logarithm of the peer's median time over VTensor's.

    Args:
        theirs: for each round, the seconds of each run of a peer.
        ours: likewise for VTensor.
    """
    pairs = zip(theirs, ours, strict=True)
    return np.array([np.log(np.median(a) / np.median(b)) for a, b in pairs])


def mean_ratio(models: Sequence[Logs], seed: int) -> Ratio:
    """Return the geometric mean over models of the geometric mean over each model's rounds.

    The confidence interval of the mean comes from the bootstrap.

    Args:
        models: the ``log_ratios`` of each model; at least one.
        seed: the seed of the bootstrap, which draws rounds within each model.

    >>> mean_ratio([np.log([2.0, 2.0]), np.log([8.0, 8.0])], seed=0)
    Ratio(value=4.0, low=4.0, high=4.0)
    """
    rng = np.random.default_rng(seed)
    samples = [rng.choice(logs, (DRAWS, logs.size)).mean(axis=1) for logs in models]
    outside = (1 - CONFIDENCE) / 2
    ends = np.quantile(np.mean(samples, axis=0), [outside, 1 - outside])
    value, low, high = np.exp([np.mean([logs.mean() for logs in models]), *ends])
    return Ratio(*(round(float(number), 12) for number in (value, low, high)))
