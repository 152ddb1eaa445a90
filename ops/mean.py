"""The mean over some dims."""

from __future__ import annotations

from libdesc import guideline, invoker, onednn
from libdesc.numpy.arrays import FLOATS
from ops._names import axes_of
from ptensor import Layout, PTensor, lib_tagger
from vtensor.errors import DimError
from vtensor.operators import Context, Naming, NodeReader, Spelling, operator, param
from vtensor.tensor import VTensor


def _names(node: Naming) -> None:
    rank = node.rank("x0")
    if node.rank("y0") == rank:
        kept = list(range(rank))
    elif node.opset >= 18:
        return  # which dims go is an input's value; ``_read`` names what is left
    else:
        gone = {axis % rank for axis in node.attribute("axes") or range(rank)}
        kept = [position for position in range(rank) if position not in gone]
    for place, position in enumerate(kept):
        node.same("x0", position, "y0", place)


def _read(node: NodeReader) -> VTensor:
    x = node.input(0)
    axes = node.attribute("axes")
    if node.opset >= 18 and node.has(1):
        axes = [int(axis) for axis in node.constant(1)]
    if not axes and node.attribute("noop_with_empty_axes", 0):
        axes = []
    elif not axes:
        axes = list(range(len(x.dims)))
    return node.add(Mean(axes_of(node, x, axes), bool(node.attribute("keepdims", 1))), x)


@operator("Mean", dims={"x": "*", "y": "*"}, onnx=Spelling("ReduceMean", 1, _read, _names))
class Mean:
    """The mean over some dims.

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
        rest = {dim: size for dim, size in x.dims.items() if dim not in self.axes}
        kept = {dim: rest.get(dim, 1) for dim in x.dims} if self.keepdims else rest
        y = VTensor(x.dtype, kept, ctx.output(0))
        ctx.dispatch(self, [x], [y])
        return y


@invoker("Mean", library="onednn", dtypes=["f32", "bf16", "f16"])
def onednn_mean(ctx: Context, op: Mean, x: VTensor, y: VTensor) -> None:  # noqa: ARG001
    src, dst = PTensor(x), PTensor(y)
    mean = onednn.Reduction("mean", src, dst, post=ctx.post)
    for tensor in (src, dst):
        tensor.require(guideline("onednn", tensor))
    if lib_tagger("onednn", [src], [dst]):
        return
    mean()


@invoker("Mean", library="numpy", dtypes=FLOATS, python=True)
def numpy_mean(ctx: Context, op: Mean, x: VTensor, y: VTensor) -> None:  # noqa: ARG001
    order = Layout.plain(x.dims)
    src, dst = PTensor(x).require(order), PTensor(y).require(Layout.plain(y.dims))
    if lib_tagger("numpy", [src], [dst]):
        return
    axis = tuple(order.dims.index(dim) for dim in op.axes)
    dst.data()[...] = src.data().mean(axis=axis, keepdims=op.keepdims)
