"""The handlers of oneDNN's description. Nothing native is loaded before one of them is called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from libdesc.onednn.layouts import canonical_order, to_desc
from libdesc.onednn.native import dnnl, load
from libdesc.onednn.routines_shape import loss
from libdesc.transforms import LayoutChange
from ptensor.evaluation import Call, emit
from ptensor.layout import Layout
from ptensor.tensor import PTensor
from vtensor.errors import LayoutNotSupported, LibraryError

if TYPE_CHECKING:
    from libdesc.onednn._onednn import Desc, Primitive

#: The element types that a reorder may go between; it rounds to nearest even.
FLOATS = ("f32", "bf16", "f16")
#: Of a descriptor.
MOST_DIMS = 12


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


def let_go() -> None:
    """Drop the kernels that this thread made for a plan and that the plan did not take."""
    dnnl.cache_let_go()


def descriptor(tensor: PTensor) -> Desc:
    """oneDNN's own description of a PTensor in its layout.

    Raises:
        LayoutNotSupported: oneDNN has no word for it; names the layout.
    """
    order = canonical_order(tensor.dims)
    return to_desc(tensor.required_layout, order, tensor.dims, tensor.dtype)


def both(
    row: Sequence[Layout], extents: Mapping[str, int], dtypes: Sequence[str]
) -> tuple[Desc, Desc]:
    """The descriptors of one tensor in two layouts; by their common parts where one has no word.

    Raises:
        LayoutNotSupported: oneDNN describes them neither so nor so.
    """
    order = canonical_order(extents)
    try:
        source, target = (
            to_desc(layout, order, extents, dtype)
            for layout, dtype in zip(row, dtypes, strict=True)
        )
    except LayoutNotSupported as error:
        if any(extents[dim] % layout.block(dim) for layout in row for dim in extents):
            raise
        parts = [part for dim in extents for part in _parts(dim, extents[dim], row)]
        if not parts or len(parts) > MOST_DIMS:
            raise error
        names = [layout.stored(dtype) for layout, dtype in zip(row, dtypes, strict=True)]
        if not all(name.simple and name.dtype in FLOATS for name in names):
            raise error
        sizes = [size for _, _, size in parts]
        source, target = (
            dnnl.Desc.strided(sizes, name.dtype, _strides(layout, extents, parts))
            for layout, name in zip(row, names, strict=True)
        )
    return source, target


def _parts(dim: str, extent: int, row: Sequence[Layout]) -> Iterator[tuple[str, int, int]]:
    """Dim, unit and size of the parts of a dim that are axes, or parts of axes, of each layout."""
    rows = ((axis.dim, unit) for one in row for axis, unit in zip(one.axes, one.units, strict=True))
    units = [*{unit for name, unit in rows if name == dim}]
    marks = sorted(units if extent in units else [extent, *units])
    if any(above % below for below, above in pairwise(marks)):
        raise LayoutNotSupported(f"the blocks of {row[0]} and {row[1]} share no parts of {dim}")
    yield from ((dim, below, above // below) for below, above in pairwise(marks))


def _strides(
    layout: Layout, extents: Mapping[str, int], parts: Sequence[tuple[str, int, int]]
) -> list[int]:
    """How far apart the elements of each part are: as far as those of the axis that it is of."""
    axes = list(zip(layout.axes, layout.units, layout.strides(extents), strict=True))
    found = []
    for dim, unit, _ in parts:
        own = [(axis_unit, step) for axis, axis_unit, step in axes if axis.dim == dim]
        axis_unit, step = max(pair for pair in own if pair[0] <= unit)
        found.append(step * (unit // axis_unit))
    return found


def confirm(call: Call, row: Sequence[Layout]) -> str | None:
    """None when oneDNN takes the call with one layout an operand, else why not."""
    if call.routine is not None:
        return call.routine.confirm(call, row)
    if not isinstance(call.op, LayoutChange):
        return None
    source, target = both(row, call.operands[0].dims, [t.dtype for t in call.operands])
    if source.dtype != target.dtype and not {source.dtype, target.dtype} <= set(FLOATS):
        return f"{source.dtype} to {target.dtype} is a quantization, which the definition does"
    try:
        return loss(dnnl.reorder(source, target), source, target) or None
    except dnnl.Unimplemented:
        return f"no reorder kernel from {row[0]} to {row[1]} on {dnnl.isa()}"


def reorder(source: PTensor, target: PTensor, permutation: tuple[int, ...]) -> None:  # noqa: ARG001
    """Change a layout: one step; the descriptors say more than the permutation."""
    row = [source.required_layout, target.required_layout]
    primitive = dnnl.reorder(*both(row, source.dims, [source.dtype, target.dtype]))
    tensors = {"src": source, "dst": target}
    emit(primitive, [tensors.get(name, primitive.scratch_bytes) for name in primitive.slots])
