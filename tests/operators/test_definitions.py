"""NumPy's invokers against the formula of each docstring, one element at a time."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

from ops import (
    LRN,
    AvgPool,
    BatchNorm,
    Conv1D,
    Conv2D,
    Conv3D,
    ConvTranspose,
    DepthwiseConv2D,
    LpPool,
    MatMul,
    MaxPool,
    Mean,
    Softmax,
)
from tests.operators.cases import Case
from tests.operators.harness import check_close, definition

Array = np.ndarray[Any, Any]
Formula = Callable[..., float]


def by_formula(shape: tuple[int, ...], formula: Formula, *arrays: Array) -> Array:
    """The formula at every index."""
    result = np.empty(shape)
    for index in product(*map(range, shape)):
        result[index] = formula(index, *arrays)
    return result


def at(x: Array, *index: int) -> float | None:
    """An element of an image, None outside."""
    inside = all(0 <= i < size for i, size in zip(index, x.shape, strict=True))
    return float(x[index]) if inside else None


def window(op: Any, x: Array, index: tuple[int, ...], kernel: tuple[int, ...]) -> Any:
    """The elements of a window with their place in the kernel and the image; None is a pad."""
    rank = len(kernel)
    strides, dilations = op.strides or (1,) * rank, op.dilations or (1,) * rank
    pads = op.pads or (0, 0) * rank
    for place in product(*map(range, kernel)):
        where = tuple(
            index[2 + i] * strides[i] + place[i] * dilations[i] - pads[i] for i in range(rank)
        )
        yield place, where, at(x, *index[:2], *where)


def convolution(op: Any) -> Formula:
    """Grouped, strided, dilated."""

    def formula(index: tuple[int, ...], x: Array, w: Array) -> float:
        kernels = w if w.ndim > x.ndim else w[None]
        group, out = divmod(index[1], kernels.shape[1])
        total = 0.0
        for k in range(kernels.shape[2]):
            place = (index[0], group * kernels.shape[2] + k, *index[2:])
            for inside, _, value in window(op, x, place, kernels.shape[3:]):
                total += (value or 0.0) * kernels[(group, out, k, *inside)]
        return total

    return formula


def transposed(op: ConvTranspose) -> Formula:
    """Every element and every place of its kernel that comes down here."""

    def formula(index: tuple[int, ...], x: Array, w: Array) -> float:
        kernels = w if w.ndim > x.ndim else w[None]
        group, out = divmod(index[1], kernels.shape[2])
        each, total, rank = kernels.shape[1], 0.0, x.ndim - 2
        strides, dilations = op.strides or (1,) * rank, op.dilations or (1,) * rank
        pads = op.pads or (0, 0) * rank
        for where in np.ndindex(*x.shape[2:]):
            for place in np.ndindex(*kernels.shape[3:]):
                here = (
                    where[i] * strides[i] + place[i] * dilations[i] - pads[i] for i in range(rank)
                )
                if tuple(here) == index[2:]:
                    channels = slice(group * each, (group + 1) * each)
                    factors = kernels[(group, slice(None), out, *place)]
                    total += float(x[(index[0], channels, *where)] @ factors)
        return total

    return formula


def average(op: AvgPool) -> Formula:
    """Pads counted or not; what lies beyond them never."""

    def formula(index: tuple[int, ...], x: Array) -> float:
        values, rank = [], x.ndim - 2
        for _, where, value in window(op, x, index, op.kernel_shape):
            ends = (op.pads or (0, 0) * rank)[rank:]
            within = all(where[i] < x.shape[2 + i] + ends[i] for i in range(rank))
            if value is not None or (op.count_include_pad and within):
                values.append(value or 0.0)
        return float(np.mean(values))

    return formula


def norm(op: LpPool) -> Formula:
    """Pads are zeros, as many as a window meets."""

    def formula(index: tuple[int, ...], x: Array) -> float:
        found = window(op, x, index, op.kernel_shape)
        return float(sum(abs(value or 0.0) ** op.p for *_, value in found) ** (1 / op.p))

    return formula


def largest(op: MaxPool) -> Formula:
    """Pads are left out."""

    def formula(index: tuple[int, ...], x: Array) -> float:
        found = window(op, x, index, op.kernel_shape)
        return float(max(value for *_, value in found if value is not None))

    return formula


def response(op: LRN) -> Formula:
    """Channels from c - (size-1)//2 to c + size//2."""

    def formula(index: tuple[int, ...], x: Array) -> float:
        n, c, *rest = index
        near = range(max(0, c - (op.size - 1) // 2), min(x.shape[1], c + op.size // 2 + 1))
        total = sum(float(x[(n, k, *rest)]) ** 2 for k in near)
        return float(float(x[index]) / (op.bias + op.alpha / op.size * total) ** op.beta)

    return formula


def normal(op: BatchNorm) -> Formula:
    """Each channel by its own statistics."""

    def formula(index: tuple[int, ...], x: Array, *statistics: Array) -> float:
        scale, bias, mean, var = (float(vector[index[1]]) for vector in statistics)
        return (float(x[index]) - mean) / float(np.sqrt(var + op.epsilon)) * scale + bias

    return formula


def _sum(index: tuple[int, ...], a: Array, b: Array) -> float:
    """B M K times B N K."""
    return float((a[index[0], index[1]] * b[index[0], index[2]]).sum())


def _softmax(index: tuple[int, ...], x: Array) -> float:
    """Over the last two of three dims."""
    return float(np.exp(x[index]) / np.exp(x[index[0]]).sum())


IMAGE = "N=2 C=6 H=7 W=5"
CONV = Conv2D((2, 1), (1, 0, 2, 1), (1, 2))
GROUPED = Conv2D((1, 2), group=2)
DEPTHWISE = DepthwiseConv2D(pads=(0, 1, 1, 0))
SERIES = "N=2 C=4 W=9"
VOLUME = "N=1 C=4 D=4 H=5 W=3"
CONV1 = Conv1D((2,), (1, 2), (3,), group=2)
CONV3 = Conv3D((1, 2, 1), (1, 0, 2, 0, 1, 1), (1, 2, 1))
TRANSPOSED1 = ConvTranspose((3,), (1, 0), (2,), (1,))
TRANSPOSED2 = ConvTranspose((2, 1), (1, 0, 0, 1), group=2)
TRANSPOSED3 = ConvTranspose((1, 2, 2))
AVERAGE3 = AvgPool((2, 2, 3), (1, 2, 1), (0, 1, 1, 1, 0, 2), count_include_pad=True)
CEIL: dict[str, Any] = {"strides": (2, 2), "pads": (1, 0, 0, 1), "ceil_mode": True}
#: A window that would begin in the pads of the end is none.
LATE = LpPool((3, 2), pads=(0, 0, 4, 3), ceil_mode=True)
POOLS = [AvgPool((3, 2), **CEIL), AvgPool((3, 2), **CEIL, count_include_pad=True)]

ROWS: list[tuple[Case, Formula]] = [
    (Case(CONV, (IMAGE, "O=3 I=6 h=3 w=2")), convolution(CONV)),
    (Case(GROUPED, (IMAGE, "G=2 O=2 I=3 h=2 w=2")), convolution(GROUPED)),
    (Case(DEPTHWISE, (IMAGE, "G=6 O=2 I=1 h=3 w=2")), convolution(DEPTHWISE)),
    *((Case(pool, (IMAGE,)), average(pool)) for pool in POOLS),
    (Case(CONV1, (SERIES, "G=2 O=3 I=2 w=2")), convolution(CONV1)),
    (Case(CONV3, (VOLUME, "O=3 I=4 d=3 h=2 w=2")), convolution(CONV3)),
    (Case(TRANSPOSED1, (SERIES, "I=4 O=2 w=3")), transposed(TRANSPOSED1)),
    (Case(TRANSPOSED2, (IMAGE, "G=2 I=3 O=2 h=2 w=3")), transposed(TRANSPOSED2)),
    (Case(TRANSPOSED3, (VOLUME, "I=4 O=2 d=2 h=1 w=2")), transposed(TRANSPOSED3)),
    (Case(AvgPool((3,), (2,), (1, 1)), (SERIES,)), average(AvgPool((3,), (2,), (1, 1)))),
    (Case(AVERAGE3, (VOLUME,)), average(AVERAGE3)),
    (Case(MaxPool((2, 3, 1)), (VOLUME,)), largest(MaxPool((2, 3, 1)))),
    (Case(MaxPool((3, 2), **CEIL), (IMAGE,)), largest(MaxPool((3, 2), **CEIL))),
    *((Case(pool, (IMAGE,)), norm(pool)) for pool in (LATE, LpPool((3, 2), **CEIL, p=3))),
    (Case(MaxPool((2, 3), dilations=(3, 2)), (IMAGE,)), largest(MaxPool((2, 3), dilations=(3, 2)))),
    *((Case(LRN(n, 0.5, 0.6, 2.0), (IMAGE,)), response(LRN(n, 0.5, 0.6, 2.0))) for n in (1, 3, 4)),
    (Case(LRN(3), (VOLUME,)), response(LRN(3))),
    (Case(BatchNorm(0.1), (IMAGE, *("+C=6",) * 4)), normal(BatchNorm(0.1))),
    (Case(MatMul("K"), ("B=2 M=3 K=5", "B=2 N=4 K=5")), _sum),
    (Case(Softmax(("A", "B")), ("N=2 A=3 B=4",)), _softmax),
    (
        Case(Mean(("C", "W"), keepdims=False), (IMAGE,)),
        lambda index, x: float(x[index[0], :, index[1]].mean()),
    ),
]


@pytest.mark.parametrize(("case", "formula"), ROWS, ids=[str(case)[:60] for case, _ in ROWS])
def test_the_definition_is_the_formula(case: Case, formula: Formula) -> None:
    given = case.given()
    [found] = definition(case.op, given)
    expected = by_formula(found.shape, formula, *(one.array.astype(np.float64) for one in given))
    check_close(found, expected, 1e-12)
