"""Exactness of encodings, found by trying values instead of by an algebra.

The independent check of plans uses this module. It shares nothing with ``ptensor/encoding.py`` but
the names of element types.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np

from vtensor.language.dtype import numpy_dtype

Array = np.ndarray[Any, np.dtype[Any]]

#: Matches the text of a plane without a scale. A plane with a scale stores multiples of the scale,
#: and no element type has only such values.
_PLANE = re.compile(r"(\w+)(?:\(zero=(-?\d+)\))?")

#: Types that no other encoding holds: complex numbers, and the type that has no 0.
_ALONE = ("c64", "c128", "f8e8m0")


@cache
def holds(encoding: str, dtype: str) -> bool:
    """Return whether every value of the type ``dtype`` is unchanged when stored in ``encoding``.

    >>> [holds(text, "f32") for text in ("f64", "bf16", "s8(scale=0.5)", "bf16+bf16")]
    [True, False, False, False]
    >>> [holds(text, "f16") for text in ("bf16", "bf16+bf16")]
    [False, True]
    """
    if encoding == dtype:
        return True
    first, *others = encoding.split("+")
    signed = dtype[0] == "f" or dtype == "bf16"  # integers have no -0 to lose
    if (
        others
        and holds(first, dtype)
        and not (signed and any(plane_text[0] in "su" for plane_text in others))
    ):
        return True
    planes = [_PLANE.fullmatch(text) for text in (first, *others)]
    if None in planes or dtype in _ALONE or encoding in _ALONE:
        return False
    names = [plane[1] for plane in planes if plane]
    if names == ["bool"]:
        return False
    if all(name[0] in "su" for name in names):
        zero = int(planes[0][2] or 0) if planes[0] else 0
        return len(names) == 1 and _within(dtype, names[0], zero)
    if dtype in ("s64", "u64") or any(name[0] in "su" for name in names):
        return False
    return _sums(_values(dtype), names)


def _within(dtype: str, integer: str, zero: int) -> bool:
    """Return whether an integer type can store every value of ``dtype`` after ``zero``, a zero
    point, was added.

    False if ``dtype`` is neither an integer type nor bool.

    Args:
        integer: the name of the integer type that stores the sums.
    """
    if dtype != "bool" and dtype[0] not in "su":
        return False
    (least, most), (low, high) = _range(integer), _range(dtype)
    return low + zero >= least and high + zero <= most


def _range(integer: str) -> tuple[int, int]:
    """Return the smallest and the largest value of an integer type, by its name."""
    if integer == "bool":
        return 0, 1
    values = 1 << int(integer[1:])
    return (-values // 2, values // 2 - 1) if integer[0] == "s" else (0, values - 1)


def _values(dtype: str) -> Array:
    """Return values of a type in f64, without NaN: all values of a type of up to two bytes, else a
    sample with the extremes.
    """
    element = numpy_dtype(dtype)
    if dtype == "bool":
        return np.array([0.0, 1.0])
    if element.itemsize <= 2:
        bits = np.arange(1 << 8 * element.itemsize, dtype=f"u{element.itemsize}")
    else:
        words = np.random.default_rng(0).integers(0, 1 << 63, 4096, dtype=np.uint64)
        extremes = [1, (1 << 63) - 1, 0x7F7FFFFF, 0x7FEFFFFFFFFFFFFF, 0x7FFFFFFF]
        bits = np.concatenate([words, np.array(extremes, np.uint64)]).astype(f"u{element.itemsize}")
    with np.errstate(all="ignore"):
        values = bits.view(element).astype(np.float64)
    return values[~np.isnan(values)]


def _sums(values: Array, planes: list[str]) -> bool:
    """Return whether planes of these element types store every value exactly, as the sum of their
    numbers.

    The first plane stores the number nearest to the value, each further plane the number nearest to
    the remainder. Infinities and the signs of zeros must be kept, too.

    Args:
        planes: the element type of each plane.
    """
    remainder = values
    with np.errstate(all="ignore"):
        for name in planes:
            held = remainder.astype(numpy_dtype(name)).astype(np.float64)
            if (np.isinf(held) > np.isinf(remainder)).any():
                return False
            if remainder is values and not np.array_equal(np.signbit(held), np.signbit(values)):
                return False
            remainder = np.where(remainder == held, 0, remainder - held)
    return bool((remainder == 0).all())
