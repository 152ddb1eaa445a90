"""Conversion of elements from one encoding to another, and which conversions keep every value."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from ptensor.encoding import Encoding, indices, integer_range
from ptensor.floats import FLOATS, IEEE, ODD, float_to_float, from_f64
from vtensor.errors import DTypeError
from vtensor.language.dtype import NARROW_INTEGERS, bits, numpy_dtype

Array = np.ndarray[Any, np.dtype[Any]]

#: Number of elements converted at once: the f64 intermediates of quantisation then stay in cache.
_CHUNK_ELEMENTS = 1 << 17


def steps(plane: Encoding) -> tuple[int, int]:
    """Return the smallest and the largest value of an integer plane as multiples of its scale.

    They are the smallest and the largest integer that it can store, each minus the zero point.
    """
    assert isinstance(plane.zero, int)
    low, high = integer_range(plane.dtype)
    return low - plane.zero, high - plane.zero


@cache
def preserves(source: Encoding, target: Encoding) -> bool:
    """Return whether ``target`` can hold every value of ``source`` unchanged; the conversion is
    then called widening.

    A later rounding then gives the same result from either encoding.

    >>> preserves(Encoding("bf16"), Encoding("f32")), preserves(Encoding("f32"), Encoding("bf16"))
    (True, False)
    >>> preserves(Encoding("f16"), Encoding.parse("bf16+bf16"))
    True
    """
    if source == target:
        return True
    if source.tile or target.tile:
        return False
    if source.axes or target.axes:
        return all(preserves(a, b) for a, b in _pairs(source, target))
    if source.stands_alone or target.stands_alone or source.rest is not None:
        return False
    floats = all(plane.is_float for plane in target.planes)
    alone = target.rest is not None and (floats or not source.is_float)  # integers have no -0
    if alone and preserves(source, target.planes[0]):
        return True
    if any(plane.dtype in ODD for plane in (source, *target.planes)):
        return (
            target.rest is None and lossless(source, target) and _preserves_values(source, target)
        )
    if source.is_float:
        return floats and _digits_fit(source, target)
    if not floats:
        if target.rest is not None or target.is_float:
            return False
        (low, high), (floor, ceiling) = steps(source), steps(target)
        return source.scale == target.scale and floor <= low and high <= ceiling
    is_power_of_two = math.frexp(_number(source.scale))[0] == 0.5
    return is_power_of_two and _fits(source, target, spare=0)


@cache
def lossless(source: Encoding, target: Encoding) -> bool:
    """Return whether a conversion from ``source`` to ``target`` and back restores every stored
    element bit for bit; of a NaN of f16 or bf16, only its sign and that it is one.

    True if the conversion widens. True also from scaled integers to a float type, if neighbouring
    numbers of this type are less than a quarter of the scale apart.

    >>> lossless(Encoding("s8", scale=0.1), Encoding("f32"))
    True
    >>> lossless(Encoding("s8", scale=0.1), Encoding("bf16"))
    False
    """
    if source == target:
        return True
    if source.tile or target.tile:
        return False
    if source.axes or target.axes:
        return all(lossless(a, b) for a, b in _pairs(source, target))
    if source.stands_alone or target.stands_alone or source.rest is not None:
        return False
    if target.rest is None and (source.dtype in ODD or target.dtype in ODD):
        return source.itemsize == 1 and _preserves_bits(source, target)
    if preserves(source, target):
        return True
    floats = all(plane.dtype in FLOATS for plane in target.planes)
    return not source.is_float and floats and _fits(source, target, spare=2)


def _pairs(source: Encoding, target: Encoding) -> set[tuple[Encoding, Encoding]]:
    """Return the pairs (encoding in ``source``, encoding in ``target``) that single elements have,
    each pair once.

    There are several if scales or zero points differ along a dim.
    """
    return {(source.at(index), target.at(index)) for index in indices(source, target)}


def _number(value: float | tuple[float, ...]) -> float:
    assert not isinstance(value, tuple), "taken apart by index before"
    return value


def _elements(name: str) -> Array:
    """Return an array of every element of a type of at most one byte."""
    codes = np.arange(2 if name == "bool" else 1 << bits(name), dtype=np.uint8)
    return codes.view(numpy_dtype(name))


def _preserves_values(source: Encoding, target: Encoding) -> bool:
    """Return whether ``target`` holds the value of each element of ``source``, a one-byte type."""
    elements = _elements(source.dtype)
    real = Encoding("f64")
    values = convert(convert(elements, source, target), target, real)
    return np.array_equal(values, convert(elements, source, real), equal_nan=True)


def _preserves_bits(source: Encoding, target: Encoding) -> bool:
    """Return whether each element of ``source``, a one-byte type, survives a conversion to
    ``target`` and back, bit for bit.
    """
    elements = _elements(source.dtype)
    back = convert(convert(elements, source, target), target, source)
    return np.array_equal(back.view(np.uint8), elements.view(np.uint8))


def _digits(real: Encoding) -> int:
    """Return the number of binary digits that an encoding of float planes keeps.

    Each plane after the first adds its own digits and one more: it stores the remainder of the
    planes before it, which may have either sign.
    """
    return sum(FLOATS[plane.dtype][0] for plane in real.planes) + len(real.planes) - 1


def _digits_fit(source: Encoding, target: Encoding) -> bool:
    """Return whether the float planes of ``target`` hold every value of the float ``source``."""
    digits, exponent = FLOATS[source.dtype]
    wide = min(FLOATS[plane.dtype][1] for plane in target.planes)
    if target.rest is None:
        return digits <= _digits(target) and exponent <= wide
    # If a plane has as many exponent bits as the source, but fewer digits, it lacks the source's
    # smallest numbers.
    return digits <= _digits(target) and exponent < wide


def _fits(integer: Encoding, real: Encoding, spare: int) -> bool:
    """Return whether an encoding of float planes has the digits and the range for every value of an
    integer encoding.

    Args:
        integer: encoding with an integer type, scale and zero point.
        real: the encoding of the float planes.
        spare: number of binary digits that the planes must have beyond those of the integers.
    """
    low, high = steps(integer)
    digits = max(high.bit_length(), (-low - 1).bit_length())  # a power of two needs one digit
    part, power = math.frexp(_number(integer.scale))
    step = power - 1  # 2**step <= scale < 2**(step + 1)
    end = digits + (step if part == 0.5 else power)  # no value is above 2**end
    for plane in real.planes:
        room, exponent_bits = FLOATS[plane.dtype]
        largest = 2 ** (exponent_bits - 1) - 1
        if end > largest or step < 1 - largest:
            return False
        end -= room  # what this plane leaves of a value is below 2**end
    return digits + spare <= _digits(real)


def convert(values: Array, source: Encoding, target: Encoding) -> Array:
    """Return the same values in another encoding. Each of the two encodings has one plane and no
    scales along a dim.

    Widening is exact, NaN payloads included. A float narrows to the nearest, ties to even; a NaN
    stays one, see ``float_to_float``. Integers saturate; a float becomes the nearest integer
    step, ties to even, NaN becomes 0. To bool, every value but 0 is true. 64-bit integers pass
    through f64 on their way to bf16 or through a scale or zero point. A value too large for a float
    type of a byte or less becomes infinity; NaN if the type has no infinity; the largest number if
    it has neither (f6, f4), and in these a NaN becomes -0.

    Args:
        values: an array of ``source.numpy``, of any shape and strides.
        source: encoding of ``values``.
        target: encoding of the result.

    Returns:
        An array of ``target.numpy`` of the same shape; ``values`` itself if nothing changes.

    Raises:
        DTypeError: the encodings differ, and one converts to no other (``stands_alone``), or is not
            uniform: ``recode`` converts these.

    >>> convert(np.array([0.24, 0.26, 99.0], "f4"), Encoding("f32"), Encoding("s8", scale=0.5))
    array([  0,   1, 127], dtype=int8)
    """
    if source == target:
        return values
    if source.stands_alone or target.stands_alone:
        raise DTypeError(f"{source} is not stored as {target}: one of them stands alone")
    if not (source.uniform and target.uniform):
        raise DTypeError(f"{source} to {target}: not element by element; see ptensor/planes.py")
    flat = values.reshape(-1)
    result = np.empty(flat.shape, target.numpy)
    with np.errstate(all="ignore"):  # overflow to infinity and NaN to integer are defined above
        for start in range(0, flat.size, _CHUNK_ELEMENTS):
            part = slice(start, start + _CHUNK_ELEMENTS)
            result[part] = _convert(flat[part], source, target)
    return result.reshape(values.shape)


def _convert(values: Array, source: Encoding, target: Encoding) -> Array:
    """Return the values of one chunk in another encoding, as ``convert`` does."""
    if source.dtype == "bool":
        values, source = values.view(np.uint8), Encoding("u8")
    elif source.dtype in ODD:
        values, source = values.astype(np.float32), Encoding("f32")
    elif source.dtype in NARROW_INTEGERS:
        values, source = values.astype(np.int8), Encoding("s8", source.scale, source.zero)
    if target.dtype == "bool":
        return np.asarray(values != source.zero)
    if source.is_float:
        return (
            float_to_float(values, source.dtype, target.dtype)
            if target.is_float
            else _quantise(values.astype(np.float64), target)
        )
    if target.is_float:
        if source.scale == 1 and source.zero == 0 and target.dtype in IEEE:
            return values.astype(target.numpy)
        return from_f64(_real(values, source), target.dtype)
    if source.scale != target.scale or source.zero != target.zero:
        return _quantise(_real(values, source), target)
    (low, high), (floor, ceiling) = integer_range(source.dtype), integer_range(target.dtype)
    return np.clip(values, max(low, floor), min(high, ceiling)).astype(target.numpy)


def _real(values: Array, source: Encoding) -> Array:
    """Return the values that stored integers stand for, in f64."""
    return (values.astype(np.float64) - source.zero) * source.scale


def _quantise(values: Array, target: Encoding) -> Array:
    """Return the integers that store f64 values in the integer encoding ``target``.

    It is the nearest integer, ties to even, and the smallest or largest one for values out of
    range. NaN becomes the zero point.
    """
    low, high = integer_range(target.dtype)
    counts = np.rint(values / target.scale)
    counts[np.isnan(counts)] = 0
    counts += target.zero
    result = counts.astype(target.numpy)
    result[counts >= high] = high  # by mask: the largest 64-bit integers are no f64
    result[counts <= low] = low
    return result
