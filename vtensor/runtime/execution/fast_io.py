"""Inputs and outputs that need no more than a look: memory that a run takes or writes as it lies.

Each function answers with that memory, or None where somebody has to look closer: to convert, to
copy, or to say what is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ptensor.layout import Layout
from vtensor.errors import InputError
from vtensor.language.dtype import numpy_dtype
from vtensor.language.records import dataclass
from vtensor.language.tensor import VTensor
from vtensor.runtime.execution.delivery import Array, Delivery
from vtensor.storage.inputs import as_array, dense_part

if TYPE_CHECKING:
    from resolver.values import Value

Axes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FastInput:
    """An input as a plan takes it.

    Attributes:
        name: the network's.
        shape, dtype: of an array.
        order: the axes of an array as they lie in memory; None where that is the order that they
            have, and empty where no array lies so, since the layout has blocks.
        value: what a VTensor has to be, and how it has to lie.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    order: Axes | None
    value: Value

    @classmethod
    def of(cls, value: Value) -> FastInput:
        """An input of a plan."""
        order: Axes | None = ()
        if value.layout == Layout.plain(value.layout.dims):
            order = tuple(list(value.dims).index(dim) for dim in value.layout.dims)
            order = None if order == tuple(range(len(order))) else order
        shape = tuple(value.dims.values())
        return cls(value.name, shape, numpy_dtype(value.dtype), order, value)

    def memory(self, given: object) -> Array | None:
        """Of what was given, as the plan takes it."""
        if isinstance(given, VTensor):
            return self._of_tensor(given)
        if not isinstance(given, np.ndarray):
            try:
                given = as_array("an input", given)
            except InputError:
                return None
        if type(given) is not np.ndarray or given.dtype != self.dtype or given.shape != self.shape:
            return None
        if self.order is not None:
            if len(self.order) != given.ndim:
                return None
            given = given.transpose(self.order)
        flags = given.flags
        return given if flags.c_contiguous and flags.aligned else None

    def _of_tensor(self, given: VTensor) -> Array | None:
        value = self.value
        if given.dtype != value.dtype or list(given.dims.items()) != list(value.dims.items()):
            return None
        part = dense_part(given)
        return part.array if part is not None and part.layout == value.layout else None


@dataclass(frozen=True, slots=True)
class FastOutput:
    """An output as NumPy sees the memory that it was made in.

    Attributes:
        binding: which of a run's bindings it is.
        dtype: element type.
        shape: in memory.
        axes: in presentation order.
        presented: the shape in presentation order.
        order: the axes of that as they lie in memory.
    """

    binding: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    axes: Axes
    presented: tuple[int, ...]
    order: Axes

    @classmethod
    def of(cls, one: Delivery, inputs: int) -> FastOutput | None:
        """None for an input's or a constant's memory, or a layout with blocks."""
        value, layout = one.value, one.value.layout
        if one.binding is None or one.binding < inputs or layout != Layout.plain(layout.dims):
            return None
        dims = list(value.dims)
        return cls(
            one.binding,
            numpy_dtype(value.dtype),
            layout.physical_shape(value.dims),
            tuple(layout.dims.index(dim) for dim in dims),
            tuple(value.dims.values()),
            tuple(dims.index(dim) for dim in layout.dims),
        )

    def memory(self, given: object) -> Array | None:
        """The bytes of an array that the last step may write."""
        if type(given) is not np.ndarray or given.dtype != self.dtype:
            return None
        if given.shape != self.presented:
            return None
        lying = given.transpose(self.order)
        flags = lying.flags
        if not (flags.c_contiguous and flags.aligned and flags.writeable):
            return None
        return lying.reshape(-1).view(np.uint8)
