"""Weights of 2, 4 and 8 bits that stay packed: values, bad input, memory, sums of any length."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, ValueInfoProto, helper, numpy_helper

import ops
from libdesc.narrow import native
from ops._blocks import packed, unpacked
from tests.libraries.processes import printed
from tests.operators.harness import Array
from vtensor import Graph, Session
from vtensor.errors import InputError, VTensorError

DOMAIN = "com.microsoft"


def model(nodes: list[Any], x: Array, **constants: Array | None) -> ModelProto:
    """Return a model of nodes from x to y."""
    port = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
    known = [numpy_helper.from_array(a, name) for name, a in constants.items() if a is not None]
    graph = helper.make_graph(nodes, "one", [port], [ValueInfoProto(name="y")], known)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def node(op_type: str, *inputs: str, to: str = "y", **attributes: Any) -> Any:
    """Return a node; operators of more than ONNX's alphabet are ONNX Runtime's."""
    domain = DOMAIN if op_type in ("MatMulNBits", "GatherBlockQuantized") else ""
    return helper.make_node(op_type, inputs, [to], domain=domain, **attributes)


def drawn(seed: int, outputs: int, depth: int, bits: int, block: int) -> tuple[Array, Array, Array]:
    """Return codes, scales and zero points, one of each for a block."""
    rng, blocks = np.random.default_rng(seed), -(-depth // block)
    codes = rng.integers(0, 1 << bits, (outputs, depth)).astype(np.uint8)
    scales = rng.uniform(0.5, 1.5, (outputs, blocks)).astype(np.float32)
    return codes, scales, rng.integers(0, 1 << bits, (outputs, blocks)).astype(np.uint8)


def rows_of(codes: Array, bits: int) -> Array:
    """Return rows of codes, each in whole bytes."""
    rows = packed(codes, bits, 8 // bits)
    whole: Array = np.ascontiguousarray(rows.reshape(len(rows), -1))
    return whole


def numbers(codes: Array, scales: Array, zeros: Array, block: int) -> Array:
    """Return what codes stand for, in f64."""
    at = np.arange(codes.shape[-1]) // block
    result: Array = (codes.astype("f8") - zeros.astype("f8")[:, at]) * scales.astype("f8")[:, at]
    return result


def product(x: Array, seed: int, outputs: int, bits: int, block: int, zeros: str = "") -> Any:
    """Return a model of a MatMulNBits, and its result in f64."""
    depth = x.shape[-1]
    codes, scales, points = drawn(seed, outputs, depth, bits, block)
    shown = {"u8": rows_of(points, bits), "f32": points.astype("f4") + 0.25}.get(zeros)
    middle = np.full_like(points, 1 << bits - 1)
    points = {"u8": points, "f32": points.astype("f4") + 0.25}.get(zeros, middle)
    names = ["x", "w", "s", *(["z"] if zeros else [])]
    attributes = {"K": depth, "N": outputs, "bits": bits, "block_size": block}
    made = model(
        [node("MatMulNBits", *names, **attributes)],
        x,
        w=packed(codes, bits, block),
        s=scales,
        z=shown,
    )
    with np.errstate(invalid="ignore"):
        return made, x.astype("f8") @ numbers(codes, scales, points, block).T


def computed(made: ModelProto, x: Array, library: str = "narrow") -> Array:
    """Return the result of a model; a step of this library computes it, and none in Python."""
    with Session(made, threads=2) as session:
        [y] = session.run(None, {"x": x})
        assert library in {step.library for step in session.plan.steps}
        assert not [step.op for step in session.plan.steps if step.python and step.library]
        return np.asarray(y)


def check(found: Array, expected: Array, bound: float = 1e-5) -> None:
    """Check a result, relative to the largest number."""
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= bound * np.abs(expected).max()


def rounded(x: Array, block: int) -> Array:
    """Return x in steps of a 127th of the largest number of each row and block."""
    result = x.copy()
    for begin in range(0, x.shape[-1], block):
        own = x[..., begin : begin + block]
        step = np.abs(own).max(-1, keepdims=True) / np.float32(127)
        result[..., begin : begin + block] = np.rint(own / step) * step
    return result


@settings(max_examples=60, deadline=None)
@given(
    level=st.sampled_from([0, 4]),
    seed=st.integers(0, 99),
    rows=st.sampled_from([1, 2, 3, 4, 7, 15, 40]),
    depth=st.integers(1, 300),
    outputs=st.integers(1, 70),
    bits=st.sampled_from([2, 4, 8]),
    block=st.sampled_from([16, 32, 64, 256]),
    zeros=st.sampled_from(["", "u8", "f32"]),
)
def test_products_of_any_sizes(
    level: int, seed: int, rows: int, depth: int, outputs: int, bits: int, block: int, zeros: str
) -> None:
    x = np.random.default_rng(seed).standard_normal((rows, depth), np.float32)
    known = rounded(x, block) if level == 4 else x
    made, expected = product(known, seed, outputs, bits, block, zeros)
    made.graph.node[0].attribute.append(helper.make_attribute("accuracy_level", level))
    check(computed(made, x), expected)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("bits", 3, "2, 4 or 8 bits"),
        ("block", 8, "at least 16"),
        ("block", 48, "power of two"),
        ("zero_bytes", 2, "u8 or f32"),
        ("depth", 0, "no weights"),
        ("outputs", -1, "no weights"),
        ("rows", -1, "negative"),
        ("outputs", 2**62, "overflow"),
    ],
)
def test_kernels_refuse_what_they_do_not_compute(name: str, value: int, text: str) -> None:
    sizes = {"rows": 2, "depth": 64, "outputs": 5, "bits": 4, "block": 16, "zero_bytes": 0}
    sizes[name] = value
    with pytest.raises(ValueError, match=text):
        native.load().block_product(**sizes, bias=False, rounded=True)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [("index_bytes", 2, "s32 or s64"), ("lines", 2, "divide"), ("count", -1, "divide")],
)
def test_lookups_refuse_what_they_do_not_compute(name: str, value: int, text: str) -> None:
    sizes = {"depth": 64, "outputs": 5, "bits": 4, "block": 16, "zero_bytes": 0}
    sizes |= {"count": 5, "lines": 1, "index_bytes": 8, name: value}
    with pytest.raises(ValueError, match=text):
        native.load().block_rows(**sizes, checked=True)


@pytest.mark.parametrize("level", [0, 4])
@pytest.mark.parametrize("rows", [1, 5, 40])
@pytest.mark.parametrize("bits", [4, 8])
def test_a_level_of_accuracy_is_that_of_onnx_runtime(bits: int, rows: int, level: int) -> None:
    """Level 4 rounds x as ONNX Runtime does; level 0 does not."""
    x = np.random.default_rng(1).standard_normal((rows, 512), np.float32)
    made, exact = product(x, 2, 48, bits, 32, "u8")
    made.graph.node[0].attribute.append(helper.make_attribute("accuracy_level", level))
    options = onnxruntime.SessionOptions()
    peer = onnxruntime.InferenceSession(made.SerializeToString(), options)
    [expected] = peer.run(None, {"x": x})
    found = computed(made, x)
    check(found, expected)
    error = np.abs(found - exact).max() / np.abs(exact).max()
    assert (error > 1e-4) == (level == 4)


@pytest.mark.parametrize("level", [1, 2, 3])
def test_other_levels_are_computed_in_f32(level: int) -> None:
    x = np.random.default_rng(1).standard_normal((2, 64), np.float32)
    made, expected = product(x, 2, 9, 4, 16)
    made.graph.node[0].attribute.append(helper.make_attribute("accuracy_level", level))
    check(computed(made, x), expected, 1e-6)


@pytest.mark.parametrize("rows", [1, 20])
def test_long_sums_are_exact_enough(rows: int) -> None:
    x = np.random.default_rng(1).uniform(0.5, 1.5, (rows, 60_000)).astype(np.float32)
    made, expected = product(x, 2, 5, 4, 32, "u8")
    check(computed(made, x), expected, 1e-5)


def test_infinities_and_nan_stay_in_their_row() -> None:
    for rows in (2, 20):
        x = np.ones((rows, 64), np.float32)
        x[0, 3], x[1, 5] = np.nan, np.inf
        for level in (0, 4):
            made, _ = product(x, 3, 9, 4, 16)
            made.graph.node[0].attribute.append(helper.make_attribute("accuracy_level", level))
            y = computed(made, x)
            assert not np.isfinite(y[:2]).any()
            assert np.isfinite(y[2:]).all()


GROUPS: dict[str, Callable[[np.random.Generator], Array]] = {
    "in order": lambda rng: np.arange(100) // 32,
    "permuted": lambda rng: rng.permutation(np.arange(100) // 32),
    "uneven": lambda rng: rng.integers(0, 4, 100),
    "one alone": lambda rng: np.full(100, 2),
}


@pytest.mark.parametrize("zeros", ["", "u8", "f32"])
@pytest.mark.parametrize("groups", GROUPS)
def test_groups_may_be_in_any_order(groups: str, zeros: str) -> None:
    """Code k has the scale and the zero of block g_idx[k]."""
    rng = np.random.default_rng(5)
    order, x = GROUPS[groups](rng), rng.standard_normal((3, 100), np.float32)
    codes, scales, points = drawn(7, 33, 100, 4, 32)
    shown = {"u8": rows_of(points, 4), "f32": points.astype("f4") + 0.25}.get(zeros)
    known = {"u8": points, "f32": points.astype("f4") + 0.25}.get(zeros, np.full_like(points, 8))
    made = model(
        [node("MatMulNBits", "x", "w", "s", "z" if zeros else "", "g", K=100, N=33, block_size=32)],
        x,
        w=packed(codes, 4, 32),
        s=scales,
        z=shown,
        g=order.astype(np.int32),
    )
    weights = (codes.astype("f8") - known.astype("f8")[:, order]) * scales.astype("f8")[:, order]
    check(computed(made, x), x.astype("f8") @ weights.T)


def test_a_bias_is_added_by_the_same_step() -> None:
    x = np.random.default_rng(1).standard_normal((2, 3, 64), np.float32)
    codes, scales, _ = drawn(2, 10, 64, 4, 16)
    bias = np.arange(10, dtype=np.float32)
    names = ["x", "w", "s", "", "", "b"]
    made = model(
        [node("MatMulNBits", *names, K=64, N=10, block_size=16)],
        x,
        w=packed(codes, 4, 16),
        s=scales.reshape(-1),
        b=bias,
    )
    expected = x.astype("f8") @ numbers(codes, scales, np.full_like(scales, 8), 16).T + bias
    with Session(made) as session:
        check(session.run(None, {"x": x})[0], expected)
        assert len([step for step in session.plan.steps if step.library != "numpy"]) == 1


def test_half_precision_is_widened_once() -> None:
    x = np.random.default_rng(1).standard_normal((2, 64)).astype(np.float16)
    codes, scales, points = drawn(2, 10, 64, 4, 16)
    made = model(
        [node("MatMulNBits", "x", "w", "s", "z", K=64, N=10, block_size=16)],
        x,
        w=packed(codes, 4, 16),
        s=scales.astype(np.float16),
        z=points.astype(np.float16) + np.float16(0.5),
    )
    y = computed(made, x)
    assert y.dtype == np.float16
    weights = numbers(codes, scales.astype(np.float16), points + 0.5, 16)
    check(y.astype("f8"), x.astype("f8") @ weights.T, 1e-3)


KINDS = {
    name: getattr(ml_dtypes, name, None) or getattr(np, name)
    for name in ("int4", "uint4", "int8", "uint8")
}
USES = {
    "MatMul": (0, [node("MatMul", "x", "w")]),
    "Gemm": (1, [node("Gemm", "x", "w", transB=1)]),
    "Transpose": (1, [node("Transpose", "w", to="t", perm=[1, 0]), node("MatMul", "x", "t")]),
    "left": (1, [node("Transpose", "x", to="t", perm=[1, 0]), node("MatMul", "w", "t")]),
    "Gather": (1, [node("Gather", "w", "x")]),
    "Add": (1, [node("Add", "w", "x")]),
}


@pytest.mark.parametrize("has_zeros", [False, True])
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("kind", KINDS)
def test_blocks_of_a_dequantize_linear_stay_packed(kind: str, use: str, has_zeros: bool) -> None:
    rng, (axis, nodes) = np.random.default_rng(3), USES[use]
    shape, blocks = ((64, 30), (4, 30)) if axis == 0 else ((30, 64), (30, 4))
    low = -8 if kind.startswith("int") else 0
    w = rng.integers(low, low + 16, shape).astype(KINDS[kind])
    scales = rng.uniform(0.5, 1.5, blocks).astype(np.float32)
    zeros = rng.integers(low, low + 16, blocks).astype(KINDS[kind])
    x: Array = rng.standard_normal({"Add": shape}.get(use, (3, 64)), np.float32)
    if use == "Gather":
        x = np.array([[3, -1], [0, 29]])
    names = ["q", "s", *(["z"] if has_zeros else [])]
    first = node("DequantizeLinear", *names, to="w", axis=axis, block_size=16)
    made = model([first, *nodes], x, q=w, s=scales, z=zeros if has_zeros else None)
    shift = zeros.astype("f8") if has_zeros else np.zeros(blocks)
    spread = [np.repeat(each, 16, axis) for each in (shift, scales.astype("f8"))]
    weights = (w.astype("f8") - spread[0]) * spread[1]
    wide = x.astype("f8")
    expected = {
        "Gather": lambda: weights[x],
        "Add": lambda: weights + wide,
        "left": lambda: weights @ wide.T,
        "MatMul": lambda: wide @ weights,
    }.get(use, lambda: wide @ weights.T)()
    check(computed(made, x), expected)


@pytest.mark.parametrize("block", [5, 8])
def test_other_blocks_become_constants(block: int) -> None:
    x = np.ones((2, 40), np.float32)
    w = np.arange(-8, 8).repeat(5).reshape(2, 40).T.astype(ml_dtypes.int4)
    scales = np.arange(1, 1 + 2 * (40 // block), dtype=np.float32).reshape(-1, 2)
    nodes = [
        node("DequantizeLinear", "q", "s", to="w", axis=0, block_size=block),
        node("MatMul", "x", "w"),
    ]
    expected = x @ (w.astype("f4") * np.repeat(scales, block, 0))
    check(computed(model(nodes, x, q=w, s=scales), x, "onednn"), expected)


def table(bits: int, depth: int, block: int, zeros: bool, **attributes: Any) -> Any:
    """Return a function that makes a model of a GatherBlockQuantized, and the table in f64."""
    codes, scales, points = drawn(4, 9, depth, bits, block)
    known = points if zeros else np.full_like(points, 1 << bits - 1)
    names = ["q", "x", "s", *(["z"] if zeros else [])]
    attributes = {"bits": bits, "block_size": block, "quantize_axis": -1, **attributes}

    def made(x: Array) -> ModelProto:
        shown = rows_of(points, bits) if zeros else None
        nodes = [node("GatherBlockQuantized", *names, **attributes)]
        return model(nodes, x, q=rows_of(codes, bits), s=scales, z=shown)

    return made, numbers(codes, scales, known, block)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize(("bits", "depth"), [(2, 80), (4, 80), (8, 80), (4, 72), (8, 72)])
def test_rows_of_a_table(bits: int, depth: int, zeros: bool, dtype: Any) -> None:
    """An index outside makes zeros, as in ONNX Runtime."""
    x = np.array([[0, 8, -1], [-9, 9, -10]], dtype)
    made, numbers_ = table(bits, depth, 16, zeros)
    expected = numbers_[np.array([[0, 8, -1], [-9, 0, 0]])]
    expected[1, 1:] = 0
    found = computed(made(x), x)
    check(found, expected, 1e-6)
    peer = onnxruntime.InferenceSession(made(x).SerializeToString())
    np.testing.assert_array_equal(found, peer.run(None, {"x": x})[0])


@pytest.mark.parametrize("kind", ["int4", "uint4"])
@pytest.mark.parametrize("axes", [(0, 1), (1, 0), (0, 2), (1, 1), (2, 1)])
def test_tables_of_integers_along_any_axes(axes: tuple[int, int], kind: str) -> None:
    rng, shape = np.random.default_rng(3), [6, 32, 20]
    w = rng.integers(0, 8, shape).astype(KINDS[kind])
    sizes = [-(-n // 16) if at == axes[1] else n for at, n in enumerate(shape)]
    scales = rng.uniform(0.5, 1.5, sizes).astype(np.float32)
    x = np.array([[0, 3, -1]])
    made = model(
        [
            node(
                "GatherBlockQuantized",
                *("q", "x", "s"),
                gather_axis=axes[0],
                quantize_axis=axes[1],
                block_size=16,
            )
        ],
        x,
        q=w,
        s=scales,
    )
    peer = onnxruntime.InferenceSession(made.SerializeToString())
    np.testing.assert_array_equal(computed(made, x), peer.run(None, {"x": x})[0])


def test_an_index_outside_of_a_dequantized_table_is_an_error() -> None:
    x = np.array([3, 9])
    w = np.zeros((9, 32), ml_dtypes.uint4)
    nodes = [
        node("DequantizeLinear", "q", "s", to="w", axis=1, block_size=16),
        node("Gather", "w", "x"),
    ]
    with (
        Session(model(nodes, x, q=w, s=np.ones((9, 2), np.float32))) as session,
        pytest.raises(InputError, match="index 9 into 9 rows"),
    ):
        session.run(None, {"x": x})


BAD: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "block": ({"block_size": 24}, {}, "block_size 24 is no power of two"),
    "small block": ({"block_size": 8}, {}, "block_size 8 is no power of two from 16"),
    "bits": ({"bits": 3}, {}, "codes of 3 bits"),
    "K": ({"K": 63}, {}, "K=63"),
    "N": ({"N": 0}, {}, "N=0"),
    "level": ({"accuracy_level": 5}, {}, "accuracy_level 5"),
    "prepacked": ({"weight_prepacked": 1}, {}, "prepacked"),
    "weights": ({}, {"w": np.zeros((10, 4, 7), np.uint8)}, "input 1 is"),
    "type of weights": ({}, {"w": np.zeros((10, 4, 8), np.int8)}, "expected u8"),
    "scales": ({}, {"s": np.ones((10, 3), np.float32)}, "input 2 is"),
    "type of scales": ({}, {"s": np.ones((10, 4), np.float16)}, "expected one type"),
    "zeros": ({}, {"z": np.zeros((10, 3), np.uint8)}, "input 3 is"),
    "type of zeros": ({}, {"z": np.zeros((10, 4), np.int8)}, "input 3 is"),
    "groups": ({}, {"g": np.full(64, 4, np.int32)}, "numbers of groups, below 4"),
    "few groups": ({}, {"g": np.zeros(63, np.int32)}, "must have 64 numbers"),
    "bias": ({}, {"b": np.zeros(9, np.float32)}, "input 5 is"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_weights_are_typed_errors(case: str) -> None:
    attributes, arrays, text = BAD[case]
    x = np.ones((2, 64), np.float32)
    constants = {"w": np.zeros((10, 4, 8), np.uint8), "s": np.ones((10, 4), np.float32), **arrays}
    names = ["x", "w", "s", *(name if name in arrays else "" for name in ("z", "g", "b"))]
    sizes = {"K": 64, "N": 10, "block_size": 16, **attributes}
    with pytest.raises(VTensorError, match=text):
        Session(model([node("MatMulNBits", *names, **sizes)], x, **constants))


def test_bad_tables_are_typed_errors() -> None:
    x = np.array([0])
    for attributes, text in (
        ({"gather_axis": 1}, "gather_axis 0"),
        ({"bits": 5}, "codes of 5 bits"),
        ({"block_size": 17}, "block_size 17"),
        ({"block_size": 32}, "input 2 is"),
    ):
        made, _ = table(4, 80, 16, zeros=False)
        proto = made(x)
        for name, value in attributes.items():
            kept = [a for a in proto.graph.node[0].attribute if a.name != name]
            del proto.graph.node[0].attribute[:]
            proto.graph.node[0].attribute.extend([*kept, helper.make_attribute(name, value)])
        with pytest.raises(VTensorError, match=text):
            Session(proto)


def test_weights_of_two_inputs_are_multiplied_in_a_run() -> None:
    """Codes and scales may be inputs of the run."""
    g = Graph("open")
    x, w = g.input("x", {"M": 2, "K": 40}), g.input("w", {"N": 5, "b": 3, "byte": 8}, "u8")
    scales = g.input("scales", {"N": 5, "b": 3})
    g.output(g.add(ops.MatMulNBits("K", "b", "byte"), x, w, scales), "y")
    codes, sizes, _ = drawn(3, 5, 40, 4, 16)
    rows = np.random.default_rng(1).standard_normal((2, 40), np.float32)
    with Session(g) as session:
        feeds = {"x": rows, "w": packed(codes, 4, 16), "scales": sizes}
        [y] = session.run(None, feeds)
    check(y, rows.astype("f8") @ numbers(codes, sizes, np.full_like(sizes, 8), 16).T)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_packing_and_unpacking_are_inverse(bits: int) -> None:
    codes = np.random.default_rng(1).integers(0, 1 << bits, (3, 40)).astype(np.uint8)
    whole = packed(codes, bits, 16)
    assert whole.shape == (3, 3, 2 * bits)
    np.testing.assert_array_equal(unpacked(whole, bits).reshape(3, 48)[:, :40], codes)


MEMORY = """
import numpy as np
from tests.operators.test_blockwise import drawn, model, node, packed
from vtensor import Session


