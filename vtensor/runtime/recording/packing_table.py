"""The packing table of a plan: for each constant that the plan's steps read, a row that says how it
is made.

A row has a source array, the changes made to it in order, and the native step that packs the result
into the layout of a kernel. A cache entry has the same rows in another form: the name of a large
array of the model with a trace row for the native step, or the packed bytes of any other constant.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from libdesc.native_trace import NativeTrace
from optimizer.constants.computed import Made
from optimizer.constants.originals import Original, place
from ptensor.buffer import TensorStorage
from resolver.values import Value
from vtensor.language.records import dataclass

if TYPE_CHECKING:
    from ptensor.buffer import Buffer

Array = np.ndarray[Any, Any]
Data = dict[str, Any]

#: The fewest bytes of a constant that is packed by all threads; smaller constants are packed by
#: one.
LARGE_BYTES = 1 << 24

#: The input and the output among the slots of a packing step. A slot for scratch is given as its
#: number of bytes.
SOURCE, TARGET = "source", "target"


class PackingStep(NamedTuple):
    """The step that converts a constant to the layout that a plan's steps read. It runs once.

    Attributes:
        native: the native step; None if ``run`` packs the constant.
        slots: for each slot of the native step: SOURCE (the input), TARGET (the packed constant),
            or the number of bytes of scratch.
        node: the name of the node, for error messages.
        reword: turns the step's own words into the message of an error that its operands caused.
        run: a Python function that packs an input storage into a buffer; None if ``native`` packs
            the constant.
    """

    native: Any
    slots: Sequence[str | int]
    node: str
    reword: Callable[[str], str] = str
    run: Callable[[TensorStorage, Buffer], None] | None = None


class SavedStep(NamedTuple):
    """A native packing step as data.

    Attributes:
        calls: the trace of native calls that makes the step, or its rows as data of an entry.
        place: the place of the step on the trace.
        slots: for each slot of the step: SOURCE (the input), TARGET (the packed constant), or the
            number of bytes of scratch.
    """

    calls: NativeTrace | Data
    place: int
    slots: Sequence[str | int]


@dataclass(eq=False)
class ConstantRow:
    """One constant of a plan.

    Attributes:
        source: the source array, or the ``Original`` that holds it if it is an array of the model.
        changes: the functions applied to the source array before it is packed, in order.
        step_input: the type, dims and layout of the changed array, which the packing step reads.
        value: the type, dims and layout that the plan's steps read; ``step_input`` if no step packs
            the constant.
        factor: True if the constant is used only as a factor of products.
        in_place: True if steps read the source array itself; False if the constant is in packed
            memory.
        saved: the packing step as data; None if there is no step or it cannot be saved.
    """

    source: Array | Original
    changes: Sequence[Made]
    step_input: Value
    value: Value
    factor: bool = False
    in_place: bool = False
    saved: SavedStep | None = None

    @property
    def key(self) -> Hashable:
        """A key of the constant's bytes: constants with equal keys have equal bytes, as long as
        their source arrays live.
        """
        source = self.source
        change: Hashable = None
        for applied in self.changes:
            change = change, applied.key
        which = id(source) if isinstance(source, Original) else place(source)
        return which, tuple(self.value.dims), change, self.value.layout, self.clears

    @property
    def nbytes(self) -> int:
        """Bytes of packed memory that the constant takes."""
        return 0 if self.in_place else self.value.nbytes

    @property
    def is_large(self) -> bool:
        """True if the constant is so large that all threads pack it."""
        return self.value.nbytes >= LARGE_BYTES

    @property
    def clears(self) -> bool:
        """True if subnormals are set to zero: the constant is a factor of 32-bit floats."""
        stored = self.value.layout.stored(self.value.dtype)
        return self.factor and stored.dtype == "f32" and stored.rest is None

    @property
    def is_folded(self) -> bool:
        """True if one of ``changes`` multiplies the array, which may make elements infinite."""
        return any(applied.factor is not None for applied in self.changes)

    def read(self) -> Array:
        """Return the elements of ``step_input``, with an axis for each dim."""
        array = self.source.now() if isinstance(self.source, Original) else self.source
        for applied in self.changes:
            array = applied.function(array)
        return array

    def storage(self) -> TensorStorage:
        """Return a storage with the elements of ``step_input``, in its layout."""
        step_input = self.step_input
        return TensorStorage.of_array(
            self.read(), step_input.tensor(), step_input.layout, constant=True
        )
