"""Transforms of tensors from one layout to another in NumPy: the definition.

Every library's own transformer must agree with this one. Physical arrays (``ptensor/physical.py``)
may have any strides, unless they have several planes. The pads of a source are never read into a
result, and the pads of a result have the value 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise, product
from math import prod
from typing import Any

import numpy as np

from ptensor.convert import Array, convert, lossless, preserves
from ptensor.layout import Layout
from ptensor.pages import contiguous, empty
from ptensor.physical import check_physical, give_zero, physical_planes
from ptensor.planes import memory_shape, recode
from vtensor.errors import DimError, DTypeError, LayoutError
from vtensor.language.dtype import from_numpy, numpy_dtype
from vtensor.language.records import dataclass, replace

__all__ = [
    "Transform",
    "pack",
    "transform",
    "transform_into",
    "unpack",
]

Extents = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Transform:
    """A change of layout, as a value.

    Args:
        source: the present layout.
        target: the wanted layout, of the same dims.
        dtype: the tensor's own element type, which a layout without encoding stores.

    Raises:
        DimError: the two layouts have different dims.
        DTypeError: the element type is unknown.
        LayoutError: one of the layouts is ANY.

    >>> widen = Transform(Layout("NCHW:bf16"), Layout("NHWC"))
    >>> widen.exact, widen.inverse().exact
    (True, False)

    Source: DESIGN.md section 5; the paper, section 4.3 (Transform).
    """

    source: Layout
    target: Layout
    dtype: str = "f32"

    def __post_init__(self) -> None:
        numpy_dtype(self.dtype)
        if set(self.source.dims) != set(self.target.dims):
            raise DimError(f"{self.source} and {self.target} have different dims")

    @property
    def exact(self) -> bool:
        """True if ``inverse`` restores every stored element: the target's encoding rounds none of
        them.
        """
        return lossless(self.source.stored(self.dtype), self.target.stored(self.dtype))

    @property
    def rounding(self) -> bool:
        """True if the Transform is not ``exact``: the target's encoding is narrower."""
        return not self.exact

    def inverse(self) -> Transform:
        """Return the Transform back from ``target`` to ``source``.

        If this Transform widens, its inverse rounds, and the inverse itself has no inverse.

        Raises:
            LayoutError: this Transform rounds; nothing can bring back what it drops.
        """
        if self.rounding:
            raise LayoutError(f"{self} rounds: it cannot be undone")
        return Transform(self.target, self.source, self.dtype)

    def then(self, other: Transform) -> Transform:
        """Return one Transform with the same result, bit for bit, as this one followed by
        ``other``.

        Raises:
            LayoutError: the source layout of ``other`` is not the target layout of this one. Or
                this one rounds and ``other`` changes the encoding again: no single Transform gives
                the same values.
            DTypeError: the two are of different element types.

        >>> first = Transform(Layout("NCHW"), Layout("NHWC"))
        >>> str(first.then(Transform(Layout("NHWC"), Layout("NCHW8c"))))
        'NCHW -> NCHW8c'
        """
        if self.dtype != other.dtype:
            raise DTypeError(f"{self} is of {self.dtype}, {other} of {other.dtype}")
        if self.target != other.source:
            raise LayoutError(f"{other} does not begin with {self.target}, where {self} ends")
        first, middle = self.source.stored(self.dtype), self.target.stored(self.dtype)
        last = other.target.stored(self.dtype)
        back = first == last and self.exact
        if not (back or middle == last or preserves(first, middle)):
            raise LayoutError(f"{self}, then {other}: no single Transform gives these values")
        return Transform(self.source, other.target, self.dtype)

    def is_identity(self, extents: Extents) -> bool:
        """Return whether nothing has to move: for these sizes both layouts are the same."""
        return self.source.same(self.target, extents, self.dtype)

    def bytes_moved(self, extents: Extents, dtype: str | None = None) -> int:
        """Return the number of bytes read and written, pads included.

        Args:
            extents: sizes by dim.
            dtype: the tensor's element type; by default this Transform's.

        >>> Transform(Layout("C"), Layout("C16c")).bytes_moved({"C": 3})
        76
        """
        dtype = dtype or self.dtype
        return self.source.nbytes(extents, dtype) + self.target.nbytes(extents, dtype)

    def apply(self, src: Array, extents: Extents) -> Array:
        """Return a new array in the target layout; see ``transform``."""
        return transform(src, self.source, self.target, extents, self.dtype)

    def __str__(self) -> str:
        return f"{self.source} -> {self.target}"


