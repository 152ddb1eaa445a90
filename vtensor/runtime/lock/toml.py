"""The TOML of lock files: written so that people can read it, and read key by key."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from vtensor.errors import LockError, did_you_mean
from vtensor.language.records import dataclass

T = TypeVar("T")

#: The types of values as error messages name them.
_WORDS: dict[type, str] = {
    str: "text",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}


@dataclass(frozen=True)
class Table:
    """A table of a file that a user may have edited.

    Args:
        data: the table's keys and values.
        where: the file and line, or the key, at which the table begins; for messages.
    """

    data: Mapping[str, Any]
    where: str

    def get(self, key: str, kind: type[T], default: T | None = None) -> T:
        """Return the value of a key; ``default`` if the key is missing.

        Args:
            key: the key.
            kind: the type that the value must have; for float, an int is converted.
            default: None refuses a missing key.

        Raises:
            LockError: the key is missing without a default, or its value has another type.
        """
        value = self.data.get(key, default)
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            raise self.error(key, f"must be {_WORDS[kind]}" + _have(value))
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Return the list of texts of a key; empty if the key is missing.

        Raises:
            LockError: the value is no list of texts.
        """
        values = self.get(key, list, [])
        if any(type(text) is not str for text in values):
            raise self.error(key, "must be a list of texts" + _have(values))
        return tuple(values)

    def table(self, key: str) -> Table:
        """Return the table of a key; an empty one if the key is missing.

        Raises:
            LockError: the value is no table.
        """
        return Table(self.get(key, dict, {}), f"{self.where}, {key}")

    def tables(self, key: str) -> list[Table]:
        """Return the list of tables of a key; empty if the key is missing.

        Raises:
            LockError: the value is no list of tables.
        """
        values = self.get(key, list, [])
        if any(type(table) is not dict for table in values):
            raise self.error(key, "must be a list of tables")
        return [Table(table, f"{self.where}, {key}[{at}]") for at, table in enumerate(values)]

    def only(self, *keys: str) -> None:
        """Check that the table has no keys but these.

        Raises:
            LockError: there is another key; the message names the first.
        """
        for key in self.data:
            if key not in keys:
                raise self.error(key, f"is no key{did_you_mean(key, keys)}")

    def error(self, key: str, what: str) -> LockError:
        """Return the error for a key, whose message is ``what`` after the place in the file."""
        return LockError(f"{self.where}, {key}: {what}")


def _have(value: object) -> str:
    return ", and is missing" if value is None else f", not {value!r}"


def toml_lines(data: Mapping[str, Any], within: str = "") -> Iterator[str]:
    """Yield the TOML lines of a table: plain keys first, then tables with a line for each key.

    Args:
        data: the table.
        within: the name of the table that ``data`` is, with a dot; empty for a whole file.

    >>> print("\\n".join(toml_lines({"a": 1, "b": {"c": ["x"]}, "d": [{"e": True}]})))
    a = 1
    <BLANKLINE>
    [b]
    c = ["x"]
    <BLANKLINE>
    [[d]]
    e = true
    """
    tables = [key for key, value in data.items() if isinstance(value, dict) or _of_tables(value)]
    yield from (
        f"{_key(key)} = {_inline(value)}" for key, value in data.items() if key not in tables
    )
    for key in tables:
        if isinstance(data[key], dict):
            yield from ("", f"[{within}{_key(key)}]", *_row_lines(data[key]))
        else:
            for table in data[key]:
                yield from ("", f"[[{within}{_key(key)}]]", *_row_lines(table))


def _row_lines(table: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each key of a table; a list of tables has a line for each table."""
    for key, value in table.items():
        if _of_tables(value) and len(value) > 1:
            yield from (f"{_key(key)} = [", *(f"  {_inline(entry)}," for entry in value), "]")
        else:
            yield f"{_key(key)} = {_inline(value)}"


def _of_tables(value: object) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _inline(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(float(value)) if math.isfinite(value) else str(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):  # TOML escapes one character that JSON does not
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        rows = ", ".join(f"{_key(key)} = {_inline(entry)}" for key, entry in value.items())
        return f"{{ {rows} }}" if rows else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_inline, value))}]"
    raise TypeError(f"{value!r} is nothing that TOML has")


def _key(key: str) -> str:
    bare = key.isascii() and key.replace("-", "_").replace("_", "a").isalnum()
    return key if bare else _inline(key)
