"""Arrays of encodings that have several planes, or a scale for each index of a dim.

In memory, several planes are one run of bytes: see ``Encoding``. Here a tensor is a list of arrays,
one a plane, each of the layout's shape or with an axis a dim.
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

#: What planes are added up in.
REAL = Encoding("f64")


def memory_shape(encoding: Encoding, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the array in memory whose planes have this shape: its own, if it is the one."""
    return shape if encoding.rest is None else (encoding.nbytes(prod(shape)),)


def planes_of(array: Array, encoding: Encoding, shape: tuple[int, ...]) -> list[Array]:
    """The planes of an array in memory, as views of it.

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
    """The bytes between the planes of an array in memory."""
    begins = encoding.offsets(count)
    ends = [
        begin + count * plane.itemsize
        for begin, plane in zip(begins, encoding.planes, strict=False)
    ]
    return [array[end:begin] for end, begin in zip(ends[:-1], begins[1:-1], strict=True)]


def recode(
    values: Sequence[Array], source: Encoding, target: Encoding, dims: Sequence[str]
) -> list[Array]:
    """The same values in another encoding.

    What has several planes is added up in f64. It is taken apart from there: each plane is nearest
    to what those before it left; one that others follow saturates, where ``convert`` would make a
    finite number infinite. Everything else is as ``convert`` has it.

    Args:
        values: the planes of ``source``, one axis a dim.
        source: what they are in.
        target: what the result is in.
        dims: the names of the axes.

    Returns:
        The planes of ``target``; those of ``source`` themselves where nothing changes.

    Raises:
        DTypeError: one of the two stands alone.

    >>> hi, lo = recode([np.array([1.01])], REAL, Encoding.parse("bf16+bf16"), "C")
    >>> [float(plane[0]) for plane in (hi, lo)]
    [1.0078125, 0.0021820068359375]
    """
    if source == target:
        return list(values)
    if source.uniform and target.uniform:
        return [convert(values[0], source, target)]
    shape = values[0].shape
    made = [np.empty(shape, plane.numpy) for plane in target.planes]
    for index in indices(source, target):
        place: tuple[Any, ...] = tuple(index.get(dim, slice(None)) for dim in dims)
        parts = _recode([one[(*place, ...)] for one in values], source.at(index), target.at(index))
        for one, part in zip(made, parts, strict=True):
            one[place] = part
    return made


def _recode(values: Sequence[Array], source: Encoding, target: Encoding) -> list[Array]:
    """The same, of encodings that are alike for all elements."""
    if source == target:
        return list(values)
    whole = values[0]
    if source.rest is not None:
        whole, source = _sum(values, source), REAL
    if target.rest is None:
        return [convert(whole, source, target)]
    return _split(convert(whole, source, REAL), target)


def _sum(values: Sequence[Array], encoding: Encoding) -> Array:
    """The values of several planes. A NaN is the first plane's, and -0 is -0 in all planes."""
    first, *others = (
        convert(one, plane, REAL) for one, plane in zip(values, encoding.planes, strict=True)
    )
    total: Array = first
    with np.errstate(all="ignore"):
        for other in others:
            total = total + other
    return np.where(np.isnan(first), first, total)


def _split(values: Array, encoding: Encoding) -> list[Array]:
    """f64 in several planes."""
    made, left = [], values
    for plane, more in zip(encoding.planes, [*encoding.planes[1:], None], strict=True):
        stored = convert(left, REAL, plane)
        if more is not None and plane.is_float:
            largest = grid(plane.dtype).largest
            beyond = np.isfinite(left) & (np.abs(left) > largest)
            held = np.copysign(largest, left).astype(numpy_dtype(plane.dtype))
            stored = np.where(beyond, held, stored)
        made.append(stored)
        with np.errstate(all="ignore"):
            value = convert(stored, plane, REAL)
            rest = left - value
        # nothing is left of what is held or is no number; the sign is -0's
        left = np.where(np.isfinite(left) & (rest != 0), rest, np.copysign(0.0, left))
    return made
