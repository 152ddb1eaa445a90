"""Deferred arrays: arrays of a model that are read later than its other bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from optimizer.constants.originals import Original
from vtensor.language.records import dataclass

if TYPE_CHECKING:
    from vtensor.frontends.files.external import DataFiles

#: Where an array's bytes are: (offset in the model's bytes,); ("", key in ``Parts.data``) if they
#: are separate from the model's other bytes; or (location of another file, offset, size in bytes).
Place = tuple[int] | tuple[str, int] | tuple[str, int, int]


@dataclass(frozen=True, eq=False)
class DeferredArrays:
    """The arrays of a model that are read later than its nodes, or from other files.

    Attributes:
        later: the arrays that are read on demand, by name.
        places: where the bytes of each of these arrays are, by the array's name.
        files: files of external data; None for a model from memory.
    """

    later: Mapping[str, Original] = field(default_factory=dict)
    places: Mapping[str, Place] = field(default_factory=dict)
    files: DataFiles | None = None

    @property
    def observed(self) -> Iterator[Place]:
        """Places of the bytes of all arrays that were read so far and that ``asks`` counts.

        Their values may have decided something, for instance a shape.
        """
        return self.observed_since({})

    @property
    def asks(self) -> dict[str, int]:
        """How often each array was read, by name; reads by ``Original.now`` do not count."""
        return {name: array.asks for name, array in self.later.items()}

    def observed_since(self, asks: Mapping[str, int]) -> Iterator[Place]:
        """Yield the places of the bytes of the arrays that were read since an earlier time.

        Places of external data that was not deferred, but read with the model, are always among
        them.

        Args:
            asks: ``DeferredArrays.asks`` at that time; empty for all reads.
        """
        if self.files is not None:
            yield from self.files.at_once
        for name, array in self.later.items():
            if array.asks > asks.get(name, 0):
                yield self.places[name]
