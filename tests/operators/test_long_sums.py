"""Sums of very many equal numbers are as exact as their type, on each library."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log, prod
from typing import Any

import numpy as np
import pytest

from tests.frontends.support import model
from tests.operators.tables.nodes import Array, Node, fed, integers
from vtensor.runtime.session import Session

#: How many numbers the longest sums have, and others.
MANY, LONG = 1 << 24, 1 << 20
VALUE = float(np.float32(0.1))
LIBRARIES = (("onednn",), ("eigen",), ("numpy",))
SHAPES = (((LONG,), (0,)), ((1, 2, 1024, 1024), (2, 3)), ((LONG // 4, 4), (0,)))


def full(*shape: int, value: float = VALUE) -> Array:
    """Return f32 that are all alike."""
    return np.full(shape, value, np.float32)


def check(node: Node, expected: float, first: Any = ...) -> None:
    """Check each library's result, of one and of two threads, within 1e-6 of what is expected."""
    for libraries in LIBRARIES:
        for threads in (1, 2) if libraries != ("numpy",) else (1,):
            [result] = node.run(libraries, threads)
            np.testing.assert_allclose(result[first], expected, rtol=1e-6, err_msg=str(libraries))


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
def test_a_long_reduction_is_exact(
    op_type: str, shape: tuple[int, ...], axes: tuple[int, ...]
) -> None:
    expected = REDUCTIONS[op_type](prod(shape[axis] for axis in axes))
    check(fed(op_type, 18, full(*shape), integers(*axes), constants=1), expected)


@pytest.mark.parametrize("op_type", ["ReduceMean", "ReduceSum"])
def test_the_longest_reduction_is_exact(op_type: str) -> None:
    check(fed(op_type, 18, full(MANY), integers(0), constants=1), REDUCTIONS[op_type](MANY))


@pytest.mark.parametrize(("channels", "size"), [(1, 4096), (3, 1000), (80, 256)])
def test_a_pool_of_a_whole_image_is_exact(channels: int, size: int) -> None:
    x, count = full(1, channels, size, size), size * size
    check(fed("GlobalAveragePool", 18, x), VALUE)
    check(fed("GlobalLpPool", 18, x, p=1), count * VALUE)
    check(fed("GlobalLpPool", 18, x, p=2), (count * VALUE**2) ** 0.5)


@pytest.mark.parametrize("window", [(23, 23), (700, 300), (512, 512)])
def test_a_pool_of_a_large_window_is_exact(window: tuple[int, int]) -> None:
    x, wide = full(1, 5, 700, 600), {"kernel_shape": window, "strides": window}
    check(fed("AveragePool", 18, x, **wide), VALUE)
    check(fed("LpPool", 18, x, p=3, **wide), (prod(window) * VALUE**3) ** (1 / 3))


@pytest.mark.parametrize("libraries", LIBRARIES, ids=str)
def test_a_pool_of_an_image_with_its_channels_last_is_exact(libraries: Any) -> None:
    """A convolution leaves such images."""
    proto = model(
        "m (float[1, 300, 300, 24] x) => (float[?, ?, ?, ?] y) "
        "{ t = Transpose<perm = [0, 3, 1, 2]>(x) y = GlobalAveragePool(t) }"
    )
    for threads in (1, 2):
        with Session(proto, threads=threads, libraries=libraries) as session:
            [result] = session.run(None, {"x": full(1, 300, 300, 24)})
        np.testing.assert_allclose(result, VALUE, rtol=1e-6)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("op_type", ["Softmax", "LogSoftmax"])
def test_a_long_denominator_is_exact(op_type: str, axis: int) -> None:
    """One element is the largest, all others have the same exponential."""
    x = full(*((LONG, 2) if axis == 0 else (2, LONG)), value=-1)
    x[(0, slice(None)) if axis == 0 else (slice(None), 0)] = 0
    total = 1 + (LONG - 1) * exp(-1)
    expected = 1 / total if op_type == "Softmax" else -log(total)
    check(fed(op_type, 18, x, axis=axis), expected, np.s_[0, 0])


@pytest.mark.parametrize(
    ("op_type", "opset", "shape", "parameters", "attributes"),
    [
        ("LayerNormalization", 17, (1, LONG), LONG, {"axis": 1}),
        ("InstanceNormalization", 17, (1, 1, 1024, 1024), 1, {}),
        ("GroupNormalization", 21, (1, 1, 1024, 1024), 1, {"num_groups": 1}),
    ],
)
def test_long_statistics_are_exact(
    op_type: str, opset: int, shape: tuple[int, ...], parameters: int, attributes: dict[str, int]
) -> None:
    """Of two numbers in turn: the smaller is a deviation below the mean."""
    x = full(*shape, value=1.1)
    x[..., 1::2] = 1.3
    inputs = (x, full(parameters, value=1), full(parameters, value=0))
    normalization = fed(op_type, opset, *inputs, constants=2, epsilon=0.0, **attributes)
    check(normalization, -1, (0,) * len(shape))


@pytest.mark.parametrize("p", [1, 2])
def test_a_long_norm_is_exact(p: int) -> None:
    check(fed("LpNormalization", 18, full(LONG // 4, 3), axis=0, p=p), (LONG // 4) ** (-1 / p))


def test_a_long_running_sum_is_exact() -> None:
    check(fed("CumSum", 18, full(MANY), np.array(0), constants=1), MANY * VALUE, -1)
