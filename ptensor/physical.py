"""The arrays in which layouts store tensors: their planes, and their pads.

A physical array is a tensor's memory in a layout. It has one axis per axis of the layout, with the
sizes ``layout.physical_shape(extents)``. If the encoding has several planes, it is the bytes of the
planes, one plane after another. Elements whose index is not below the true size of a dim are pads.
They hold the value 0: +0 in floats and the zero point in integers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ptensor.convert import Array
from ptensor.encoding import Encoding
from ptensor.layout import Layout
from ptensor.planes import between, memory_shape, planes_of
from vtensor.errors import DTypeError, LayoutError

__all__ = [
    "check_physical",
    "give_zero",
    "pad_slabs",
    "pads_are_zero",
    "physical_planes",
    "zero_pads",
]

Extents = Mapping[str, int]


def zero_pads(physical: Array, layout: Layout, extents: Extents) -> None:
    """Write the value 0 into every pad of a physical array, and into no other element.

    Raises:
        DimError: extents and layout disagree on the dims.
        DTypeError: the array is not of the type that the layout's encoding stores.
        LayoutError: the array has not the shape of its layout, or is read-only.

    >>> array = np.ones((2, 4), "f4")
    >>> zero_pads(array, Layout("C4c"), {"C": 5})
    >>> array[1]
    array([1., 0., 0., 0.], dtype=float32)
    """
    check_physical(physical, layout, extents, "tensor", layout.encoding, writable=True)
    give_zero(physical, layout, extents, layout.encoding)


def pads_are_zero(physical: Array, layout: Layout, extents: Extents) -> bool:
    """Return whether every pad has the value 0; -0 counts as 0.

    Raises:
        DimError, DTypeError, LayoutError: as ``zero_pads``, but the array may be read-only.

    >>> pads_are_zero(np.ones((2, 4), "f4"), Layout("C4c"), {"C": 5})
    False
    """
    check_physical(physical, layout, extents, "tensor", layout.encoding)
    with np.errstate(invalid="ignore"):  # comparing a signalling NaN with 0 would warn
        return not any(
            (plane[slab] != zeros[slab]).any()
            for plane, zeros in _zeros(physical, layout, extents, layout.encoding)
            for slab in pad_slabs(layout, extents)
        )


def check_physical(
    array: Array,
    layout: Layout,
    extents: Extents,
    role: str,
    stored: Encoding | None = None,
    writable: bool = False,
) -> None:
    """Check that an array has the shape of its layout, and the type and strides of its encoding.

    Args:
        array: the array.
        layout: its layout.
        extents: true sizes by dim.
        role: name of the array in messages.
        stored: the encoding of the elements; None: type and strides are not checked.
        writable: whether the array must be writable.

    Raises:
        DimError: extents and layout disagree on the dims.
        DTypeError: the array has another type.
        LayoutError: the array has another shape, has gaps although it stores several planes, or is
            read-only although it must be writable.
    """
    shape = layout.physical_shape(extents)
    shape = shape if stored is None else memory_shape(stored, shape)
    if array.shape != shape:
        sizes = " ".join(f"{dim}={size}" for dim, size in extents.items())
        raise LayoutError(f"the {role} has shape {array.shape}, but {layout} of {sizes} is {shape}")
    if stored is not None and array.dtype != stored.numpy:
        have, want = array.dtype, stored.numpy
        raise DTypeError(f"the {role} is an array of {have}, but {layout} stores {want}")
    if stored is not None and stored.rest is not None and not array.flags.c_contiguous:
        raise LayoutError(f"the {role} has gaps: the planes of {layout} are one run of bytes")
    if writable and not array.flags.writeable:
        raise LayoutError(f"the {role} is read-only")


def physical_planes(
    array: Array, layout: Layout, extents: Extents, stored: Encoding | None
) -> list[Array]:
    """Return the planes of a physical array, each of the layout's shape.

    If ``stored``, the encoding of the elements, is None, the array is its one plane.
    """
    shape = layout.physical_shape(extents)
    return [array] if stored is None else planes_of(array, stored, shape)


def give_zero(
    array: Array, layout: Layout, extents: Extents, stored: Encoding | None = None
) -> None:
    """Write the value 0 into the pads of a physical array, and into the bytes between its planes.

    If ``stored``, the encoding of the elements, is None, pads get the 0 of the array's type.
    """
    for plane, zeros in _zeros(array, layout, extents, stored):
        for slab in pad_slabs(layout, extents):
            plane[slab] = zeros[slab]
    if stored is not None and stored.rest is not None:
        for gap in between(array, stored, layout.num_elements(extents)):
            gap[...] = 0


def _zeros(
    array: Array, layout: Layout, extents: Extents, stored: Encoding | None
) -> Iterator[tuple[Array, Array]]:
    """Yield (plane, zeros) for each plane of a physical array: the plane, and an array of the same
    shape that has 0 as each element stores it.

    Integers store the zero point for 0. It may differ along a dim.
    """
    planes = [None] if stored is None else stored.planes
    for encoding, plane in zip(
        planes, physical_planes(array, layout, extents, stored), strict=True
    ):
        zero = np.zeros((), plane.dtype)  # for f8e8m0, which has no 0, bits that are all 0
        if encoding is not None and isinstance(encoding.zero, tuple):
            zero = _by_lane(encoding.zero, encoding.axis, layout, extents).astype(plane.dtype)
        elif encoding is not None and encoding.zero:
            zero = np.array(encoding.zero, plane.dtype)
        yield plane, np.broadcast_to(zero, plane.shape)


def _by_lane(numbers: Sequence[int], dim: str, layout: Layout, extents: Extents) -> Array:
    """Return an array that has ``numbers[i]`` at each element whose index along ``dim`` is i, and 0
    at pads.

    Args:
        numbers: one number per index of ``dim``.
        dim: a dim of the layout.
        layout, extents: the layout, and sizes by dim. The result broadcasts to the layout's
            physical shape.
    """
    along = np.zeros(layout.padded(extents)[dim], np.int64)
    along[: len(numbers)] = numbers
    index = np.zeros((), np.intp)
    shape = layout.physical_shape(extents)
    for axis, (size, unit) in enumerate(zip(shape, layout.units, strict=True)):
        if layout.axes[axis].dim == dim:
            digits = np.arange(size).reshape([-1 if i == axis else 1 for i in range(len(shape))])
            index = index + digits * unit
    return along[index]


def pad_slabs(layout: Layout, extents: Extents) -> Iterator[tuple[slice, ...]]:
    """Yield boxes that together cover all pads of a physical array. A box is a slice for each axis.

    There are some boxes for each dim; boxes for different dims may overlap. The boxes for one dim
    cover its indices from its size up to its padded size. The first box ends at the next multiple
    of the innermost block, the second at the next multiple of the product of the two innermost
    blocks, and so on.
    """
    stored = layout.stored_sizes(extents)
    for dim, end in layout.padded(extents).items():
        here = stored[dim]
        axes = [i for i, axis in enumerate(layout.axes) if axis.dim == dim]
        axes.sort(key=lambda i: layout.units[i])
        for level, axis in enumerate(axes):
            if here == end:
                break
            unit, size = layout.units[axis], layout.axes[axis].block
            digit = here // unit % size
            if not digit:
                continue
            slab = [slice(None)] * len(layout.axes)
            slab[axis] = slice(digit, None)
            for above in axes[level + 1 :]:
                higher = here // layout.units[above] % (layout.axes[above].block or end)
                slab[above] = slice(higher, higher + 1)
            yield tuple(slab)
            here += (size - digit) * unit
