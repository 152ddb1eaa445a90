"""The fast path for inputs and outputs: memory that a run takes or writes in place.

Each function returns such memory, or None if the general path must convert, copy or report an
error.
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
    """The conditions under which a plan takes an input in place, without a copy.

    Attributes:
        name: the input's name.
        shape, dtype: the shape and element type that an array must have.
        order: the permutation of an array's axes, which are in the network's order of dims, that
            sorts them by memory order; None if both orders are equal; empty if the layout has
            blocks, so that only a VTensor can be taken in place.
        value: the type, dims and layout that a VTensor must have.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    order: Axes | None
    value: Value

    @classmethod
    def of(cls, value: Value) -> FastInput:
        """Return the conditions under which a plan takes its input ``value`` in place."""
        order: Axes | None = ()
        if value.layout == Layout.plain(value.layout.dims):
            order = tuple(list(value.dims).index(dim) for dim in value.layout.dims)
            order = None if order == tuple(range(len(order))) else order
        shape = tuple(value.dims.values())
        return cls(value.name, shape, numpy_dtype(value.dtype), order, value)

    def memory(self, array: object) -> Array | None:
        """Return the memory of ``array`` if a plan can take it in place.

        Returns None if ``array`` has to be converted, or if it is wrong.
        """
        if isinstance(array, VTensor):
            return self._of_tensor(array)
        if not isinstance(array, np.ndarray):
            try:
                array = as_array("an input", array)
            except InputError:
                return None
        if type(array) is not np.ndarray or array.dtype != self.dtype or array.shape != self.shape:
            return None
        if self.order is not None:
            if len(self.order) != array.ndim:
                return None
            array = array.transpose(self.order)
        flags = array.flags
        return array if flags.c_contiguous and flags.aligned else None

    def _of_tensor(self, tensor: VTensor) -> Array | None:
        value = self.value
        if tensor.dtype != value.dtype or list(tensor.dims.items()) != list(value.dims.items()):
            return None
        part = dense_part(tensor)
        return part.array if part is not None and part.layout == value.layout else None


@dataclass(frozen=True, slots=True)
class FastOutput:
    """An output in memory that the plan writes directly, described as a NumPy array.

    Attributes:
        binding: the index of the output's memory among the arrays that a run binds.
        dtype: element type.
        shape: the sizes of the dims in memory order.
        axes: for each dim in the network's order, the index of its axis in memory.
        presented: the sizes of the dims in the network's order, as the caller sees them.
        order: for each axis in memory, the index of its dim in the network's order.
    """

    binding: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    axes: Axes
    presented: tuple[int, ...]
    order: Axes

    @classmethod
    def of(cls, delivery: Delivery, inputs: int) -> FastOutput | None:
        """Return the description of an output that the plan writes directly.

        Returns None if the output's memory is that of an input or a constant, or if its layout has
        blocks.

        Args:
            delivery: the output.
            inputs: the number of inputs, whose bindings come first.
        """
        value, layout = delivery.value, delivery.value.layout
        if (
            delivery.binding is None
            or delivery.binding < inputs
            or layout != Layout.plain(layout.dims)
        ):
            return None
        dims = list(value.dims)
        return cls(
            delivery.binding,
            numpy_dtype(value.dtype),
            layout.physical_shape(value.dims),
            tuple(layout.dims.index(dim) for dim in dims),
            tuple(value.dims.values()),
            tuple(dims.index(dim) for dim in layout.dims),
        )

    def memory(self, array: object) -> Array | None:
        """Return the bytes of ``array`` if a plan can write the output to it, else None."""
        if type(array) is not np.ndarray or array.dtype != self.dtype:
            return None
        if array.shape != self.presented:
            return None
        in_memory = array.transpose(self.order)
        flags = in_memory.flags
        if not (flags.c_contiguous and flags.aligned and flags.writeable):
            return None
        return in_memory.reshape(-1).view(np.uint8)
