"""Element encodings: how one value of a tensor is stored, and conversion between two ways.

An encoding may differ from the tensor's own element type: precision is a part of the layout,
resolved like the order of the dims.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from vtensor.errors import DTypeError, LayoutError
from vtensor.language.dtype import ITEMSIZE, NARROW_FLOATS, NARROW_INTEGERS, bits, numpy_dtype

Array = np.ndarray[Any, np.dtype[Any]]

#: Bits of the significand (the implicit one included) and of the exponent.
_FLOATS: dict[str, tuple[int, int]] = {
    "f8e5m2": (3, 5),
    "bf16": (8, 8),
    "f16": (11, 5),
    "f32": (24, 8),
    "f64": (53, 11),
}

#: The floats to which NumPy itself rounds, and once.
_IEEE = ("f64", "f32", "f16")

#: Floats that are not as IEEE 754 has them: without infinity, one NaN or none.
_ODD = frozenset(NARROW_FLOATS) - _FLOATS.keys() - {"f8e8m0"}

#: Elements converted at once: the f64 intermediates of quantisation then stay in cache.
_CHUNK = 1 << 17


@dataclass(frozen=True, slots=True)
class Encoding:
    """How one element is stored: an element type, and for integers the value of one step.

    The value of a stored integer ``q`` is ``q * scale``. What needs more than one stored element
    per value (f32 as two bf16 planes, say) is a further class with the same members: users of an
    encoding ask it for ``itemsize`` and ``numpy`` and let ``convert`` do the arithmetic.

    Args:
        dtype: the stored element type, ``"bf16"``, ``"s8"``, ...
        scale: value of one integer step, finite and above 0; 1 for whatever is no integer.

    Raises:
        DTypeError: unknown element type, or a scale that it cannot have.

    >>> Encoding("s8", scale=0.5), Encoding("s8", scale=0.5).itemsize
    (Encoding('s8(scale=0.5)'), 1)
    """

    dtype: str
    scale: float = 1.0

    def __post_init__(self) -> None:
        if self.dtype not in ITEMSIZE:
            known = ", ".join(ITEMSIZE)
            raise DTypeError(f"unknown element type {self.dtype!r}; one of {known}")
        scale = float(self.scale)
        if not (math.isfinite(scale) and scale > 0):
            raise DTypeError(f"scale {self.scale!r} of {self.dtype}: a finite number above 0")
        if scale != 1 and self.dtype[0] not in "su":
            raise DTypeError(f"{self.dtype} takes no scale (got {scale!r}): only integers do")
        object.__setattr__(self, "scale", scale)

    @classmethod
    def parse(cls, text: str) -> Encoding:
        """Read what ``str`` prints: ``"bf16"``, ``"s8(scale=0.5)"``.

        Raises:
            LayoutError: the text is no encoding; the message names it.

        >>> Encoding.parse("u8(scale=0.25)").scale
        0.25
        """
        match = re.fullmatch(r"(?a:(\w+)\s*(?:\(\s*scale\s*=\s*([^()\s]+)\s*\))?)", text.strip())
        if match is None:
            raise LayoutError(f"encoding {text!r} is not of the form 'bf16' or 's8(scale=0.5)'")
        try:
            return cls(match[1], float(match[2] or 1))
        except (ValueError, DTypeError) as error:
            raise LayoutError(f"encoding {text!r}: {error}") from None

    def __str__(self) -> str:
        return self.dtype if self.scale == 1 else f"{self.dtype}(scale={self.scale!r})"

    def __repr__(self) -> str:
        return f"Encoding({str(self)!r})"

    @property
    def itemsize(self) -> int:
        """Bytes of one stored element."""
        return ITEMSIZE[self.dtype]

    @property
    def numpy(self) -> np.dtype[Any]:
        """NumPy's type of one stored element."""
        return numpy_dtype(self.dtype)

    @property
    def is_float(self) -> bool:
        """True for the floating-point types."""
        return self.dtype in _FLOATS or self.dtype in _ODD

    @property
    def stands_alone(self) -> bool:
        """True where nothing is converted: complex numbers, and f8e8m0, whose pads cannot be 0."""
        return self.dtype in ("c64", "c128", "f8e8m0")


