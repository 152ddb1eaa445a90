"""Every element type of ONNX: through sessions, through Cast, through tensors in files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper

from libdesc.numpy.arrays import wide
from libdesc.numpy.casts import cast
from ops import Add, Resize
from tests.property.strategies import LAWS, bits, seeds, values
from vtensor import Session, call, from_array, from_proto, load_onnx
from vtensor.errors import EdgesNeeded, ModelError, NoInvokerError
from vtensor.language.dtype import ITEMSIZE, NARROW_FLOATS, numpy_dtype
from vtensor.language.dtype import bits as bits_of

Array = np.ndarray[Any, Any]


def number(dtype: Any) -> int:
    """Return ONNX's number of a NumPy element type."""
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def model(op: str, inputs: Mapping[str, Array], *constants: Any, **attributes: Any) -> ModelProto:
    """Return a model of one node whose output ``y`` has an inferred type and shape."""
    weights = {f"c{i}": np.array(values, np.int64) for i, values in enumerate(constants)}
    node = helper.make_node(op, [*inputs, *weights], ["y"], **attributes)
    ports = [
        helper.make_tensor_value_info(name, number(array.dtype), array.shape)
        for name, array in inputs.items()
    ]
    rows = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph([node], "one", ports, [onnx.ValueInfoProto(name="y")], rows)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)])


def run(op: str, inputs: Mapping[str, Array], *constants: Any, **attributes: Any) -> Array:
    """Return the output of a model of one node."""
    with Session(model(op, inputs, *constants, **attributes), threads=1) as session:
        return np.asarray(session.run(None, dict(inputs))[0])


def same_bits(result: Array, expected: Array) -> None:
    """Check element type, shape and every bit."""
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(bits(result), bits(expected))


Move = tuple[list[list[int]], dict[str, Any], Callable[[Array], Array]]

#: Operators that move elements: constants, attributes, and the same function of NumPy.
MOVES: dict[str, Move] = {
    "Identity": ([], {}, lambda x: x),
    "Transpose": ([], {"perm": [1, 0]}, lambda x: x.T),
    "Reshape": ([[5, 3]], {}, lambda x: x.reshape(5, 3)),
    "Pad": ([[0, 1, 2, 0]], {"mode": "edge"}, lambda x: np.pad(x, ((0, 2), (1, 0)), "edge")),
    "Expand": ([[2, 3, 5]], {}, lambda x: np.stack([x, x])),
    "Gather": ([[2, 0]], {"axis": 1}, lambda x: x[:, [2, 0]]),
    "Slice": ([[1], [4], [1]], {}, lambda x: x[:, 1:4]),
    "Tile": ([[1, 2]], {}, lambda x: np.concatenate([x, x], 1)),
    "Trilu": ([], {}, np.triu),
}


def _allowed(op: str) -> list[str]:
    schema = onnx.defs.get_schema(op, 25)
    [types] = [
        constraint.allowed_type_strs
        for constraint in schema.type_constraints
        if constraint.type_param_str == schema.inputs[0].type_str
    ]
    names = {d: TensorProto.DataType.Name(number(numpy_dtype(d))).lower() for d in ITEMSIZE}
    return [dtype for dtype, name in names.items() if f"tensor({name})" in types]


@pytest.mark.parametrize(("op", "dtype"), [(op, dtype) for op in MOVES for dtype in _allowed(op)])
def test_moves_take_the_element_types_that_onnx_allows(op: str, dtype: str) -> None:
    constants, attributes, expected = MOVES[op]
    x = values([3, 5], dtype, 3)
    same_bits(run(op, {"x": x}, *constants, **attributes), expected(x))


def test_an_element_type_is_refused_without_a_definition() -> None:
    x = values([3], "f8e4m3fn", 3)
    with pytest.raises(ModelError, match="unsupported type"):
        run("Add", {"x": x, "z": x})
    with pytest.raises(NoInvokerError, match="dtype f8e4m3fn of"):
        call(Add(), x, x)


def test_texts_are_no_values_of_a_graph() -> None:
    """A session takes them, and has numbers for them inside."""
    feeds = {"x": np.array(["a", ""], object)}
    with pytest.raises(EdgesNeeded, match=r"texts, .* a Session runs it"):
        load_onnx(model("Identity", feeds))
    assert run("Identity", feeds).tolist() == ["a", ""]


