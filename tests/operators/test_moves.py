"""Kernels that move and pick: against formulas of their own, and on indices that lie outside."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import floor
from typing import Any

import numpy as np
import pytest

from ops import (
    DFT,
    ArgMax,
    ArgMin,
    Conv2D,
    DeformConv,
    Expand,
    Gather,
    GatherElements,
    GatherND,
    GridSample,
    Pad,
    Resize,
    ReverseSequence,
    RoiAlign,
    ScatterElements,
    ScatterND,
    Slice,
    TensorScatter,
    Tile,
    TopK,
)
from ptensor.layout import Layout
from tests.operators.harness import Given, decide, run
from vtensor import Graph, Session
from vtensor.errors import InputError, VTensorError
from vtensor.language.dtype import from_numpy

Array = np.ndarray[Any, Any]
RANDOM = np.random.default_rng(3)


def native(op: Any, *rows: tuple[str, Array], order: str = "") -> list[Array]:
    """What Eigen's kernel gives."""
    inputs = [Given(array, tuple(names.split()), _layout(names, order)) for names, array in rows]
    found = run("eigen", op, inputs)
    assert all(kernel.startswith("eigen:") for kernel in found.kernels)
    return found.values


def _layout(names: str, order: str) -> Layout:
    given = Layout(order) if order else None
    same = given is not None and set(given.dims) == set(names.split())
    return given if given is not None and same else Layout.plain(names.split())


def image(*sizes: int) -> Array:
    return RANDOM.normal(size=sizes).astype(np.float32)


def test_pad_reflects_and_wraps_as_its_formula_says() -> None:
    x, before, size = image(2, 3, 4, 5), 7, 17
    places: dict[str, Callable[[int], int]] = {
        "reflect": lambda i: 4 - abs(i % 8 - 4),
        "wrap": lambda i: i % 5,
        "edge": lambda i: min(max(i, 0), 4),
    }
    for mode, place in places.items():
        expected = x.take([place(i - before) for i in range(size)], axis=3)
        for order in ("NCHW", "NHWC", "NCHW8c"):
            [found] = native(Pad(("W",), (before, 5), mode), ("N C H W", x), order=order)
            np.testing.assert_array_equal(found, expected, mode)


def keys(d: float, a: float = -0.75) -> float:
    """Keys' cubic, equation 4."""
    d = abs(d)
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0


def test_resize_is_a_cubic_sum_of_four_by_four() -> None:
    x = image(1, 2, 4, 5)
    [found] = native(Resize(("H", "W"), (7, 8), (7 / 4, 8 / 5), "cubic"), ("N C H W", x))
    expected = np.zeros((1, 2, 7, 8))
    for i, j in product(range(7), range(8)):
        v, u = (i + 0.5) * 4 / 7 - 0.5, (j + 0.5) * 5 / 8 - 0.5
        for r, c in product(range(floor(v) - 1, floor(v) + 3), range(floor(u) - 1, floor(u) + 3)):
            pixel = x[:, :, min(max(r, 0), 3), min(max(c, 0), 4)]
            expected[:, :, i, j] += pixel * keys(r - v) * keys(c - u)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def bilinear(x: Array, v: float, u: float) -> Array:
    """C channels of x (C H W) at a place; 0 outside."""
    total = np.zeros(x.shape[0])
    for r, c in product((floor(v), floor(v) + 1), (floor(u), floor(u) + 1)):
        if 0 <= r < x.shape[1] and 0 <= c < x.shape[2]:
            total += x[:, r, c] * (1 - abs(r - v)) * (1 - abs(c - u))
    return total


def test_grid_sample_is_a_sum_of_two_by_two() -> None:
    x, grid = image(2, 3, 5, 6), RANDOM.uniform(-1.3, 1.3, (2, 3, 4, 2)).astype(np.float32)
    [found] = native(GridSample(), ("N C H W", x), ("N H W axis", grid))
    for n, i, j in np.ndindex(2, 3, 4):
        u, v = grid[n, i, j]
        expected = bilinear(x[n], ((v + 1) * 5 - 1) / 2, ((u + 1) * 6 - 1) / 2)
        np.testing.assert_allclose(found[n, :, i, j], expected, atol=1e-5)


