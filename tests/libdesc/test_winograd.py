"""Winograd's transforms, and the encoding of weights in their domain."""

from __future__ import annotations

from fractions import Fraction
from itertools import chain, product

import numpy as np
import pytest

from ptensor import Layout
from ptensor.encoding import Encoding
from ptensor.error import storing_error
from ptensor.physical import pads_are_zero
from ptensor.transform import Transform, transform
from ptensor.winograd import FORMS, transforms
from vtensor.errors import DimError, DTypeError, LayoutError

SIZES = {"O": 40, "I": 5, "h": 3, "w": 3}
DECLARED = Layout("OIhw")
TILED = Layout("hwOI32o:f32(tile=4@h,tile=6@w)")


@pytest.mark.parametrize(("results", "taps"), FORMS)
def test_products_are_the_sums_of_a_convolution(results: int, taps: int) -> None:
    """Exactly: the coefficient of each pair of a signal's and a filter's element is 1 or 0."""
    made = transforms(results, taps)
    count = range(results + taps - 1)
    for i, j, k in product(range(results), count, range(taps)):
        total = sum(made.result[i][p] * made.source[p][j] * made.filter[p][k] for p in count)
        assert total == (j == i + k)


@pytest.mark.parametrize(("results", "taps"), FORMS)
def test_the_kernels_numbers_are_exact_and_halves_are_shared(results: int, taps: int) -> None:
    made = transforms(results, taps)
    for number in chain.from_iterable([*made.source, *made.result]):
        assert Fraction(float(np.float32(float(number)))) == number
    for row in range(1, results + taps - 2, 2):
        pairs = zip(made.source[row], made.source[row + 1], strict=True)
        assert all(one == (-other if j % 2 else other) for j, (one, other) in enumerate(pairs))


def test_weights_are_stored_in_tiles_and_come_back() -> None:
    values = np.random.default_rng(0).normal(size=(40, 5, 3, 3)).astype(np.float32)
    stored = transform(values, DECLARED, TILED, SIZES)
    assert stored.shape == TILED.physical_shape(SIZES) == (6, 8, 2, 5, 32)
    assert stored.nbytes == TILED.nbytes(SIZES, "f32")
    assert pads_are_zero(stored, TILED, SIZES)
    down, across = (np.array(transforms(m, 3).filter, np.float64) for m in (4, 6))
    expected = down @ values[33, 2].astype(np.float64) @ across.T
    np.testing.assert_array_equal(stored[:, :, 1, 2, 1], expected.astype(np.float32))
    np.testing.assert_allclose(transform(stored, TILED, DECLARED, SIZES), values, atol=1e-6)
    other = Layout.of_axes(DECLARED.axes, TILED.encoding)
    moved = transform(stored, TILED, other, SIZES)
    np.testing.assert_array_equal(transform(moved, other, TILED, SIZES), stored)
    assert Transform(TILED, other).exact
    assert Transform(DECLARED, TILED).rounding
    assert Transform(TILED, DECLARED).rounding


def test_a_filter_in_steps_is_stored_as_several() -> None:
    """The first is of even elements, the second of odd ones; they may lie behind another dim."""
    values = np.random.default_rng(0).normal(size=(40, 5, 7, 5)).astype(np.float32)
    sizes = SIZES | {"h": 7, "w": 5}
    stepped = Layout("hwOI2h2w32o:f32(tile=3@h,tile=4@w,step=2)")
    assert Layout(str(stepped)) == stepped
    stored = transform(values, DECLARED, stepped, sizes)
    assert stored.shape == stepped.physical_shape(sizes) == (6, 6, 2, 5, 2, 2, 32)
    assert pads_are_zero(stored, stepped, sizes)
    down, across = (np.array(transforms(m, r).filter, np.float64) for m, r in ((3, 4), (4, 3)))
    for i, j in product(range(2), range(2)):
        phase = np.zeros((4, 3))
        part = values[33, 2, i::2, j::2]
        phase[: part.shape[0], : part.shape[1]] = part
        expected = (down @ phase @ across.T).astype(np.float32)
        np.testing.assert_allclose(stored[:, :, 1, 2, i, j, 1], expected, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(transform(stored, stepped, DECLARED, sizes), values, atol=1e-6)
    assert Transform(DECLARED, stepped).rounding
    with pytest.raises(DimError, match="along h, which has 2"):
        stepped.physical_shape(sizes | {"h": 2})


def test_a_tile_has_a_text() -> None:
    assert Layout(str(TILED)) == TILED
    assert TILED.rounds("f32")
    assert TILED.rename({"h": "w", "w": "h"}).encoding == Encoding.parse("f32(tile=4@w,tile=6@h)")
    assert TILED.restrict("OI").encoding is None
    assert not TILED.same(Layout("hwOI32o"), SIZES, "f32")


NO_TILES = ["f32(tile=0@h)", "bf16(tile=4@h)", "f32(tile=4)", "f32(tile=4@h,tile=2@h)"]
NO_STEPS = ["f32(step=2)", *(f"f32(tile=4@h,step={step})" for step in ("0", "2@h", "[2]@h"))]


@pytest.mark.parametrize("text", [*NO_TILES, *NO_STEPS, "f32(scale=4@h)"])
def test_an_encoding_that_is_no_tile_is_refused(text: str) -> None:
    with pytest.raises(LayoutError, match="encoding"):
        Encoding.parse(text)


def test_a_tile_needs_its_filter() -> None:
    with pytest.raises(DimError, match="along h, which has 1"):
        TILED.physical_shape(SIZES | {"h": 1})
    with pytest.raises(DimError, match="along h, no dim here"):
        Layout("Ow:f32(tile=4@h)")
    with pytest.raises(LayoutError, match="no part of h"):
        Encoding.parse("f32(tile=4@h)").sliced("h", 0, 2)
    with pytest.raises(DTypeError, match="sums of values"):
        storing_error("f32", Encoding.parse("f32(tile=4@h)"))
