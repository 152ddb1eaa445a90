"""Bounds behind a product are exact, on NaN and infinities too, under each cap."""

from __future__ import annotations

import numpy as np
import pytest

from libdesc.onednn import _onednn as dnn
from tests.libraries.processes import printed
from tests.native import bounds
from tests.native.packing import blocked, plain


@pytest.mark.parametrize("cap", ["sse41", "avx2", "max"])
def test_bounds(cap: str) -> None:
    *faults, last = printed("-m", "tests.native.bounds", cap, timeout=500).splitlines()
    assert faults == []
    assert int(last.removesuffix(" run")) > 20


@pytest.mark.parametrize(
    ("alg", "alpha", "what"), [("relu", 0.0, "NaN"), ("hardswish", 2.0**127, "overflow")]
)
def test_inexact_bounds_are_found(alg: str, alpha: float, what: str) -> None:
    """The twin: oneDNN's relu has 0 of NaN, behind a convolution on AVX2 NaN of -infinity instead;
    its hardswish has that everywhere.
    """
    attr = dnn.Attr().eltwise(alg, alpha)
    leads = (bounds.LEADS[name] for name in ("convolution", "matmul"))
    found = [
        line for lead in leads for line in bounds.wrong(lead, blocked, "f32", float("inf"), attr)
    ]
    assert any(line.startswith(what) for line in found)


def test_bounds_of_a_part_of_an_image() -> None:
    """What lies between the rows of dst is nobody's."""
    whole = plain((1, 18, 14, 15)).submemory((1, 18, 12, 12), (0, 0, 1, 2))

    def make(form: bounds.Form, dtype: str, attr: dnn.Attr) -> dnn.Primitive:
        src, weights = plain((1, 20, 12, 12)), dnn.Desc.any((18, 20, 3, 3), "f32")
        return dnn.convolution(src, weights, None, whole, *bounds.WINDOW, attr)

    assert list(bounds.wrong(make, plain, "f32", 2.7, dnn.Attr().bounds(2.7))) == []


def test_gelu_of_infinities_and_of_the_largest_numbers() -> None:
    """A kernel may make NaN of inf, and inf of 3e38; ordinary numbers cost nothing."""
    values = np.full(5000, 0.5, np.float32)
    values[:5] = np.inf, 3e38, -3e38, np.nan, -np.inf
    form = plain((1, 5000))
    made = dnn.matmul(plain((1, 1)), form, None, form, dnn.Attr().gelu())
    one = np.ones((1, 1), np.float32)
    found, _ = bounds.execute(made, {"src": one, "weights": values[None]})
    np.testing.assert_array_equal(found[0, :5], np.array([np.inf, 3e38, 0, np.nan, np.nan], "f4"))
    np.testing.assert_allclose(found[0, 5:], 0.345731, rtol=1e-5)
    before = dnn.bounds_info()
    bounds.execute(made, {"src": one, "weights": np.full((1, 5000), 0.5, np.float32)})
    assert dnn.bounds_info()["repeats"] == before["repeats"]


def test_nothing_follows_gelu() -> None:
    attr = dnn.Attr().gelu()
    assert (len(attr), repr(attr)) == (1, "Attr(strict, gelu)")
    with pytest.raises(ValueError, match="nothing can follow gelu"):
        attr.eltwise("abs")
    with pytest.raises(ValueError, match="cannot follow a sum"):
        dnn.Attr().sum().gelu()


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
