"""Quantised models run natively, and to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from libdesc.numpy.casts import cast
from ops import Clip, DynamicQuantizeLinear, MatMul
from tests.libraries.processes import printed
from tests.operators.harness import Array, plain, run
from vtensor import Session
from vtensor.language.dtype import numpy_dtype

EDGES = (np.inf, -np.inf, 1e30, -1e30, 0.5, 1.5, 2.5, -0.5, -1.5, 126.5, 300)


def computed(nodes: list[onnx.NodeProto], x: Array, **constants: Array) -> Array:
    """Return what a model makes of ``x``; its plan calls nothing back."""
    port = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
    rows = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "one", [port], [onnx.ValueInfoProto(name="y")], rows)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    with Session(model, threads=1) as session:
        [y] = session.run(None, {"x": x})
        assert not [step.op for step in session.plan.steps if step.python]
        return np.asarray(y)


def node(op: str, inputs: str, to: str = "y", **attributes: Any) -> onnx.NodeProto:
    """Return a node whose inputs and outputs stand between spaces."""
    return helper.make_node(op, inputs.split(), to.split(), **attributes)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16])
def test_steps_saturate_and_ties_are_even(dtype: type[np.integer[Any]]) -> None:
    x = np.array(EDGES, np.float32)
    limits = np.iinfo(dtype)
    quantised = computed(
        [node("QuantizeLinear", "x s z")], x, s=np.array(1, np.float32), z=np.array(3, dtype)
    )
    expected = np.clip(np.rint(x.astype(np.float64)) + 3, limits.min, limits.max).astype(dtype)
    np.testing.assert_array_equal(quantised, expected)


@pytest.mark.parametrize("dtype", ["f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz"])
def test_floats_of_a_byte_are_rounded_natively(dtype: str) -> None:
    wide = np.array([*EDGES, -0.0, np.nan, 464, 465, 57345, 1e-3, 2.0**-10, 3 * 2.0**-18])
    x, target = wide.astype(np.float32), numpy_dtype(dtype)
    there = [
        helper.make_node("Cast", ["x"], ["c"], to=helper.np_dtype_to_tensor_dtype(target)),
        helper.make_node("Cast", ["c"], ["y"], to=onnx.TensorProto.FLOAT),
    ]
    with np.errstate(over="ignore"):
        expected = cast(x, dtype).astype(np.float32)
        halves = cast(x * 2, dtype).astype(np.float32) / 2
    result = computed(there, x)
    np.testing.assert_array_equal(result, expected)
    signs = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(result[signs]), np.signbit(expected[signs]))
    both = [node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z")]
    half, zero = np.array(0.5, np.float32), np.array(0, target)
    np.testing.assert_array_equal(computed(both, x, s=half, z=zero), halves)


def test_there_and_back_along_a_dim() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, 5, 7), dtype=np.float32)
    scale, zero = np.full(5, 0.125, np.float32), np.arange(5, dtype=np.int8)
    both = [
        node("QuantizeLinear", "x s z", "q", axis=1),
        node("DequantizeLinear", "q s z", axis=1),
    ]
    np.testing.assert_array_equal(computed(both, x, s=scale, z=zero), np.rint(x * 8) / 8)


def test_a_dynamic_product() -> None:
    """What quantising the weights of a model of language makes of each of its layers."""
    rng = np.random.default_rng(2)
    x, w = rng.standard_normal((2, 3, 70), dtype=np.float32), rng.integers(-127, 127, (70, 37))
    low, high = x.min(), x.max()
    scale = (high - low) / np.float32(255)
    zero = np.rint(-low / scale)
    steps = np.clip(np.rint(x / scale) + zero, 0, 255) - zero
    nodes = [node("DynamicQuantizeLinear", "x", "q s z"), node("MatMulInteger", "q w z")]
    product = computed(nodes, x, w=w.astype(np.int8))
    np.testing.assert_array_equal(product, steps.astype(np.int64) @ w)


@pytest.mark.parametrize("library", ["eigen", "numpy"])
def test_zeros_have_the_scale_one(library: str) -> None:
    """As in ONNX Runtime; ONNX itself would divide by zero."""
    zeros = plain(np.zeros(3, np.float32), "A")
    y, scale, zero = run(library, DynamicQuantizeLinear(), [zeros]).values
    assert (y.tolist(), scale.item(), zero.item()) == ([0, 0, 0], 1, 0)


def near_ties(seed: int, size: int, span: float) -> Array:
    """Return numbers of which many lie at or next to ties once they are divided by their scale."""
    rng = np.random.default_rng(seed)
    low, high = np.float32(-span * rng.random()), np.float32(span * rng.random())
    scale = (high - low) / np.float32(255)
    ties = (rng.integers(-256, 256, size) + 0.5).astype(np.float32) * scale
    near = (ties.view(np.int32) + rng.integers(-3, 4, size, np.int32)).view(np.float32)
    drawn = rng.uniform(low, high, size).astype(np.float32)
    x = np.clip(np.where(rng.random(size) < 0.7, near, drawn), low, high)
    x[:2] = [low, high][: x.size]
    return np.asarray(x)


def dynamic(x: Array) -> list[Array]:
    """Return what ONNX Runtime makes of ``x``."""
    info = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x.shape)
    outputs = [onnx.ValueInfoProto(name=name) for name in "ysz"]
    graph = helper.make_graph([node("DynamicQuantizeLinear", "x", "y s z")], "g", [info], outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return [np.asarray(value) for value in session.run(None, {"x": x})]


@given(
    st.integers(0, 2**31),
    st.sampled_from([1, 2, 63, 64, 65, 1000, 40_000]),
    st.sampled_from([1e-30, 1e-18, 1e-3, 1.0, 255.0, 1e9, 1e20, 1e30]),
)
@example(0, 40_000, 1e-40)  # a scale without a normal reciprocal
def test_dynamic_steps_equal_those_of_onnx_runtime(seed: int, size: int, span: float) -> None:
    x = near_ties(seed, size, span)
    ours = run("eigen", DynamicQuantizeLinear(), [plain(x, "A")]).values
    for value, expected in zip(ours, dynamic(x), strict=True):
        np.testing.assert_array_equal(value, expected)


@pytest.mark.parametrize("size", [0, 1, 3, 70, 40_000])
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf, 3.4e38, 1e-45])
def test_dynamic_steps_of_special_numbers(size: int, special: float) -> None:
    x = near_ties(size, size, 3.0)
    x[size // 2 : size // 2 + 1] = special
    for numbers in (x, x[:1], -x, np.zeros_like(x)):
        inputs = [plain(numbers, "A")]
        with np.errstate(all="ignore"):
            expected = run("numpy", DynamicQuantizeLinear(), inputs).values
        ours = run("eigen", DynamicQuantizeLinear(), inputs).values
        for value, wanted in zip(ours, expected, strict=True):
            np.testing.assert_array_equal(value, wanted)


CAPPED_STEPS = """
import hashlib, sys
import numpy as np
from vtensor import Graph, Session, limit_isa
limit_isa(sys.argv[1])
from ops import DynamicQuantizeLinear

