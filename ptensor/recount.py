"""The layout that the same bytes have under other dims, after a reshape without a copy.

The elements of a tensor are numbered by their indices in the order of the tensor's dims, the last
dim fastest. The *unit* of a dim is how much the number of an element grows from one index of the
dim to the next; the unit of an axis of memory likewise, from one position of the axis to the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import NamedTuple

from ptensor.layout import Layout
from vtensor.errors import LayoutError
from vtensor.language.dims import is_one


class _CountedAxis(NamedTuple):
    """An axis of memory that is a part of the dim ``dim``.

    Attributes:
        dim: the dim.
        unit: how much the number of an element grows from one position of the axis to the next.
            Elements are numbered by their indices in the order of the dims, the last dim fastest.
        size: the number of positions.
    """

    dim: str
    unit: int
    size: int


def recounted(layout: Layout, extents: Mapping[str, int], shape: Mapping[str, int]) -> Layout:
    """Return the layout that a tensor's bytes have under other dims, as after a reshape without a
    copy.

    An element keeps its number, which counts the elements by their indices in the order of the
    dims, the last dim fastest. An axis of memory that covers several of the new dims is split. Old
    dims that become one new dim need not be neighbours in memory.

    Args:
        layout: layout of the present tensor.
        extents: sizes of the present tensor by dim, in the order of its dims.
        shape: sizes by new dim, in order, of as many elements.

    Raises:
        LayoutError: no layout describes the result. The encoding has scales, zero points or a tile
            along a dim; or a dim has pads; or the axes of a new dim are in an order that blocks
            cannot have.

    >>> recounted(Layout("NHWC"), {"N": 1, "C": 8, "H": 4, "W": 4}, {"N": 1, "C": 8, "P": 16})
    Layout('NPC')
    >>> recounted(Layout("NPC"), {"N": 2, "C": 8, "P": 16}, {"N": 2, "D": 2, "E": 4, "P": 16})
    Layout('NPDE')
    >>> recounted(Layout("HiWjC"), {"H": 2, "W": 3, "i": 7, "j": 7, "C": 4}, {"B": 6, "C": 196})
    Layout('BC3b28c')
    """
    if layout.encoding is not None and layout.encoding.named:
        raise LayoutError(f"{layout} has scales or a tile along a dim")
    units = _units(shape)
    if 0 in shape.values():
        return Layout.plain(shape, layout.encoding)
    runs: list[_CountedAxis] = []
    for run in _runs(layout, extents):
        for end, begin in pairwise(_marks(run, units)):
            dim = _owner(begin, end, units, shape)
            last = runs[-1] if runs else None
            if last is not None and last.dim == dim and last.unit == end:
                runs[-1] = _CountedAxis(dim, begin, last.size * (end // begin))
            else:
                runs.append(_CountedAxis(dim, begin, end // begin))
    layout_of_runs = Layout.of_axes(_axes(runs, shape), layout.encoding)
    plain = Layout.plain(shape, layout.encoding)
    return plain if layout_of_runs.same(plain, shape) else layout_of_runs


def _owner(begin: int, end: int, units: Mapping[str, int], shape: Mapping[str, int]) -> str:
    """Return the new dim to which an axis of memory belongs.

    It is the first dim of size above 1 whose indices cover the axis: from ``begin`` or less, the
    dim's unit, to ``end`` or more, its unit times its size. A unit is how much the number of an
    element grows from one index or position to the next.

    Args:
        begin: unit of the axis.
        end: unit of the axis times its size.
        units: the unit of each new dim, by name.
        shape: the size of each new dim, by name.
    """
    return next(
        dim
        for dim, unit in units.items()
        if not is_one(shape[dim]) and unit <= begin and end <= unit * shape[dim]
    )


def _units(sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the unit of each dim: how much the number of an element grows from one index to the
    next.

    Elements are numbered by their indices in the order of the dims, the last dim fastest.
    """
    names = list(sizes)
    return {dim: prod(map(sizes.__getitem__, names[at + 1 :])) for at, dim in enumerate(names)}


def _runs(layout: Layout, extents: Mapping[str, int]) -> Iterator[_CountedAxis]:
    """Yield the axes of a layout that have more than one position, slowest first, as parts of the
    old dims.

    If the first dim of ``extents`` has a symbolic size and its outer part is the first axis, the
    axis is taken to have several positions, so that no guard is needed.

    Raises:
        LayoutError: the layout pads a dim.
    """
    units = _units(extents)
    for dim, size in extents.items():
        if size % layout.block(dim):
            raise LayoutError(f"{layout} pads {dim}={size}")
    first = next(iter(extents), None)
    rows = zip(layout.axes, layout.units, layout.physical_shape(extents), strict=True)
    for place, (axis, unit, n) in enumerate(rows):
        if (place == 0 and axis.dim == first and not is_one(n)) or n > 1:
            yield _CountedAxis(axis.dim, units[axis.dim] * unit, n)


def _marks(run: _CountedAxis, units: Mapping[str, int]) -> list[int]:
    """Return the units at which an axis of memory is cut, so that each piece belongs to one new
    dim.

    The largest is first: ``run.unit * run.size``. The last is ``run.unit``. Two adjacent units are
    the end and the begin of a piece. A unit is how much the number of an element grows from one
    index or position to the next.

    Args:
        run: the axis.
        units: the unit of each new dim, by name.

    Raises:
        LayoutError: a piece would not have a whole number of positions.
    """
    end = run.unit * run.size
    inner = sorted(unit for unit in units.values() if run.unit < unit < end)
    marks = [run.unit, *(unit for i, unit in enumerate(inner) if unit not in inner[:i]), end]
    if any(above % below for below, above in pairwise(marks)):
        raise LayoutError(f"of {run.dim}, {run.size} places lie across the new dims")
    return marks[::-1]


def _axes(runs: Sequence[_CountedAxis], shape: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the axes of a layout as (dim, block), slowest first; block 0 is the outer part of a
    dim.

    Args:
        runs: the axes of memory as parts of the new dims, slowest first. A new dim of size 1 has
            none; it gets an axis after the outer part of the dim before it.
        shape: size by new dim, in order.

    Raises:
        LayoutError: the axes of a dim are in an order that blocks cannot have.
    """
    outer: dict[str, int] = {}
    for dim in shape:
        dim_units = [run.unit for run in runs if run.dim == dim]
        inner = [unit for unit in dim_units if unit != max(dim_units)]
        if inner != sorted(inner, reverse=True):
            raise LayoutError(f"parts of {dim} are in an order that no blocks have")
        outer[dim] = max(dim_units, default=0)
    axes = [(run.dim, 0 if run.unit == outer[run.dim] else run.size) for run in runs]
    names = list(shape)
    for place, dim in enumerate(names):
        if not outer[dim]:
            axes.insert(axes.index((names[place - 1], 0)) + 1 if place else 0, (dim, 0))
    return axes