def transform(
    src: Array, source: Layout, target: Layout, extents: Extents, dtype: str = "f32"
) -> Array:
    """Return the same tensor in another layout: a new C-contiguous array, pads 0.

    Args:
        src: the tensor in ``source``; its pads never reach the result, even if they are NaN.
        source: the layout of ``src``.
        target: the layout of the result, of the same dims.
        extents: the true sizes of the dims.
        dtype: the tensor's own element type; an encoding in a layout overrides it.

    Raises:
        DimError: extents and layouts disagree on the dims.
        DTypeError: ``src`` is not of the element type that ``source`` stores.
        LayoutError: ``src`` has not the shape of its layout, or a layout is ANY.

    >>> sizes = {"C": 3, "W": 2}
    >>> transform(np.arange(6, dtype="f4").reshape(3, 2), Layout("CW"), Layout("CW2c"), sizes)
    array([[[0., 2.],
            [1., 3.]],
    <BLANKLINE>
           [[4., 0.],
            [5., 0.]]], dtype=float32)
    """
    want = target.stored(dtype)
    dst = empty(memory_shape(want, target.physical_shape(extents)), want.numpy)
    transform_into(src, dst, source, target, extents, dtype)
    return dst


def transform_into(
    src: Array, dst: Array, source: Layout, target: Layout, extents: Extents, dtype: str = "f32"
) -> None:
    """Write a tensor in another layout into ``dst``. Every byte of ``dst`` is written, pads with 0.

    Args:
        src: the tensor in ``source``; its pads never reach the result.
        dst: an array of the shape and type of ``target``, which must not overlap ``src``.
        source, target, extents, dtype: as for ``transform``.

    Raises:
        DimError, DTypeError, LayoutError: as ``transform``, likewise for ``dst``; LayoutError also
            if ``dst`` is read-only or the two overlap.
    """
    have, want = source.stored(dtype), target.stored(dtype)
    check_physical(src, source, extents, "source", have)
    check_physical(dst, target, extents, "target", want, writable=True)
    if np.may_share_memory(src, dst):
        raise LayoutError(f"source and target of {source} -> {target} share memory")
    if have.tile or want.tile:
        _transform_tiled(src, dst, source, target, extents)
        return
    reads, writes = (
        physical_planes(src, source, extents, have),
        physical_planes(dst, target, extents, want),
    )
    if have == want:
        for read, write in zip(reads, writes, strict=True):
            _move(read, source, write, target, extents)
    elif not (have.uniform and want.uniform):  # ``recode`` needs one axis per dim
        planes = [_logical(read, source, source.dims, extents) for read in reads]
        plain = Layout.plain(source.dims)
        for recoded, write in zip(recode(planes, have, want, source.dims), writes, strict=True):
            _move(recoded, plain, write, target, extents)
    elif have.itemsize > want.itemsize:  # convert first: fewer bytes then move
        _move(convert(src, have, want), source, dst, target, extents)
    else:
        moved = np.empty(dst.shape, have.numpy)
        _move(src, source, moved, target, extents)
        give_zero(moved, target, extents, have)
        dst[...] = convert(moved, have, want)
        return
    give_zero(dst, target, extents, want)


def _transform_tiled(
    src: Array, dst: Array, source: Layout, target: Layout, extents: Extents
) -> None:
    """Write a tensor in another layout into ``dst``, where ``source`` or ``target`` has a tile in
    its encoding.

    A layout with a tile stores filters of a convolution, transformed by Winograd's algorithm. The
    transform is computed in f64. A filter is computed back from its transform by least squares,
    which gives the original filter if nothing was rounded.
    """
    have, want = (
        {dim: (count, encoding.step) for dim, count in encoding.tile}
        for encoding in (layout.stored("f32") for layout in (source, target))
    )
    # The dims of tiles are put first: each sum then adds up long rows of the other dims.
    dims = sorted(source.dims, key=lambda dim: dim not in {**have, **want})
    plain = Layout.plain(dims, "f64")
    before, after = (layout.stored_sizes(extents) for layout in (source, target))
    source, target = (
        layout.with_encoding(replace(layout.stored("f32"), tile=(), step=1))
        for layout in (source, target)
    )
    if have == want:
        transform_into(src, dst, source, target, before)
        return
    values: Array = transform(src, source, plain, before)
    for axis, dim in enumerate(plain.dims):
        if have.get(dim) == want.get(dim):
            continue
        if dim in have:
            values = _multiply_along(
                values, axis, np.linalg.pinv(_filter(*have[dim], extents[dim]))
            )
        if dim in want:
            values = _multiply_along(values, axis, _filter(*want[dim], extents[dim]))
    transform_into(np.ascontiguousarray(values), dst, plain, target, after)


