"""A model's arrays beside the bytes that it is known by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from optimizer.originals import Original
from vtensor.language.records import dataclass

if TYPE_CHECKING:
    from vtensor.frontends.external import DataFiles

#: Where an array's bytes are: at an offset in the model's bytes; in data beside them, by the place
#: of its initializer; or in a file: its location, offset and size.
Place = tuple[int] | tuple[str, int] | tuple[str, int, int]


@dataclass(frozen=True, eq=False)
class DeferredArrays:
    """What is read of a model later than its nodes, or from other files.

    Attributes:
        later: arrays that are read when somebody asks, by name.
        places: where these are.
        files: those beside the model; None of one from memory.
    """

    later: Mapping[str, Original] = field(default_factory=dict)
    places: Mapping[str, Place] = field(default_factory=dict)
    files: DataFiles | None = None

    @property
    def observed(self) -> Iterator[Place]:
        """Where arrays are whose values may have decided something: all that were asked for."""
        return self.observed_since({})

    @property
    def asks(self) -> dict[str, int]:
        """How often somebody has asked for which array."""
        return {name: one.asks for name, one in self.later.items()}

    def observed_since(self, asks: Mapping[str, int]) -> Iterator[Place]:
        """The same, of what was asked for since then."""
        if self.files is not None:
            yield from self.files.at_once
        for name, one in self.later.items():
            if one.asks > asks.get(name, 0):
                yield self.places[name]
