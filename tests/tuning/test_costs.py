"""What operators say that they cost, beside counts by brute force."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

from libdesc.registry import registry
from ops import (
    AvgPool,
    BiasAdd,
    Concat,
    Conv1D,
    Conv2D,
    ConvTranspose,
    DepthwiseConv2D,
    Einsum,
    MatMul,
    Mul,
    ReduceSum,
    Relu,
    Softmax,
)
from vtensor.language.operators import OPERATORS, Context, info_of, operator, run_compute
from vtensor.language.tensor import VTensor
from vtensor.language.traits import Cost

#: Neither element-wise nor with a cost: they move elements, look them up or sort them; those of the
#: last two lines compute, but how much depends on how, or on more than dims.
MOVERS = {
    *("Col2Im", "Compress", "Concat", "DepthToSpace", "Expand", "EyeLike", "Gather"),
    *("GatherElements", "GatherND", "MaxUnpool", "OneHot", "Pad", "Rename", "Reshape"),
    *("ReverseSequence", "ScatterElements", "ScatterND", "Slice", "SpaceToDepth"),
    *("TensorScatter", "Tile", "TopK", "Trilu"),
    *("DFT", "STFT", "Det", "GridSample", "Resize", "RoiAlign"),
    *("Adagrad", "Adam", "Momentum", "DynamicQuantizeLinear", "OnnxNode"),
}


def operations(op: object, *inputs: VTensor) -> int:
    """What an operator's declaration says of a call."""
    outputs = run_compute(Context(), op, inputs)
    return info_of(op).operations(op, inputs, outputs)


def tensor(**dims: int) -> VTensor:
    """A tensor of these sizes."""
    return VTensor("f32", dims)


def steps(*counts: int) -> int:
    """How many turns nested loops take, counted one by one."""
    return sum(1 for _ in product(*map(range, counts)))


def convolved(x: VTensor, w: VTensor, op: Any) -> int:
    """Products and sums of a two-dimensional convolution, window by window over a padded image."""
    [y] = run_compute(Context(), op, [x, w])
    image = np.zeros((x.size("H") + op.pads[0] + op.pads[2], x.size("W") + op.pads[1] + op.pads[3]))
    count = 0
    for _, _, row, column in product(*(range(y.size(dim)) for dim in "NCHW")):
        top, left = row * op.strides[0], column * op.strides[1]
        down, right = (op.dilations[i] * w.size(dim) for i, dim in enumerate("hw"))
        window = image[top : top + down : op.dilations[0], left : left + right : op.dilations[1]]
        assert window.shape == (w.size("h"), w.size("w"))
        count += 2 * window.size * w.size("I")
    return count


class Counting(float):
    """A number that counts what is done to it."""

    done = 0

    @classmethod
    def _count(cls, value: float) -> Counting:
        cls.done += 1
        return cls(value)

    def __add__(self, other: float) -> Counting:
        return self._count(float(self) + other)

    def __sub__(self, other: float) -> Counting:
        return self._count(float(self) - other)

    def __mul__(self, other: float) -> Counting:
        return self._count(float(self) * other)

    def __truediv__(self, other: float) -> Counting:
        return self._count(float(self) / other)

    def larger(self, other: float) -> Counting:
        return self._count(max(float(self), other))

    def exp(self) -> Counting:
        return self._count(np.exp(float(self)))


def counted(run: Callable[[], object]) -> int:
    """How many operations on ``Counting`` numbers a function makes."""
    Counting.done = 0
    run()
    return Counting.done


def numbers(count: int) -> list[Counting]:
    """Some numbers."""
    return [Counting(value) for value in np.random.default_rng(0).normal(size=count)]


def softmax(x: Sequence[Counting]) -> list[Counting]:
    """As the docstring has it, sums and maxima beginning with a number that is there already."""
    largest, total = Counting(-np.inf), Counting(0)
    for value in x:
        largest = largest.larger(value)
    powers = [(value - largest).exp() for value in x]
    for power in powers:
        total = total + power
    return [power / total for power in powers]


