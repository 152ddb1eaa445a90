"""Text of the report: tables and pictures in Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], texts: int = 1) -> str:
    """Return a table in Markdown; None is an empty cell.

    Args:
        heads: the columns' heads.
        rows: the cells.
        texts: the number of leading columns that hold text; the others hold numbers.

    >>> print(table(["a", "b"], [["x", 1], ["y", None]]))
    | a | b |
    |---|--:|
    | x | 1 |
    | y |  |
    """
    begin = [" | ".join(heads), "---|" * texts + "--:|" * (len(heads) - texts)]
    lines = (" | ".join("" if cell is None else str(cell) for cell in row) for row in rows)
    return "\n".join([f"| {begin[0]} |", f"|{begin[1]}", *(f"| {line} |" for line in lines)])


def told(documentation: str | None) -> str:
    r"""Return a module's docstring without its title and its command, as Markdown.

    >>> told("Title.\n\n``python -m x``. What it\nis.\n\n- a\n- b\n")
    'What it is.\n\n- a\n- b'
    """
    parts = (documentation or "").strip().split("\n\n")[1:]
    text = "\n\n".join(part if part[0] == "-" else part.replace("\n", " ") for part in parts)
    return re.sub(r"^``python -m [^`]*``\. ", "", text).replace("``", "`")


def picture(name: str, says: str) -> str:
    """Return the Markdown of a plot in the report's folder; ``says`` is its alternative text."""
    return f"![{says}]({Path(name).with_suffix('.svg')})"


def percent(share: float | None, digits: int = 1) -> str | None:
    """Return a share in percent; None for None.

    >>> percent(0.1234), percent(-0.5, 0)
    ('12.3 %', '-50 %')
    """
    return None if share is None else f"{share:.{digits}%}".replace("%", " %")


def milliseconds(seconds: float | None) -> str | None:
    """Return a time in ms; None for None.

    >>> milliseconds(0.0123)
    '12.30'
    """
    return None if seconds is None else f"{seconds * 1e3:.2f}"
