"""Kernels that move and pick: ties, what is no number, and indices that lie outside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import ops
from ptensor.layout import Layout
from tests.operators.harness import Array, Given, decide, plain, run
from vtensor import Graph, Session
from vtensor.errors import InputError, VTensorError
from vtensor.language.dtype import from_numpy

RANDOM = np.random.default_rng(3)


def native(op: Any, *rows: tuple[str, Array], order: str = "") -> list[Array]:
    """Return what Eigen's kernel gives; images come in an order."""
    inputs = [plain(array, names) for names, array in rows]
    if order:
        inputs[0] = replace(inputs[0], layout=Layout(order))
    outcome = run("eigen", op, inputs)
    assert all(kernel.startswith("eigen:") for kernel in outcome.kernels)
    return outcome.values


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
            [padded] = native(ops.Pad(("W",), (before, 5), mode), ("N C H W", x), order=order)
            np.testing.assert_array_equal(padded, expected, mode)


def test_a_frame_that_is_not_finite_has_no_transform() -> None:
    x = image(9, 12, 2)
    x[3, 5, 1] = np.inf
    [waves] = native(ops.DFT("T", "part"), ("N T part", x))
    assert np.isnan(waves[3]).all()
    assert np.isfinite(np.delete(waves, 3, axis=0)).all()


@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", "i1", "u1"])
def test_of_equal_elements_the_first_comes_first(dtype: str) -> None:
    x = np.array([[3, 1, 3, 0, 1, 3, 0]], dtype)
    values, places = native(ops.TopK("B", 4), ("A B", x))
    assert (values.tolist(), places.tolist()) == ([[3, 3, 3, 1]], [[0, 2, 5, 1]])
    values, places = native(ops.TopK("B", 3, largest=False), ("A B", x))
    assert (values.tolist(), places.tolist()) == ([[0, 0, 1]], [[3, 6, 1]])
    for last, expected in ((False, [0, 3]), (True, [5, 6])):
        ends = [
            native(op("B", False, last), ("A B", x))[0].item() for op in (ops.ArgMax, ops.ArgMin)
        ]
        assert ends == expected


def test_no_number_is_the_largest_and_the_smallest() -> None:
    """As NumPy ranks: of ArgMax and ArgMin both; TopK has it first, or last."""
    x = np.array([1, np.nan, -0.0, 0.0, np.inf, np.nan], np.float32)
    assert [native(op("A", False), ("A", x))[0].item() for op in (ops.ArgMax, ops.ArgMin)] == [1, 1]
    assert native(ops.ArgMax("A", False, True), ("A", x))[0].item() == 5
    assert native(ops.TopK("A", 6), ("A", x))[1].tolist() == [1, 5, 4, 0, 2, 3]
    assert native(ops.TopK("A", 6, largest=False), ("A", x))[1].tolist() == [2, 3, 0, 4, 1, 5]


def test_an_image_is_cut_where_it_lies() -> None:
    x = Given(RANDOM.integers(0, 9, (1, 16, 6, 6)), tuple("NCHW"), Layout("NHWC"))
    wants = decide("eigen", ops.Slice(("H",), (4,), (0,), (-2,)), [x])
    assert [str(layout) for layout in wants.layouts] == ["NHWC", "NHWC"]
    x = Given(x.array, x.dims, Layout("NCHW16c"))
    assert str(decide("eigen", ops.Pad(("W",), (1, 1), "edge"), [x]).layouts[1]) == "NCHW16c"
    assert str(decide("eigen", ops.Pad(("C",), (1, 1), "edge"), [x]).layouts[1]) == "NCHW"


def session_of(op: Any, *rows: tuple[str, Array]) -> tuple[Session, dict[str, Array]]:
    """Return a session of one node, and its feeds."""
    graph = Graph("one")
    inputs = [
        graph.input(f"x{i}", dict(zip(dims.split(), a.shape, strict=True)), from_numpy(a.dtype))
        for i, (dims, a) in enumerate(rows)
    ]
    graph.output(graph.add(op, *inputs, name="picked"), "y")
    return Session(graph), {f"x{i}": array for i, (_, array) in enumerate(rows)}


def places(*sizes: int) -> Array:
    return np.zeros(sizes, np.int64)


X = ("A B", image(5, 4))
BOXES = ("R corner", np.ones((2, 4), np.float32))
ROW, COLUMN = "index 5 along A, which has 5 elements", "index 5 along B, which has 4 elements"
#: Operators, their inputs, and what the error says where the first place is 5.
OUTSIDE: list[tuple[Any, list[tuple[str, Array]], str]] = [
    (ops.Gather("A"), [X, ("n", np.array([1, 0]))], ROW),
    (ops.GatherElements("B"), [X, ("A B", np.zeros((2, 3), np.int32))], COLUMN),
    (ops.GatherND(("A", "B"), "K"), [X, ("n K", places(3, 2))], ROW),
    (ops.ScatterElements("A"), [X, ("A B", places(1, 2)), ("A B", image(1, 2))], ROW),
    (ops.ScatterND(("B",), "K"), [X, ("n K", places(2, 1)), ("n A", image(2, 5))], COLUMN),
    (
        ops.ReverseSequence("B", "A"),
        [X, ("A", places(5))],
        "length 5 of sequence 0, which has 4",
    ),
    (ops.TensorScatter("B", "A"), [X, ("A B", image(5, 2)), ("A", places(5))], COLUMN),
    (
        ops.RoiAlign((1, 1)),
        [("N C H W", image(5, 1, 2, 2)), BOXES, ("R", places(2))],
        "index 5 along N, which has 5 elements",
    ),
]


@pytest.mark.parametrize(
    ("op", "rows", "error"), OUTSIDE, ids=[type(op).__name__ for op, *_ in OUTSIDE]
)
def test_an_index_outside_is_named_and_the_session_goes_on(
    op: Any, rows: list[tuple[str, Array]], error: str
) -> None:
    session, feeds = session_of(op, *rows)
    name = type(op).__name__
    where = "x2" if name in ("RoiAlign", "TensorScatter") else "x1"
    with session:
        assert all("python" not in step.kernels for step in session.plan.steps)
        [before] = session.run(None, feeds)
        wrong = feeds[where].copy()
        wrong.flat[0] = 5
        binding = session.bind(feeds | {where: wrong})
        pattern = f"(?s)^{name} 'picked': .*{error}.* (x|past) .* : "
        for run_wrong in (lambda: session.run(None, feeds | {where: wrong}), binding.run):
            with pytest.raises(InputError, match=pattern):
                run_wrong()
        np.testing.assert_array_equal(session.run(None, feeds)[0], before)


@pytest.mark.parametrize(
    ("op", "sizes"),
    [
        (ops.Expand((("A", 1 << 40), ("B", 1 << 40))), (1, 1)),
        (ops.Tile((("A", 1 << 62),)), (5, 4)),
        (ops.Pad(("A",), (1 << 61, 1 << 62)), (5, 4)),
    ],
)
def test_sizes_that_overflow_are_a_typed_error(op: Any, sizes: tuple[int, int]) -> None:
    with pytest.raises(VTensorError):
        session_of(op, ("A B", image(*sizes)))
