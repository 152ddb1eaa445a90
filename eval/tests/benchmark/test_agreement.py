"""How far apart outputs are, where they are no plain numbers too."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from vtensor.benchmark.agreement import difference

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
