"""Changes of layout, concatenations and pads as boxes that are copied. A box is a part of memory
with a shape and strides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice, pairwise, product
from math import lcm, prod
from typing import TYPE_CHECKING, NamedTuple

from ptensor.layout import Layout
from ptensor.physical import pad_slabs
from ptensor.tensor import PTensor
from vtensor.language.dims import is_one

if TYPE_CHECKING:
    from libdesc.eigen._eigen import Box

#: The most boxes that one native copy may have; a change of layout that needs more is declined.
MAX_BOXES = 4096

#: How many elements must at least follow one another in memory in an operand whose layout is not
#: that of dst. If they are fewer, routines decline to read the operand in place.
MIN_RUN = 16


class Region(NamedTuple):
    """A box of a tensor's memory.

    Attributes:
        shape: its sizes, in elements.
        offset: of its first element, in elements from the first element of the tensor.
        strides: from one element to the next along each of its axes, in elements.
    """

    shape: Sequence[int]
    offset: int
    strides: Sequence[int]


def region(tensor: PTensor, slices: Sequence[slice] = ()) -> Region:
    """Return the region that slices cut out of a tensor.

    Args:
        tensor: the tensor.
        slices: one per axis of the tensor's layout, in elements; empty for the whole tensor.
    """
    layout = tensor.required_layout
    strides = layout.strides(tensor.dims)
    sizes = layout.physical_shape(tensor.dims)
    rows = zip(slices or [slice(None)] * len(sizes), sizes, strict=True)
    ranges = [(_bound(cut.start, 0, n), _bound(cut.stop, n, n)) for cut, n in rows]
    offset = sum(begin * stride for (begin, _), stride in zip(ranges, strides, strict=True))
    return Region([max(end - begin, 0) for begin, end in ranges], offset, strides)


def _bound(at: int | None, missing: int, size: int) -> int:
    """Return the begin or the end of a slice, as an index from 0 to ``size``.

    Args:
        at: the slice's start or stop.
        missing: the result if ``at`` is None.
        size: the axis' length; it may be symbolic, hence no ``slice.indices``.
    """
    if at is None:
        return missing
    return min(at, size) if at >= 0 else max(at + size, 0)


def copied(source: int, read: Region, write: Region) -> Box:
    """Return a box for the copy kernel: the region ``read`` of a source goes to the region
    ``write`` of dst.

    Args:
        source: the index of the source among the kernel's sources.
        read, write: regions of the same shape.
    """
    return (source, write.shape, read.offset, read.strides, write.offset, write.strides, 0)


def filled(write: Region, bits: int) -> Box:
    """Return a box for the copy kernel: all elements of the region ``write`` of dst get the value
    ``bits``.
    """
    return (-1, write.shape, 0, [0] * len(write.shape), write.offset, write.strides, bits)


def pads(tensor: PTensor) -> list[Box]:
    """Return boxes that fill a tensor's padding with 0."""
    slabs = pad_slabs(tensor.required_layout, tensor.dims)
    return [filled(region(tensor, slab), 0) for slab in slabs]


def changes(source: PTensor, target: PTensor) -> list[Box]:
    """Return boxes that copy every element of source to target, and zero the padding of target.

    Both are the same tensor, in two layouts.
    """
    have, want = source.required_layout, target.required_layout
    moves = [
        copied(0, *(strided(layout, pieces, target.dims, target.dims) for layout in (have, want)))
        for pieces in product(*cuts(have, want, target.dims))
    ]
    return [*moves, *pads(target)]


class DimPart(NamedTuple):
    """Indices of a dim: ``size`` of them, each ``unit`` above the one before."""

    dim: str
    unit: int
    size: int


