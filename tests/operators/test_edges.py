"""The edges of operators: nothing to work on, and numbers that are none."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import ops
from libdesc.registry import registry
from ptensor.layout import Layout
from tests.operators.harness import Given, check_outcome, definition, plain, run
from tests.operators.tables.cases import CASES, Case
from tests.operators.tables.nodes import IMAGE, Node, fed, integers, node
from tests.operators.tables.nodes import numbers as f32
from vtensor import Graph
from vtensor.errors import DimError, InputError, NoInvokerError
from vtensor.runtime.session import Session

Array = np.ndarray[Any, Any]

#: Operators whose result is infinite, or no number, of no elements.
INFINITE = ("Mean", "ReduceMax", "ReduceMin", "ReduceLogSum", "ReduceLogSumExp")


def emptied(cases: list[Case]) -> list[Case]:
    """Return cases with one of their extents 0, each once."""
    rows = {}
    for case in cases:
        for dim in re.findall(r"(\w+)=", " ".join(case.inputs)):
            inputs = tuple(re.sub(rf"\b{dim}=\d+", f"{dim}=0", text) for text in case.inputs)
            rows[str(type(case.op)), str(case.op), inputs] = replace(case, inputs=inputs)
    return list(rows.values())


@pytest.mark.parametrize("name", CASES)
def test_an_extent_may_be_zero(name: str) -> None:
    """The result has no elements, or what a sum of nothing is; or the error says what is wrong."""
    libraries = [key[1] for key in registry().invokers if key[0] == name]
    taken = 0
    for case in emptied(CASES[name]):
        given = case.given()
        try:
            expected = run("numpy", case.op, given).values
        except (DimError, InputError):
            continue
        taken += 1
        fractions = [value for value in expected if value.dtype.kind == "f"]
        assert name in INFINITE or all(np.isfinite(value).all() for value in fractions), case
        for library in libraries:
            try:
                values = run(library, case.op, given).values
            except NoInvokerError:
                continue
            for value, wanted in zip(values, expected, strict=True):
                a, b = (array.astype(np.float64) for array in (value, wanted))
                np.testing.assert_allclose(a, b, rtol=1e-6)
    assert taken


NAN, INF = np.nan, np.inf
LEAST = -(2**31)


def s32(*values: int) -> Array:
    """Return a row of s32."""
    return np.array(values, np.int32)


def u8(*values: int) -> Array:
    """Return a row of u8."""
    return np.array(values, np.uint8)


TWO, SIX = (np.array(value, np.float32) for value in (2, 6))
SIGNS = (s32(7, -7, 7, -7), s32(3, 3, -3, -3))
SPECIAL = f32(NAN, -0.0, 0, INF, -INF, 1000, -1000)
EVERY = (
    *("Abs", "Ceil", "Exp", "Floor", "IsInf", "IsNaN", "LeakyRelu", "Neg", "Relu", "Sigmoid"),
    *("Sign", "Softplus", "Softsign", "Tanh", "Erf", "Sqrt", "Log", "Reciprocal", "Elu"),
)

EDGES = [
    *(fed(op_type, 14, SPECIAL) for op_type in EVERY),
    fed("Div", 14, s32(7, -7, 5, -5), s32(2, 2, -2, -2)),
    fed("Mod", 13, *SIGNS),
    fed("Mod", 13, *SIGNS, fmod=1),
    fed("Mod", 13, f32(7.5, -7.5, 7.5, -7.5), f32(2, 2, -2, -2), fmod=1),
    *(
        fed("BitShift", 11, u8(1, 255, 3), u8(8, 9, 7), direction=direction)
        for direction in ("LEFT", "RIGHT")
    ),
    fed("Add", 14, s32(2**31 - 1, LEAST), s32(1, -1)),
    fed("Sub", 14, u8(0, 1), u8(1, 2)),
    fed("Mul", 14, s32(2**31 - 1, 65536), s32(2, 65536)),
    fed("Neg", 13, s32(LEAST, 5)),
    fed("Abs", 13, s32(LEAST, 5)),
    fed("Pow", 15, s32(3, -2), s32(4, 3)),
    fed("Pow", 15, f32(-8, 0, 2), f32(1 / 3, 0, -INF)),
    fed("Round", 11, f32(0.5, 1.5, 2.5, -0.5, -1.5, -2.5, NAN, INF)),
    *(fed("Clip", 13, f32(1, 5, 9, NAN), SIX, TWO, constants=n) for n in (0, 2)),
    fed("Clip", 6, f32(1, 5, 9, NAN), min=6.0, max=2.0),
    *(
        fed(op_type, 13, values)
        for op_type in ("Softmax", "LogSoftmax")
        for values in (f32(-INF, -INF), f32(INF, 1), f32(NAN, 1), f32(-INF, 1, 1000))
    ),
    fed("Hardmax", 13, f32(2, 2, 1)),
    *(
        fed(op_type, 13, values, axis=0, select_last_index=last)
        for op_type in ("ArgMax", "ArgMin")
        for values in (f32(1, 3, 1, 3), f32(NAN, 1, 3))
        for last in (0, 1)
    ),
    *(fed(op_type, 13, f32(1, NAN, 2), f32(NAN, 1, 3)) for op_type in ("Max", "Min", "Mean")),
    fed("Cast", 13, f32(1.9, -1.9, 300, -300), to=TensorProto.INT32),
    fed("Cast", 13, f32(NAN, 0, -0.0, 0.1), to=TensorProto.BOOL),
    fed("Cast", 13, s32(300, -1), to=TensorProto.UINT8),
    fed("Equal", 13, f32(NAN, 0), f32(NAN, -0.0)),
    fed("CumSum", 14, f32(1, NAN, 2), np.array(0), constants=1),
    fed("Where", 16, np.array([True, False]), f32(1, NAN), f32(NAN, 2)),
    fed("Trilu", 14, np.full((3, 3), NAN, np.float32)),
    fed("Pad", 13, f32(1, 2, 3), np.array([-1, -1]), constants=1),
    *(
        fed("TopK", 11, f32(3, 1, 3, 2, 3, 1), integers(3), constants=1, outputs=2, largest=largest)
        for largest in (0, 1)
    ),
    fed("OneHot", 11, np.array([-1, 0, 3, -4]), np.array(3), f32(0, 1), constants=2),
    fed("Add", 14, np.zeros((0, 3), "f4"), np.zeros((1, 3), "f4")),
    fed("Add", 14, np.zeros((2, 0, 1), "f4"), np.zeros((1, 3), "f4")),
    *(
        node(op_type, 19, IMAGE, kernel_shape=[3, 2], **ceil, **pads)
        for op_type in ("MaxPool", "AveragePool")
        for ceil in ({"ceil_mode": 1, "strides": [4, 3]}, {"ceil_mode": 1, "strides": [2, 5]})
        for pads in ({}, {"pads": [2, 1, 2, 1]}, {"pads": [0, 1, 1, 0]})
    ),
]


@pytest.mark.parametrize("node", EDGES, ids=str)
def test_agrees_at_the_edge(node: Node) -> None:
    """What kernels make of NaN and infinities, other tests say."""
    expected = node.expected()
    assert expected is not None
    finite = all(np.isfinite(array).all() for array in node.feeds.values())
    for libraries in (("numpy",), None) if finite else (("numpy",),):
        for ours, theirs in zip(node.run(libraries), expected, strict=True):
            assert ours.dtype == theirs.dtype
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op_type", ["Div", "Mod"])
def test_an_integer_divided_by_zero_is_zero(op_type: str) -> None:
    """ONNX leaves it open, ONNX Runtime stops; here a row of results is whole."""
    assert fed(op_type, 14, s32(7, -7), s32(0, 0)).run()[0].tolist() == [0, 0]


def reduced(op: object, values: Array) -> Array:
    """Return what Eigen reduces a matrix to."""
    [result] = run("eigen", op, [plain(values, "A B")]).values
    return result


@pytest.mark.parametrize("axis", ["A", "B"])
def test_extremes_keep_what_is_not_a_number(axis: str) -> None:
    values = np.arange(300 * 7, dtype=np.float32).reshape(300, 7)
    values[200, 3] = np.nan
    place = 3 if axis == "A" else 200
    for cls in (ops.ReduceMax, ops.ReduceMin):
        result = reduced(cls((axis,), keepdims=False), values)
        assert np.flatnonzero(np.isnan(result)).tolist() == [place]


@pytest.mark.parametrize("dtype", ["int64", "int32", "int8", "uint8"])
def test_integers_wrap_as_numpys(dtype: str) -> None:
    values = np.arange(1, 41).reshape(5, 8).astype(dtype) * np.array(3, dtype)
    for op in (ops.ReduceSum(("A",)), ops.ReduceProd(("B",)), ops.ReduceSumSquare(("A", "B"))):
        [expected] = definition(op, [plain(values, "A B")])
        np.testing.assert_array_equal(reduced(op, values), expected)
    [whole] = definition(ops.ReduceSum(("A", "B"), keepdims=False), [plain(values, "A B")])
    assert whole == values.sum(dtype=dtype)


@pytest.mark.parametrize(
    "op", [ops.CumProd("B"), ops.Det("A", "B"), ops.ReduceProd(("A",))], ids=repr
)
def test_what_a_type_cannot_hold_is_infinite(op: object) -> None:
    values = np.diag(np.full(4, 300.0)).astype(np.float16) + np.float16(20)
    [result] = run("numpy", op, [plain(values, "A B")]).values
    assert result.dtype == np.float16
    assert np.isinf(result).any()


@pytest.mark.parametrize("shape", [(1, 10**6), (10**6, 1), (60_000, 17)])
def test_long_sums_are_accurate(shape: tuple[int, int]) -> None:
    values = np.random.default_rng(3).uniform(0, 1, shape).astype(np.float32)
    exact = values.astype(np.float64).sum(0)
    sums = reduced(ops.ReduceSum(("A",), keepdims=False), values)
    assert np.abs(sums / exact - 1).max() < 3e-7


def test_blocks_with_pads_are_reduced_without_them() -> None:
    """The lanes past 17 channels are 0: no element, so no largest one either."""
    values = -np.random.default_rng(4).uniform(1, 2, (2, 17, 3)).astype(np.float32)
    for op in (ops.ReduceMax(("C",)), ops.ReduceProd(("C", "W")), ops.ReduceLogSumExp(("W",))):
        given = [Given(values, ("N", "C", "W"), Layout("NCW16c"))]
        check_outcome(run("eigen", op, given), definition(op, given), 1e-6)


@pytest.mark.parametrize("axes", [("C",), ("H", "W"), ("W",), ("N", "W")])
def test_far_from_zero_a_variance_is_as_good(axes: tuple[str, ...]) -> None:
    """The mean goes before the squares are added up."""
    values = np.random.default_rng(5).normal(1000, 1, (2, 17, 3, 40)).astype(np.float32)
    given = [plain(values, "N C H W"), plain(np.ones(17, np.float32), "C")]
    op = ops.LayerNormalization(axes)
    check_outcome(run("eigen", op, given), definition(op, given), 2e-4)


NOTHING = [
    *(("ReduceMean", dtype, NAN) for dtype in ("float32", "float16", "float64")),
    *(("ReduceMean", dtype, 0) for dtype in ("int32", "int64")),
    ("GlobalAveragePool", "float32", NAN),
    ("GlobalMaxPool", "float32", -INF),
    ("GlobalLpPool", "float32", 0),
]


@pytest.mark.parametrize("libraries", [None, ("eigen",), ("numpy",)], ids=str)
@pytest.mark.parametrize(("op_type", "dtype", "value"), NOTHING)
def test_what_is_made_of_nothing(
    op_type: str, dtype: str, value: float, libraries: tuple[str, ...] | None
) -> None:
    """By the session that has seen an image with elements, and by folding."""
    x, axes = np.ones((1, 3, 0, 5), dtype), [integers(2, 3)] * (op_type == "ReduceMean")
    expected = np.full((1, 3, 1, 1), value, dtype)
    of_nothing = fed(op_type, 18, x, *axes, constants=len(axes))
    opened = of_nothing.model()
    *_, height, width = opened.graph.input[0].type.tensor_type.shape.dim
    height.dim_param, width.dim_param = "H", "W"
    with Session(opened, threads=1, libraries=libraries) as session:
        assert np.isfinite(session.run(None, {"x0": np.ones((1, 3, 2, 5), dtype)})[0]).all()
        np.testing.assert_array_equal(session.run(None, {"x0": x})[0], expected)
    np.testing.assert_array_equal(of_nothing.folded().run(libraries)[0], expected)


@pytest.mark.parametrize("library", ["numpy", "eigen"])
@pytest.mark.parametrize("inner", [0, 2])
def test_a_place_outside_is_refused_where_rows_have_no_elements(library: str, inner: int) -> None:
    values = np.zeros((3, inner, 5, 4), np.float32)
    images = [plain(array, "N H T F") for array in (values, values[:, :, :2])]
    start = plain(np.array([0, 4, 0], np.int64), "N")
    with pytest.raises(InputError, match="index 5 along T, which has 5 elements"):
        run(library, ops.TensorScatter("T", "N"), [*images, start])


#: Operators that find as much as the data decide.
FINDING = [
    ops.NonZero(("A", "B")),
    *(ops.Unique(("A", "B"), axis, order) for axis in ("", "A", "B") for order in (True, False)),
    *(ops.Select(("A", "B"), axis) for axis in ("", "A", "B")),
]


@pytest.mark.parametrize("op", FINDING, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int64, np.bool_, np.uint32])
def test_nan_negative_zero_and_equal_elements_are_found_as_numpy_finds_them(
    op: Any, dtype: Any
) -> None:
    random = np.random.default_rng(1)
    x = np.array([1, 0, -0.0, np.nan, 2, np.nan], np.float32)[random.integers(6, size=(5, 4))]
    x = np.nan_to_num(x) if dtype is not np.float32 else x
    operands = [plain(x.astype(dtype), "A B")]
    if isinstance(op, ops.Select):
        operands.append(plain(np.arange(9) % 3 > 0, "k"))
    same_as_definition(op, operands)


@pytest.mark.parametrize("axis", ["", "A"])
@pytest.mark.parametrize("ascending", [True, False])
@pytest.mark.parametrize("kind", ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u8"])
def test_distinct_elements_of_every_size_are_numpys(axis: str, ascending: bool, kind: str) -> None:
    random = np.random.default_rng(2)
    bits = random.integers(256, size=(300, np.dtype(kind).itemsize), dtype=np.uint8)
    x = bits.view(kind)[random.integers(300, size=900)]
    op = ops.Unique(("A", "B"), axis, ascending)
    same_as_definition(op, [plain(x, "A B")])
    same_as_definition(op, [plain(np.sort(x, 0)[:1], "A B")])


@pytest.mark.parametrize(("width", "library"), [(1, "eigen"), (15, "eigen"), (16, "onednn")])
def test_many_short_pieces_are_joined_by_a_copy_at_a_stride(width: int, library: str) -> None:
    parts = [np.arange(70 * width, dtype=np.float32).reshape(70, width) + i for i in range(3)]
    graph = Graph("joined")
    names = [graph.input(f"x{i}", {"H": 70, "W": width}) for i in range(3)]
    graph.output(graph.add(ops.Concat("W"), *names), "y")
    with Session(graph.seal(), threads=1, cache_dir=None) as session:
        [y] = session.run(None, {f"x{i}": part for i, part in enumerate(parts)})
        assert [step.library for step in session.plan.steps] == [library]
    np.testing.assert_array_equal(y, np.concatenate(parts, 1))


@pytest.mark.parametrize("seed", range(8))
def test_boxes_of_equal_scores_and_no_numbers_are_chosen_as_numpy_chooses_them(seed: int) -> None:
    random = np.random.default_rng(seed)
    boxes = random.random((2, 30, 4), np.float32).round(seed % 3 + 1)
    scores = random.random((2, 3, 30), np.float32).round(1)
    boxes[0, 4, 1] = boxes[1, 0] = scores[0, 1, 2] = np.nan
    op = ops.NonMaxSuppression(seed * 4, 0.3, (-np.inf, 0.4)[seed % 2], bool(seed & 2))
    same_as_definition(op, [plain(boxes, "B S corner"), plain(scores, "B C S")])


def same_as_definition(op: Any, operands: list[Any]) -> None:
    """Check that Eigen's outputs are NumPy's."""
    rows = (run(library, op, operands).values for library in ("eigen", "numpy"))
    for own, expected in zip(*rows, strict=True):
        np.testing.assert_array_equal(own, expected)