def test_roi_align_is_the_mean_of_places_in_a_bin() -> None:
    x = image(2, 3, 9, 9)
    boxes = np.array([[1, 2, 6, 7.5], [0.5, 0.5, 8, 5]], np.float32)
    op = RoiAlign((2, 3), sampling_ratio=2)
    rows = ("R corner", boxes), ("R", np.array([1, 0]))
    [found] = native(op, ("N C H W", x), *rows)
    for r, i, j in np.ndindex(2, 2, 3):
        left, top, right, bottom = boxes[r] - 0.5
        places = [
            bilinear(
                x[1 - r],
                top + (i + (a + 0.5) / 2) * (bottom - top) / 2,
                left + (j + (b + 0.5) / 2) * (right - left) / 3,
            )
            for a, b in product(range(2), repeat=2)
        ]
        np.testing.assert_allclose(found[r, :, i, j], np.mean(places, axis=0), atol=1e-5)


@pytest.mark.parametrize("length", [18, 31, 64, 97, 1000])
def test_a_fourier_transform_is_a_sum_of_waves(length: int) -> None:
    """Also of a length that has a large prime factor; and back again."""
    x = image(9, length, 2)
    waves = np.exp(-2j * np.pi / length * np.outer(np.arange(length), np.arange(length)))
    wanted = (x[..., 0] + 1j * x[..., 1]) @ waves
    [found] = native(DFT("T", "part"), ("N T part", x))
    np.testing.assert_allclose(found[..., 0] + 1j * found[..., 1], wanted, 1e-5, 1e-4)
    [back] = native(DFT("T", "part", inverse=True), ("N T part", found))
    np.testing.assert_allclose(back, x, 1e-5, 1e-5)


def test_a_frame_that_is_not_finite_has_no_transform() -> None:
    x = image(9, 12, 2)
    x[3, 5, 1] = np.inf
    [found] = native(DFT("T", "part"), ("N T part", x))
    assert np.isnan(found[3]).all()
    assert np.isfinite(np.delete(found, 3, axis=0)).all()


def test_a_convolution_that_bends_nowhere_is_a_convolution() -> None:
    x, w = image(2, 5, 9, 8), image(6, 5, 3, 3)
    [found] = native(
        DeformConv((2, 1), (1, 1, 1, 1)),
        ("N C H W", x),
        ("O I h w", w),
        ("N K H W", np.zeros((2, 18, 5, 8), np.float32)),
    )
    op = Conv2D((2, 1), (1, 1, 1, 1))
    [wanted] = native(op, ("N C H W", x), ("O I h w", w))
    np.testing.assert_allclose(found, wanted, 1e-5, 1e-5)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", "i1", "u1"])
def test_of_equal_elements_the_first_comes_first(dtype: str) -> None:
    x = np.array([[3, 1, 3, 0, 1, 3, 0]], dtype)
    values, places = native(TopK("B", 4), ("A B", x))
    assert (values.tolist(), places.tolist()) == ([[3, 3, 3, 1]], [[0, 2, 5, 1]])
    values, places = native(TopK("B", 3, largest=False), ("A B", x))
    assert (values.tolist(), places.tolist()) == ([[0, 0, 1]], [[3, 6, 1]])
    for last, expected in ((False, [0, 3]), (True, [5, 6])):
        found = [native(op("B", False, last), ("A B", x))[0].item() for op in (ArgMax, ArgMin)]
        assert found == expected


def test_no_number_is_the_largest_and_the_smallest() -> None:
    """As NumPy ranks: of ArgMax and ArgMin both; TopK has it first, or last."""
    x = np.array([1, np.nan, -0.0, 0.0, np.inf, np.nan], np.float32)
    assert [native(op("A", False), ("A", x))[0].item() for op in (ArgMax, ArgMin)] == [1, 1]
    assert native(ArgMax("A", False, True), ("A", x))[0].item() == 5
    assert native(TopK("A", 4), ("A", x))[1].tolist() == [1, 5, 4, 0]
    assert native(TopK("A", 6, largest=False), ("A", x))[1].tolist() == [2, 3, 0, 4, 1, 5]


