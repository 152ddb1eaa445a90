"""Keys of parameters' values that differ where ``==`` sees no difference, as for 0.0 and -0.0."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from functools import cache
from typing import Any

#: Types whose equal values no operation can tell apart.
_EXACT_TYPES = frozenset([int, bool, str, bytes, type(None)])


def exact(value: Any) -> Hashable:
    """Return a key of a parameter's value, or of an operator instance with its parameters.

    Two keys are equal if their values have the same type and no operation can tell the values
    apart. So 0.0 and -0.0 have different keys, and so have 1 and True. All NaN of a type have one
    key. A key can be hashed if its value can.

    >>> exact(0.0) == exact(-0.0), exact(1) == exact(1.0)
    (False, False)
    >>> exact(float("nan")) == exact(float("nan"))
    True
    """
    kind = type(value)
    if kind in _EXACT_TYPES:
        return kind, value
    if isinstance(value, tuple):
        return kind, tuple([exact(part) for part in value])
    if (names := _fields(kind)) is not None:  # type: ignore[arg-type]  # any class has a hash
        return kind, tuple([exact(getattr(value, name)) for name in names])
    if isinstance(value, (float, complex)):
        return kind, repr(value)
    if hasattr(value, "tobytes"):  # a NumPy scalar
        return kind, value.tobytes() if value == value else "nan"
    return kind, value


@cache
def _fields(kind: type) -> tuple[str, ...] | None:
    """Return the names of a dataclass's fields; None if the type is no dataclass."""
    if not dataclasses.is_dataclass(kind):
        return None
    return tuple(field.name for field in dataclasses.fields(kind))
