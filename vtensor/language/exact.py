"""What tells parameters of operators apart where ``==`` does not."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from functools import cache
from typing import Any

#: Values of these types are equal only where they are the same.
_PLAIN = frozenset([int, bool, str, bytes, type(None)])


def exact(value: Any) -> Hashable:
    """A key of a parameter, or of an operator with its parameters.

    Keys are equal for values of one type that no operation can tell apart: 0.0 and -0.0 have
    different keys, 1 and True too, NaN has one. It can be hashed if the value can.

    >>> exact(0.0) == exact(-0.0), exact(1) == exact(1.0)
    (False, False)
    >>> exact(float("nan")) == exact(float("nan"))
    True
    """
    kind = type(value)
    if kind in _PLAIN:
        return kind, value
    if isinstance(value, tuple):
        return kind, tuple([exact(one) for one in value])
    if (names := _fields(kind)) is not None:  # type: ignore[arg-type]  # any class has a hash
        return kind, tuple([exact(getattr(value, name)) for name in names])
    if isinstance(value, (float, complex)):
        return kind, repr(value)
    if hasattr(value, "tobytes"):  # one of NumPy's numbers
        return kind, value.tobytes() if value == value else "nan"
    return kind, value


@cache
def _fields(kind: type) -> tuple[str, ...] | None:
    """The names of a dataclass's fields; None of another type."""
    if not dataclasses.is_dataclass(kind):
        return None
    return tuple(field.name for field in dataclasses.fields(kind))
