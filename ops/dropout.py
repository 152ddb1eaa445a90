"""Dropout that drops nothing, and the mask that says so."""

from __future__ import annotations

from collections.abc import Sequence

from libdesc import invoker
from libdesc.numpy.arrays import finish
from ops._names import same_names
from ops.identity import Identity
from ptensor import Layout, PTensor, lib_tagger
from vtensor.operators import Context, Elementwise, Naming, NodeReader, Spelling, operator
from vtensor.tensor import VTensor

#: The opset from which on the mask holds truth values.
_TRUTH = 10


def _names(node: Naming) -> None:
    same_names(node)
    for position in range(node.rank("y1")):
        node.same("x0", position, "y1", position)


def _read(node: NodeReader) -> Sequence[VTensor]:
    training = node.opset >= 12 and node.has(2) and bool(node.constant(2))
    if training and (not node.has(1) or node.constant(1).item() != 0):
        raise node.refuse("training_mode is true, and what is dropped is random")
    x = node.input(0)
    y = node.add(Identity(), x)
    return [y, node.add(Kept(), x)] if node.opset >= _TRUTH else [y]


@operator(
    "Kept",
    dims={"x": "*", "y": "*"},
    onnx=Spelling("Dropout", 7, _read, _names),
    traits=[Elementwise()],
)
class Kept:
    """The mask of a dropout that drops nothing: y = True.

    Dims:
        x, y: any, the same

    >>> from vtensor.operators import Context
    >>> Kept().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'bool N=2 C=3'

    Source: ONNX operator Dropout, opset 22, in inference.
    """

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        y = VTensor("bool", x.dims, ctx.output(0))
        ctx.dispatch(self, [x], [y])
        return y


@invoker("Kept", library="numpy", python=True)
def numpy_kept(ctx: Context, op: Kept, x: VTensor, y: VTensor) -> None:
    src, dst = PTensor(x).require(Layout.ANY), PTensor(y).require(Layout.ANY)
    if lib_tagger("numpy", [src], [dst]):
        return
    dst.data()[...] = True
    finish(dst)
