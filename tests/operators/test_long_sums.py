"""Sums of very many equal numbers are as exact as their type, on each library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp, log, prod
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from vtensor.runtime.session import Session

Array = np.ndarray[Any, Any]

#: How many numbers the longest sums have, and others.
MANY, LONG = 1 << 24, 1 << 20
VALUE = float(np.float32(0.1))
LIBRARIES = (None, ("onednn",), ("eigen",), ("numpy",))
SHAPES = (((LONG,), (0,)), ((1, 2, 1024, 1024), (2, 3)), ((LONG // 4, 4), (0,)))


def model(
    op_type: str,
    shape: Sequence[int],
    known: Sequence[Array] = (),
    opset: int = 18,
    **attributes: Any,
) -> Any:
    """A node whose first input is a run's."""
    names = [f"k{place}" for place in range(len(known))]
    graph = helper.make_graph(
        [helper.make_node(op_type, ["x", *names], ["y"], **attributes)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for array, name in zip(known, names, strict=True)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def check(model: Any, x: Array, expected: float, first: Any = ...) -> None:
    """Each library's result, of one and of two threads, within 1e-6 of what is expected."""
    for libraries in LIBRARIES:
        for threads in (1, 2) if libraries != ("numpy",) else (1,):
            with Session(model, threads=threads, libraries=libraries) as session:
                [found] = session.run(None, {"x": x})
            wanted = np.full_like(found[first], expected, np.float64)
            np.testing.assert_allclose(found[first], wanted, rtol=1e-6, err_msg=str(libraries))


REDUCTIONS: dict[str, Callable[[float], float]] = {
    "ReduceMean": lambda _: VALUE,
    "ReduceSum": lambda n: n * VALUE,
    "ReduceL1": lambda n: n * VALUE,
    "ReduceL2": lambda n: (n * VALUE**2) ** 0.5,
    "ReduceSumSquare": lambda n: n * VALUE**2,
    "ReduceLogSum": lambda n: log(n * VALUE),
    "ReduceLogSumExp": lambda n: log(n) + VALUE,
}


@pytest.mark.parametrize(("shape", "axes"), SHAPES, ids=str)
@pytest.mark.parametrize("op_type", REDUCTIONS)
def test_reductions(op_type: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    count = prod(shape[axis] for axis in axes)
    node = model(op_type, shape, [np.array(axes, np.int64)])
    check(node, np.full(shape, VALUE, np.float32), REDUCTIONS[op_type](count))


@pytest.mark.parametrize("op_type", ["ReduceMean", "ReduceSum"])
def test_longest_reductions(op_type: str) -> None:
    node = model(op_type, (MANY,), [np.array([0])])
    check(node, np.full(MANY, VALUE, np.float32), REDUCTIONS[op_type](MANY))


@pytest.mark.parametrize("channels", [1, 3, 80])
def test_pools_of_whole_images(channels: int) -> None:
    size = {1: 4096, 3: 1000, 80: 256}[channels]
    x, count = np.full((1, channels, size, size), VALUE, np.float32), size * size
    check(model("GlobalAveragePool", x.shape), x, VALUE)
    for p, total in ((1, count * VALUE), (2, (count * VALUE**2) ** 0.5)):
        check(model("GlobalLpPool", x.shape, p=p), x, total)


@pytest.mark.parametrize("window", [(23, 23), (700, 300), (512, 512)])
def test_pools_of_large_windows(window: tuple[int, int]) -> None:
    x = np.full((1, 5, 700, 600), VALUE, np.float32)
    check(model("AveragePool", x.shape, kernel_shape=window, strides=window), x, VALUE)
    third = (prod(window) * VALUE**3) ** (1 / 3)
    check(model("LpPool", x.shape, kernel_shape=window, strides=window, p=3), x, third)


def test_channels_last_pools_of_whole_images() -> None:
    """As a convolution leaves them."""
    x = np.full((1, 300, 300, 24), VALUE, np.float32)
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]),
        helper.make_node("GlobalAveragePool", ["t"], ["y"]),
    ]
    made = model("GlobalAveragePool", x.shape)
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    check(made, x, VALUE)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax"])
def test_denominators(op_type: str, axis: int) -> None:
    """One element is the largest, all others have the same exponential."""
    x = np.full((LONG, 2) if axis == 0 else (2, LONG), -1, np.float32)
    x[(0, slice(None)) if axis == 0 else (slice(None), 0)] = 0
    total = 1 + (LONG - 1) * exp(-1)
    expected = 1 / total if op_type == "Softmax" else -log(total)
    check(model(op_type, x.shape, axis=axis), x, expected, np.s_[0, 0])


@pytest.mark.parametrize(
    ("op_type", "opset", "parameters", "attributes"),
    [
        ("LayerNormalization", 17, (LONG, LONG), {"axis": 1, "epsilon": 0.0}),
        ("InstanceNormalization", 17, (1, 1), {"epsilon": 0.0}),
        ("GroupNormalization", 21, (1, 1), {"epsilon": 0.0, "num_groups": 1}),
    ],
)
def test_statistics(
    op_type: str, opset: int, parameters: tuple[int, int], attributes: dict[str, Any]
) -> None:
    """Of two numbers in turn: the smaller is a deviation below the mean."""
    shape = (1, LONG) if op_type == "LayerNormalization" else (1, 1, 1024, 1024)
    x = np.full(shape, 1.1, np.float32)
    x[..., 1::2] = 1.3
    known = [
        np.full(size, value, np.float32) for size, value in zip(parameters, (1, 0), strict=True)
    ]
    check(model(op_type, shape, known, opset, **attributes), x, -1, (0,) * len(shape))


@pytest.mark.parametrize("p", [1, 2])
def test_norms(p: int) -> None:
    x = np.full((LONG // 4, 3), VALUE, np.float32)
    check(model("LpNormalization", x.shape, axis=0, p=p), x, (LONG // 4) ** (-1 / p))


def test_running_sums() -> None:
    x = np.full(MANY, VALUE, np.float32)
    check(model("CumSum", x.shape, [np.array(0)]), x, MANY * VALUE, -1)
