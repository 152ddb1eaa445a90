"""DynamicQuantizeLSTM, as ONNX Runtime's quantiser writes it: values are ONNX Runtime's own."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnxruntime.quantization import quantize_dynamic

from libdesc.narrow import native
from tests.libraries.processes import printed
from vtensor import Session
from vtensor.errors import VTensorError

Array = NDArray[Any]

TIMES, BATCH = 7, 3
#: A rounding that comes out otherwise moves a state by so much, at most.
FLIP = 4e-3

OPTIONS: dict[str, Mapping[str, Any]] = {
    "plain": {},
    "backwards": {"direction": "reverse"},
    "both": {"direction": "bidirectional", "states": True},
    "lengths": {"lengths": (5, 3, 7)},
    "short": {"lengths": (2, 4, 1), "direction": "bidirectional", "states": True},
    "peepholes": {"states": True, "peepholes": True},
    "bounds": {"bias": False, "peepholes": True, "clip": 0.4, "input_forget": 1},
    "functions": {"activations": ["HardSigmoid", "Softsign", "Relu"]},
    "other functions": {
        "activations": ["Elu", "Softplus", "ScaledTanh"],
        "activation_alpha": [0.5, 0.9],
        "activation_beta": [0.7],
    },
}


def lstm(features: int, units: int, batch: int = BATCH, **options: Any) -> ModelProto:
    """Return a model of an LSTM with the optional inputs that are asked for."""
    draw = np.random.default_rng(3)
    inputs = {"bias": True, "lengths": None, "states": False, "peepholes": False}
    given = inputs | options
    dirs = 1 + (options.get("direction") == "bidirectional")
    weights: dict[str, tuple[int, ...]] = {
        "w": (dirs, 4 * units, features),
        "r": (dirs, 4 * units, units),
    }
    weights |= {"b": (dirs, 8 * units)} if given["bias"] else {}
    weights |= {"p": (dirs, 3 * units)} if given["peepholes"] else {}
    kinds = {"x": (TensorProto.FLOAT, [TIMES, batch, features])}
    kinds |= {"lengths": (TensorProto.INT32, [batch])} if given["lengths"] else {}
    for name in ("h", "c") if given["states"] else ():
        kinds[name] = (TensorProto.FLOAT, [dirs, batch, units])
    names = [
        name if name in weights or name in kinds else ""
        for name in ("x", "w", "r", "b", "lengths", "h", "c", "p")
    ]
    attributes = {name: value for name, value in options.items() if name not in inputs}
    outputs = {"y": [TIMES, dirs, batch, units], "hidden": None, "cell": None}
    node = helper.make_node("LSTM", names, [*outputs], "lstm", hidden_size=units, **attributes)
    graph = helper.make_graph(
        [node],
        "lstm",
        [helper.make_tensor_value_info(name, *kind) for name, kind in kinds.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, s) for name, s in outputs.items()],
        [
            numpy_helper.from_array(
                (draw.normal(size=shape) / max(shape[-1], 4) ** 0.5).astype(np.float32), name
            )
            for name, shape in weights.items()
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)


@cache
def quantised(name: str, by_channel: bool, features: int = 10, units: int = 6) -> ModelProto:
    """Return a row of ``OPTIONS`` as the quantiser writes it."""
    logging.disable()  # it advises to prepare the model
    try:
        with TemporaryDirectory() as folder:
            before, after = Path(folder, "before.onnx"), Path(folder, "after.onnx")
            onnx.save(lstm(features, units, **OPTIONS[name]), before)
            quantize_dynamic(before, after, per_channel=by_channel, op_types_to_quantize=["LSTM"])
            proto = onnx.load(after)
    finally:
        logging.disable(logging.NOTSET)
    assert [node.op_type for node in proto.graph.node] == ["DynamicQuantizeLSTM"]
    return proto


def feeds_of(proto: ModelProto, name: str) -> dict[str, Array]:
    draw, feeds = np.random.default_rng(4), {}
    for port in proto.graph.input:
        sizes = [size.dim_value for size in port.type.tensor_type.shape.dim]
        feeds[port.name] = draw.normal(size=sizes).astype(np.float32)
    if "lengths" in feeds:
        feeds["lengths"] = np.array(OPTIONS[name]["lengths"], np.int32)
    return feeds


def peer(proto: ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """Return ONNX Runtime's answer on one thread: several quantize parts of a batch."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    return [np.asarray(value) for value in session.run(None, dict(feeds))]