@cache
def _range(name: str) -> tuple[int, int]:
    """Smallest and largest stored value of an integer type or bool."""
    width = 1 if name == "bool" else bits(name)
    return (-1 << width - 1, (1 << width - 1) - 1) if name[0] == "s" else (0, (1 << width) - 1)


@cache
def preserves(source: Encoding, target: Encoding) -> bool:
    """True when ``target`` can hold every value of ``source`` as it is: widening.

    Then a later rounding gives the same from either.

    >>> preserves(Encoding("bf16"), Encoding("f32")), preserves(Encoding("f32"), Encoding("bf16"))
    (True, False)
    """
    if source == target:
        return True
    if source.stands_alone or target.stands_alone:
        return False
    if source.dtype in _ODD or target.dtype in _ODD:
        return lossless(source, target) and _keeps_values(source, target)
    if source.is_float:
        if not target.is_float:
            return False
        (digits, exponent), (room, wide) = _FLOATS[source.dtype], _FLOATS[target.dtype]
        return digits <= room and exponent <= wide
    if not target.is_float:
        (low, high), (floor, ceiling) = _range(source.dtype), _range(target.dtype)
        return source.scale == target.scale and floor <= low and high <= ceiling
    is_power_of_two = math.frexp(source.scale)[0] == 0.5
    return is_power_of_two and _fits(source, target, spare=0)


@cache
def lossless(source: Encoding, target: Encoding) -> bool:
    """True when converting to ``target`` and back gives every stored element bit for bit.

    Besides widening, these are scaled integers in a float that is finer than a quarter of their
    step.

    >>> lossless(Encoding("s8", scale=0.1), Encoding("f32"))
    True
    >>> lossless(Encoding("s8", scale=0.1), Encoding("bf16"))
    False
    """
    if source == target:
        return True
    if source.stands_alone or target.stands_alone:
        return False
    if source.dtype in _ODD or target.dtype in _ODD:
        return source.itemsize == 1 and _keeps_bits(source, target)
    if preserves(source, target):
        return True
    return not source.is_float and target.is_float and _fits(source, target, spare=2)


def _elements(name: str) -> Array:
    """Every element of a type of one byte."""
    codes = np.arange(2 if name == "bool" else 1 << bits(name), dtype=np.uint8)
    return codes.view(numpy_dtype(name))


def _keeps_values(source: Encoding, target: Encoding) -> bool:
    """Whether another type has the value of each element of a type of one byte."""
    elements = _elements(source.dtype)
    real = Encoding("f64")
    there = convert(convert(elements, source, target), target, real)
    return np.array_equal(there, convert(elements, source, real), equal_nan=True)


def _keeps_bits(source: Encoding, target: Encoding) -> bool:
    """Whether each element of a type of one byte comes back from another bit for bit."""
    elements = _elements(source.dtype)
    back = convert(convert(elements, source, target), target, source)
    return np.array_equal(back.view(np.uint8), elements.view(np.uint8))


def _fits(integer: Encoding, real: Encoding, spare: int) -> bool:
    """Whether a float has digits for every integer, ``spare`` more, and range for its scale."""
    room, exponent_bits = _FLOATS[real.dtype]
    digits = _range(integer.dtype)[1].bit_length()
    largest = 2 ** (exponent_bits - 1) - 1
    step = math.frexp(integer.scale)[1] - 1  # 2**step <= scale < 2**(step + 1)
    return digits + spare <= room and 1 - largest <= step and step + 1 + digits <= largest


def convert(values: Array, source: Encoding, target: Encoding) -> Array:
    """The same values in another encoding.

    Widening is exact, NaN payloads included. A float narrows to the nearest, ties to even; a NaN
    keeps the upper bits of its payload. Integers saturate; a float becomes the nearest integer
    step, ties to even, NaN becomes 0. To bool, whatever is not 0 is true. 64-bit integers pass
    through f64 on their way to bf16 or through a scale. What is too large for a float of a byte
    or less becomes its infinity, else its NaN, else (f6, f4) its largest; there NaN becomes -0.

    Args:
        values: an array of ``source.numpy``, of any shape and strides.
        source: what it is in.
        target: what the result is in.

    Returns:
        An array of ``target.numpy`` of the same shape; ``values`` itself where nothing changes.

    Raises:
        DTypeError: one of them stands alone.

    >>> convert(np.array([0.24, 0.26, 99.0], "f4"), Encoding("f32"), Encoding("s8", scale=0.5))
    array([  0,   1, 127], dtype=int8)
    """
    if source == target:
        return values
    if source.stands_alone or target.stands_alone:
        raise DTypeError(f"{source} is not stored as {target}: one of them stands alone")
    flat = values.reshape(-1)
    result = np.empty(flat.shape, target.numpy)
    with np.errstate(all="ignore"):  # overflow to infinity and NaN to integer are defined above
        for start in range(0, flat.size, _CHUNK):
            part = slice(start, start + _CHUNK)
            result[part] = _convert(flat[part], source, target)
    return result.reshape(values.shape)


