"""Arrays of encodings with several planes, or with a scale for each index of a dim.

An encoding may store each value as a sum of several elements, each of them in an array of its own,
a *plane* (see ``Encoding``). In memory the planes are one array of bytes. Here they are a list of
arrays, all of the same shape: that of the layout, or one with an axis per dim.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ptensor.convert import Array, convert
from ptensor.encoding import Encoding, indices
from ptensor.floats import grid
from vtensor.language.dtype import numpy_dtype

#: Encoding in which planes are added up.
REAL = Encoding("f64")


def memory_shape(encoding: Encoding, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of the array in memory that holds planes of shape ``shape``.

    It is ``shape`` for one plane, and the number of bytes for several.
    """
    return shape if encoding.rest is None else (encoding.nbytes(prod(shape)),)


def planes_of(array: Array, encoding: Encoding, shape: tuple[int, ...]) -> list[Array]:
    """Return the planes of an array in memory, as views of it of shape ``shape``.

    >>> memory = np.zeros(70, np.uint8)
    >>> [plane.dtype.name for plane in planes_of(memory, Encoding.parse("f16+s16"), (3,))]
    ['float16', 'int16']
    """
    if encoding.rest is None:
        return [array]
    count, begins = prod(shape), encoding.offsets(prod(shape))
    return [
        array[begin : begin + count * plane.itemsize].view(plane.numpy).reshape(shape)
        for begin, plane in zip(begins, encoding.planes, strict=False)
    ]


def between(array: Array, encoding: Encoding, count: int) -> list[Array]:
    """Return the gaps between the planes of an array in memory.

    A gap is a view of the bytes from the end of a plane to the beginning of the next one; some are
    empty.

    Args:
        count: the number of elements of each plane.
    """
    begins = encoding.offsets(count)
    ends = [
        begin + count * plane.itemsize
        for begin, plane in zip(begins, encoding.planes, strict=False)
    ]
    return [array[end:begin] for end, begin in zip(ends[:-1], begins[1:-1], strict=True)]


def recode(
    values: Sequence[Array], source: Encoding, target: Encoding, dims: Sequence[str]
) -> list[Array]:
    """Return the same values in another encoding.

    Several planes of ``source`` are added up in f64. From f64 a value is split into several planes
    of ``target``: each plane stores the number nearest to the remainder that the planes before it
    left. If the remainder is finite but too large for a float plane that is not the last, the plane
    stores its largest number, where ``convert`` would store infinity. Everything else is as in
    ``convert``.

    Args:
        values: the planes of ``source``, one axis per dim.
        source: encoding of ``values``.
        target: encoding of the result.
        dims: the names of the axes.

    Returns:
        The planes of ``target``, or ``values`` themselves if nothing changes.

    Raises:
        DTypeError: the encodings differ, and one of them converts to no other (``stands_alone``).

    >>> hi, lo = recode([np.array([1.01])], REAL, Encoding.parse("bf16+bf16"), "C")
    >>> [float(plane[0]) for plane in (hi, lo)]
    [1.0078125, 0.0021820068359375]
    """
    if source == target:
        return list(values)
    if source.uniform and target.uniform:
        return [convert(values[0], source, target)]
    shape = values[0].shape
    planes = [np.empty(shape, plane.numpy) for plane in target.planes]
    for index in indices(source, target):
        place: tuple[Any, ...] = tuple(index.get(dim, slice(None)) for dim in dims)
        parts = _recode(
            [whole[(*place, ...)] for whole in values], source.at(index), target.at(index)
        )
        for whole, part in zip(planes, parts, strict=True):
            whole[place] = part
    return planes


def _recode(values: Sequence[Array], source: Encoding, target: Encoding) -> list[Array]:
    """Return the same values in another encoding, as ``recode`` does.

    Neither encoding has scales or zero points along a dim.
    """
    if source == target:
        return list(values)
    whole = values[0]
    if source.rest is not None:
        whole, source = _sum(values, source), REAL
    if target.rest is None:
        return [convert(whole, source, target)]
    return _split(convert(whole, source, REAL), target)


def _sum(values: Sequence[Array], encoding: Encoding) -> Array:
    """Return the values that an encoding of several planes stores: the sums of the planes, in f64.

    If the first plane has a NaN, the value is this NaN, with its payload. A value is -0 only if all
    planes are -0.
    """
    first, *others = (
        convert(values_of_plane, plane, REAL)
        for values_of_plane, plane in zip(values, encoding.planes, strict=True)
    )
    total: Array = first
    with np.errstate(all="ignore"):
        for other in others:
            total = total + other
    return np.where(np.isnan(first), first, total)


def _split(values: Array, encoding: Encoding) -> list[Array]:
    """Return the planes of ``encoding`` that store f64 values, split as ``recode`` says."""
    planes, left = [], values
    for plane, more in zip(encoding.planes, [*encoding.planes[1:], None], strict=True):
        stored = convert(left, REAL, plane)
        if more is not None and plane.is_float:
            largest = grid(plane.dtype).largest
            beyond = np.isfinite(left) & (np.abs(left) > largest)
            held = np.copysign(largest, left).astype(numpy_dtype(plane.dtype))
            stored = np.where(beyond, held, stored)
        planes.append(stored)
        with np.errstate(all="ignore"):
            value = convert(stored, plane, REAL)
            remainder = left - value
        # Nothing remains of a value that the plane stores exactly, of NaN and of infinity: the next
        # plane then stores a 0 with the sign of the value.
        left = np.where(np.isfinite(left) & (remainder != 0), remainder, np.copysign(0.0, left))
    return planes
