"""The difference between two engines' arrays of one value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from vtensor.language.records import dataclass
from vtensor.storage.inputs import Array

#: The largest accepted difference of floats, relative to the value's largest number: by element
#: type, about ten thousand roundings of f64, a thousand of f32, and ten of the narrow types.
TOLERANCES: Mapping[str, float] = {"float64": 1e-11, "float16": 1e-2, "bfloat16": 8e-2}
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Difference:
    """How far two arrays of the same value are apart.

    Attributes:
        kind: ``values`` for numbers or other elements, ``not finite`` if an element is infinite or
            NaN in only one array, ``shape``, ``type``, or ``length`` of a sequence or map.
        error: the largest difference, relative to the largest finite number in the second array;
            infinite unless ``kind`` is ``values``, and for texts that differ.
        beyond: whether the difference is larger than the limit.
        limit: the limit, in the unit of ``steps`` if that is not None, else of ``error``.
        steps: the largest difference in steps of a quantised value; None for other values.
        text: the element that differs most, or the two shapes or types.
    """

    kind: str
    error: float
    beyond: bool
    limit: float
    steps: float | None = None
    text: str = ""

    def __str__(self) -> str:
        if self.kind != "values":
            return f"{self.kind}: {self.text}"
        apart = f"error {self.error:.2e} of its largest number"
        if self.steps is not None:
            apart = f"{self.steps:.3g} steps of its scale, {apart}"
        return f"{apart} (at most {self.limit:.3g}); {self.text}" if self.text else apart


def difference(
    ours: object,
    theirs: object,
    tolerance: float | None = None,
    step: float | None = None,
    steps: float = 1.0,
) -> Difference:
    """Compare two engines' results for one value.

    Integers, truth values and texts must be equal, unless the value is quantised. Two NaN are
    equal, and so are equal infinities.

    Args:
        ours, theirs: arrays, or sequences or maps of such.
        tolerance: the largest accepted error of floats; None is the default of the element type.
        step: the distance of two neighbouring quantised numbers; None if the value is not
            quantised. The limit is then ``steps`` instead of ``tolerance``.
        steps: the accepted difference of a quantised value, in steps.

    >>> print(difference(np.float32([1, 4]), np.float32([1, 2])))
    error 1.00e+00 of its largest number (at most 0.0001); at [1]: 4.0 and 2.0
    >>> difference(np.float32([1, np.nan]), np.float32([1, 2])).kind
    'not finite'
    """
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        if ours.keys() != theirs.keys():
            return _unequal("length", f"the keys are {[*ours]} and {[*theirs]}")
        ours, theirs = [*ours.values()], [theirs[key] for key in ours]
    if isinstance(ours, list) and isinstance(theirs, list):
        if len(ours) != len(theirs):
            return _unequal("length", f"{len(ours)} and {len(theirs)}")
        pairs = zip(ours, theirs, strict=True)
        found = [difference(a, b, tolerance, step, steps) for a, b in pairs]
        return max(found, key=lambda row: row.error, default=Difference("values", 0.0, False, 0.0))
    a, b = np.asarray(ours), np.asarray(theirs)
    if a.shape != b.shape:
        return _unequal("shape", f"{list(a.shape)} and {list(b.shape)}")
    if a.dtype != b.dtype and {a.dtype.kind, b.dtype.kind} - set("UTSO"):
        return _unequal("type", f"{a.dtype} and {b.dtype}")
    return _of_arrays(a, b, tolerance, step, steps)


def _unequal(kind: str, text: str) -> Difference:
    return Difference(kind, np.inf, True, 0.0, text=text)


def _of_arrays(
    a: Array, b: Array, tolerance: float | None, step: float | None, steps: float
) -> Difference:
    """Compare two arrays of the same shape and element type."""
    if a.dtype.kind in "UTSO":
        unequal = np.asarray(a.astype(object) != b.astype(object), bool)
        return (
            Difference("values", np.inf, True, 0.0, text=_element(a, b, unequal))
            if (unequal.any())
            else Difference("values", 0.0, False, 0.0)
        )
    wide = np.complex128 if "c" in (a.dtype.kind, b.dtype.kind) else np.float64
    x, y = a.astype(wide), b.astype(wide)
    equal = (x == y) | (np.isnan(x) & np.isnan(y))
    one_sided = ~equal & ~(np.isfinite(x) & np.isfinite(y))
    if one_sided.any():
        return Difference("not finite", np.inf, True, 0.0, text=_element(a, b, one_sided))
    apart = np.zeros(x.shape)
    np.abs(np.subtract(x, y, where=~equal, out=np.zeros_like(x)), out=apart)
    largest = float(np.abs(y[np.isfinite(y)]).max(initial=0.0)) or 1.0
    most = float(apart.max(initial=0.0))
    text = _element(a, b, apart == most) if most else ""
    if step is not None:
        count = most / (step or 1.0)
        return Difference("values", most / largest, count > steps * 1.001, steps, count, text)
    if a.dtype.kind in "biu":
        limit = 0.0
    else:
        limit = TOLERANCES.get(str(a.dtype), TOLERANCE) if tolerance is None else tolerance
    return Difference("values", most / largest, most / largest > limit, limit, None, text)


def _element(a: Array, b: Array, where: Any) -> str:
    """Return the first element of two arrays at which ``where`` is true, as text."""
    place = np.unravel_index(int(np.argmax(where)), a.shape)
    return f"at {[*map(int, place)]}: {a[place]!s} and {b[place]!s}"