REAL = [dtype for dtype in ITEMSIZE if dtype[0] != "c"]


@pytest.mark.parametrize(("source", "to"), list(product(REAL, REAL)))
def test_cast_keeps_values_that_both_types_have(source: str, to: str) -> None:
    grid = [0.5, 1.0] if "f8e8m0" in (source, to) else [0.0, 0.5, 1.0, 1.5]
    x = cast(np.array(grid), source)
    numbers = wide(x).astype(np.float64)
    if to == "f8e8m0":
        x, numbers = x[numbers > 0], numbers[numbers > 0]
    result = cast(x, to)
    expected = numbers != 0 if to == "bool" else np.trunc(numbers) if to[0] in "su" else numbers
    assert result.dtype == numpy_dtype(to)
    np.testing.assert_array_equal(wide(result).astype(np.float64), expected)


SPECIAL = np.array([np.nan, np.inf, -np.inf, 1e9, -1e9, 0.0, -0.0, 0.3])

#: ONNX's two tables, by type and ``saturate``; what follows is 0, -0 and 0.3 rounded.
TABLES: dict[tuple[str, bool], list[float]] = {
    ("f8e4m3fn", True): [np.nan, 448, -448, 448, -448, 0.0, -0.0, 0.3125],
    ("f8e4m3fnuz", True): [np.nan, 240, -240, 240, -240, 0.0, 0.0, 0.3125],
    ("f8e5m2", True): [np.nan, 57344, -57344, 57344, -57344, 0.0, -0.0, 0.3125],
    ("f8e5m2fnuz", True): [np.nan, 57344, -57344, 57344, -57344, 0.0, 0.0, 0.3125],
    ("f8e4m3fn", False): [np.nan] * 5 + [0.0, -0.0, 0.3125],
    ("f8e4m3fnuz", False): [np.nan] * 5 + [0.0, 0.0, 0.3125],
    ("f8e5m2", False): [np.nan, np.inf, -np.inf, np.inf, -np.inf, 0.0, -0.0, 0.3125],
    ("f8e5m2fnuz", False): [np.nan] * 5 + [0.0, 0.0, 0.3125],
}


#: The largest number of the types that have neither infinity nor NaN.
FINITE = {"f6e2m3": 7.5, "f6e3m2": 28.0, "f4e2m1": 6.0}


def test_every_narrow_float_is_in_a_table() -> None:
    assert {to for to, _ in TABLES} | FINITE.keys() | {"f8e8m0"} == set(NARROW_FLOATS)


@pytest.mark.parametrize(("to", "saturate"), TABLES)
@pytest.mark.parametrize("source", ["f64", "f32", "f16", "bf16"])
def test_casts_to_narrow_floats_follow_the_tables(source: str, to: str, saturate: bool) -> None:
    with np.errstate(over="ignore"):
        x = SPECIAL.astype(numpy_dtype(source))
    result = cast(x, to, saturate).astype(np.float32)
    expected = np.array(TABLES[to, saturate], np.float32)
    np.testing.assert_array_equal(result, expected)
    zeros = expected == 0
    np.testing.assert_array_equal(np.signbit(result[zeros]), np.signbit(expected[zeros]))


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize(("to", "largest"), FINITE.items())
def test_casts_to_floats_without_infinity_saturate(to: str, largest: float, saturate: bool) -> None:
    assert cast(SPECIAL[1:5], to, saturate).tolist() == [largest, -largest] * 2


ENDS = [2.0**-127, 2.0**-127, 2.0**127, 2.0**127]


@pytest.mark.parametrize(
    ("round_mode", "expected"),
    [("up", [1, 2, 2, 2, 4]), ("down", [1, 1, 1, 1, 2]), ("nearest", [1, 1, 2, 2, 2])],
)
def test_casts_to_powers_of_two_obey_the_round_mode(round_mode: str, expected: list[float]) -> None:
    x = np.array([1, 1.25, 1.5, 1.75, 2.5, 0, 2.0**-200, 2.0**200, np.inf])
    saturated = cast(x, "f8e8m0", True, round_mode).astype(np.float64)
    np.testing.assert_array_equal(saturated, expected + ENDS)
    assert np.isnan(cast(x[5:], "f8e8m0", False, round_mode).astype(np.float64)).all()
    assert np.isnan(cast(np.array([np.nan, -1.0]), "f8e8m0").astype(np.float64)).all()


