"""The experiment with shapes that are new: what is asked and told, not how fast it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from eval import shapes
from eval.experiment import Store
from eval.reshaped import resized, through
from eval.shapes import axes_of, compared, sizes_of
from tests.frontends.support import f32, model
from vtensor.benchmark.report import Case

TEXT = "g (float[n, 3, 48, w] x) => (float[n, 4, 44, v] y) { c = Conv(x, k) y = Relu(c) }"


@pytest.fixture
def case(tmp_path: Path) -> Case:
    """A convolution of open batch and width."""
    file = tmp_path / "small.onnx"
    onnx.save(model(TEXT, k=f32(4, 3, 5, 5)), str(file))
    return Case("small", file, {"x": f32(1, 3, 48, 64)})


def test_sizes_change_one_name_at_a_time(case: Case) -> None:
    axes = axes_of(case)
    assert axes == {"x": {"0": "n", "3": "w"}}
    asked = sizes_of(case.feeds, axes)
    assert asked == [{"n": 2}, {"n": 3}, {"w": 96}, {"w": 128}, {"w": 32}, {"w": 160}]
    batch, wide = (resized(case.feeds, axes, sizes)["x"] for sizes in asked[1:3])
    assert (batch.shape, wide.shape) == ((3, 3, 48, 64), (1, 3, 48, 96))
    np.testing.assert_array_equal(wide[..., 64:], wide[..., :32])


def test_a_past_grows_by_one() -> None:
    asked = sizes_of({"past": f32(2, 5)}, {"past": {"1": "past_length"}})
    assert asked == [{"past_length": 5 + more} for more in range(1, 25)]


def test_a_shape_that_is_refused_is_none_and_the_others_go_on() -> None:
    def run(feeds: Any) -> list[Any]:
        if feeds["x"].size == 2:
            raise ValueError
        return [feeds["x"] * 2]

    seconds, answers = through(run, [{"x": np.ones(size)} for size in (1, 2, 3)])
    assert [[one is None for one in row] for row in seconds.values()] == [[False, True, False]] * 3
    assert [[array.tolist() for array in row] for row in answers] == [[[2]], [], [[2, 2, 2]]]


def test_engines_are_compared_before_anything_is_told(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"ROUNDS": 1, "USED_S": 0.1}.items():
        monkeypatch.setattr(shapes, name, value)
    rows = compared(case, axes_of(case), ["vtensor", "onnxruntime"], 1)
    assert [row["engine"] for row in rows] == ["vtensor", "onnxruntime"]
    assert all(row["new_s"] > 0 and row["refused"] == 0 and row["shapes"] == 6 for row in rows)
    assert rows[0]["ratio"] == 1
    store = Store(tmp_path, {"when": "now"})
    store.table(shapes.NAME, shapes.KEY).add(rows)
    text = "\n".join(shapes.section(store))
    assert "| small |" in text
    assert "Geometric mean of the ratio to onnxruntime" in text
    monkeypatch.setattr(shapes, "difference", lambda *_: 1.0)
    [ours] = compared(case, axes_of(case), ["vtensor", "onnxruntime"], 1)
    assert ours["engine"] == "vtensor"
    assert "its answers differ by 1.0e+00" in capsys.readouterr().err
