"""The packed constants of a session: what one plan has packed, another takes over where it wants
the same layout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np

from ptensor.buffer import Buffer, TensorStorage
from ptensor.layout import Layout
from vtensor.language.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Hashable

    from optimizer.originals import Original

Array = np.ndarray[Any, Any]

#: Constants of so many bytes are worth all threads when they are packed.
LARGE = 1 << 24


def may_be_subnormal(dtype: str, layout: Layout) -> bool:
    """Whether ``clear_subnormals`` looks at a tensor's memory: it holds floats of 32 bits alone."""
    stored = layout.stored(dtype)
    return stored.dtype == "f32" and stored.rest is None


def clear_subnormals(dtype: str, layout: Layout, memory: Array) -> bool:
    """Set floats of a packed factor to zero that are below 2^-126; whether some were.

    They add nothing to a sum that has any other term, unless what they are multiplied by is beyond
    1e30, and processors may take a hundred times as
    long for each product with one: of a tenth of the weights of a trained detector (PP-OCRv6) a
    network takes four times as long.
    """
    if not may_be_subnormal(dtype, layout):
        return False
    from vtensor.runtime import _replay

    return _replay.clear_subnormals(memory)


@dataclass(frozen=True, eq=False)
class Packed:
    """A constant in a layout.

    Attributes:
        storage: its memory.
        source: what it was made from; while this lives, nothing else has its address.
        memory: what it lies in, beside others.
    """

    storage: TensorStorage
    source: Array | Original
    memory: Array

    @property
    def nbytes(self) -> int:
        """The size of all memory of which it is a part."""
        return self.memory.nbytes


class Weights:
    """The packed constants of a session; each goes with the last plan that has it."""

    def __init__(self) -> None:
        #: By constant and layout.
        self.packed: WeakValueDictionary[Hashable, Packed] = WeakValueDictionary()

    @property
    def nbytes(self) -> int:
        """The size of all memory in which a plan has something."""
        have = [packed for one in self.packed.valuerefs() if (packed := one()) is not None]
        return sum({id(one.memory): one.memory.nbytes for one in have}.values())

    def hold(self, memory: Array) -> Packed:
        """Memory with constants of a plan, for as long as this is kept."""
        whole = TensorStorage("u8", {"N": memory.nbytes}, Layout.plain("N"), Buffer(memory), True)
        self.packed[id(memory)] = packed = Packed(whole, memory, memory)
        return packed

    def lend(
        self, source: Original, change: Hashable, storage: TensorStorage, memory: Array
    ) -> Packed:
        """A packed constant that lies in memory which is held, for as long as this is kept; where
        another plan has packed it, that one's.

        Args:
            source, change: as ``origin`` says them.
            storage: how it lies.
            memory: all of it.
        """
        key = id(source), tuple(storage.extents), change, storage.layout
        return self.packed.setdefault(key, Packed(storage, source, memory))
