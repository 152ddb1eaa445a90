"""Ratios and their intervals, and how far apart outputs are."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtensor.benchmark.agreement import difference
from vtensor.benchmark.summary import Ratio, Summary, log_ratios, mean_ratio

TIMES = st.lists(st.floats(1e-4, 10.0), min_size=1, max_size=5)
PAIRS = st.lists(st.tuples(TIMES, TIMES), min_size=2, max_size=8)


@given(PAIRS, st.floats(0.01, 100.0))
def test_a_slower_peer_has_a_larger_ratio_and_the_interval_holds_it(
    pairs: list[tuple[list[float], list[float]]], factor: float
) -> None:
    theirs, ours = [a for a, _ in pairs], [b for _, b in pairs]
    one = mean_ratio([log_ratios(theirs, ours)], seed=0)
    slower = mean_ratio([log_ratios([[factor * t for t in a] for a in theirs], ours)], seed=0)
    assert one.low <= one.value * (1 + 1e-9)
    assert one.value <= one.high * (1 + 1e-9)
    found, wanted = np.array([*vars(slower).values()]), factor * np.array([*vars(one).values()])
    assert found == pytest.approx(wanted, rel=1e-6)


@given(PAIRS)
def test_who_is_divided_by_whom_turns_the_ratio_round(
    pairs: list[tuple[list[float], list[float]]],
) -> None:
    theirs, ours = [a for a, _ in pairs], [b for _, b in pairs]
    one, other = (mean_ratio([log_ratios(*p)], seed=0) for p in ((theirs, ours), (ours, theirs)))
    assert one.value * other.value == pytest.approx(1, rel=1e-6)
    assert one.low * other.high == pytest.approx(1, rel=1e-6)


def coverage(true: float, claimed: float) -> float:
    """How often an interval holds a number, in rounds whose ratio is really ``true``."""
    rng, held = np.random.default_rng(0), 0
    for _ in range(300):
        noise = rng.normal(0, 0.1, (2, 20, 1))
        found = mean_ratio([log_ratios(true * np.exp(noise[0]), np.exp(noise[1]))], seed=0)
        held += found.low <= claimed <= found.high
    return held / 300


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    assert 0.9 <= coverage(1.3, 1.3) <= 0.98
    assert coverage(1.3, 1.0) < 0.1  # the twin: not any number is in them


def test_a_round_in_which_the_machine_is_slow_is_slow_for_both() -> None:
    found = mean_ratio([log_ratios([[2.0], [20.0]], [[1.0], [10.0]])], seed=0)
    assert found == Ratio(2.0, 2.0, 2.0)


def test_models_count_alike_however_many_rounds_they_had() -> None:
    one, four = np.log([1.0] * 9), np.log([4.0])
    assert mean_ratio([one, four], seed=0).value == 2.0


def test_one_slow_run_is_in_the_tail_and_not_in_the_middle() -> None:
    found = Summary.of([[1.0] * 50, [1.0] * 49 + [9.0]])
    assert (found.median_s, found.min_s, found.runs) == (1.0, 1.0, 100)
    assert found.p99_s > 1.0
    assert found.std_s == pytest.approx(0.796, abs=1e-3)


INF, NAN = np.inf, np.nan


@pytest.mark.parametrize(
    ("ours", "theirs", "wanted"),
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
    ],
)
def test_how_far_apart(ours: list[object], theirs: list[object], wanted: float) -> None:
    found = difference([np.array(ours)], [np.array(theirs)])
    assert found == pytest.approx(wanted, nan_ok=True)


def test_objects_are_compared_as_what_they_are() -> None:
    text, objects = np.array(["a", "b"]), np.array(["a", "b"], object)
    assert difference([text], [objects]) == 0
    assert difference([text], [objects[::-1]]) == INF


def test_small_floats_are_numbers() -> None:
    one = np.array([1, 4], ml_dtypes.bfloat16)
    assert difference([one], [one + one]) == 1
