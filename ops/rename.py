"""The same tensor under other dim names."""

from __future__ import annotations

from libdesc import invoker
from ops._normalizations import positions
from ptensor import Layout, PTensor, lib_tagger, share
from vtensor.errors import DimError
from vtensor.operators import (
    Context,
    Naming,
    NodeReader,
    NodeWriter,
    Spelling,
    Structural,
    operator,
    param,
)
from vtensor.tensor import VTensor


def _order(node: Naming | NodeReader, rank: int) -> list[int]:
    """Which position of the input each position of a transpose's output is."""
    return list(node.attribute("perm") or reversed(range(rank)))


def _names(node: Naming) -> None:
    for place, position in enumerate(_order(node, node.rank("x0"))):
        node.same("x0", position, "y0", place)


def _read(node: NodeReader) -> VTensor:
    x = node.input(0)
    names, order = list(x.dims), _order(node, len(x.dims))
    if sorted(order) != list(range(len(names))):
        raise node.refuse(f"perm {order} does not order {len(names)} dims")
    return node.add(Rename(tuple((names[i], names[i]) for i in order)), x)


def _write(node: NodeWriter, op: Rename) -> None:
    [x], back = node.inputs, {new: old for old, new in op.names}
    order = [back.get(dim, dim) for dim in node.outputs[0].dims]
    node.emit("Transpose", node.operand(x), perm=positions(x, order))


@operator(
    "Rename",
    dims={"x": "*", "y": "*"},
    onnx=Spelling("Transpose", 1, _read, _names, write=_write),
    traits=[Structural("rename")],
)
class Rename:
    """The same tensor under other dim names. Nothing moves.

    Where ``names`` lists every dim, y is presented in that order; else as x is.

    Dims:
        x: any    y: x's under their new names
    Args:
        names: pairs of a dim's name in x and its name in y, which may be the same.
    Raises:
        DimError: x has no such dim, or y would have a dim twice.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 2, "C": 3})
    >>> Rename((("C", "K"),)).compute(Context(), x).summary()
    'f32 N=2 K=3'
    >>> Rename((("C", "K"), ("N", "N"))).compute(Context(), x).summary()
    'f32 K=3 N=2'

    Source: ONNX operator Transpose, opset 13: presentation order is not layout.
    """

    names: tuple[tuple[str, str], ...] = param()

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        new = dict(self.names)
        order = list(new) if len(new) == len(x.dims) else list(x.dims)
        dims = {new.get(dim, dim): x.size(dim) for dim in order}
        if not x.dims.keys() >= new.keys():
            raise DimError(f"{self.names} names dims that x has not")
        if len(new) < len(self.names) or len(dims) < len(order):
            raise DimError(f"{self.names} names a dim twice")
        y = VTensor(x.dtype, dims, ctx.output(0))
        ctx.dispatch(self, [x], [y])
        return y


@invoker("Rename", library="numpy")
def numpy_rename(ctx: Context, op: Rename, x: VTensor, y: VTensor) -> None:
    back = {new: old for old, new in op.names}
    src, dst = PTensor(x).require(Layout.ANY), PTensor(y.rename(back)).require(Layout.ANY)
    if lib_tagger("numpy", [src], [dst]):
        return
    share(src, dst)