def answer(proto: ModelProto, feeds: Mapping[str, Array], **options: Any) -> list[Array]:
    with Session(proto, threads=1, cache_dir=None, **options) as session:
        values = session.run(None, feeds)
        [step] = session.plan.steps
        assert step.python == (options.get("libraries") == ["numpy"])
        return values


@pytest.mark.parametrize("by_channel", [False, True])
@pytest.mark.parametrize("name", OPTIONS)
def test_values_are_those_of_onnx_runtime(name: str, by_channel: bool) -> None:
    proto = quantised(name, by_channel)
    feeds = feeds_of(proto, name)
    want, defined = peer(proto, feeds), answer(proto, feeds, libraries=["numpy"])
    for value, other, right in zip(answer(proto, feeds), defined, want, strict=True):
        np.testing.assert_allclose(value, right, rtol=0, atol=FLIP)
        np.testing.assert_allclose(other, right, rtol=0, atol=FLIP)
        assert np.abs(value - right).mean() < 1e-4  # few roundings come out otherwise


@pytest.mark.parametrize(("features", "units"), [(1, 1), (3, 17), (64, 16), (70, 33), (16, 130)])
def test_sizes_that_fill_no_panel(features: int, units: int) -> None:
    proto = quantised("both", True, features, units)
    feeds = feeds_of(proto, "both")
    for value, right in zip(answer(proto, feeds), peer(proto, feeds), strict=True):
        np.testing.assert_allclose(value, right, rtol=0, atol=FLIP)


def with_weights(proto: ModelProto, arrays: Mapping[str, Array]) -> ModelProto:
    """Return a model with other arrays in place of some; keys are parts of the names."""
    changed = ModelProto()
    changed.CopyFrom(proto)
    for tensor in changed.graph.initializer:
        for part, array in arrays.items():
            if tensor.name.endswith(part):
                tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    return changed


def test_unsigned_weights_have_zero_points() -> None:
    proto, draw = quantised("both", False), np.random.default_rng(5)
    sizes = {"w": (2, 10, 24), "r": (2, 6, 24)}
    arrays = {
        f"{name}_quantized": draw.integers(0, 256, shape).astype(np.uint8)
        for name, shape in sizes.items()
    }
    arrays |= {f"{name}_zero_point": np.array([130, 120], np.uint8) for name in sizes}
    arrays |= {f"{name}_scale": np.array([0.004, 0.003], np.float32) for name in sizes}
    proto = with_weights(proto, arrays)
    feeds = feeds_of(proto, "both")
    for value, right in zip(answer(proto, feeds), peer(proto, feeds), strict=True):
        np.testing.assert_allclose(value, right, rtol=0, atol=FLIP)


BITS = """
import hashlib, sys
from vtensor import limit_isa
limit_isa(sys.argv[1])
from tests.operators.test_quantized_lstm import OPTIONS, answer, feeds_of, quantised
bits = hashlib.sha256()
for name in OPTIONS:
    proto = quantised(name, True, 70, 33)
    for value in answer(proto, feeds_of(proto, name)):
        bits.update(value.tobytes())
print(bits.hexdigest())
"""


def test_all_instruction_sets_give_equal_bits() -> None:
    assert len({printed("-c", BITS, cap) for cap in ("sse41", "avx2", "avx512", "max")}) == 1


