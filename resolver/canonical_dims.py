"""Names of dims that were made up for a network, such as ``D12``: they say nothing.

Calls that differ in these alone are equal, so layers of a network, which are equal but for such
names, are decided and recorded once.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from ptensor.layout import Layout
from vtensor.language.exact import exact

#: A name that a dim gets where the network has none for it.
MADE_UP = re.compile(r"D\d+")


class Names(dict[str, Hashable]):
    """What stands for texts in a key: a made-up name's place among them, any other text itself.

    Args:
        literal: made-up names stay, too.

    Attributes:
        literal: they have to, since one is a part of a text.
    """

    def __init__(self, literal: bool = False) -> None:
        super().__init__()
        self.literal = literal
        self.made_up: list[str] = []

    def __missing__(self, text: str) -> Hashable:
        stands: Hashable = text
        if not self.literal and (parts := _made_up(text)):
            if parts == WHOLE:
                stands = b"%d" % len(self.made_up)  # no number of the call, and no text
                self.made_up.append(text)
            else:
                self.literal = True
        self[text] = stands
        return stands

    def kind(
        self, dtype: str, dims: Mapping[str, int], layout: Layout | None, known: bool
    ) -> tuple[Hashable, ...]:
        """Of an operand: its type, its dims, how it lies by their places, if that is decided, and
        whether it is known before a run.
        """
        own = tuple(dims)
        axes, encoding, named = (None, None, False) if layout is None else _axes(layout, own)
        self.literal |= named
        places = tuple(map(self.__getitem__, own))
        return dtype, places, tuple(dims.values()), axes, encoding, known

    def of(self, value: object) -> Hashable:
        """Of a parameter, or an operator with its parameters; as ``exact`` but for names."""
        kind: Any = type(value)
        if isinstance(value, str) and kind is str:
            return self[value]
        if kind in _PLAIN:
            return kind, value
        if isinstance(value, tuple):
            return kind, self._row(value)
        if (fields := _fields(kind)) is not None:
            return kind, self._row([getattr(value, name) for name in fields])
        if kind is not float:
            self.literal = True  # there may be names in it
        return exact(value)

    def _row(self, values: Sequence[object]) -> Hashable:
        types = tuple(map(type, values))
        return (types, *values) if _PLAIN.issuperset(types) else tuple(map(self.of, values))


#: Types of parameters that ``==`` tells apart where they are of one type.
_PLAIN = frozenset({int, bool, type(None)})


#: What there is of made-up names in a text: nothing, a part of it, all of it.
NONE, PART, WHOLE = range(3)


@lru_cache(maxsize=4096)
def _made_up(text: str) -> int:
    found = MADE_UP.search(text)
    return NONE if found is None else WHOLE if found[0] == text else PART


@lru_cache(maxsize=1024)
def _fields(kind: Any) -> tuple[str, ...] | None:
    known = getattr(kind, "__dataclass_fields__", None)
    return None if known is None else tuple(field.name for field in dataclasses.fields(kind))


@lru_cache(maxsize=4096)
def _axes(layout: Layout, dims: tuple[str, ...]) -> tuple[Hashable, Hashable, bool]:
    """Dim by place and block of each axis; the encoding, and whether made-up names are in it."""
    axes = tuple((dims.index(axis.dim), axis.block) for axis in layout.axes)
    encoding = layout.encoding
    return axes, encoding, MADE_UP.search(str(encoding)) is not None


@lru_cache(maxsize=4096)
def renamed(layout: Layout, names: tuple[tuple[str, str], ...]) -> Layout:
    """A layout with other names in the place of those of its dims that are among these."""
    own = {old: new for old, new in names if old in layout.dims}
    return layout.rename(own) if own else layout
