"""The handlers of oneDNN's description. Nothing native is loaded before one of them is called."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from libdesc.onednn.layouts import canonical_order, to_desc
from libdesc.onednn.native import dnnl, load
from libdesc.onednn.routines_shape import loss
from libdesc.transforms import LayoutChange
from ptensor.evaluation import Call, emit
from ptensor.layout import Layout
from ptensor.tensor import PTensor
from vtensor.errors import LibraryError

if TYPE_CHECKING:
    from libdesc.onednn._onednn import Desc, Primitive

#: The element types that a reorder may go between; it rounds to nearest even.
FLOATS = ("f32", "bf16", "f16")


def available() -> str | None:
    """None, or why oneDNN cannot be used in this process."""
    try:
        load()
    except LibraryError as error:
        return str(error)
    return None


def version() -> str:
    """oneDNN's version, the instruction set that it uses, and where it was found."""
    return f"{dnnl.version()} on {dnnl.isa()}, {Path(dnnl.library_path()).resolve()}"


def limit_isa(cap: str) -> None:
    """Cap oneDNN's instruction set.

    Raises:
        LibraryError: oneDNN fixed another one at its first use.
    """
    try:
        dnnl.limit_isa(cap)
    except (RuntimeError, ValueError) as error:
        raise LibraryError(
            f"onednn: the cap {cap} comes too late or is none: {error}; "
            "call limit_isa before the first session"
        ) from error


def peaks(nbytes: int) -> Iterator[tuple[str, Primitive, int]]:
    """Products of matrices that caches hold, and a copy of so many bytes: what each counts."""
    for size in (512, 1024):
        matrix = dnnl.Desc.strided((size, size), "f32", (size, 1))
        packed = dnnl.Desc.any((size, size), "f32")
        yield "product", dnnl.matmul(matrix, packed, None, matrix), 2 * size**3
    line = dnnl.Desc.strided((nbytes // 4,), "f32", (1,))
    yield "copy", dnnl.reorder(line, line), 2 * line.nbytes


def descriptor(tensor: PTensor) -> Desc:
    """oneDNN's own description of a PTensor in its layout.

    Raises:
        LayoutNotSupported: oneDNN has no word for it; names the layout.
    """
    order = canonical_order(tensor.dims)
    return to_desc(tensor.required_layout, order, tensor.dims, tensor.dtype)


def confirm(call: Call, row: Sequence[Layout]) -> str | None:
    """None when oneDNN takes the call with one layout an operand, else why not."""
    if call.routine is not None:
        return call.routine.confirm(call, row)
    if not isinstance(call.op, LayoutChange):
        return None
    source, target = (
        to_desc(layout, canonical_order(t.dims), t.dims, t.dtype)
        for layout, t in zip(row, call.operands, strict=True)
    )
    if source.dtype != target.dtype and not {source.dtype, target.dtype} <= set(FLOATS):
        return f"{source.dtype} to {target.dtype} is a quantization, which the definition does"
    try:
        return loss(dnnl.reorder(source, target), source, target) or None
    except dnnl.Unimplemented:
        return f"no reorder kernel from {row[0]} to {row[1]} on {dnnl.isa()}"


def reorder(source: PTensor, target: PTensor, permutation: tuple[int, ...]) -> None:  # noqa: ARG001
    """Change a layout: one step; the descriptors say more than the permutation."""
    primitive = dnnl.reorder(descriptor(source), descriptor(target))
    tensors = {"src": source, "dst": target}
    emit(primitive, [tensors.get(name, primitive.scratch_bytes) for name in primitive.slots])
