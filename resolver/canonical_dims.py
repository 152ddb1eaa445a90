"""Keys of calls in which made-up names of dims, such as ``D12``, are replaced by numbers.

A dim has a made-up name if the model has no name for it. Such names mean nothing, and layers of a
network often differ in them alone. Since the keys of such layers are equal, the layers are decided
and recorded once.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from ptensor.layout import Layout
from vtensor.language.exact import exact

#: Matches a made-up name: the name of a dim for which the model has none.
MADE_UP = re.compile(r"D\d+")


class Names(dict[str, Hashable]):
    """Map from a text to what replaces it in a key. A made-up name is replaced by its number.

    Made-up names get the numbers 0, 1, ... in the order in which they are looked up. Any other text
    is replaced by itself.

    Args:
        literal: True keeps made-up names, too.

    Attributes:
        literal: set to True once a value has been met in which a made-up name is, or may be, part
            of something longer. The key then has to be built again with ``literal=True``.
        made_up: the made-up names seen, in the order of their numbers.
    """

    def __init__(self, literal: bool = False) -> None:
        super().__init__()
        self.literal = literal
        self.made_up: list[str] = []

    def __missing__(self, text: str) -> Hashable:
        replacement: Hashable = text
        if not self.literal and (parts := _made_up(text)):
            if parts == WHOLE:
                replacement = b"%d" % len(self.made_up)  # bytes, since no part of a call is bytes
                self.made_up.append(text)
            else:
                self.literal = True
        self[text] = replacement
        return replacement

    def kind(
        self, dtype: str, dims: Mapping[str, int], layout: Layout | None, known: bool
    ) -> tuple[Hashable, ...]:
        """Return the part of a key for one operand.

        Args:
            dtype: element type.
            dims: sizes by name.
            layout: its layout, or None if that is not decided.
            known: True if its values are known before a run.
        """
        names = tuple(dims)
        axes, encoding, has_made_up = (
            (None, None, False) if layout is None else _axes(layout, names)
        )
        self.literal |= has_made_up
        places = tuple(map(self.__getitem__, names))
        return dtype, places, tuple(dims.values()), axes, encoding, known

    def of(self, value: object) -> Hashable:
        """Return the part of a key for a parameter or an operator. Made-up names in it are
        numbered.
        """
        kind: Any = type(value)
        if isinstance(value, str) and kind is str:
            return self[value]
        if kind in _COMPARABLE:
            return kind, value
        if isinstance(value, tuple):
            return kind, self._row(value)
        if (fields := _fields(kind)) is not None:
            return kind, self._row([getattr(value, name) for name in fields])
        if kind is not float:
            self.literal = True  # a value of any other type may contain made-up names
        return exact(value)

    def _row(self, values: Sequence[object]) -> Hashable:
        """Return the part of a key for several values, in order."""
        types = tuple(map(type, values))
        return (types, *values) if _COMPARABLE.issuperset(types) else tuple(map(self.of, values))


#: Types whose values can be put into a key as they are: two of the same type are equal only if they
#: are the same value.
_COMPARABLE = frozenset({int, bool, type(None)})


#: How much of a text is a made-up name: nothing, a part of it, all of it.
NONE, PART, WHOLE = range(3)


@lru_cache(maxsize=4096)
def _made_up(text: str) -> int:
    """Return how much of a text is a made-up name: NONE, PART or WHOLE."""
    match = MADE_UP.search(text)
    return NONE if match is None else WHOLE if match[0] == text else PART


@lru_cache(maxsize=1024)
def _fields(kind: Any) -> tuple[str, ...] | None:
    """Return the names of a dataclass's fields, or None for any other type."""
    declared = getattr(kind, "__dataclass_fields__", None)
    return None if declared is None else tuple(field.name for field in dataclasses.fields(kind))


@lru_cache(maxsize=4096)
def _axes(layout: Layout, dims: tuple[str, ...]) -> tuple[Hashable, Hashable, bool]:
    """Return (axes, encoding, named) of a layout.

    Each axis is a pair: the index of its dim in ``dims``, and its block. ``named`` is True if the
    encoding has made-up names.
    """
    axes = tuple((dims.index(axis.dim), axis.block) for axis in layout.axes)
    encoding = layout.encoding
    return axes, encoding, MADE_UP.search(str(encoding)) is not None


@lru_cache(maxsize=4096)
def renamed(layout: Layout, names: tuple[tuple[str, str], ...]) -> Layout:
    """Return a layout with dims renamed by the pairs (old, new). Pairs whose old name is no dim of
    the layout are ignored.
    """
    renaming = {old: new for old, new in names if old in layout.dims}
    return layout.rename(renaming) if renaming else layout
