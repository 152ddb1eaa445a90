"""The figures that the paper's text states, from ``eval/data/paper.toml``."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[1] / "data" / "paper.toml"


@cache
def _all() -> dict[str, Any]:
    return tomllib.loads(FILE.read_text())


def paper(*keys: str) -> Any:
    """Return a figure of the paper's text, or a table of figures, by the keys that lead to it.

    >>> paper("conversions", "resnet152", "before")
    317
    """
    value: Any = _all()
    for key in keys:
        value = value[key]
    return value
