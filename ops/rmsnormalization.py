"""Normalization of each row of elements by its own root mean square."""

from __future__ import annotations

import numpy as np

from libdesc import invoker
from libdesc.numpy.arrays import FLOATS, wide
from ops._names import same_names
from ops._normalizations import (
    average,
    parameter,
    positions,
    scale_order,
    spread,
    within,
    write_normalization,
)
from ptensor import Layout, PTensor, lib_tagger
from vtensor.operators import Context, Cost, Naming, NodeReader, Spelling, operator, param
from vtensor.tensor import VTensor


def _names(node: Naming) -> None:
    same_names(node)
    for back in range(1, node.rank("x1") + 1):
        node.same("x1", -back, "x0", -back)


def _read(node: NodeReader) -> VTensor:
    x = node.input(0)
    names = list(x.dims)
    first = names.index(node.axis(int(node.attribute("axis", -1)), x))
    op = RMSNormalization(tuple(names[first:]), float(node.attribute("epsilon", 1e-5)))
    return node.add(op, x, parameter(node, 1, x))


@operator(
    "RMSNormalization",
    dims={"x": "*", "scale": "*", "y": "*"},
    onnx=Spelling(
        "RMSNormalization", 23, _read, _names, write=write_normalization("RMSNormalization")
    ),
    traits=[Cost(4)],
)
class RMSNormalization:
    """Divide by the root mean square over some dims.

    y = x / sqrt(E[x^2] + epsilon) * scale, the mean over ``axes``.

    Dims:
        x, y: any, the same    scale: some of x's, of the same sizes
    Args:
        axes: the dims that are normalized over.
        epsilon: added to the mean, at least 0.
    Raises:
        DimError: x has no such dim, or scale has a dim that x has not, or of another size.
    Cost:
        4 operations an element: square, sum, two products.

    >>> from vtensor.operators import Context
    >>> x, scale = VTensor("f32", {"N": 2, "T": 7, "F": 64}), VTensor("f32", {"F": 64})
    >>> RMSNormalization(("F",)).compute(Context(), x, scale).summary()
    'f32 N=2 T=7 F=64'

    Source: ONNX operator RMSNormalization, opset 23.
    """

    axes: tuple[str, ...] = param()
    epsilon: float = param(default=1e-5, minimum=0)

    def compute(self, ctx: Context, x: VTensor, scale: VTensor) -> VTensor:
        within(x, self.axes, scale)
        y = VTensor(x.dtype, x.dims, ctx.output(0))
        ctx.dispatch(self, [x, scale], [y])
        return y


@invoker("RMSNormalization", library="numpy", dtypes=FLOATS, python=True)
def numpy_rmsnormalization(
    ctx: Context,
    op: RMSNormalization,
    x: VTensor,
    scale: VTensor,
    y: VTensor,
) -> None:
    src, dst = (PTensor(t).require(Layout.plain(x.dims)) for t in (x, y))
    factor = PTensor(scale).require(scale_order(scale, x))
    if lib_tagger("numpy", [src, factor], [dst]):
        return
    values = wide(src.data())
    square = average(values**2, positions(x, op.axes))
    dst.data()[...] = values / np.sqrt(square + op.epsilon) * spread(factor, x)
