"""Boxes of memory: what changes of layout, concatenation and padding are made of."""

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

#: A change of layout in more than these is not worth a native step.
MOST_BOXES = 4096

#: An operand is read where it is if so many elements lie side by side.
PIECE = 16


class Region(NamedTuple):
    """A box of a tensor's memory: its shape, where it begins, its strides; all in elements."""

    shape: Sequence[int]
    offset: int
    strides: Sequence[int]


def region(tensor: PTensor, slices: Sequence[slice] = ()) -> Region:
    """What slices cut out, one for each axis of the tensor's layout; all of it without slices."""
    layout = tensor.required_layout
    strides = layout.strides(tensor.dims)
    sizes = layout.physical_shape(tensor.dims)
    rows = zip(slices or [slice(None)] * len(sizes), sizes, strict=True)
    ranges = [(_bound(one.start, 0, n), _bound(one.stop, n, n)) for one, n in rows]
    offset = sum(begin * stride for (begin, _), stride in zip(ranges, strides, strict=True))
    return Region([max(end - begin, 0) for begin, end in ranges], offset, strides)


def _bound(at: int | None, missing: int, size: int) -> int:
    """Where a slice begins or ends; arithmetic alone, so that sizes may be traced."""
    if at is None:
        return missing
    return min(at, size) if at >= 0 else max(at + size, 0)


def copied(source: int, read: Region, write: Region) -> Box:
    """A box of a source that goes to a box of dst."""
    return (source, write.shape, read.offset, read.strides, write.offset, write.strides, 0)


def filled(write: Region, bits: int) -> Box:
    """A box of dst whose elements become these bits."""
    return (-1, write.shape, 0, [0] * len(write.shape), write.offset, write.strides, bits)


def pads(tensor: PTensor) -> list[Box]:
    """The lanes past the true extents, filled with 0."""
    slabs = pad_slabs(tensor.required_layout, tensor.dims)
    return [filled(region(tensor, slab), 0) for slab in slabs]


def changes(source: PTensor, target: PTensor) -> list[Box]:
    """Every element from one layout to the other, and zeros for the target's pads."""
    have, want = source.required_layout, target.required_layout
    moves = [
        copied(0, *(strided(one, pieces, target.dims, target.dims) for one in (have, want)))
        for pieces in product(*cuts(have, want, target.dims))
    ]
    return [*moves, *pads(target)]


class Axis(NamedTuple):
    """Indices of a dim that are ``unit`` apart: so many."""

    dim: str
    unit: int
    size: int


