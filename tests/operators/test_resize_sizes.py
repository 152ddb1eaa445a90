"""Resize by every pair of sizes: which size a scale gives, and which element is the nearest."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from math import ceil, floor
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from ops import Resize
from ops.resize import ROUNDINGS, scaled
from ptensor.layout import Layout
from tests.operators.harness import Given, decide, run
from vtensor import Session
from vtensor.errors import ModelError, NoInvokerError

Array = np.ndarray[Any, Any]

MODES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
#: Lengths whose quotients lie next to ties or to whole numbers in f32, and plain ones.
LENGTHS = (1, 2, 3, 5, 7, 11, 14, 23, 41, 49, 55, 64, 82, 93, 100, 128)
PAIRS = [*product(LENGTHS, repeat=2)]


def resize_model(by: str, opset: int = 19, **attributes: Any) -> ModelProto:
    """A model of one dim that is resized by scales or sizes, which are an input."""
    inputs = ["x", "", "by"] if by == "scales" else ["x", "", "", "by"]
    kind = TensorProto.FLOAT if by == "scales" else TensorProto.INT64
    graph = helper.make_graph(
        [helper.make_node("Resize", inputs, ["y"], **attributes)],
        "resize",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"]),
            helper.make_tensor_value_info("by", kind, [1]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["m"])],
    )
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def line(length: int) -> Array:
    """The elements 0, 1, 2, ..., which say where each was taken."""
    return np.arange(length, dtype=np.float32)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("mode", MODES)
def test_the_nearest_element_is_that_of_onnx_runtime(mode: str, rounding: str) -> None:
    proto = resize_model("sizes", coordinate_transformation_mode=mode, nearest_mode=rounding)
    theirs = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    for length, size in PAIRS:
        [expected] = theirs.run(None, {"x": line(length), "by": np.array([size])})
        op = Resize(("W",), (size,), (size / length,), "nearest", mode, rounding)
        [found] = run("numpy", op, [Given(line(length), ("W",), Layout("W"))]).values
        np.testing.assert_array_equal(found, expected, f"{length} to {size}")


def nearest(length: int, size: int, coordinates: str, rounding: str) -> Iterator[int]:
    """The elements of exact arithmetic, ties as the rounding says."""
    for y in range(size):
        place = Fraction(2 * y + 1, 2) * length / size - Fraction(1, 2)
        if coordinates == "asymmetric":
            place = Fraction(y * length, size)
        half = Fraction(1, 2)
        near = ceil(place - half) if rounding == "round_prefer_floor" else floor(place + half)
        yield min(max(near, 0), length - 1)


@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil"])
@pytest.mark.parametrize("mode", ["half_pixel", "asymmetric"])
def test_ties_of_short_rows_are_exact(mode: str, rounding: str) -> None:
    for length, size in product(range(1, 17), repeat=2):
        op = Resize(("W",), (size,), (size / length,), "nearest", mode, rounding)
        [found] = run("numpy", op, [Given(line(length), ("W",), Layout("W"))]).values
        assert found.tolist() == [*nearest(length, size, mode, rounding)], (length, size)


@pytest.mark.parametrize("library", ["onednn", "eigen"])
@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("mode", ["half_pixel", "asymmetric"])
def test_libraries_take_the_same_elements(mode: str, rounding: str, library: str) -> None:
    taken = 0
    for length, size in PAIRS:
        op = Resize(("W",), (size,), (size / length,), "nearest", mode, rounding)
        x = Given(line(length).reshape(1, 1, -1), ("N", "C", "W"), Layout("NCW"))
        try:
            decide(library, op, [x])
        except NoInvokerError:  # oneDNN would take others
            continue
        taken += 1
        [found] = run(library, op, [x]).values
        [expected] = run("numpy", op, [x]).values
        np.testing.assert_array_equal(found, expected, f"{length} to {size}")
    assert taken >= (len(LENGTHS) if library == "onednn" else len(PAIRS))


def test_one_element_by_a_scale_that_is_rounded() -> None:
    for length, mode in product(range(2, 60), ("nearest", "linear", "cubic")):
        scale = np.float32(1) / np.float32(length)
        proto = resize_model("scales", mode=mode, coordinate_transformation_mode=MODES[1])
        proto.graph.initializer.append(numpy_helper.from_array(np.array([scale]), "by"))
        del proto.graph.input[1]
        with Session(proto, threads=1, cache_dir=None) as session:
            [found] = session.run(None, {"x": line(length)})
        assert found.tolist() == [0], (length, mode)


def quotients(opset: int, op_type: str = "Resize") -> ModelProto:
    """PyTorch's ``interpolate(x, size=y.shape)``, then an addition of y."""
    inputs = ["x", "", "s"] if opset > 10 else ["x", "s"]
    nodes = [
        helper.make_node("Shape", ["x"], ["a"]),
        helper.make_node("Shape", ["y"], ["b"]),
        helper.make_node("Cast", ["a"], ["af"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["b"], ["bf"], to=TensorProto.FLOAT),
        helper.make_node("Div", ["bf", "af"], ["s"]),
        helper.make_node(op_type, inputs, ["u"], mode="nearest"),
        helper.make_node("Add", ["u", "y"], ["z"]),
    ]
    declared = {"x": ["h", "w"], "y": ["H", "W"], "z": ["H", "W"]}
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, row)
        for name, row in declared.items()
    ]
    graph = helper.make_graph(nodes, "interpolated", infos[:2], infos[2:])
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize(("op_type", "opset"), [("Upsample", 9), ("Resize", 10), ("Resize", 13)])
def test_quotients_of_open_sizes_give_these_sizes(op_type: str, opset: int) -> None:
    with Session(quotients(opset, op_type), threads=1, cache_dir=None) as session:
        for length, size in [(10, 33), (7, 62), (11, 93), (3, 2), (49, 7), (5, 5), (1, 47)]:
            if op_type == "Upsample" and size < length:
                continue
            x = np.outer(line(length), np.ones(3, np.float32))
            [z] = session.run(None, {"x": x, "y": np.zeros((size, 3), np.float32)})
            assert z.shape == (size, 3)
            assert z[-1, 0] == length - 1 or size < length


class Node:
    """The part of a NodeReader that sizes need: a name for errors."""

    name = "node"


def test_every_quotient_of_sizes_gives_the_size() -> None:
    for length, size in product(range(1, 201), repeat=2):
        scale = float(np.float32(size) / np.float32(length))
        assert scaled(Node(), length, scale) == (size, size / length), (length, size)  # type: ignore[arg-type]


@pytest.mark.parametrize("scale", [0.0, -2.0, np.inf, np.nan])
def test_scales_that_are_none(scale: float) -> None:
    proto = resize_model("scales")
    proto.graph.initializer.append(numpy_helper.from_array(np.array([scale], np.float32), "by"))
    del proto.graph.input[1]
    with pytest.raises(ModelError, match=r"a scale of .* above 0 and finite"):
        Session(proto, cache_dir=None).run(None, {"x": line(3)})
