"""Mean 0 and variance 1 over some dims."""

from __future__ import annotations

import numpy as np

from libdesc import invoker
from libdesc.numpy.arrays import FLOATS, wide
from ops._names import axes_of, same_names
from ops._normalizations import average, positions, within
from ptensor import Layout, PTensor, lib_tagger
from vtensor.operators import Context, Cost, NodeReader, NodeWriter, Spelling, operator, param
from vtensor.tensor import VTensor

#: What ONNX adds to the deviation.
EPSILON = 1e-9


def _read(node: NodeReader) -> VTensor:
    x, axes = node.input(0), node.attribute("axes")
    axes = [0, 2, 3] if axes is None else list(axes)
    return node.add(MeanVarianceNormalization(axes_of(node, x, axes)), x)


def _write(node: NodeWriter, op: MeanVarianceNormalization) -> None:
    [x] = node.inputs
    node.emit("MeanVarianceNormalization", node.operand(x), axes=positions(x, op.axes))


@operator(
    "MeanVarianceNormalization",
    dims={"x": "*", "y": "*"},
    onnx=Spelling("MeanVarianceNormalization", 9, _read, same_names, write=_write),
    traits=[Cost(5)],
)
class MeanVarianceNormalization:
    """Subtract the mean and divide by the standard deviation over some dims.

    y = (x - E[x]) / (sqrt(E[(x - E[x])^2]) + 1e-9), the means over ``axes``.

    Dims:
        x, y: any, the same
    Args:
        axes: the dims.
    Raises:
        DimError: x has no such dim.
    Cost:
        5 operations an element: two sums, difference, square, quotient.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 2, "C": 64, "H": 7, "W": 7})
    >>> MeanVarianceNormalization(("N", "H", "W")).compute(Context(), x).summary()
    'f32 N=2 C=64 H=7 W=7'

    Source: ONNX operator MeanVarianceNormalization, opset 13.
    """

    axes: tuple[str, ...] = param()

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        within(x, self.axes)
        y = VTensor(x.dtype, x.dims, ctx.output(0))
        ctx.dispatch(self, [x], [y])
        return y


@invoker("MeanVarianceNormalization", library="numpy", dtypes=FLOATS, python=True)
def numpy_meanvariance(
    ctx: Context,
    op: MeanVarianceNormalization,
    x: VTensor,
    y: VTensor,
) -> None:
    src, dst = (PTensor(t).require(Layout.plain(x.dims)) for t in (x, y))
    if lib_tagger("numpy", [src], [dst]):
        return
    values, axes = wide(src.data()), positions(x, op.axes)
    centred = values - average(values, axes)
    dst.data()[...] = centred / (np.sqrt(average(centred**2, axes)) + EPSILON)
