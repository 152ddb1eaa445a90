"""Steps that are as fine as a tensor's values allow."""

from __future__ import annotations

from typing import Any

import numpy as np

from libdesc.numpy import definition
from libdesc.numpy.arrays import FLOATS, wide
from ops._names import same_names
from ops._writing import write_aligned
from ptensor import PTensor
from vtensor.operators import Context, NodeReader, Spelling, operator
from vtensor.tensor import VTensor


def _read(node: NodeReader) -> list[VTensor]:
    outputs: Any = node.add(DynamicQuantizeLinear(), node.input(0))
    return list(outputs)


_NAME = "DynamicQuantizeLinear"


@operator(
    _NAME,
    dims={"x": "*", "y": "*", "scale": "*", "zero": "*"},
    onnx=Spelling(_NAME, 11, _read, same_names, write=write_aligned(_NAME)),
)
class DynamicQuantizeLinear:
    """Quantise to u8 by the scale that just holds every value, 0 included.

    scale = (max(x, 0) - min(x, 0)) / 255, zero = -min(x, 0) / scale rounded, y = x / scale rounded
    plus zero. Where all of x is 0 the scale is 1 / 255.

    Dims:
        x, y: any, the same    scale, zero: none

    >>> from vtensor.operators import Context
    >>> y, scale, zero = DynamicQuantizeLinear().compute(Context(), VTensor("f32", {"N": 2}))
    >>> y.summary(), scale.summary(), zero.summary()
    ('u8 N=2', 'f32', 'u8')

    Source: ONNX operator DynamicQuantizeLinear, opset 11.
    """

    def compute(self, ctx: Context, x: VTensor) -> tuple[VTensor, VTensor, VTensor]:
        y = VTensor("u8", x.dims, ctx.output(0))
        scale, zero = VTensor("f32", {}, ctx.output(1)), VTensor("u8", {}, ctx.output(2))
        ctx.dispatch(self, [x], [y, scale, zero])
        return y, scale, zero


@definition(_NAME, dtypes={"x": FLOATS})
def dynamic_quantize(
    ctx: Context, op: object, x: PTensor, y: PTensor, scale: PTensor, zero: PTensor
) -> None:
    values = wide(x.data())
    low, high = values.min(initial=0), values.max(initial=0)
    step = (high - low if high > low else values.dtype.type(1)) / values.dtype.type(255)
    origin = np.rint(-low / step)
    scale.data()[...], zero.data()[...] = step, origin
    y.data()[...] = np.clip(np.rint(values / step) + origin, 0, 255)
