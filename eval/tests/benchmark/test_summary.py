"""Ratios and their intervals, and how far apart outputs are."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtensor.benchmark.agreement import difference
from vtensor.benchmark.summary import Ratio, Summary, log_ratios, mean_ratio

Rounds = list[list[float]]
TIMES = st.lists(st.floats(1e-4, 10.0), min_size=1, max_size=5)
#: The times of two engines, in as many rounds.
BOTH = st.lists(st.tuples(TIMES, TIMES), min_size=2, max_size=8).map(
    lambda pairs: [[*side] for side in zip(*pairs, strict=True)]
)


def ratio(theirs: Rounds, ours: Rounds) -> Ratio:
    return mean_ratio([log_ratios(theirs, ours)], seed=0)


@given(BOTH, st.floats(0.01, 100.0))
def test_a_slower_peer_has_a_larger_ratio_and_the_interval_holds_it(
    both: list[Rounds], factor: float
) -> None:
    theirs, ours = both
    usual = ratio(theirs, ours)
    slower = ratio([[factor * t for t in times] for times in theirs], ours)
    assert usual.low <= usual.value * (1 + 1e-9)
    assert usual.value <= usual.high * (1 + 1e-9)
    expected = factor * np.array([*vars(usual).values()])
    assert np.array([*vars(slower).values()]) == pytest.approx(expected, rel=1e-6)


@given(BOTH)
def test_exchanging_the_engines_inverts_the_ratio(both: list[Rounds]) -> None:
    theirs, ours = both
    usual, inverse = ratio(theirs, ours), ratio(ours, theirs)
    assert usual.value * inverse.value == pytest.approx(1, rel=1e-6)
    assert usual.low * inverse.high == pytest.approx(1, rel=1e-6)


def coverage(true: float, claimed: float) -> float:
    """Return how often an interval holds a number, in rounds whose ratio is really ``true``."""
    rng, held = np.random.default_rng(0), 0
    for _ in range(300):
        noise = rng.normal(0, 0.1, (2, 20, 1))
        interval = mean_ratio([log_ratios(true * np.exp(noise[0]), np.exp(noise[1]))], seed=0)
        held += interval.low <= claimed <= interval.high
    return held / 300


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    assert 0.9 <= coverage(1.3, 1.3) <= 0.98
    assert coverage(1.3, 1.0) < 0.1  # the twin: not any number is in them


def test_a_slow_round_is_slow_for_both_and_models_count_alike() -> None:
    assert ratio([[2.0], [20.0]], [[1.0], [10.0]]) == Ratio(2.0, 2.0, 2.0)
    many, few = np.log([1.0] * 9), np.log([4.0])
    assert mean_ratio([many, few], seed=0).value == 2.0


def test_one_slow_run_is_in_the_tail_and_not_in_the_middle() -> None:
    summary = Summary.of([[1.0] * 50, [1.0] * 49 + [9.0]])
    assert (summary.median_s, summary.min_s, summary.runs) == (1.0, 1.0, 100)
    assert summary.p99_s > 1.0
    assert summary.std_s == pytest.approx(0.796, abs=1e-3)


INF, NAN = np.inf, np.nan
SMALL = np.array([1, 4], ml_dtypes.bfloat16)


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ([1, -INF, INF, NAN], [1, -INF, INF, NAN], 0),
        ([4, INF], [3, INF], 0.25),  # of the largest finite value
        ([INF, NAN], [INF, NAN], 0),
        ([1, INF], [1, 1], INF),
        ([1, 1], [1, INF], INF),
        ([INF], [-INF], INF),
        ([1, NAN], [1, 1], NAN),
        ([1, 1], [1, NAN], NAN),
        ([INF, 1], [1, NAN], NAN),
        ([0, 0], [0, 0.5], 0.5),
        ([4 + 1j], [4 + 2j], 1 / abs(4 + 1j)),
        ([], [], 0),
        (["a", "b"], ["a", "b"], 0),
        (["a", "b"], ["a", "c"], INF),
        (["1"], [1], INF),
        (["a", "b"], np.array(["a", "b"], object), 0),
        (["a", "b"], np.array(["b", "a"], object), INF),
        (SMALL, SMALL + SMALL, 1),
    ],
)
def test_how_far_outputs_are_apart(ours: Any, theirs: Any, expected: float) -> None:
    apart = difference([np.array(ours)], [np.array(theirs)])
    assert apart == pytest.approx(expected, nan_ok=True)
