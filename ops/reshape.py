"""The same elements under other dims."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from libdesc import invoker
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


def _to(node: NodeReader, x: VTensor, sizes: Sequence[int]) -> VTensor:
    """``x`` under the output's names, which must be as many as there are sizes."""
    names = node.output_names()
    if len(names) != len(sizes):
        raise node.refuse(f"its output has {len(sizes)} dims, the model says {len(names)}")
    return node.reshape(x, dict(zip(names, sizes, strict=True)))


def _no_names(node: Naming) -> None:
    """Nothing is known of the output's positions before the shape is."""


def _read_reshape(node: NodeReader) -> VTensor:
    x = node.input(0)
    have = list(x.dims.values())
    shape = node.attribute("shape") if node.opset < 5 else node.constant(1)
    sizes = [int(size) for size in shape]
    if not node.attribute("allowzero", 0):
        if any(size == 0 and i >= len(have) for i, size in enumerate(sizes)):
            raise node.refuse(f"shape {sizes} copies a size that the input lacks")
        sizes = [have[i] if size == 0 else size for i, size in enumerate(sizes)]
    if sizes.count(-1) == 1:
        rest = -prod(sizes)
        if rest == 0 or x.num_elements % rest:
            raise node.refuse(f"{x.num_elements} elements do not fill shape {sizes}")
        sizes[sizes.index(-1)] = x.num_elements // rest
    if min(sizes, default=0) < 0 or prod(sizes) != x.num_elements:
        raise node.refuse(f"{x.num_elements} elements do not fill shape {sizes}")
    return _to(node, x, sizes)


def _flatten_names(node: Naming) -> None:
    axis = int(node.attribute("axis", 1))
    if axis in (1, 1 - node.rank("x0")):
        node.same("x0", 0, "y0", 0)
    node.hint("y0", "N C")


def _read_flatten(node: NodeReader) -> VTensor:
    x, axis = node.input(0), int(node.attribute("axis", 1))
    sizes = list(x.dims.values())
    if not -len(sizes) <= axis <= len(sizes):
        raise node.refuse(f"axis {axis} of {len(sizes)} dims")
    axis += len(sizes) if axis < 0 else 0
    return _to(node, x, [prod(sizes[:axis]), prod(sizes[axis:])])


def _axes(node: NodeReader) -> Sequence[int] | None:
    """Axes: an attribute up to opset 12, a constant input since."""
    if node.opset < 13:
        given: Sequence[int] | None = node.attribute("axes")
        return given
    return node.constant(1).reshape(-1).tolist() if node.has(1) else None


def _read_squeeze(node: NodeReader) -> VTensor:
    x, axes = node.input(0), _axes(node)
    sizes = list(x.dims.values())
    if axes is None:
        axes = [position for position, size in enumerate(sizes) if size == 1]
    gone = {axis % len(sizes) for axis in axes if -len(sizes) <= axis < len(sizes)}
    if len(gone) < len(axes) or any(sizes[position] != 1 for position in gone):
        raise node.refuse(f"axes {axes} of sizes {sizes} are not all different and of size 1")
    return _to(node, x, [size for i, size in enumerate(sizes) if i not in gone])


def _read_unsqueeze(node: NodeReader) -> VTensor:
    x, axes = node.input(0), list(_axes(node) or ())
    rank = len(x.dims) + len(axes)
    new = {axis % rank for axis in axes if -rank <= axis < rank}
    if len(new) < len(axes):
        raise node.refuse(f"axes {axes} are not all different positions of {rank} dims")
    rest = iter(x.dims.values())
    return _to(node, x, [1 if position in new else next(rest) for position in range(rank)])


def _write(node: NodeWriter, op: Reshape) -> None:
    [x], sizes = node.inputs, list(node.outputs[0].dims.values())
    node.emit("Reshape", node.operand(x), node.shape(x, sizes), allowzero=0 in sizes)


@operator(
    "Reshape",
    dims={"x": "*", "y": "*"},
    onnx=[
        Spelling("Reshape", 1, _read_reshape, _no_names, write=_write),
        Spelling("Flatten", 1, _read_flatten, _flatten_names),
        Spelling("Squeeze", 1, _read_squeeze, _no_names),
        Spelling("Unsqueeze", 1, _read_unsqueeze, _no_names),
    ],
    traits=[Structural("reshape")],
)
class Reshape:
    """The same elements, counted in the order of presentation, under other dims.

    Nothing moves where x lies in that order; what is elsewhere is brought into it first.

    Dims:
        x: any    y: those of ``shape``
    Args:
        shape: pairs of name and size, slowest first.
    Raises:
        DimError: a name occurs twice, or x has another number of elements.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 2, "C": 3, "H": 4})
    >>> Reshape((("N", 2), ("F", 12))).compute(Context(), x).summary()
    'f32 N=2 F=12'

    Source: ONNX operators Reshape, Squeeze, Unsqueeze and Flatten, opset 13.
    """

    shape: tuple[tuple[str, int], ...] = param()

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        dims = dict(self.shape)
        if len(dims) < len(self.shape):
            raise DimError(f"shape {self.shape} names a dim twice")
        y = VTensor(x.dtype, dims, ctx.output(0))
        if y.num_elements != x.num_elements:
            raise DimError(f"{x.num_elements} elements do not fill {y.summary()}")
        ctx.dispatch(self, [x], [y])
        return y


@invoker("Reshape", library="numpy")
def numpy_reshape(ctx: Context, op: Reshape, x: VTensor, y: VTensor) -> None:
    src = PTensor(x).require(Layout.plain(x.dims))
    dst = PTensor(y).require(Layout.plain(y.dims))
    if lib_tagger("numpy", [src], [dst]):
        return
    share(src, dst)