def resident(name):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024


x = np.ones((1, 4096), np.float32)
Session(model([node("Abs", "x")], x)).run(None, {"x": x})
codes, scales, _ = drawn(1, 64, 4096, 4, 32)
w, s = (np.tile(each, (256, 1, 1)[: each.ndim]) for each in (packed(codes, 4, 32), scales))
made = model(
    [node("MatMulNBits", "x", "w", "s", K=4096, N=len(w), block_size=32)], x, w=w, s=s
).SerializeToString()
before = resident("VmHWM")
session = Session(made)
session.run(None, {"x": x})
print(resident("VmHWM") - before, session.plan.packed.nbytes, w.nbytes + s.nbytes)
"""


def test_no_wide_copy_of_weights_is_made() -> None:
    """Packed weights take 40 MiB, as f32 they would take 256 MiB."""
    grown, held, stored = map(int, printed("-c", MEMORY).split())
    assert held < 1.01 * stored
    assert grown < 4 * stored


CAPPED = """
import sys, json
import numpy as np, vtensor
vtensor.limit_isa(sys.argv[1])
from tests.operators.test_blockwise import product, computed
from onnx import helper
rows = []
for level in (0, 4):
    for bits in (2, 4, 8):
        for count in (1, 30):
            x = np.random.default_rng(1).standard_normal((count, 300), np.float32)
            made, expected = product(x, 2, 37, bits, 32, "u8")
            attribute = helper.make_attribute("accuracy_level", level)
            made.graph.node[0].attribute.append(attribute)
            rows.append(computed(made, x).astype(float).ravel().tolist())
print(json.dumps(rows))
"""


def test_all_levels_of_instructions_give_the_same_values() -> None:
    """Up to the order of sums: weights, and x where it is rounded, are the same numbers."""
    rows = {cap: json.loads(printed("-c", CAPPED, cap)) for cap in ("sse41", "avx2", "max")}
    for cap in ("sse41", "avx2"):
        for found, expected in zip(rows[cap], rows["max"], strict=True):
            check(np.array(found), np.array(expected), 2e-6)