def test_an_image_is_cut_where_it_lies() -> None:
    x = Given(RANDOM.integers(0, 9, (1, 16, 6, 6)), tuple("NCHW"), Layout("NHWC"))
    wants = decide("eigen", Slice(("H",), (4,), (0,), (-2,)), [x])
    assert [str(layout) for layout in wants.layouts] == ["NHWC", "NHWC"]
    x = Given(x.array, x.dims, Layout("NCHW16c"))
    assert str(decide("eigen", Pad(("W",), (1, 1), "edge"), [x]).layouts[1]) == "NCHW16c"
    assert str(decide("eigen", Pad(("C",), (1, 1), "edge"), [x]).layouts[1]) == "NCHW"


def session_of(op: Any, *rows: tuple[str, Array]) -> tuple[Session, dict[str, Array]]:
    """A session of one node, and what it is fed."""
    graph = Graph("one")
    inputs = [
        graph.input(f"x{i}", dict(zip(dims.split(), a.shape, strict=True)), from_numpy(a.dtype))
        for i, (dims, a) in enumerate(rows)
    ]
    graph.output(graph.add(op, *inputs, name="picked"), "y")
    return Session(graph), {f"x{i}": array for i, (_, array) in enumerate(rows)}


X = ("A B", image(5, 4))
OUTSIDE: dict[str, tuple[Any, tuple[tuple[str, Array], ...], str]] = {
    "Gather": (Gather("A"), (X, ("n", np.array([1, 0]))), "index 5 along A, which has 5 elements"),
    "GatherElements": (
        GatherElements("B"),
        (X, ("A B", np.zeros((2, 3), np.int32))),
        "index 5 along B, which has 4 elements",
    ),
    "GatherND": (
        GatherND(("A", "B"), "K"),
        (X, ("n K", np.zeros((3, 2), np.int64))),
        "index 5 along A, which has 5 elements",
    ),
    "ScatterElements": (
        ScatterElements("A"),
        (X, ("A B", np.zeros((1, 2), np.int64)), ("A B", image(1, 2))),
        "index 5 along A, which has 5 elements",
    ),
    "ScatterND": (
        ScatterND(("B",), "K"),
        (X, ("n K", np.zeros((2, 1), np.int64)), ("n A", image(2, 5))),
        "index 5 along B, which has 4 elements",
    ),
    "ReverseSequence": (
        ReverseSequence("B", "A"),
        (X, ("A", np.zeros(5, np.int64))),
        "length 5 of sequence 0, which has 4 elements",
    ),
    "TensorScatter": (
        TensorScatter("B", "A"),
        (X, ("A B", image(5, 2)), ("A", np.zeros(5, np.int64))),
        "index 5 along B, which has 4 elements",
    ),
    "RoiAlign": (
        RoiAlign((1, 1)),
        (
            ("N C H W", image(5, 1, 2, 2)),
            ("R corner", np.ones((2, 4), np.float32)),
            ("R", np.zeros(2, np.int64)),
        ),
        "index 5 along N, which has 5 elements",
    ),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_an_index_outside_is_named_and_the_session_goes_on(name: str) -> None:
    op, rows, said = OUTSIDE[name]
    session, feeds = session_of(op, *rows)
    where = "x2" if name in ("RoiAlign", "TensorScatter") else "x1"
    with session:
        assert all("python" not in step.kernels for step in session.plan.steps)
        [before] = session.run(None, feeds)
        wrong = feeds[where].copy()
        wrong.flat[0] = 5
        binding = session.bind(feeds | {where: wrong})
        for wanted in (lambda: session.run(None, feeds | {where: wrong}), binding.run):
            with pytest.raises(
                InputError, match=f"(?s)^{name} 'picked': .*{said}.* (x|past) .* : "
            ):
                wanted()
        np.testing.assert_array_equal(session.run(None, feeds)[0], before)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Expand((("A", 1 << 40), ("B", 1 << 40))),
        lambda: Tile((("A", 1 << 62),)),
        lambda: Pad(("A",), (1 << 61, 1 << 62)),
    ],
)
def test_sizes_that_overflow_are_a_typed_error(make: Callable[[], Any]) -> None:
    with pytest.raises(VTensorError):
        session_of(make(), ("A B", image(1, 1)) if "Expand" in str(make()) else X)
