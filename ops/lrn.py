"""Local response normalization over channels."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from libdesc import eigen, invoker, onednn
from libdesc.numpy import definition
from libdesc.numpy.arrays import FLOATS, wide
from libdesc.routine import Routine
from ops._elementwise import Unary
from ops._names import from_attributes
from ops._windows import image_order, pool_names, read_image, write_image
from ptensor import PTensor
from vtensor.operators import Context, Cost, NodeReader, Spelling, operator, param
from vtensor.tensor import VTensor


def _read(node: NodeReader) -> VTensor:
    return node.add(from_attributes(node, LRN), read_image(node))


@operator(
    "LRN",
    dims={"x": "N C D? H? W", "y": "N C D? H? W"},
    equal=[(f"x.{dim}", f"y.{dim}") for dim in "NCDHW"],
    onnx=Spelling("LRN", 1, _read, pool_names, write=write_image("LRN")),
    traits=[Cost(lambda op, x, _y: (op.size + 4) * x.num_elements)],
)
class LRN(Unary):
    """Divide each element by a power of the sum of squares in the channels around it.

    y[N, C, ...] = x / (bias + alpha / size * s)**beta, s the sum of the squares of x in channels
    C - (size - 1)//2 to C + size//2, as far as they exist.

    Dims:
        x, y: N C W, N C H W or N C D H W
    Args:
        size: number of channels in the sum, at least 1.
        alpha, beta, bias: as in the formula.
    Cost:
        size + 4 operations for each element: square, sum, multiply-add, power, quotient.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "C": 96, "H": 55, "W": 55})
    >>> LRN(5).compute(Context(), x).summary()
    'f32 N=1 C=96 H=55 W=55'

    Source: ONNX operator LRN, opset 13.
    """

    size: int = param(minimum=1)
    alpha: float = param(default=1e-4)
    beta: float = param(default=0.75)
    bias: float = param(default=1.0)


def _odd(op: LRN, x: VTensor, y: VTensor) -> bool | str:
    return op.size % 2 == 1 or f"sums over an odd number of channels only, not {op.size}"


@invoker("LRN", library="onednn", dtypes=["f32", "bf16", "f16"], when=_odd)
def onednn_lrn(ctx: Context, op: LRN, x: VTensor, y: VTensor) -> Routine:
    return onednn.Lrn(x, y, op.size, op.alpha, op.beta, op.bias)


@invoker("LRN", library="eigen", dtypes=eigen.DTYPES)
def eigen_lrn(ctx: Context, op: LRN, x: VTensor, y: VTensor) -> Routine:
    return eigen.lrn(x, y, op.size, op.alpha, op.beta, op.bias)


@definition("LRN", dtypes=FLOATS, order=image_order)
def lrn(ctx: Context, op: LRN, x: PTensor, y: PTensor) -> None:
    image = wide(x.data())
    if not image.size:
        return  # without channels, no window fits into the array
    around = [min(reach, x.size("C")) for reach in ((op.size - 1) // 2, op.size // 2)]
    squares = np.pad(image * image, [(0, 0), around, *[(0, 0)] * (image.ndim - 2)])
    total = sliding_window_view(squares, sum(around) + 1, axis=1).sum(axis=-1)
    y.data()[...] = image / (op.bias + op.alpha / op.size * total) ** op.beta
