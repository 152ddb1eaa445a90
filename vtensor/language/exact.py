"""What tells parameters of operators apart where ``==`` does not."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from typing import Any


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
    if isinstance(value, tuple):
        return kind, tuple(map(exact, value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = (field.name for field in dataclasses.fields(value))
        return kind, tuple(exact(getattr(value, name)) for name in names)
    if isinstance(value, (float, complex)):
        return kind, repr(value)
    if hasattr(value, "tobytes"):  # one of NumPy's numbers
        return kind, value.tobytes() if value == value else "nan"
    return kind, value
