"""The handlers of oneDNN's description. Importing them loads nothing native."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, cast

from libdesc.onednn.layouts import PLANES, canonical_order, to_desc
from libdesc.onednn.native import dnnl, load, speeds
from libdesc.onednn.routines_shape import loss
from libdesc.transforms import LayoutChange
from ptensor.evaluation import Call, emit
from ptensor.layout import Layout
from ptensor.tensor import PTensor
from vtensor.errors import LayoutNotSupported, LibraryError

if TYPE_CHECKING:
    from libdesc.onednn._onednn import Desc, Primitive

__all__ = [
    "available",
    "computes",
    "confirm",
    "descriptor",
    "let_go",
    "limit_isa",
    "peaks",
    "reorder",
    "speeds",
    "version",
]

#: The element types between which a reorder may convert, rounding to nearest even.
FLOATS = ("f32", "bf16", "f16")
#: The instruction sets, by the beginnings of their names, with which oneDNN computes in a type that
#: not every processor has.
COMPUTED: dict[str, tuple[str, ...]] = {
    "bf16": ("avx2_vnni_2", "avx512", "amx"),
    "f16": ("avx2_vnni_2", "avx512_fp16", "amx"),
}
#: The most dims of a descriptor of oneDNN.
MAX_DIMS = 12


def available() -> str | None:
    """Return None if oneDNN can be used in this process, else the reason why not."""
    try:
        load()
    except LibraryError as error:
        return str(error)
    return None


def version() -> str:
    """Return oneDNN's version, the instruction set that it uses, and its file, as a text."""
    return f"{dnnl.version()} on {dnnl.isa()}, {Path(dnnl.library_path()).resolve()}"


def limit_isa(cap: str) -> None:
    """Cap oneDNN's instruction set.

    Raises:
        LibraryError: oneDNN has fixed another instruction set already, or there is no such cap.
    """
    try:
        dnnl.limit_isa(cap)
    except (RuntimeError, ValueError) as error:
        raise LibraryError(
            f"onednn: the cap {cap} comes too late or is none: {error}; "
            "call limit_isa before the first session"
        ) from error


def computes(dtype: str) -> bool:
    """Return whether oneDNN computes in an element type on this processor, under the cap."""
    return dtype not in COMPUTED or dnnl.isa().startswith(COMPUTED[dtype])