def dot(x: Sequence[Counting], y: Sequence[Counting]) -> Counting:
    """Sum of products."""
    total = Counting(0)
    for a, b in zip(x, y, strict=True):
        total = total + a * b
    return total


@pytest.mark.parametrize(
    ("op", "w"),
    [
        (Conv2D(), tensor(O=4, I=6, h=3, w=2)),
        (Conv2D(strides=(2, 1), pads=(1, 0, 2, 1)), tensor(O=5, I=6, h=3, w=3)),
        (Conv2D(dilations=(2, 1), group=3), tensor(G=3, O=2, I=2, h=2, w=3)),
        (DepthwiseConv2D(strides=(2, 2), pads=(1, 1, 1, 1)), tensor(G=6, O=2, I=1, h=3, w=3)),
    ],
)
def test_a_convolution_is_what_its_windows_take(op: object, w: VTensor) -> None:
    x = tensor(N=2, C=6, H=7, W=8)
    assert operations(op, x, w) == convolved(x, w, op) > 0


def test_a_matrix_product_is_as_many_dot_products_as_it_has_results() -> None:
    a, b = tensor(B=2, M=3, K=5), tensor(K=5, B=2, N=4)
    one = counted(lambda: dot(numbers(5), numbers(5)))
    assert operations(MatMul("K"), a, b) == steps(2, 3, 4) * one
    assert operations(Einsum(("B", "M", "N")), a, b) == steps(2, 3, 4) * one


def test_a_softmax_is_one_for_each_row() -> None:
    one = counted(lambda: softmax(numbers(7)))
    assert operations(Softmax(("C",)), tensor(N=3, C=7)) == 3 * one


def rows() -> Iterator[tuple[object, list[VTensor], int]]:
    """Calls, and what they cost, counted by nested loops."""
    image = tensor(N=2, C=3, H=6, W=5)
    yield (
        Conv1D(strides=(2,)),
        [tensor(N=2, C=3, W=9), tensor(O=4, I=3, w=3)],
        2 * steps(2, 4, 4, 9),
    )
    turned = tensor(G=3, I=1, O=2, h=2, w=3)
    yield ConvTranspose(group=3), [image, turned], 2 * steps(2, 3, 6, 5, 2, 6)
    yield AvgPool((3, 2), strides=(1, 2)), [image], steps(2, 3, 4, 2, 6)
    yield ReduceSum(("H", "W")), [image], steps(2, 3, 6, 5)
    yield Relu(), [image], steps(2, 3, 6, 5)
    yield BiasAdd(), [image, tensor(C=3)], steps(2, 3, 6, 5)
    yield Mul(), [tensor(C=3), image], steps(2, 3, 6, 5)  # of the output, which is larger
    yield Concat("C"), [image, image], 0


@pytest.mark.parametrize(
    ("op", "inputs", "count"), list(rows()), ids=lambda one: type(one).__name__
)
def test_others_are_counted_by_loops(op: object, inputs: list[VTensor], count: int) -> None:
    assert operations(op, *inputs) == count


def silent() -> set[str]:
    """The operators that say nothing of their cost and are not element-wise."""
    registry()
    return {n for n, info in OPERATORS.items() if info.trait(Cost) is None and not info.elementwise}


def test_what_computes_says_what_it_costs() -> None:
    assert silent() == MOVERS


@pytest.mark.usefixtures("scratch")
def test_one_that_does_not_would_be_found() -> None:
    @operator("Quiet", dims={"x": "*", "y": "*"})
    class Quiet:
        def compute(self, ctx: Context, x: VTensor) -> VTensor:
            return VTensor(x.dtype, x.dims, ctx.output(0))

    assert silent() - MOVERS == {"Quiet"}


def test_what_a_docstring_counts_is_declared() -> None:
    registry()
    described = {n for n, info in OPERATORS.items() if "\n    Cost:" in (info.cls.__doc__ or "")}
    declared = {n for n, info in OPERATORS.items() if info.trait(Cost) is not None}
    assert described - declared == set()
    assert {"Conv2D", "MatMul", "MaxPool", "Softmax", "LRN", "BatchNorm"} <= described