def test_casts_between_integers_drop_the_upper_bits() -> None:
    x = np.array([-1, 7, 8, 200, -129], np.int16)
    assert cast(x, "s8").tolist() == [-1, 7, 8, -56, 127]
    assert cast(x, "u8").tolist() == [255, 7, 8, 200, 127]
    assert cast(x, "s4").tolist() == [-1, 7, -8, -8, -1]
    assert cast(x, "u2").tolist() == [3, 3, 0, 0, 3]


@LAWS
@given(
    st.sampled_from(sorted(ITEMSIZE)), st.lists(st.integers(0, 5), max_size=3), st.booleans(), seeds
)
def test_tensors_there_and_back(dtype: str, shape: list[int], raw: bool, seed: int) -> None:
    """Elements of less than a byte are packed, whatever their number."""
    array, names = values(shape, dtype, seed), [f"d{i}" for i in range(len(shape))]
    if not raw and ITEMSIZE[dtype] > 2:
        with np.errstate(invalid="ignore"):  # a signalling NaN
            nan = np.isnan(wide(array))
        array = np.where(nan, np.ones((), array.dtype), array)  # a list keeps no NaN's payload
    proto = from_array(array, names).to_proto(raw=raw)
    assert not raw or len(proto.raw_data) == -(-array.size * bits_of(dtype) // 8)
    same_bits(from_proto(proto, names).numpy(), array)


@pytest.mark.parametrize("dtype", ["f16", "bf16", *NARROW_FLOATS])
def test_every_code_of_a_short_float_comes_back_from_a_typed_field(dtype: str) -> None:
    codes = np.arange(1 << bits_of(dtype)).astype(f"u{ITEMSIZE[dtype]}")
    array = codes.view(numpy_dtype(dtype))
    same_bits(from_proto(from_array(array, "A").to_proto(raw=False), "A").numpy(), array)


@pytest.mark.parametrize("dtype", [dtype for dtype in ITEMSIZE if bits_of(dtype) < 8])
def test_packed_elements_are_read_from_a_file(dtype: str, tmp_path: Path) -> None:
    array = values([3, 5], dtype, 5)
    proto = from_array(array, "A B").to_proto("w")
    (tmp_path / "w.bin").write_bytes(proto.raw_data)
    onnx.external_data_helper.set_external_data(proto, "w.bin")
    proto.ClearField("raw_data")
    same_bits(from_proto(proto, "A B", folder=tmp_path).numpy(), array)
    (tmp_path / "w.bin").write_bytes(b"0")
    with pytest.raises(ModelError, match="are needed"):
        from_proto(proto, "A B", folder=tmp_path)


def _steps(rng: np.random.Generator, *shape: int) -> Array:
    return rng.integers(0, 256, shape).astype(np.uint8)


@pytest.mark.parametrize(("left", "right"), list(product(["", "M"], ["", "N"])))
def test_integer_products_are_exact(left: str, right: str) -> None:
    rng = np.random.default_rng(5)
    a, b = _steps(rng, 4, 7), _steps(rng, 7, 3).view(np.int8)
    a_zero = _steps(rng, 4) if left else np.array(9, np.uint8)
    b_zero = _steps(rng, 3).view(np.int8) if right else np.array([-5], np.int8)
    result = run("MatMulInteger", {"a": a, "b": b, "z": a_zero, "w": b_zero})
    exact = (a.astype(np.int32) - a_zero.reshape(-1, 1)) @ (b.astype(np.int32) - b_zero)
    same_bits(result, exact.astype(np.int32))


def check_quantized(result: Array, exact: Array, zero: int) -> None:
    """Check that the exact steps were rounded once, in u8."""
    assert result.dtype == np.uint8
    assert np.abs(result - np.clip(exact + zero, 0, 255)).max() <= 0.5 + 1e-3


def test_scaled_products_round_once() -> None:
    rng = np.random.default_rng(6)
    a, b = _steps(rng, 2, 4, 7), _steps(rng, 2, 7, 3)
    a_scale, b_scale = (
        rng.uniform(0.01, 0.02, s).astype(np.float32) for s in ((2, 4, 1), (2, 1, 3))
    )
    a_zero, b_zero = _steps(rng, 2, 4, 1), _steps(rng, 2, 1, 3)
    y_scale, y_zero = np.array(0.1, np.float32), np.array(100, np.uint8)
    feeds = {"a": a, "as": a_scale, "az": a_zero, "b": b, "bs": b_scale, "bz": b_zero}
    result = run("QLinearMatMul", {**feeds, "ys": y_scale, "yz": y_zero})
    exact = (a.astype(np.int64) - a_zero) @ (b.astype(np.int64) - b_zero)
    check_quantized(result, exact * (a_scale.astype(np.float64) * b_scale) / y_scale, 100)


@pytest.mark.parametrize("dtype", ["f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz"])
def test_scaled_products_may_be_floats_of_a_byte(dtype: str) -> None:
    rng, kind = np.random.default_rng(7), numpy_dtype(dtype)
    a, b = (rng.integers(-8, 8, shape).astype(kind) for shape in ((4, 7), (7, 3)))
    half, zero = np.array(0.5, np.float32), np.array(0, kind)
    feeds = {"a": a, "as": half, "az": zero, "b": b, "bs": half, "bz": zero}
    result = run("QLinearMatMul", {**feeds, "ys": half, "yz": zero})
    same_bits(result, cast(wide(a) @ wide(b) * 0.5, dtype))


def test_samples_of_integers_are_exact_or_saturate() -> None:
    large, grid = np.array([[[2**62 + 1, 3]]]), np.array([[[-0.5], [0.5]]], np.float32)
    same_bits(run("GridSample", {"x": large, "g": grid}, mode="nearest"), large)
    steep, middle = np.array([[[0, 255, 255, 0]]], np.uint8), np.zeros((1, 1, 1), np.float32)
    for x, peak in ((steep, 255), (255 - steep, 0)):
        assert run("GridSample", {"x": x, "g": middle}, mode="cubic").tolist() == [[[peak]]]
        doubled = call(Resize(("W",), (8,), (2.0,), "cubic"), from_array(x, "N C W")).numpy()
        assert doubled[0, 0, 3:5].tolist() == [peak, peak]


def test_scaled_convolutions_take_a_bias_and_groups() -> None:
    rng = np.random.default_rng(7)
    x, w = _steps(rng, 1, 4, 5, 5), _steps(rng, 6, 2, 3, 3).view(np.int8)
    w_scale = rng.uniform(0.001, 0.002, 6).astype(np.float32)
    bias = rng.integers(-999, 999, 6).astype(np.int32)
    image = {"x": x, "xs": np.array(0.5, np.float32), "xz": np.array(128, np.uint8)}
    weights = {"w": w, "ws": w_scale, "wz": np.zeros(6, np.int8)}
    output = {"ys": np.array(0.25, np.float32), "yz": np.array(100, np.uint8)}
    feeds: dict[str, Any] = {**image, **weights, **output, "b": bias}
    [result] = run("QLinearConv", feeds, pads=[1, 1, 1, 1], group=2)
    padded = np.pad(x.astype(np.int64) - 128, ((0, 0), (0, 0), (1, 1), (1, 1)))
    view = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[0]
    grouped = [np.einsum("chwij,ocij->ohw", view[2 * g :][:2], w[3 * g :][:3]) for g in (0, 1)]
    exact = np.concatenate(grouped) + bias.reshape(-1, 1, 1)
    check_quantized(result, exact * (0.5 * w_scale.astype(float).reshape(-1, 1, 1)) / 0.25, 100)


def test_the_last_block_of_a_quantized_dim_may_be_smaller() -> None:
    rng = np.random.default_rng(8)
    x = rng.normal(size=(5, 3)).astype(np.float32)
    scale = rng.uniform(0.1, 0.2, (3, 3)).astype(np.float32)
    blocks: dict[str, Any] = {"axis": 0, "block_size": 2}
    to = number(numpy_dtype("s4"))
    steps = run("QuantizeLinear", {"x": x, "s": scale}, **blocks, output_dtype=to)
    scales = np.repeat(scale, 2, 0)[:5]
    expected = np.clip(np.rint(x / scales), -8, 7).astype(np.float32)
    np.testing.assert_array_equal(steps.astype(np.float32), expected)
    back = run("DequantizeLinear", {"q": steps, "s": scale}, **blocks)
    np.testing.assert_array_equal(back, expected * scales)