def _filter(results: int, step: int, taps: int) -> Array:
    """Return the matrix by which Winograd's algorithm transforms a filter along one dim: a row per
    stored value, a column per element of the filter.

    Args:
        results: the number of results that the algorithm computes at once, in one tile.
        step: the stride of the convolution; the filter is split into as many (see ``Encoding``).
        taps: the number of elements of the filter.
    """
    from ptensor.winograd import transforms  # here, since few layouts need it

    matrix = np.array(transforms(results, -(-taps // step)).filter, np.float64)
    return np.kron(matrix, np.eye(step))[:, :taps]


def _multiply_along(values: Array, axis: int, matrix: Array) -> Array:
    """Return ``values`` with each vector along an axis multiplied by ``matrix``.

    ``einsum`` computes it, since it starts no threads: those of NumPy's matrix product would keep
    spinning afterwards, on processors where kernels run or are measured next.
    """
    moved = np.einsum("pk,k...->p...", matrix, np.moveaxis(values, axis, 0))
    return np.moveaxis(moved, 0, axis)


def pack(logical: Array, dims: Sequence[str], layout: Layout) -> Array:
    """Return an array with one axis per dim as a physical array of ``layout``.

    Args:
        logical: the values; any strides and byte order.
        dims: the names of its axes.
        layout: layout of the result, of the same dims; its encoding, if any, is the result's.

    Returns:
        A C-contiguous array. It shares memory with ``logical`` if that has the layout already.

    Raises:
        DimError: the dims of array and layout differ.
        DTypeError: no element type matches the array's.
        LayoutError: the layout is ANY.

    >>> pack(np.zeros((1, 20, 7, 7), "f4"), "NCHW", Layout("NHWC16c")).shape
    (1, 7, 7, 2, 16)
    """
    _same_dims(dims, layout, logical.ndim)
    dtype = from_numpy(logical.dtype)
    logical = logical.astype(numpy_dtype(dtype), copy=False)
    extents = dict(zip(dims, logical.shape, strict=True))
    if not layout.is_plain:
        return transform(logical, Layout.plain(dims), layout, extents, dtype)
    have, want = Layout.plain(dims).stored(dtype), layout.stored(dtype)
    if not want.uniform:
        return transform(logical, Layout.plain(dims), layout, extents, dtype)
    view = logical.transpose([dims.index(dim) for dim in layout.dims])
    return contiguous(convert(view, have, want))


def unpack(
    physical: Array,
    layout: Layout,
    dims: Sequence[str],
    extents: Extents,
    dtype: str | None = None,
) -> Array:
    """Return a physical array as an array with one axis per dim, without pads.

    Args:
        physical: the tensor in ``layout``.
        layout: its layout.
        dims: the order of the result's axes.
        extents: the true sizes of the dims.
        dtype: the tensor's own element type, which the result has; by default the stored one. An
            encoding that is more than an element type needs it.

    Returns:
        A view of ``physical`` if its strides allow it, as they do in a plain layout without a
        conversion; otherwise a new array.

    Raises:
        DimError, DTypeError, LayoutError: as ``transform``.

    >>> stored = np.arange(32, dtype="f4").reshape(2, 1, 16)
    >>> unpack(stored, Layout("CW16c"), "WC", {"C": 18, "W": 1})[0, 15:]
    array([15., 16., 17.], dtype=float32)
    """
    _same_dims(dims, layout, len(dims))
    stored = layout.stored(dtype or from_numpy(physical.dtype))
    if dtype is None and not stored.simple:
        raise DTypeError(
            f"{layout} stores scaled integers or planes: name the tensor's own element type"
        )
    check_physical(physical, layout, extents, "source", stored)
    planes = physical_planes(physical, layout, extents, stored)
    if stored.tile:
        return transform(physical, layout, Layout.plain(dims), extents, dtype or "f32")
    logical = [_logical(plane, layout, dims, extents) for plane in planes]
    plain = Layout.plain(dims).stored(dtype or stored.dtype)
    return recode(logical, stored, plain, dims)[0]


def _logical(physical: Array, layout: Layout, dims: Sequence[str], extents: Extents) -> Array:
    """Return a plane with one axis for each of ``dims``, without pads; a view if its strides allow.

    ``physical`` is the plane, with one axis per axis of the layout.
    """
    axes = layout.axes
    order = sorted(range(len(axes)), key=lambda i: (dims.index(axes[i].dim), -layout.units[i]))
    padded = layout.padded(extents)
    padded_array = physical.transpose(order).reshape([padded[dim] for dim in dims])
    true: list[Any] = [slice(extents[dim]) for dim in dims]
    return padded_array[(*true, ...)]


def _same_dims(dims: Sequence[str], layout: Layout, rank: int) -> None:
    """Check that an array's axes are exactly the dims of its layout, in any order.

    Args:
        dims: the names of the array's axes.
        layout: the layout.
        rank: the number of the array's axes.

    Raises:
        DimError: the names are not those of the layout's dims, or there are more or fewer names
            than axes.
    """
    if rank != len(dims) or sorted(dims) != sorted(layout.dims):
        have, want = " ".join(dims) or "none", " ".join(layout.dims) or "none"
        raise DimError(f"{rank} axes named {have}, but layout {layout} has the dims {want}")


@dataclass(frozen=True, slots=True)
class _IndexRun:
    """Consecutive indices of one dim: ``count * unit`` of them from ``start`` on.

    ``start`` is a multiple of ``unit``.
    """

    start: int
    unit: int
    count: int


def _move(src: Array, source: Layout, dst: Array, target: Layout, extents: Extents) -> None:
    """Copy every element of ``src`` bit for bit to ``dst``, without the pads of either array.

    Each dim is cut into ranges of indices. Within a range the offset grows evenly in both layouts.
    A range of each dim makes a box, which is one strided copy.
    """
    if 0 in extents.values():
        return
    src, dst = _bits(src), _bits(dst)
    units = {dim: _common_units(source, target, dim) for dim in source.dims}
    stuck = [dim for dim, common in units.items() if not _is_chain(common)]
    if stuck:  # from blocks of 3 to blocks of 4, say: go through a layout without these blocks
        middle = target
        for dim in stuck:
            middle = middle.unblock(dim)
        halfway = np.empty(middle.physical_shape(extents), src.dtype)
        _move(src, source, halfway, middle, extents)
        _move(halfway, middle, dst, target, extents)
        return
    for runs in product(*(_runs(extents[dim], common) for dim, common in units.items())):
        box = dict(zip(units, runs, strict=True))
        read, have = _digits(src, source, box, units)
        write, want = _digits(dst, target, box, units)
        write[...] = read.transpose([have.index(digit) for digit in want])


def _bits(array: Array) -> Array:
    """Return a view of the array as unsigned integers, so that copies keep the bits of each NaN."""
    return array.view(f"{'u' if array.itemsize <= 8 else 'V'}{array.itemsize}")


def _common_units(source: Layout, target: Layout, dim: str) -> list[int]:
    """Return the units of the axes that ``dim`` has in both layouts, largest first, down to 1.

    A unit is how much an index of the dim grows from one position of the axis to the next.
    """
    units = {1}
    for layout in (source, target):
        rows = zip(layout.axes, layout.units, strict=True)
        units |= {unit for axis, unit in rows if axis.dim == dim}
    return sorted(units, reverse=True)


def _is_chain(units: Sequence[int]) -> bool:
    """Return whether each unit is a multiple of the next."""
    return all(larger % smaller == 0 for larger, smaller in pairwise(units))


def _runs(extent: int, units: Sequence[int]) -> list[_IndexRun]:
    """Cut the indices below ``extent`` into consecutive ranges, each of a whole number of units.

    Args:
        extent: the size of a dim.
        units: how much an index of the dim grows from one position of an axis to the next, for each
            axis; largest first, down to 1. No two ranges have the same unit.
    """
    runs, start = [], 0
    for unit in units:
        count = (extent - start) // unit
        if count:
            runs.append(_IndexRun(start, unit, count))
            start += count * unit
    return runs


def _digits(
    array: Array, layout: Layout, box: Mapping[str, _IndexRun], units: Mapping[str, Sequence[int]]
) -> tuple[Array, list[tuple[str, int]]]:
    """Return a view of the part of a plane that a box covers, and what each axis of the view is.

    An axis of the view is (dim, unit): from one position to the next, the index of the dim grows by
    ``unit``.

    Args:
        array: a plane, with one axis per axis of the layout.
        layout: the layout.
        box: a range of indices for each dim.
        units: for each dim the units of its axes in both layouts of a copy, largest first. Axes of
            the array are split at these units. The views in both layouts then have the same axes,
            in some order.
    """
    place: list[int | slice] = []
    shape: list[int] = []
    digits: list[tuple[str, int]] = []
    for (dim, block), unit in zip(layout.axes, layout.units, strict=True):
        run = box[dim]
        first = run.start // unit % block if block else run.start // unit
        if unit > run.unit:
            place.append(first)
            continue
        holds_run = not block or unit * block > run.unit
        sizes = [run.count] if holds_run else []
        within = [u for u in units[dim] if unit <= u <= (run.unit if holds_run else unit * block)]
        sizes += [larger // smaller for larger, smaller in pairwise(within)]
        digits += [(dim, u) for u in (within if holds_run else within[1:])]
        place.append(slice(first, first + prod(sizes)))
        shape += sizes
    return array[(*place, ...)].reshape(shape), digits