def peaks(nbytes: int) -> Iterator[tuple[str, Primitive, int]]:
    """Yield steps that measure peak speed when they are timed: products of matrices that fit into
    caches, and a copy.

    Each comes as (kind, step, count), see ``RegisteredLibrary.peaks``.

    Args:
        nbytes: bytes to copy.
    """
    for size in (512, 1024):
        matrix = dnnl.Desc.strided((size, size), "f32", (size, 1))
        packed = dnnl.Desc.any((size, size), "f32")
        yield "product", dnnl.matmul(matrix, packed, None, matrix), 2 * size**3
    line = dnnl.Desc.strided((nbytes // 4,), "f32", (1,))
    yield "copy", dnnl.reorder(line, line), 2 * line.nbytes


def let_go() -> None:
    """Release the kernels that this thread made while planning and that no step holds."""
    dnnl.cache_let_go()


def descriptor(tensor: PTensor) -> Desc:
    """Return oneDNN's descriptor of a PTensor in its layout.

    Raises:
        LayoutNotSupported: oneDNN has no descriptor of the layout.
    """
    order = canonical_order(tensor.dims)
    return to_desc(tensor.required_layout, order, tensor.dims, tensor.dtype)


def both(
    row: Sequence[Layout], extents: Mapping[str, int], dtypes: Sequence[str]
) -> tuple[Desc, Desc]:
    """Return oneDNN's descriptors of one tensor in two layouts, for a reorder.

    If a layout has no descriptor, each dim is described as several: its parts, cut at the blocks of
    both layouts.

    Args:
        row: source and target layout.
        extents: sizes by dim.
        dtypes: element types of source and target.

    Raises:
        LayoutNotSupported: oneDNN has no descriptors, neither with whole dims nor with parts.
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
        if not parts or len(parts) > MAX_DIMS:
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
    """Yield (dim, unit, size) for each part of a dim, cut at the blocks of all layouts.

    A part is ``size`` indices of the dim, from one to the next ``unit`` apart.

    Args:
        dim: the dim.
        extent: its size.
        row: the layouts.

    Raises:
        LayoutNotSupported: the block sizes do not divide one another.
    """
    rows = (
        (axis.dim, unit)
        for layout in row
        for axis, unit in zip(layout.axes, layout.units, strict=True)
    )
    units = [*{unit for name, unit in rows if name == dim}]
    marks = sorted(units if extent in units else [extent, *units])
    if any(above % below for below, above in pairwise(marks)):
        raise LayoutNotSupported(f"the blocks of {row[0]} and {row[1]} share no parts of {dim}")
    yield from ((dim, below, above // below) for below, above in pairwise(marks))


def _strides(
    layout: Layout, extents: Mapping[str, int], parts: Sequence[tuple[str, int, int]]
) -> list[int]:
    """Return the stride of each part in a layout, in elements.

    Args:
        layout: the layout.
        extents: sizes by dim.
        parts: (dim, unit, size) of each part, as from ``_parts``.
    """
    axes = list(zip(layout.axes, layout.units, layout.strides(extents), strict=True))
    strides = []
    for dim, unit, _ in parts:
        of_dim = [(axis_unit, step) for axis, axis_unit, step in axes if axis.dim == dim]
        axis_unit, step = max(pair for pair in of_dim if pair[0] <= unit)
        strides.append(step * (unit // axis_unit))
    return strides


def confirm(call: Call, row: Sequence[Layout]) -> str | None:
    """Return None if oneDNN takes a call in these layouts, else the reason why not.

    A Transform is taken if a reorder kernel exists that loses no values; of any other call, the
    routine decides.

    Args:
        call: the call.
        row: a layout per operand of the call.
    """
    if call.routine is not None:
        return call.routine.confirm(call, row)
    if not isinstance(call.op, LayoutChange):
        return None
    dtypes = [tensor.dtype for tensor in call.operands]
    row = _before_rounding(row, dtypes)
    source, target = both(row, call.operands[0].dims, dtypes)
    if source.dtype != target.dtype and not {source.dtype, target.dtype} <= set(FLOATS):
        return f"{source.dtype} to {target.dtype} is a quantization, which the definition does"
    if (source.dtype, target.dtype) == ("f16", "bf16"):
        return "it keeps the payload of NaN in bf16, where the definition drops it"
    try:
        return loss(dnnl.reorder(source, target), source, target) or None
    except dnnl.Unimplemented:
        return f"no reorder kernel from {row[0]} to {row[1]} on {dnnl.isa()}"


def _before_rounding(row: Sequence[Layout], dtypes: Sequence[str]) -> Sequence[Layout]:
    """Return the layouts for oneDNN's reorder in a change of layout.

    They differ from ``row`` if f32 is rounded to bf16, in one plane or two. oneDNN's own reorder
    takes subnormal numbers for zeros. So it reorders f32, which a kernel of ours then rounds.

    Args:
        row: source and target layout.
        dtypes: the element types of source and target.
    """
    source, target = (layout.stored(dtype) for layout, dtype in zip(row, dtypes, strict=True))
    if source.simple and source.dtype == "f32" and target in (PLANES, PLANES.planes[0]):
        return [layout.with_encoding("f32") for layout in row]
    return row


def reorder(source: PTensor, target: PTensor, permutation: tuple[int, ...]) -> None:  # noqa: ARG001
    """Emit one reorder from source to target, by their layouts; ``permutation`` is not used."""
    row, dtypes = [source.required_layout, target.required_layout], [source.dtype, target.dtype]
    primitive = dnnl.reorder(*both(_before_rounding(row, dtypes), source.dims, dtypes))
    step = primitive
    if _before_rounding(row, dtypes) is not row:
        planes = row[1].stored(target.dtype).planes
        step = cast("Primitive", dnnl.reorder_to_planes(primitive, len(planes)))
    tensors = {"src": source, "dst": target}
    emit(step, [tensors.get(name, step.scratch_bytes) for name in step.slots])
