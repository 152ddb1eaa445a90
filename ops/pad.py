"""A border around a tensor, or less of it."""

from __future__ import annotations

import math

import numpy as np

from libdesc import eigen, invoker, onednn
from libdesc.routine import Routine
from ops._names import axes_of, same_names
from ptensor import Layout, PTensor, lib_tagger
from vtensor.errors import DimError
from vtensor.operators import Context, NodeReader, NodeWriter, Spelling, operator, param
from vtensor.tensor import VTensor


def _read(node: NodeReader) -> VTensor:
    x, value = node.input(0), node.attribute("value", 0.0)
    if node.opset < 11:
        pads = list(node.attribute("pads"))
    else:
        pads = [int(pad) for pad in node.constant(1)]
        value = node.constant(2).item() if node.has(2) else 0.0
    axes = list(range(len(x.dims)))
    if node.opset >= 18 and node.has(3):
        axes = [int(axis) for axis in node.constant(3)]
    number = int(value) if isinstance(value, bool) else value
    mode = node.attribute("mode", "constant")
    return node.add(Pad(axes_of(node, x, axes), tuple(pads), mode, number), x)


def _write(node: NodeWriter, op: Pad) -> None:
    [x] = node.inputs
    if op.mode == "wrap" and node.opset < 19:
        raise node.refuse("ONNX has mode wrap from opset 19 on")
    pads = {dim: (before, behind) for dim, before, behind in _pads(op)}
    rows = [pads.get(dim, (0, 0)) for dim in x.dims]
    told = [node.constant([*(row[0] for row in rows), *(row[1] for row in rows)])]
    told += [] if _is_zero(op) else [node.constant(op.value, x.dtype)]
    node.emit("Pad", node.operand(x), *told, mode=op.mode)


@operator(
    "Pad",
    dims={"x": "*", "y": "*"},
    onnx=Spelling("Pad", 2, _read, same_names, write=_write),
)
class Pad:
    """Put elements around a tensor; a negative pad takes elements away.

    Dims:
        x, y: any, the same; of y each size along ``axes`` is x's and both pads
    Args:
        axes: the dims; the others stay as they are.
        pads: elements before each of them, in their order, then elements behind each.
        mode: what is put there: ``constant``, the nearest element (``edge``), the elements in
            front of it in a mirror that lies on the border element (``reflect``), or the
            elements from the other end (``wrap``).
        value: the constant.
    Raises:
        DimError: x has no such dim, pads and axes differ in number, more is taken away than there
            is, or the mode finds no elements to put there.

    >>> from vtensor.operators import Context
    >>> x = VTensor("f32", {"N": 1, "C": 3, "H": 7, "W": 7})
    >>> Pad(("H", "W"), (1, 2, 0, -1)).compute(Context(), x).summary()
    'f32 N=1 C=3 H=8 W=8'

    Source: ONNX operator Pad, opset 19.
    """

    axes: tuple[str, ...] = param()
    pads: tuple[int, ...] = param()
    mode: str = param(default="constant", choices=("constant", "edge", "reflect", "wrap"))
    value: float = param(default=0.0)

    def compute(self, ctx: Context, x: VTensor) -> VTensor:
        if len(self.pads) != 2 * len(self.axes) or len(set(self.axes)) < len(self.axes):
            raise DimError("two pads must be given for each axis, each axis once")
        sizes = {dim: x.size(dim) + before + behind for dim, before, behind in _pads(self)}
        for dim, before, behind in _pads(self):
            kept = x.size(dim) + min(before, 0) + min(behind, 0)
            if kept < 0:
                raise DimError(f"pads {self.pads} take away more than there is")
            least = {"constant": 0, "reflect": 2}.get(self.mode, 1)
            if kept < least and max(before, behind) > 0:
                raise DimError(f"mode {self.mode} has no elements of {dim} to put there")
        y = VTensor(x.dtype, {**x.dims, **sizes}, ctx.output(0))
        ctx.dispatch(self, [x], [y])
        return y


def _pads(op: Pad) -> list[tuple[str, int, int]]:
    """Each axis with the elements before and behind it."""
    half = len(op.axes)
    return list(zip(op.axes, op.pads[:half], op.pads[half:], strict=True))


def _is_zero(op: Pad) -> bool:
    """The constant has no bit set; -0.0 has one."""
    return op.value == 0 and math.copysign(1, op.value) > 0


def _zeros(op: Pad, x: VTensor, y: VTensor) -> bool | str:
    if op.mode != "constant" or not _is_zero(op):
        return f"puts zeros around, not {op.value if op.mode == 'constant' else op.mode}"
    return min(op.pads, default=0) >= 0 or "takes no elements away"


@invoker("Pad", library="onednn", dtypes=["f32", "bf16", "f16"], when=_zeros)
def onednn_pad(ctx: Context, op: Pad, x: VTensor, y: VTensor) -> Routine:
    before = {dim: pad for dim, pad, _ in _pads(op)}
    return onednn.Pad(x, y, before)


def _constant(op: Pad, x: VTensor, y: VTensor) -> bool | str:
    return op.mode == "constant" or f"puts constants around, not {op.mode}"


@invoker("Pad", library="eigen", dtypes=eigen.DTYPES, when=_constant)
def eigen_pad(ctx: Context, op: Pad, x: VTensor, y: VTensor) -> Routine:
    return eigen.pad(x, y, {dim: before for dim, before, _ in _pads(op)}, op.value)


@invoker("Pad", library="numpy", python=True)
def numpy_pad(ctx: Context, op: Pad, x: VTensor, y: VTensor) -> None:
    order = Layout.plain(x.dims)
    src, dst = PTensor(x).require(order), PTensor(y).require(order)
    if lib_tagger("numpy", [src], [dst]):
        return
    pads = {dim: (before, behind) for dim, before, behind in _pads(op)}
    row = [pads.get(dim, (0, 0)) for dim in order.dims]
    cut = tuple(
        slice(max(-a, 0), size - max(-b, 0))
        for (a, b), size in zip(row, src.data().shape, strict=True)
    )
    more = [(max(a, 0), max(b, 0)) for a, b in row] or 0  # a scalar has no rows
    if op.mode == "constant":
        dst.data()[...] = np.pad(src.data()[cut], more, constant_values=op.value)
    else:
        dst.data()[...] = np.pad(src.data()[cut], more, mode=op.mode)  # type: ignore[call-overload]