def nested(layouts: Sequence[Layout], extents: Mapping[str, int]) -> list[DimPart] | None:
    """Return the axes of the first layout, cut into parts at the blocks of all other layouts.

    None if the block sizes of a dim do not divide one another, or do not divide the size of the
    dim.

    Args:
        layouts: at least one layout.
        extents: sizes by dim.

    >>> sizes = {"N": 1, "C": 32, "H": 4}
    >>> [tuple(axis) for axis in nested([Layout("NHC"), Layout("NCH16c")], sizes) or ()]
    [('N', 1, 1), ('H', 1, 4), ('C', 16, 2), ('C', 1, 16)]
    """
    rows = [
        (axis.dim, unit)
        for layout in layouts
        for axis, unit in zip(layout.axes, layout.units, strict=True)
    ]
    units = {dim: sorted({unit for name, unit in rows if name == dim}) for dim in extents}
    for dim, steps in units.items():
        if any(large % small for small, large in pairwise([*steps, extents[dim]])):
            return None
    first, axes = layouts[0], list[DimPart]()
    shape = first.physical_shape(extents)
    for axis, unit, size in zip(first.axes, first.units, shape, strict=True):
        inner = [layout for layout in units[axis.dim] if unit < layout < unit * size]
        bounds = [unit * size, *reversed(inner), unit]
        axes += [DimPart(axis.dim, low, high // low) for high, low in pairwise(bounds)]
    return axes


def strides_along(axes: Sequence[DimPart], layout: Layout, dims: Mapping[str, int]) -> list[int]:
    """Return an operand's stride along each of ``axes``, in elements.

    It is 0 along an axis where the operand is repeated or has size 1.

    Args:
        axes: the axes that all operands of a call share.
        layout, dims: the operand's layout, and its sizes by dim.
    """
    return [
        0 if _repeats(axis, dims) else layout.step(axis.dim, 0, axis.unit, dims) for axis in axes
    ]


def _repeats(axis: DimPart, dims: Mapping[str, int]) -> bool:
    """Return whether an operand's stride along an axis is 0.

    That is so if the operand is repeated along the axis, if it or the axis has size 1, or if the
    operand has no elements.

    Args:
        axis: the axis.
        dims: the operand's sizes by dim.
    """
    size = dims.get(axis.dim, 1)
    if is_one(size) or is_one(axis.size) or 0 in dims.values():
        return True
    return axis.size != size and (axis.size <= 1 or size <= 1)


def run_length(axes: Sequence[DimPart], layout: Layout, dims: Mapping[str, int]) -> int:
    """Return how many elements of an operand follow one another in memory in the order of ``axes``.

    Args:
        axes: the axes, slowest first.
        layout, dims: the operand's layout, and its sizes by dim.
    """
    length = 1
    for axis, step in zip(reversed(axes), reversed(strides_along(axes, layout, dims)), strict=True):
        if axis.size > 1 and step != length:
            break
        length *= axis.size
    return length


class Indices(NamedTuple):
    """Indices of a dim at regular distances: start + i * length + j * length' + ..., for all i <
    count, j < count', ...

    Attributes:
        start: the first index.
        steps: the pairs (count, length), (count', length'), ...
    """

    start: int
    steps: tuple[tuple[int, int], ...]


def too_many(source: Layout, target: Layout, extents: Mapping[str, int]) -> bool:
    """Return whether a change of layout takes more than ``MAX_BOXES`` boxes; pads do not count."""
    return prod(len(pieces) for pieces in cuts(source, target, extents)) > MAX_BOXES


def cuts(source: Layout, target: Layout, extents: Mapping[str, int]) -> list[list[Indices]]:
    """Return a list for each dim: pieces of its indices, which together have each index once.

    Both layouts have constant strides along a piece. A list has at most ``MAX_BOXES`` + 1 pieces.

    Args:
        source, target: the layouts.
        extents: sizes by dim.
    """
    rows = [
        *zip(source.axes, source.units, strict=True),
        *zip(target.axes, target.units, strict=True),
    ]
    units = {dim: {unit for axis, unit in rows if axis.dim == dim and unit > 1} for dim in extents}
    return [
        list(islice(_pieces(0, size, units[dim]), MAX_BOXES + 1)) for dim, size in extents.items()
    ]


def _pieces(begin: int, end: int, units: Set[int]) -> Iterator[Indices]:
    """Yield the indices from ``begin`` to ``end - 1`` in pieces that cross no boundary between
    blocks.

    Args:
        begin, end: the range.
        units: the lengths of blocks; their boundaries are at the multiples of each length.

    >>> [piece.start for piece in _pieces(0, 30, {4, 6})]
    [0, 4, 6, 8, 24, 28]
    >>> next(_pieces(0, 30, {4, 6}))
    Indices(start=0, steps=((2, 12), (4, 1)))
    """
    if not units:
        if begin < end:
            yield Indices(begin, ((end - begin, 1),))
        return
    period = lcm(*units)
    first = min(-(-begin // period) * period, end)
    count = (end - first) // period
    last = first + count * period
    yield from _in_period(begin, first, units)
    if count:
        for start, steps in _in_period(first, first + period, units):
            yield Indices(start, ((count, period), *steps))
    yield from _in_period(last, end, units)


def _in_period(begin: int, end: int, units: Set[int]) -> Iterator[Indices]:
    """Yield pieces as ``_pieces`` does; no common multiple of ``units`` is inside the range."""
    coarse = {unit for unit in units if not any(u != unit and u % unit == 0 for u in units)}
    marks = {k * unit for unit in coarse for k in range(begin // unit + 1, -(-end // unit))}
    for pair in pairwise(sorted({begin, end, *marks})):
        yield from _pieces(*pair, units - coarse)


def strided(
    layout: Layout, pieces: Sequence[Indices], extents: Mapping[str, int], dims: Iterable[str]
) -> Region:
    """Return the part of a tensor's memory that has the elements at given indices.

    Args:
        layout: the tensor's layout.
        pieces: the indices along each of ``dims``.
        extents: the tensor's sizes by dim.
        dims: the dims along which the result has axes. Along a dim that the tensor lacks, the
            stride is 0.
    """
    begin = dict.fromkeys(extents, 0)
    rows = list(zip(dims, pieces, strict=True))
    start = begin | {dim: piece.start for dim, piece in rows if extents.get(dim, 0) > piece.start}
    offset = layout.offset(start, extents)
    shape, strides = [], []
    for dim, piece in rows:
        size = extents.get(dim, 0)
        for count, step in piece.steps:
            if type(count) is not int or count > 1:
                has_neighbour = count == size or piece.start + step < size
                shape.append(count)
                strides.append(layout.step(dim, piece.start, step, extents) if has_neighbour else 0)
    return Region(shape, offset, strides)
