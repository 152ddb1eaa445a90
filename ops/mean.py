"""The mean over some dims."""

from __future__ import annotations

from libdesc import eigen, invoker, onednn
from libdesc.numpy.arrays import NUMBERS, wide
from libdesc.routine import Routine
from ops._reduce import AXES_ARE_AN_INPUT, reduced_dims, reduction_names, without
from ops._writing import write_reduction
from ptensor import Layout, PTensor, lib_tagger
from vtensor.errors import DimError
from vtensor.operators import Context, Cost, NodeReader, Spelling, operator, param
from vtensor.tensor import VTensor


def _read(node: NodeReader) -> VTensor:
    x = node.input(0)
    return node.add(Mean(reduced_dims(node, x), bool(node.attribute("keepdims", 1))), x)


@operator(
    "Mean",
    dims={"x": "*", "y": "*"},
    onnx=Spelling(
        "ReduceMean",
        1,
        _read,
        reduction_names(),
        write=write_reduction("ReduceMean", AXES_ARE_AN_INPUT),
    ),
    traits=[Cost(1)],
)
class Mean:
    """The mean over some dims; of integers, what is behind the point is cut off.

    Dims:
        x: any    y: x's, without those in ``axes`` or with size 1 there
    Args:
        axes: the dims; none of them means that nothing is done.
        keepdims: keep the dims, with size 1.
    Raises:
        DimError: x has no such dim, or one without elements.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "C": 64, "H": 7, "W": 7})
    >>> Mean(("H", "W"), keepdims=False).compute(Context(), x).summary()
    'f32 N=1 C=64'

    Source: ONNX operator ReduceMean, opset 18.
    """

    axes: tuple[str, ...] = param()
    keepdims: bool = param(default=True)

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        if any(x.size(dim) == 0 for dim in self.axes):
            raise DimError(f"there is no mean over {' '.join(self.axes)}: no elements")
        y = VTensor(x.dtype, without(x, self.axes, self.keepdims), ctx.output(0))
        ctx.dispatch(self, [x], [y])
        return y


@invoker("Mean", library="onednn", dtypes=["f32", "bf16", "f16"])
def onednn_mean(ctx: Context, op: Mean, x: VTensor, y: VTensor) -> Routine:
    return onednn.Reduction("mean", x, y)


@invoker("Mean", library="eigen", dtypes=eigen.DTYPES)
def eigen_mean(ctx: Context, op: Mean, x: VTensor, y: VTensor) -> Routine:
    return eigen.mean(x, y, op.axes)


@invoker("Mean", library="numpy", dtypes=NUMBERS, python=True)
def numpy_mean(ctx: Context, op: Mean, x: VTensor, y: VTensor) -> None:
    order = Layout.plain(x.dims)
    src, dst = PTensor(x).require(order), PTensor(y).require(Layout.plain(y.dims))
    if lib_tagger("numpy", [src], [dst]):
        return
    axis = tuple(order.dims.index(dim) for dim in op.axes)
    dst.data()[...] = wide(src.data()).mean(axis=axis, keepdims=op.keepdims)
