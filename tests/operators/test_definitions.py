"""NumPy's pools and responses against the formula of each docstring, one element at a time.

Other definitions are compared with ONNX Runtime in ``test_spellings.py``; here is what it computes
otherwise or refuses: windows that reach past the end, and an even number of channels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

from ops import LRN, AvgPool, LpPool, MaxPool
from tests.operators.harness import Array, check_close, definition
from tests.operators.tables.cases import CASES, case, expected

Index = tuple[int, ...]


def window(op: Any, x: Array, index: Index) -> Iterator[tuple[Index, float | None]]:
    """Yield the places of a window and their elements; None is a pad."""
    rank = x.ndim - 2
    strides, dilations = op.strides or (1,) * rank, op.dilations or (1,) * rank
    pads = op.pads or (0, 0) * rank
    for offsets in product(*map(range, op.kernel_shape)):
        place = tuple(
            index[2 + i] * strides[i] + offset * dilations[i] - pads[i]
            for i, offset in enumerate(offsets)
        )
        inside = all(0 <= i < size for i, size in zip(place, x.shape[2:], strict=True))
        yield place, float(x[(*index[:2], *place)]) if inside else None


def average(op: AvgPool, x: Array, index: Index) -> float:
    """Return the mean of elements, with pads or without; what lies beyond pads never counts."""
    values, rank = [], x.ndim - 2
    ends = (op.pads or (0, 0) * rank)[rank:]
    for place, value in window(op, x, index):
        within = all(place[i] < x.shape[2 + i] + ends[i] for i in range(rank))
        if value is not None or (op.count_include_pad and within):
            values.append(value or 0.0)
    return float(np.mean(values))


def norm(op: LpPool, x: Array, index: Index) -> float:
    """Return the norm; pads are zeros, as many as a window meets."""
    powers = (abs(value or 0.0) ** op.p for _, value in window(op, x, index))
    return float(sum(powers) ** (1 / op.p))


def largest(op: MaxPool, x: Array, index: Index) -> float:
    """Return the largest element; pads are left out."""
    return max(value for _, value in window(op, x, index) if value is not None)


def response(op: LRN, x: Array, index: Index) -> float:
    """Return the response of channels from c - (size-1)//2 to c + size//2."""
    n, c, *rest = index
    near = range(max(0, c - (op.size - 1) // 2), min(x.shape[1], c + op.size // 2 + 1))
    total = sum(float(x[(n, k, *rest)]) ** 2 for k in near)
    return float(float(x[index]) / (op.bias + op.alpha / op.size * total) ** op.beta)


IMAGE, SERIES, VOLUME = "N=2 C=6 H=7 W=5", "N=2 C=4 W=9", "N=1 C=4 D=4 H=5 W=3"
CEIL: dict[str, Any] = {"strides": (2, 2), "pads": (1, 0, 0, 1), "ceil_mode": True}
UNEVEN = AvgPool((2, 2, 3), (1, 2, 1), (0, 1, 1, 1, 0, 2), count_include_pad=True)
ROWS: list[tuple[Any, str, Callable[[Any, Array, Index], float]]] = [
    (AvgPool((3, 2), **CEIL), IMAGE, average),
    (AvgPool((3, 2), **CEIL, count_include_pad=True), IMAGE, average),
    (AvgPool((3,), (2,), (1, 1)), SERIES, average),
    (UNEVEN, VOLUME, average),
    (MaxPool((2, 3, 1)), VOLUME, largest),
    (MaxPool((3, 2), **CEIL), IMAGE, largest),
    (MaxPool((2, 3), dilations=(3, 2)), IMAGE, largest),
    # a window that would begin in the pads of the end is none
    (LpPool((3, 2), pads=(0, 0, 4, 3), ceil_mode=True), IMAGE, norm),
    (LpPool((3, 2), **CEIL, p=3), IMAGE, norm),
    *((LRN(size, 0.5, 0.6, 2.0), IMAGE, response) for size in (1, 3, 4)),
    (LRN(3), VOLUME, response),
]


@pytest.mark.parametrize(
    ("op", "image", "formula"), ROWS, ids=lambda value: getattr(value, "__name__", str(value))
)
def test_the_definition_is_the_formula(
    op: Any, image: str, formula: Callable[[Any, Array, Index], float]
) -> None:
    given = case(op, image).given()
    [result] = definition(op, given)
    x, wanted = given[0].array.astype(np.float64), np.empty(result.shape)
    for index in np.ndindex(*result.shape):
        wanted[index] = formula(op, x, index)
    check_close(result, wanted, 1e-12)


@pytest.mark.parametrize(
    "name",
    [
        *("Attention", "BatchNorm", "Conv1D", "Conv2D", "Conv3D", "ConvTranspose", "DFT"),
        *("DepthwiseConv2D", "LayerNormalization", "MatMul", "Mean", "ReduceSum", "Softmax"),
    ],
)
def test_the_definition_of_a_sum_is_as_exact_as_f64(name: str) -> None:
    first, *_ = expected(CASES[name][0])
    assert first.dtype == np.float64
    assert (first != first.astype(np.float32)).any()
