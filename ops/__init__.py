"""The operators: ``from ops import Conv2D``. A file has one operator, or a few that are related.

Files are found, not listed by hand: a new operator is a new file.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """Return the class of the operator ``name``, importing its file if needed.

    For ``__all__``, return the names of all operators.

    Raises:
        AttributeError: there is no such operator.
    """
    if name == "__all__":
        return __dir__()
    if name.startswith("_"):
        raise AttributeError(name)
    from libdesc.registry import ready
    from vtensor.language.operators import OPERATORS

    ready()
    if name not in OPERATORS:
        raise AttributeError(f"no operator {name!r}; there are {', '.join(sorted(OPERATORS))}")
    return OPERATORS[name].cls


def __dir__() -> list[str]:
    """Return the names of all operators."""
    from libdesc.registry import registry
    from vtensor.language.operators import OPERATORS

    registry()
    return sorted(OPERATORS)
