"""Parts of a tensor without a copy: slices, splits and merges of dims, also in layouts with blocks.

The methods of ``Part`` return another Part on the same memory, or None if no layout describes where
the elements of the result are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from ptensor.layout import Axis, Layout
from ptensor.transform import unpack
from vtensor.language.records import dataclass


@dataclass(frozen=True)
class Part:
    """Elements of a tensor in memory, with their layout.

    Attributes:
        array: the memory, with one axis per axis of the layout, pads included, in any strides.
        layout: layout of the elements.
        extents: sizes by dim.
    """

    array: np.ndarray[Any, Any]
    layout: Layout
    extents: Mapping[str, int]

    @property
    def dense(self) -> bool:
        """True if the array is contiguous and aligned memory in the order of its axes, pads
        included, and the elements have the tensor's own element type.
        """
        flags = self.array.flags
        return bool(flags.c_contiguous and flags.aligned) and self.layout.encoding is None

    def logical(self, dims: Sequence[str], dtype: str | None = None) -> np.ndarray[Any, Any]:
        """Return the elements, one axis per dim, without pads: a view if the strides allow.

        Args:
            dims: the order of the result's axes.
            dtype: the tensor's own element type, which the result has; None for the stored type, as
                for ``unpack``.
        """
        layout = self.layout
        if layout.encoding is None and layout.is_plain and layout.dims == tuple(dims):
            return self.array
        return unpack(self.array, layout, dims, self.extents, dtype)

    def renamed(self, names: Mapping[str, str]) -> Part:
        """Return the same elements with dims renamed; ``names``: the new name by old name."""
        sizes = {names.get(dim, dim): size for dim, size in self.extents.items()}
        return Part(self.array, self.layout.rename(names), sizes)

    def sliced(self, ranges: Mapping[str, tuple[int, int]]) -> Part | None:
        """Return the elements in a range of indices along some dims.

        None if a range of a dim with blocks begins inside a block, or ends inside one before the
        end of the dim: other elements would then be where the pads of the result have to be 0. None
        also if the encoding has several planes, or a tile along a dim of ``ranges``.

        Args:
            ranges: (begin, end) by dim, for the indices ``begin`` to ``end - 1``.
        """
        layout = self.layout
        tiled = dict(layout.encoding.tile) if layout.encoding is not None else {}
        if self._has_planes or tiled.keys() & ranges.keys():
            return None
        places: list[Any] = [slice(None)] * self.array.ndim
        for dim, (begin, end) in ranges.items():
            block = self.layout.block(dim)
            if begin % block or (end % block and end != self.extents[dim]):
                return None
            places[self._outer_axis(dim)] = slice(begin // block, -(-end // block))
            if layout.encoding is not None:
                layout = layout.with_encoding(layout.encoding.sliced(dim, begin, end))
        sizes = {dim: end - begin for dim, (begin, end) in ranges.items()}
        return Part(self.array[(*places, ...)], layout, {**self.extents, **sizes})

    def split(self, dim: str, into: Mapping[str, int]) -> Part | None:
        """Return the elements with one dim split into several dims. The last of these gets the
        blocks of the split dim.

        None if the size of the last new dim is no multiple of the blocks. None also if the encoding
        has several planes, or scales, zero points or a tile along the split dim.

        Args:
            dim: the dim to split.
            into: sizes by new dim, the slowest dim first.
        """
        *_, last = into
        block = self.layout.block(dim)
        if (len(into) > 1 and into[last] % block) or not self._can_regroup([dim]):
            return None
        at = self._outer_axis(dim)
        shape, sizes = self.array.shape, {**into, last: -(-into[last] // block)}
        array = self.array.reshape([*shape[:at], *sizes.values(), *shape[at + 1 :]])
        axes = self._renamed(dim, last)
        axes[at : at + 1] = [Axis(part, 0) for part in into]
        others = {name: size for name, size in self.extents.items() if name != dim}
        return Part(array, Layout.of_axes(axes, self.layout.encoding), {**others, **into})

    def merged(self, dims: Sequence[str], into: str) -> Part | None:
        """Return the elements with several dims merged into one dim.

        None if the dims are not neighbours in memory, if one before the last has blocks, or if the
        last one has pads. None also if the encoding has several planes, or scales, zero points or a
        tile along one of the dims.

        Args:
            dims: the dims to merge, slowest first.
            into: name of the merged dim.
        """
        if not self._can_regroup(dims):
            return None
        tidy = self._with_ones_first(dims)
        array, axes, at = tidy.array, tidy.layout.axes, tidy._outer_axis(dims[0])
        block = self.layout.block(dims[-1])
        adjacent = axes[at : at + len(dims)] == tuple(Axis(dim, 0) for dim in dims)
        torn = any(self.layout.block(dim) > 1 for dim in dims[:-1])
        if torn or not adjacent or (len(dims) > 1 and self.extents[dims[-1]] % block):
            return None
        shape = array.shape
        merged_shape = [*shape[:at], prod(shape[at : at + len(dims)]), *shape[at + len(dims) :]]
        try:
            array = array.reshape(merged_shape, copy=False)
        except ValueError:  # there are gaps between the axes
            return None
        named = tidy._renamed(dims[-1], into)
        named[at : at + len(dims)] = [Axis(into, 0)]
        sizes = {name: size for name, size in self.extents.items() if name not in dims}
        sizes[into] = prod(self.extents[dim] for dim in dims)
        return Part(array, Layout.of_axes(named, self.layout.encoding), sizes)

    def _with_ones_first(self, dims: Sequence[str]) -> Part:
        """Return the same memory with its axes of size 1 in other positions, so that ``dims``
        become neighbours where that is possible.

        An axis of size 1 may be anywhere in a layout. If it belongs to one of ``dims``, it goes to
        its position in the order of ``dims``, else to the front.
        """
        axes = self.layout.axes
        ones = [i for i, axis in enumerate(axes) if self.array.shape[i] == 1 and not axis.block]
        ones_by_dim = {axes[i].dim: i for i in ones if axes[i].dim in dims}
        order = [i for i in ones if axes[i].dim not in dims]
        placed = [i for i in range(len(axes)) if i not in ones]
        long = [dim for dim in dims if dim not in ones_by_dim]
        at = placed.index(self._outer_axis(long[0])) if long else 0
        for place, dim in enumerate(dims):
            if dim in ones_by_dim:
                placed.insert(at + place, ones_by_dim[dim])
        order += placed
        layout = Layout.of_axes([axes[i] for i in order], self.layout.encoding)
        return Part(self.array.transpose(order), layout, self.extents)

    @property
    def _has_planes(self) -> bool:
        """True if the array is the bytes of several planes."""
        return self.layout.encoding is not None and self.layout.encoding.rest is not None

    def _can_regroup(self, dims: Sequence[str]) -> bool:
        """Return whether the encoding allows that ``dims`` are split or merged.

        False if it has several planes, or scales, zero points or a tile along one of these dims.
        """
        encoding = self.layout.encoding
        return encoding is None or not (self._has_planes or set(dims) & encoding.named)

    def _outer_axis(self, dim: str) -> int:
        """Return the index of the axis that is a dim's outer part."""
        return self.layout.axes.index(Axis(dim, 0))

    def _renamed(self, dim: str, name: str) -> list[Axis]:
        """Return the layout's axes, with ``dim`` renamed to ``name``."""
        return [
            Axis(name if axis.dim == dim else axis.dim, axis.block) for axis in self.layout.axes
        ]
