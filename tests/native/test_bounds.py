"""Bounds behind a product are exact, on NaN and infinities too, under each cap."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from libdesc.onednn import _onednn as dnn
from tests.native import bounds
from tests.native.packing import blocked, plain


@pytest.mark.parametrize("cap", ["sse41", "avx2", "max"])
def test_bounds(cap: str) -> None:
    command = [sys.executable, "-m", "tests.native.bounds", cap]
    root = Path(__file__).parents[2]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=root, timeout=500)
    assert ran.returncode == 0, ran.stderr
    *faults, last = ran.stdout.splitlines()
    assert faults == []
    assert int(last.removesuffix(" run")) > 20


@pytest.mark.parametrize(
    ("alg", "alpha", "what"), [("relu", 0.0, "NaN"), ("hardswish", 2.0**127, "overflow")]
)
def test_inexact_bounds_are_found(alg: str, alpha: float, what: str) -> None:
    """The twin: oneDNN's relu has 0 of NaN, its hardswish NaN of -infinity."""
    attr = dnn.Attr().eltwise(alg, alpha)
    found = list(bounds.wrong(bounds.LEADS["convolution"], blocked, "f32", float("inf"), attr))
    assert any(line.startswith(what) for line in found)


def test_bounds_of_a_part_of_an_image() -> None:
    """What lies between the rows of dst is nobody's."""
    whole = plain((1, 18, 14, 15)).submemory((1, 18, 12, 12), (0, 0, 1, 2))

    def make(form: bounds.Form, dtype: str, attr: dnn.Attr) -> dnn.Primitive:
        src, weights = plain((1, 20, 12, 12)), dnn.Desc.any((18, 20, 3, 3), "f32")
        return dnn.convolution(src, weights, None, whole, *bounds.WINDOW, attr)

    assert list(bounds.wrong(make, plain, "f32", 2.7, dnn.Attr().bounds(2.7))) == []


def test_nothing_follows_bounds() -> None:
    attr = dnn.Attr().bounds(6.0)
    assert (len(attr), repr(attr)) == (1, "Attr(strict, bounds 6)")
    assert attr == dnn.Attr().bounds(6.0) != dnn.Attr().bounds(3.0)
    with pytest.raises(ValueError, match="nothing can follow bounds"):
        attr.eltwise("abs")
    with pytest.raises(ValueError, match="nothing can follow bounds"):
        attr.bounds(6.0)
    with pytest.raises(ValueError, match="cannot follow a sum"):
        dnn.Attr().sum().bounds(6.0)
    for high in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="high"):
            dnn.Attr().bounds(high)
