"""The same tensor again."""

from __future__ import annotations

from libdesc import invoker
from ops._names import same_names
from ops._writing import write_aligned
from ptensor import Layout, PTensor, lib_tagger, share
from vtensor.operators import Context, Elementwise, NodeReader, Spelling, Structural, operator
from vtensor.tensor import VTensor


def _read(node: NodeReader) -> VTensor:
    return node.add(Identity(), node.input(0))


@operator(
    "Identity",
    dims={"x": "*", "y": "*"},
    onnx=Spelling("Identity", 1, _read, same_names, write=write_aligned("Identity")),
    traits=[Elementwise(), Structural("identity")],
)
class Identity:
    """The same tensor again: y = x. Nothing moves.

    Dims:
        x, y: any, the same

    >>> from vtensor.operators import Context
    >>> Identity().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Identity, opset 16.
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
