"""A node that is computed while a model is loaded gives the bits that it gives in a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from tests.property.strategies import Array, laws
from vtensor import Session
from vtensor.language.dtype import numpy_dtype

FEW = laws(3)
FLOATS = ("f16", "bf16", "f32", "f64")
NARROW = ("f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz")
SIGNED, UNSIGNED = ("s8", "s16", "s32", "s64"), ("u8", "u16", "u32", "u64")
INTEGERS = (*SIGNED, *UNSIGNED)
#: The orders of libraries that a run is tried with.
LIBRARIES = (None, ["eigen"], ["numpy"])

#: Numbers at which conversions change: ends of integer types and what is next to them.
ENDS = sorted(
    {
        sign * (2**power + more)
        for power in (0, 7, 8, 15, 16, 23, 24, 31, 32, 52, 53, 62, 63, 64)
        for more in (-1, 0, 1)
        for sign in (-1, 1)
    }
)
ODD = [0.0, -0.0, 0.5, -0.5, 1.5, -1.5, 3e9, -3e9, 1e30, -1e30, 3e38, np.inf, -np.inf, np.nan]


def reals(dtype: str) -> st.SearchStrategy[Array]:
    """Rows of floats, longer than any vector of a processor and no multiple of one."""
    numbers = st.one_of(
        st.sampled_from([*map(float, ENDS), *ODD]), st.floats(width=32), st.floats(-300, 300)
    )
    return _rows(numbers, dtype)


def whole(dtype: str) -> st.SearchStrategy[Array]:
    info = np.iinfo(numpy_dtype(dtype))
    ends = [end for end in ENDS if info.min <= end <= info.max]
    low, high = int(info.min), int(info.max)
    numbers = st.one_of(st.sampled_from([0, low, high, *ends]), st.integers(low, high))
    return _rows(numbers, dtype)


def rows(dtype: str) -> st.SearchStrategy[Array]:
    if dtype == "bool":
        return _rows(st.booleans(), dtype)
    return whole(dtype) if dtype in INTEGERS else reals(dtype)


def _rows(numbers: st.SearchStrategy[Any], dtype: str) -> st.SearchStrategy[Array]:
    wide = "f8" if dtype in (*FLOATS, *NARROW) else numpy_dtype(dtype)

    def made(row: Sequence[Any]) -> Array:
        with np.errstate(all="ignore"):
            narrow = np.float32 if dtype in NARROW else wide  # ml_dtypes does not know every pair
            return np.array(row, wide).astype(narrow).astype(numpy_dtype(dtype))

    return st.lists(numbers, min_size=37, max_size=37).map(made)


class Node(NamedTuple):
    """A node of all operands: its operator and attributes, and the output's type if another."""

    op_type: str
    attributes: Mapping[str, Any] = MappingProxyType({})
    to: str = ""


