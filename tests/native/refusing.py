"""Tables of calls that are refused: each differs from a right one in one thing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

#: 2^62: twice as much as this is no 64-bit integer.
HUGE = 1 << 62
#: The largest 64-bit integer.
LARGEST = 2 * HUGE - 1

#: A function, part of the message, and changes of its arguments, each of which is refused so.
Row = tuple[Any, ...]


def cases(rows: Iterable[Row]) -> pytest.MarkDecorator:
    """Parametrize a test with ``name``, ``reason`` and ``change``."""
    changes = [(name, reason, change) for name, reason, *rest in rows for change in rest]
    return pytest.mark.parametrize(("name", "reason", "change"), changes)


def call(function: Callable[..., Any], right: Mapping[str, Any], change: Mapping[str, Any]) -> Any:
    """Call a function with right arguments but for a change.

    A mapping among the arguments is a tuple whose elements have names: a change names them, too.
    """
    assert change.keys() <= {*_names(right)}, change
    return function(**{name: _filled(change.get(name, v), change) for name, v in right.items()})


def _filled(value: Any, change: Mapping[str, Any]) -> Any:
    if isinstance(value, Mapping):
        return tuple(_filled(change.get(name, v), change) for name, v in value.items())
    return [_filled(element, change) for element in value] if isinstance(value, list) else value


def _names(value: Any) -> Iterable[str]:
    if isinstance(value, Mapping):
        yield from value
        value = [*value.values()]
    if isinstance(value, list):
        for element in value:
            yield from _names(element)
