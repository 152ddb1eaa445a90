"""What operators declare that they cost, against counts by brute force."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest

import ops
from libdesc.registry import registry
from vtensor.language.operators import OPERATORS, Context, info_of, operator, run_compute
from vtensor.language.tensor import VTensor
from vtensor.language.traits import Cost

#: Neither element-wise nor with a cost: they move elements, look them up or sort them; those of the
#: last three lines compute, but how much depends on how, or on more than dims.
MOVERS = {
    *("Col2Im", "Compress", "Concat", "DepthToSpace", "Expand", "EyeLike", "Gather"),
    *("GatherElements", "GatherND", "MaxUnpool", "OneHot", "Pad", "Rename", "Reshape"),
    *("ReverseSequence", "ScatterElements", "ScatterND", "Slice", "SpaceToDepth"),
    *("TensorScatter", "Tile", "TopK", "Trilu"),
    *("DFT", "STFT", "Det", "GridSample", "Resize", "RoiAlign"),
    *("Adagrad", "Adam", "Momentum", "DynamicQuantizeLinear", "OnnxNode"),
    *("DequantizeBlocks", "GatherBlockQuantized"),
}


def operations(op: object, *inputs: VTensor) -> int:
    """Return what an operator's declaration says of a call."""
    return info_of(op).operations(op, inputs, run_compute(Context(), op, inputs))


def tensor(**dims: int) -> VTensor:
    """Return a tensor of these sizes."""
    return VTensor("f32", dims)


def convolved(x: VTensor, w: VTensor, op: Any) -> int:
    """Count products and sums of a convolution, window by window over a padded image."""
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


@pytest.mark.parametrize(
    ("op", "w"),
    [
        (ops.Conv2D(), tensor(O=4, I=6, h=3, w=2)),
        (ops.Conv2D(strides=(2, 1), pads=(1, 0, 2, 1)), tensor(O=5, I=6, h=3, w=3)),
        (ops.Conv2D(dilations=(2, 1), group=3), tensor(G=3, O=2, I=2, h=2, w=3)),
        (ops.DepthwiseConv2D(strides=(2, 2), pads=(1,) * 4), tensor(G=6, O=2, I=1, h=3, w=3)),
    ],
)
def test_convolution_costs_what_its_windows_take(op: object, w: VTensor) -> None:
    x = tensor(N=2, C=6, H=7, W=8)
    assert operations(op, x, w) == convolved(x, w, op) > 0


IMAGE, FACTOR = tensor(N=2, C=3, H=6, W=5), tensor(C=3)
SERIES, SERIES_FILTER = tensor(N=2, C=3, W=9), tensor(O=4, I=3, w=3)
TURNED = tensor(G=3, I=1, O=2, h=2, w=3)
MATRICES = tensor(B=2, M=3, K=5), tensor(K=5, B=2, N=4)


@pytest.mark.parametrize(
    ("op", "inputs", "loops"),
    [
        (ops.Conv1D(strides=(2,)), [SERIES, SERIES_FILTER], (2, 2, 4, 4, 9)),
        (ops.ConvTranspose(group=3), [IMAGE, TURNED], (2, 2, 3, 6, 5, 2, 6)),
        (ops.MatMul("K"), MATRICES, (2, 2, 3, 4, 5)),  # a product and a sum
        (ops.Einsum(("B", "M", "N")), MATRICES, (2, 2, 3, 4, 5)),
        # a maximum, a difference, an exponential, a sum and a quotient
        (ops.Softmax(("C",)), [tensor(N=3, C=7)], (5, 3, 7)),
        (ops.AvgPool((3, 2), strides=(1, 2)), [IMAGE], (2, 3, 4, 2, 6)),
        (ops.ReduceSum(("H", "W")), [IMAGE], (2, 3, 6, 5)),
        (ops.Relu(), [IMAGE], (2, 3, 6, 5)),
        (ops.BiasAdd(), [IMAGE, FACTOR], (2, 3, 6, 5)),
        (ops.Mul(), [FACTOR, IMAGE], (2, 3, 6, 5)),  # of the output, which is larger
        (ops.Concat("C"), [IMAGE, IMAGE], (0,)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_operator_costs_what_its_loops_take(
    op: object, inputs: list[VTensor], loops: tuple[int, ...]
) -> None:
    assert operations(op, *inputs) == prod(loops)


def silent() -> set[str]:
    """Return the operators that declare no cost and are not element-wise."""
    registry()
    return {n for n, info in OPERATORS.items() if info.trait(Cost) is None and not info.elementwise}


@pytest.mark.usefixtures("scratch")
def test_every_operator_that_computes_declares_its_cost() -> None:
    assert silent() == MOVERS

    @operator("Quiet", dims={"x": "*", "y": "*"})
    class Quiet:
        def compute(self, ctx: Context, x: VTensor) -> VTensor:
            return VTensor(x.dtype, x.dims, ctx.output(0))

    assert silent() - MOVERS == {"Quiet"}


def test_cost_of_a_docstring_is_declared() -> None:
    registry()
    described = {n for n, info in OPERATORS.items() if "\n    Cost:" in (info.cls.__doc__ or "")}
    declared = {n for n, info in OPERATORS.items() if info.trait(Cost) is not None}
    assert described - declared == set()
    assert {"Conv2D", "MatMul", "MaxPool", "Softmax", "LRN", "BatchNorm"} <= described