def computed(
    nodes: Sequence[Node],
    operands: Sequence[Array],
    known: int,
    libraries: Sequence[str] | None = None,
) -> list[Array]:
    """Run a model whose nodes each read all inputs, and return the output of each.

    Args:
        nodes: the nodes.
        operands: the values of the inputs.
        known: how many of the inputs, from the end on, are initializers.
        libraries: as for a session.
    """
    names = [f"x{place}" for place in range(len(operands))]
    pairs = list(zip(names, operands, strict=True))
    fed, held = pairs[: len(pairs) - known], pairs[len(pairs) - known :]
    makes = [np.dtype(numpy_dtype(node.to)) if node.to else operands[0].dtype for node in nodes]
    graph = helper.make_graph(
        [
            helper.make_node(node.op_type, names, [f"y{place}"], **node.attributes)
            for place, node in enumerate(nodes)
        ],
        "nodes",
        [helper.make_tensor_value_info(name, _number(x.dtype), x.shape) for name, x in fed],
        [
            helper.make_tensor_value_info(f"y{place}", _number(dtype), None)
            for place, dtype in enumerate(makes)
        ],
        [numpy_helper.from_array(x, name) for name, x in held],
    )
    opsets = [helper.make_opsetid("", 21)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    with Session(model, threads=1, libraries=libraries, cache_dir=None) as session:
        return session.run(None, dict(fed))


def _number(dtype: np.dtype[Any]) -> int:
    return helper.np_dtype_to_tensor_dtype(dtype)


def same_bits(one: Array, other: Array) -> bool:
    """Return True for equal bits; every NaN equals every other."""
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    nan = np.isnan(one) & np.isnan(other) if one.dtype.kind not in "iub" else np.bool_(False)
    kind = f"u{one.itemsize}"
    return bool(((one.view(kind) == other.view(kind)) | nan).all())


def fold_alike(nodes: Sequence[Node], operands: Sequence[Array], parameters: int = 0) -> None:
    """See that nodes give the same bits folded and run; the last operands may be constants."""
    folded = computed(nodes, operands, len(operands))
    for libraries in LIBRARIES:
        run = computed(nodes, operands, parameters, libraries)
        for node, one, other in zip(nodes, folded, run, strict=True):
            assert same_bits(one, other), (node, libraries, one, other)


def test_bits_that_differ_are_seen() -> None:
    assert same_bits(np.array([np.nan, 1]), np.array([-np.nan, 1]))
    assert not same_bits(np.array([0.0]), np.array([-0.0]))
    assert not same_bits(np.array([1]), np.array([2]))
    assert not same_bits(np.array([1], "i4"), np.array([1], "u4"))


@pytest.mark.parametrize("dtype", [*FLOATS, *NARROW, *INTEGERS, "bool"])
@FEW
@given(st.data())
def test_casts_fold_alike(dtype: str, data: st.DataObject) -> None:
    """Floats beyond an integer type become its end, and NaN 0."""
    x = data.draw(rows(dtype))
    types = [to for to in (*FLOATS, *NARROW, *INTEGERS, "bool") if to != dtype]
    nodes = [Node("Cast", {"to": _number(np.dtype(numpy_dtype(to)))}, to) for to in types]
    fold_alike(nodes, [x])
    for to, result in zip(types, computed(nodes, [x], 1), strict=True):
        if dtype in FLOATS and to in INTEGERS:
            info = np.iinfo(numpy_dtype(to))  # Python compares its own numbers exactly
            low, high = int(info.min), int(info.max)
            exact = [0 if v != v else min(max(v, low), high) for v in x.astype(float).tolist()]
            assert result.tolist() == [int(v) for v in exact]


@pytest.mark.parametrize("dtype", INTEGERS)
@FEW
@given(st.data())
def test_arithmetic_of_integers_folds_alike(dtype: str, data: st.DataObject) -> None:
    """Results wrap, and a division by zero gives zero."""
    x, y = data.draw(whole(dtype)), data.draw(whole(dtype))
    info = np.iinfo(numpy_dtype(dtype))
    x[:3], y[:3] = info.min, [0, -1 if info.min else 1, info.min]
    named = ("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min", "BitwiseAnd", "BitwiseOr")
    fold_alike([*map(Node, named), Node("BitwiseXor"), Node("Mod", {"fmod": 1})], [x, y])


@pytest.mark.parametrize("dtype", UNSIGNED)
@FEW
@given(st.data())
def test_shifts_fold_alike(dtype: str, data: st.DataObject) -> None:
    """Nothing is left of a shift by as many bits as there are, or more."""
    x, width = data.draw(whole(dtype)), 8 * np.dtype(numpy_dtype(dtype)).itemsize
    by = data.draw(_rows(st.sampled_from([0, 1, width - 1, width, width + 1, 255]), dtype))
    nodes = [Node("BitShift", {"direction": way}) for way in ("LEFT", "RIGHT")]
    fold_alike(nodes, [x, by])
    left, right = computed(nodes, [x, by], 2)
    pairs = [*zip(x.tolist(), by.tolist(), strict=True)]
    assert left.tolist() == [(a << b) % (1 << width) for a, b in pairs]
    assert right.tolist() == [a >> b for a, b in pairs]


EXACT = {
    SIGNED: ("Neg", "Abs", "Sign", "Relu", "BitwiseNot"),
    FLOATS: ("Floor", "Ceil", "Round", "Sign", "Abs", "Neg"),
}


@pytest.mark.parametrize(
    ("dtype", "named"), [(dtype, names) for types, names in EXACT.items() for dtype in types]
)
@FEW
@given(data=st.data())
def test_exact_functions_fold_alike(
    dtype: str, named: tuple[str, ...], data: st.DataObject
) -> None:
    fold_alike([*map(Node, named)], [data.draw(rows(dtype))])


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
@FEW
@given(st.data())
def test_comparisons_fold_alike(dtype: str, data: st.DataObject) -> None:
    x, y = data.draw(rows(dtype)), data.draw(rows(dtype))
    x[::3] = y[::3]
    named = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
    fold_alike([Node(name, to="bool") for name in named], [x, y])
    fold_alike([Node("Where", to=dtype)], [data.draw(rows("bool")), x, y])


@pytest.mark.parametrize("to", ["s8", "u8", "s16", "u16"])
@pytest.mark.parametrize("dtype", ["f16", "f32"])
@FEW
@given(st.data())
def test_steps_of_floats_fold_alike(dtype: str, to: str, data: st.DataObject) -> None:
    x, zero = data.draw(reals(dtype)), np.array(3, numpy_dtype(to))
    scale = np.array(0.125, numpy_dtype(dtype))
    fold_alike([Node("QuantizeLinear", to=to)], [x, scale, zero], 2)


#: Each with its parameters.
SHAPES: list[tuple[Node, list[Array]]] = [
    (Node("Reshape"), [np.array([2, -1, 3])]),
    (Node("Transpose", {"perm": [2, 0, 1]}), []),
    (Node("Slice"), [np.array([3, 1]), np.array([-9, 4]), np.array([0, 2]), np.array([-2, 1])]),
    (Node("Gather", {"axis": 1}), [np.array([[2, -1], [0, 0]])]),
    (Node("Tile"), [np.array([1, 2, 1])]),
    (Node("Expand"), [np.array([2, 4, 3, 3])]),
    (Node("Unsqueeze"), [np.array([0, -1])]),
    (Node("Trilu", {"upper": 0}), [np.array(1)]),
    (Node("Flatten", {"axis": 2}), []),
]


@pytest.mark.parametrize("dtype", ["f32", "f16", "s64", "u8", "bool"])
@FEW
@given(st.data())
def test_operators_of_shapes_fold_alike(dtype: str, data: st.DataObject) -> None:
    x = data.draw(rows(dtype))[:36].reshape(4, 3, 3)
    for node, parameters in SHAPES:
        fold_alike([node], [x, *parameters], len(parameters))


@pytest.mark.parametrize("dtype", ["s32", "s64", "u32", "u64"])
@FEW
@given(st.data())
def test_reductions_of_integers_fold_alike(dtype: str, data: st.DataObject) -> None:
    x = data.draw(whole(dtype))[:36].reshape(4, 9)
    named = ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceMean", "ReduceL1")
    fold_alike([*map(Node, named)], [x, np.array([1])], 1)


@FEW
@given(st.integers(0, 2**32 - 1))
def test_sums_of_floats_fold_alike(seed: int) -> None:
    """Sums may be in another order, which changes them by 1e-6 of the largest at most."""
    x = np.random.default_rng(seed).standard_normal((9, 40), np.float32)
    cases = [
        ([Node("ReduceSum"), Node("ReduceMean"), Node("ReduceL1")], [x, np.array([1])], 1),
        ([Node("CumSum")], [x, np.array(1)], 1),
        ([Node("MatMul")], [x, np.ascontiguousarray(x.T)], 0),
        ([Node("Einsum", {"equation": "ij,kj->ik"})], [x, x], 0),
    ]
    for nodes, operands, parameters in cases:
        folded = computed(nodes, operands, 2)
        for libraries in LIBRARIES:
            run = computed(nodes, operands, parameters, libraries)
            for one, other in zip(folded, run, strict=True):
                assert np.abs(one - other).max() <= 1e-6 * np.abs(one).max()