def test_threads_change_nothing() -> None:
    proto = quantised("short", True, 70, 130)
    feeds = feeds_of(proto, "short")
    with Session(proto, threads=2, cache_dir=None) as session:
        values = session.run(None, feeds)
    for value, other in zip(values, answer(proto, feeds), strict=True):
        np.testing.assert_array_equal(value, other)


def test_lengths_beyond_the_sequence_are_its_whole_length() -> None:
    proto = quantised("short", False)
    feeds = feeds_of(proto, "short")
    beyond = answer(proto, feeds | {"lengths": np.array([9, -1, 1 << 30], np.int32)})
    whole = answer(proto, feeds | {"lengths": np.array([TIMES, 0, TIMES], np.int32)})
    for value, other in zip(beyond, whole, strict=True):
        np.testing.assert_array_equal(value, other)
    assert not beyond[0][:, :, 1].any()


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_numbers_that_are_not_finite(number: float) -> None:
    """A NaN does not count where x is quantized, and of an infinity nothing is left."""
    proto = quantised("plain", False)
    feeds = feeds_of(proto, "plain")
    feeds["x"][2, 1, 3] = number
    value, defined = answer(proto, feeds), answer(proto, feeds, libraries=["numpy"])
    np.testing.assert_allclose(value[0], defined[0], rtol=0, atol=FLIP)
    assert np.isnan(value[0]).all() == np.isinf(number)


@pytest.mark.parametrize(
    ("part", "array", "text"),
    [
        ("w_scale", np.array([0.0], np.float32), "has the scale 0"),
        ("w_scale", np.array([np.nan], np.float32), "has the scale nan"),
        ("r_scale", np.array([-1.0], np.float32), "has the scale -1"),
        ("r_scale", np.array([1.0, 1.0], np.float32), "does not fit weights"),
        ("w_zero_point", np.array([0], np.uint8), "is a zero point of integers of type s8"),
        ("w_quantized", np.zeros((1, 10, 22), np.int8), "no 4 gates"),
        ("w_quantized", np.zeros((1, 9, 24), np.int8), "F"),
        ("r_quantized", np.zeros((1, 6, 20), np.int8), "unit"),
    ],
)
def test_wrong_weights_are_refused(part: str, array: Array, text: str) -> None:
    proto = with_weights(quantised("plain", False), {part: array})
    with pytest.raises(VTensorError, match=text):
        Session(proto, cache_dir=None)


def test_another_hidden_size_than_that_of_the_weights_is_refused() -> None:
    proto = quantised("plain", False)
    [number] = [a for n in proto.graph.node for a in n.attribute if a.name == "hidden_size"]
    number.i += 1
    with pytest.raises(VTensorError, match="hidden_size 7, the weights have 6"):
        Session(proto, cache_dir=None)


#: A kernel's network: five steps of two sequences.
NETWORK = ("lstm", "forward", 5, 2, 3, 4, [(f, 0.0, 0.0) for f in ("sigmoid", "tanh", "tanh")])


@pytest.mark.parametrize(
    ("changes", "given", "instructions", "text"),
    [
        ({0: "gru", 6: NETWORK[6][:2]}, [], "", "only an LSTM"),
        ({1: "up"}, [], "", "no such direction"),
        ({1: "bidirectional"}, [], "", "number of functions"),
        ({2: -1}, [], "", "negative"),
        ({3: 1 << 40, 5: 1 << 40}, [], "", "overflow"),
        ({4: (1 << 63) - 2}, [], "", "overflow"),
        ({}, ["bias", "bias"], "", "given twice"),
        ({}, ["lengths"], "", "4 or 8 bytes"),
        ({}, [], "neon", "no kernels with the instructions neon"),
    ],
)
def test_native_code_refuses(
    changes: Mapping[int, Any], given: list[str], instructions: str, text: str
) -> None:
    network: Any = [changes.get(at, value) for at, value in enumerate(NETWORK)]
    with pytest.raises(ValueError, match=text):
        native.load().dynamic_lstm(
            instructions or native.instructions(), (*network, 0.0, False, False), given, 0
        )