def nested(layouts: Sequence[Layout], extents: Mapping[str, int]) -> list[Axis] | None:
    """The axes of the first layout, cut where others have blocks of its dims.

    None where blocks of a dim do not divide one another, or its extent.

    >>> sizes = {"N": 1, "C": 32, "H": 4}
    >>> [tuple(axis) for axis in nested([Layout("NHC"), Layout("NCH16c")], sizes) or ()]
    [('N', 1, 1), ('H', 1, 4), ('C', 16, 2), ('C', 1, 16)]
    """
    rows = [
        (axis.dim, unit) for one in layouts for axis, unit in zip(one.axes, one.units, strict=True)
    ]
    units = {dim: sorted({unit for name, unit in rows if name == dim}) for dim in extents}
    for dim, steps in units.items():
        if any(large % small for small, large in pairwise([*steps, extents[dim]])):
            return None
    first, found = layouts[0], list[Axis]()
    shape = first.physical_shape(extents)
    for axis, unit, size in zip(first.axes, first.units, shape, strict=True):
        inner = [one for one in units[axis.dim] if unit < one < unit * size]
        bounds = [unit * size, *reversed(inner), unit]
        found += [Axis(axis.dim, low, high // low) for high, low in pairwise(bounds)]
    return found


def strides_along(axes: Sequence[Axis], layout: Layout, dims: Mapping[str, int]) -> list[int]:
    """How far an operand's neighbours along some axes are; 0 where it is repeated, or is none."""
    return [
        0 if _repeats(axis, dims) else layout.step(axis.dim, 0, axis.unit, dims) for axis in axes
    ]


def _repeats(axis: Axis, dims: Mapping[str, int]) -> bool:
    """Return whether an operand has no step along an axis: one of the two has a single place."""
    size = dims.get(axis.dim, 1)
    if is_one(size) or is_one(axis.size) or 0 in dims.values():
        return True
    return axis.size != size and (axis.size <= 1 or size <= 1)


def run_length(axes: Sequence[Axis], layout: Layout, dims: Mapping[str, int]) -> int:
    """How many elements of an operand lie side by side in the order of some axes."""
    length = 1
    for axis, step in zip(reversed(axes), reversed(strides_along(axes, layout, dims)), strict=True):
        if axis.size > 1 and step != length:
            break
        length *= axis.size
    return length


class Piece(NamedTuple):
    """Indices of a dim: its start, and any number of steps of each kind, (how many, how long)."""

    start: int
    steps: tuple[tuple[int, int], ...]


def too_many(one: Layout, other: Layout, extents: Mapping[str, int]) -> bool:
    """True when a change of layout takes more than ``MOST_BOXES`` boxes, pads aside."""
    return prod(len(pieces) for pieces in cuts(one, other, extents)) > MOST_BOXES


def cuts(one: Layout, other: Layout, extents: Mapping[str, int]) -> list[list[Piece]]:
    """For each dim, pieces that hold each index once, in each of which both layouts step evenly."""
    rows = [*zip(one.axes, one.units, strict=True), *zip(other.axes, other.units, strict=True)]
    units = {dim: {unit for axis, unit in rows if axis.dim == dim and unit > 1} for dim in extents}
    return [
        list(islice(_pieces(0, size, units[dim]), MOST_BOXES + 1)) for dim, size in extents.items()
    ]


def _pieces(begin: int, end: int, units: Set[int]) -> Iterator[Piece]:
    """Cut begin .. end: blocks of these lengths begin at multiples of them.

    >>> [piece.start for piece in _pieces(0, 30, {4, 6})]
    [0, 4, 6, 8, 24, 28]
    >>> next(_pieces(0, 30, {4, 6}))
    Piece(start=0, steps=((2, 12), (4, 1)))
    """
    if not units:
        if begin < end:
            yield Piece(begin, ((end - begin, 1),))
        return
    period = lcm(*units)
    first = min(-(-begin // period) * period, end)
    count = (end - first) // period
    last = first + count * period
    yield from _in_period(begin, first, units)
    if count:
        for start, steps in _in_period(first, first + period, units):
            yield Piece(start, ((count, period), *steps))
    yield from _in_period(last, end, units)


def _in_period(begin: int, end: int, units: Set[int]) -> Iterator[Piece]:
    """As ``_pieces``, where no multiple of all units lies between begin and end."""
    coarse = {unit for unit in units if not any(u != unit and u % unit == 0 for u in units)}
    marks = {k * unit for unit in coarse for k in range(begin // unit + 1, -(-end // unit))}
    for pair in pairwise(sorted({begin, end, *marks})):
        yield from _pieces(*pair, units - coarse)


def strided(
    layout: Layout, pieces: Sequence[Piece], extents: Mapping[str, int], dims: Iterable[str]
) -> Region:
    """The box of a piece of each of some dims; no step is made along one that the layout lacks."""
    begin = dict.fromkeys(extents, 0)
    rows = list(zip(dims, pieces, strict=True))
    start = begin | {dim: piece.start for dim, piece in rows if extents.get(dim, 0) > piece.start}
    offset = layout.offset(start, extents)
    shape, strides = [], []
    for dim, piece in rows:
        size = extents.get(dim, 0)
        for count, step in piece.steps:
            if type(count) is not int or count > 1:
                there = count == size or piece.start + step < size
                shape.append(count)
                strides.append(layout.step(dim, piece.start, step, extents) if there else 0)
    return Region(shape, offset, strides)
