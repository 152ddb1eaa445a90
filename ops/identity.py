"""The same tensor again."""

from __future__ import annotations

from libdesc import invoker
from ops._elementwise import Unary, elementwise
from ptensor import Layout, PTensor, lib_tagger, share
from vtensor.operators import Context, Structural
from vtensor.tensor import VTensor


@elementwise("Identity", 1, None, traits=[Structural("identity")])
class Identity(Unary):
    """The same tensor again: y = x. Nothing moves.

    Dims:
        x, y: any, the same

    >>> from vtensor.operators import Context
    >>> Identity().compute(Context(), VTensor("f32", {"N": 2, "C": 3})).summary()
    'f32 N=2 C=3'

    Source: ONNX operator Identity, opset 16.
    """


@invoker("Identity", library="numpy")
def numpy_identity(ctx: Context, op: Identity, x: VTensor, y: VTensor) -> None:
    src, dst = PTensor(x).require(Layout.ANY), PTensor(y).require(Layout.ANY)
    if lib_tagger("numpy", [src], [dst]):
        return
    share(src, dst)