def _convert(values: Array, source: Encoding, target: Encoding) -> Array:
    if source.dtype == "bool":
        values, source = values.view(np.uint8), Encoding("u8")
    elif source.dtype in _ODD:
        values, source = values.astype(np.float32), Encoding("f32")
    elif source.dtype in NARROW_INTEGERS:
        values, source = values.astype(np.int8), Encoding("s8", source.scale)
    if target.dtype == "bool":
        return np.asarray(values != 0)
    if source.is_float:
        return (
            _float_to_float(values, source.dtype, target.dtype)
            if target.is_float
            else _quantise(values.astype(np.float64), target)
        )
    if target.is_float:
        if source.scale == 1 and target.dtype in _IEEE:
            return values.astype(target.numpy)
        return _from_f64(values.astype(np.float64) * source.scale, target.dtype)
    if source.scale != target.scale:
        return _quantise(values.astype(np.float64) * source.scale, target)
    (low, high), (floor, ceiling) = _range(source.dtype), _range(target.dtype)
    return np.clip(values, max(low, floor), min(high, ceiling)).astype(target.numpy)


def _quantise(values: Array, target: Encoding) -> Array:
    """f64 to integer steps: nearest, ties to even, saturating, NaN to 0."""
    low, high = _range(target.dtype)
    steps = np.rint(values / target.scale)
    steps[np.isnan(steps)] = 0
    result = steps.astype(target.numpy)
    result[steps >= high] = high  # by mask: the largest 64-bit integers are no f64
    result[steps <= low] = low
    return result


def _from_f64(values: Array, name: str) -> Array:
    """f64 to another float, rounded once."""
    if name in _IEEE:
        return values.astype(numpy_dtype(name))
    # ml_dtypes goes through f32, which would round twice. Rounding to odd first is exact: the last
    # bit of the f32 then stands for everything below it.
    near = values.astype(np.float32)
    bits = near.view(np.uint32)
    wide = near.astype(np.float64)
    bits -= (np.abs(wide) > np.abs(values)).astype(np.uint32)
    bits |= (wide != values) & ~np.isnan(values)
    return near.astype(numpy_dtype(name))


def _float_to_float(values: Array, source: str, target: str) -> Array:
    plain = source != "f64"
    if plain and target in _ODD:
        values = values.astype(np.float32)  # exact, and ml_dtypes does not know every pair
    result = values.astype(numpy_dtype(target)) if plain else _from_f64(values, target)
    nan = np.isnan(values)
    if target in _FLOATS and nan.any():
        result.view(f"u{result.itemsize}")[nan] = _nan_bits(values[nan], source, target)
    return result


def _nan_bits(values: Array, source: str, target: str) -> Array:
    """The bits of NaNs in another float type: sign and top of the payload kept, never infinity.

    The processor's conversions set the quiet bit and ml_dtypes drops the payload; kept, a NaN
    survives widening and narrowing back.
    """
    have, (room, exponent_bits) = _FLOATS[source][0] - 1, _FLOATS[target]
    room -= 1
    bits = values.view(f"u{values.itemsize}").astype(np.uint64)
    payload = bits & np.uint64((1 << have) - 1)
    payload = (
        payload << np.uint64(room - have) if room >= have else payload >> np.uint64(have - room)
    )
    payload[payload == 0] = 1 << (room - 1)
    sign = bits >> np.uint64(8 * values.itemsize - 1) << np.uint64(room + exponent_bits)
    return sign | np.uint64(((1 << exponent_bits) - 1) << room) | payload
