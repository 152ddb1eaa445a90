"""The same tensor again."""

from __future__ import annotations

from libdesc import invoker
from ops._names import same_names
from ptensor import Layout, PTensor, lib_tagger, share
from vtensor.operators import Context, NodeReader, Spelling, operator
from vtensor.tensor import VTensor


def _read(node: NodeReader) -> VTensor:
    return node.add(Identity(), node.input(0))


def _read_dropout(node: NodeReader) -> VTensor:
    if node.opset >= 12 and node.has(2) and bool(node.constant(2)):
        raise node.refuse("training_mode is true; VTensor runs inference only")
    return node.add(Identity(), node.input(0))


@operator(
    "Identity",
    dims={"x": "*", "y": "*"},
    elementwise=True,
    structural="identity",
    onnx=[
        Spelling("Identity", 1, _read, same_names),
        Spelling("Dropout", 7, _read_dropout, same_names),
    ],
)
class Identity:
    """The same tensor again: y = x. Nothing moves.

    Dims:
        x, y: any, the same

    >>> from vtensor.operators import Context
    >>> Identity().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operators Identity, opset 16, and Dropout, opset 13, in inference.
    """

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        y = VTensor(x.dtype, x.dims, ctx.output(0))
        ctx.dispatch(self, [x], [y])
        return y


@invoker("Identity", library="numpy")
def numpy_identity(ctx: Context, op: Identity, x: VTensor, y: VTensor) -> None:
    src, dst = PTensor(x).require(Layout.ANY), PTensor(y).require(Layout.ANY)
    if lib_tagger("numpy", [src], [dst]):
        return
    share(src, dst)
