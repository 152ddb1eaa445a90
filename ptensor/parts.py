"""Parts of a tensor in place: slices, splits and merges of dims, also in layouts with blocks.

Each method returns a view of the same memory and its layout, or None if no layout describes where
those elements are.
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
    """Elements in memory.

    Attributes:
        array: one axis per axis of the layout, pads included, in any strides.
        layout: layout of the elements.
        extents: sizes by dim.
    """

    array: np.ndarray[Any, Any]
    layout: Layout
    extents: Mapping[str, int]

    @property
    def dense(self) -> bool:
        """True if the elements, pads included, are one run of aligned memory, in order."""
        flags = self.array.flags
        return bool(flags.c_contiguous and flags.aligned) and self.layout.encoding is None

    def logical(self, dims: Sequence[str], dtype: str | None = None) -> np.ndarray[Any, Any]:
        """Return the elements, one axis per dim, without pads: a view if the strides allow."""
        return unpack(self.array, self.layout, dims, self.extents, dtype)

    def renamed(self, names: Mapping[str, str]) -> Part:
        """Return the same elements with dims renamed."""
        sizes = {names.get(dim, dim): size for dim, size in self.extents.items()}
        return Part(self.array, self.layout.rename(names), sizes)

    def sliced(self, ranges: Mapping[str, tuple[int, int]]) -> Part | None:
        """Return the elements from ``begin`` up to, without, ``end`` in each dim of ``ranges``.

        None if a blocked dim is not cut at whole blocks, or at its end: elements would be where
        pads are promised to be zero. None also for several planes, and along the dims of a tile.
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
        """Return the elements with a dim split into several, slowest first; the last one has the
        blocks.

        None if the last one's size is no multiple of the blocks, or the encoding names the dim.
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
        """Return the elements with several dims, slowest first, merged into one.

        None if they are not neighbours in memory, or another than the last has blocks, or the last
        one's blocks have pads, or the encoding names a dim.
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
        except ValueError:  # gaps between them
            return None
        named = tidy._renamed(dims[-1], into)
        named[at : at + len(dims)] = [Axis(into, 0)]
        sizes = {name: size for name, size in self.extents.items() if name not in dims}
        sizes[into] = prod(self.extents[dim] for dim in dims)
        return Part(array, Layout.of_axes(named, self.layout.encoding), sizes)

    def _with_ones_first(self, dims: Sequence[str]) -> Part:
        """Return the same memory with axes of size 1, which may be anywhere, out of the way of
        ``dims``.

        Axes of size 1 of the dims themselves go where their order wants them.
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
        """Return whether the array has axes, and its encoding names none of these dims."""
        encoding = self.layout.encoding
        return encoding is None or not (self._has_planes or set(dims) & encoding.named)

    def _outer_axis(self, dim: str) -> int:
        """Return the axis of a dim's outer part."""
        return self.layout.axes.index(Axis(dim, 0))

    def _renamed(self, dim: str, name: str) -> list[Axis]:
        """Return the layout's axes, with one dim renamed."""
        return [
            Axis(name if axis.dim == dim else axis.dim, axis.block) for axis in self.layout.axes
        ]
