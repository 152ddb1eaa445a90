"""The mean of several tensors."""

from __future__ import annotations

from ops._elementwise import FLOATS, elementwise, pointwise, spelled
from vtensor.operators import Context
from vtensor.tensor import VTensor


@elementwise("MeanOf", lambda cls: spelled("Mean", 6, cls), lambda *x: sum(x) / len(x), FLOATS)
class MeanOf:
    """The mean of several tensors, dims meeting by name: y = (x0 + x1 + ...) / number of them.

    A dim that an operand lacks, or has with size 1, is repeated along the others'.

    Dims:
        x: any    y: those of all
    Raises:
        DimError: a dim has two sizes, and neither is 1.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 2, "C": 3})
    >>> MeanOf().compute(Context(), x, x, VTensor("f32", {"C": 1})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Mean, opset 13.
    """

    def compute(self, ctx: Context, *x: VTensor) -> VTensor:
        return pointwise(self, ctx, *x)