graph = Graph("steps")
for value in graph.add(DynamicQuantizeLinear(), graph.input("x", {"A": 40_000})):
    graph.output(value, value.name)
session = Session(graph, threads=1, cache_dir=False)
rng, digest = np.random.default_rng(0), hashlib.sha256()
for exponent in range(-25, 25):
    steps = rng.integers(-200, 57, 40_000) + rng.integers(0, 2, 40_000) / 2
    x = (steps * rng.random() * 10.0**exponent).astype(np.float32)
    for value in session.run(None, {"x": x}):
        digest.update(value.tobytes())
print(digest.hexdigest())
"""


def test_every_level_of_instructions_gives_equal_dynamic_steps() -> None:
    assert len({printed("-c", CAPPED_STEPS, cap) for cap in ("sse41", "avx2", "max")}) == 1


@pytest.mark.parametrize("sizes", [(1, 1, 1), (4, 9, 32), (5, 40, 70), (3, 0, 2)])
def test_products_of_integers_wrap_around(sizes: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(3)
    a, b = (
        rng.integers(-(2**31), 2**31, shape).astype(np.int32) for shape in (sizes[:2], sizes[1:])
    )
    [product] = run("eigen", MatMul("K"), [plain(a, "M K"), plain(b, "K N")]).values
    np.testing.assert_array_equal(product, a @ b)


@pytest.mark.parametrize("library", ["eigen", "numpy"])
def test_a_bound_that_a_type_does_not_reach(library: str) -> None:
    x = np.array([0, 7, 300], np.uint16)
    for op, expected in ((Clip(high=-1.0), [0, 0, 0]), (Clip(-1.0, 1e6), [0, 7, 300])):
        [clipped] = run(library, op, [plain(x, "A")]).values
        np.testing.assert_array_equal(clipped, np.array(expected, np.uint16))


@pytest.mark.parametrize("group", [1, 2, 6])
@pytest.mark.parametrize("signed", [np.uint8, np.int8])
def test_a_convolution_of_integers(group: int, signed: type[np.integer[Any]]) -> None:
    """Whole, in groups, and a channel by itself; sums of its steps are exact."""
    rng = np.random.default_rng(4)
    low, high = np.iinfo(signed).min, np.iinfo(signed).max
    x = rng.integers(low, high + 1, (2, 6, 7, 5), signed)
    w = rng.integers(-128, 128, (12, 6 // group, 3, 2), np.int8)
    zero, zeros = np.array(3, signed), np.arange(-6, 6, dtype=np.int8)
    shared: dict[str, Any] = {"group": group, "pads": [1, 0, 1, 1], "strides": [2, 1]}
    sums = computed([node("ConvInteger", "x w z c", **shared)], x, w=w, z=zero, c=zeros)
    kernels = (w.astype(np.float64) - zeros[:, None, None, None]).astype(np.float32)
    plain_sums = computed([node("Conv", "x w", **shared)], x.astype("f4") - 3, w=kernels)
    np.testing.assert_array_equal(sums, plain_sums)
    scales = {"s": np.array(0.5, "f4"), "t": np.array(0.25, "f4"), "u": np.array(64, "f4")}
    nodes = [node("QLinearConv", "x s z w t c u z", **shared)]
    scaled = computed(nodes, x, w=w, z=zero, c=zeros, **scales)
    due = np.rint(sums * np.float32(0.125) / np.float32(64)) + 3
    np.testing.assert_array_equal(scaled, np.clip(due, low, high).astype(signed))


@pytest.mark.parametrize("count", [4095, 4096, 4097, 9001])
@pytest.mark.parametrize(
    ("dtype", "to"), [(np.uint8, np.uint8), (np.int8, np.int8), (np.int8, np.float32)]
)
def test_a_chain_on_bytes_is_the_same_for_few_and_many_elements(
    count: int, dtype: type[Any], to: type[Any]
) -> None:
    """For many elements, the chain runs once for each value of a byte."""
    limits = np.iinfo(dtype)
    codes = np.arange(limits.min, limits.max + 1).astype(dtype)
    x = np.concatenate([codes, np.random.default_rng(3).choice(codes, count - codes.size)])
    zero = np.array(limits.max - 100, dtype)
    constants = {"s": np.array(0.05, np.float32), "z": zero}
    last = "r" if to is not np.float32 else "y"
    nodes = [
        node("DequantizeLinear", "x s z", "n"),
        node("Sigmoid", "n", "p"),
        node("Mul", "p p", last),
    ]
    if last == "r":
        nodes.append(node("QuantizeLinear", "r t z"))
        constants["t"] = np.array(0.004, np.float32)
    few = computed(nodes, codes, **constants)
    many = computed(nodes, x, **constants)
    assert few.dtype == many.dtype == to
    assert len(np.unique(few)) > 40
    np.testing.assert_array_equal(many, few[x.astype(int) - limits.min])


STEPS = (np.arange(24, dtype=np.uint8) * 11).reshape(3, 8)
WEIGHTS = (np.arange(40, dtype=np.uint8) * 7).reshape(8, 5).view(np.int8)
IMAGE = np.arange(100, dtype=np.uint8).reshape(1, 4, 5, 5)
KERNEL = (np.arange(216, dtype=np.uint8) * 7).reshape(6, 4, 3, 3).view(np.int8)
CODES = [np.array(0.1, np.float32), np.uint8(3)], [np.array(0.02, np.float32), np.int8(0)]
RESULT = [np.array(0.5, np.float32), np.uint8(9)]
CALLS: dict[str, list[Any]] = {
    "QuantizeLinear": [np.linspace(-3, 40, 24, dtype=np.float32), *CODES[0]],
    "QLinearMatMul": [STEPS, *CODES[0], WEIGHTS, *CODES[1], *RESULT],
    "QLinearConv": [IMAGE, *CODES[0], KERNEL, *CODES[1], *RESULT],
}


@pytest.mark.parametrize("scale", [0.0, -0.1, np.nan, np.inf, 1e-45])
@pytest.mark.parametrize("op", CALLS)
def test_scales_of_a_run_give_what_onnx_runtime_gives(op: str, scale: float) -> None:
    """Whichever of the scales it is; the session goes on with right ones."""
    names = [f"x{index}" for index in range(len(CALLS[op]))]
    right = {name: np.asarray(value) for name, value in zip(names, CALLS[op], strict=True)}
    ports = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in right.items()
    ]
    graph = helper.make_graph(
        [node(op, " ".join(names))], "one", ports, [onnx.ValueInfoProto(name="y")]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    peer = onnxruntime.InferenceSession(model.SerializeToString())
    scales = [name for name, value in right.items() if value.dtype == np.float32 and not value.ndim]
    wrong = [{**right, name: np.array(scale, np.float32)} for name in scales]
    with Session(model, threads=1, cache_dir=None) as session:
        for feeds in (*wrong, right):
            [found], [expected] = session.run(None, feeds), peer.run(None, feeds)
            np.testing.assert_array_equal(found, expected)
