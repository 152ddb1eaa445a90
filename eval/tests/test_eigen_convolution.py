"""The experiment on Eigen's convolutions: what is measured, not how fast it is."""

from __future__ import annotations

import numpy as np
import pytest

from eval.kernels import eigen_convolution
from eval.kernels.eigen_convolution import Row, Shape
from vtensor.runtime import _replay


def row(work: float, rate: float, ratio: float, times: int = 1) -> Row:
    return Row("", times, work, rate, rate * ratio, 1.0, ratio)


def test_the_convolutions_of_resnet50() -> None:
    found = eigen_convolution.resnet50()
    assert found.total() == 53
    assert Shape(inputs=3, outputs=64, size=224, kernel=7, stride=2, pad=3) in found
    work = sum(shape.gflop * times for shape, times in found.items())
    assert work == pytest.approx(8.17, abs=0.01)  # strides in the 3x3 kernels


def test_all_three_do_the_same_work() -> None:
    """On ones; blocks of 16 channels have no pads."""
    shape = Shape(inputs=16, outputs=32, size=9, kernel=3, stride=2, pad=0)
    for contestant in eigen_convolution.contestants(shape, threads=1):
        slots = _replay.describe(contestant.step)["slots"]
        for memory, (_, _, access) in zip(contestant.memory, slots, strict=True):
            memory.view(np.float32)[:] = 1 if access == "read" else np.nan
        assert contestant() > 0
        dst = contestant.memory[[name for name, _, _ in slots].index("dst")].view(np.float32)
        assert dst.tolist() == [16 * 3 * 3] * (4 * 4 * 32)


def test_a_total_goes_by_time() -> None:
    total = eigen_convolution.total
    assert total([row(2, 1, 0.5), row(1, 1, 1.0, times=2)]) == pytest.approx(2 / 3)
    assert total([row(2, 4, 0.5), row(2, 4, 0.5)]) == pytest.approx(0.5)


def test_what_misses_the_mark_is_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["eigen_convolution"])
    for ratio, code in ((0.51, 0), (0.49, 1)):
        rows = [row(1, 1, 0.9), row(1, 1, ratio)]
        monkeypatch.setattr(eigen_convolution, "under", lambda cap, options, rows=rows: rows)
        assert eigen_convolution.main() == code
        assert f"at worst {ratio}" in capsys.readouterr().out
