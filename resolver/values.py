"""Values of a lowered graph: tensors on its edges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ptensor.layout import Layout
from vtensor.language.cached import cached_property
from vtensor.language.records import dataclass
from vtensor.language.tensor import Option, VTensor

if TYPE_CHECKING:
    from ptensor.buffer import TensorStorage


@dataclass(frozen=True)
class Value:
    """A tensor on an edge of a lowered graph, in the layout in which it is made."""

    name: str
    dtype: str
    dims: Mapping[str, int]
    layout: Layout
    constant: bool = False

    @classmethod
    def of(cls, tensor: VTensor) -> Value:
        """Return a tensor as a value, in the tensor's produced layout."""
        layout = tensor.produced_layout
        assert layout is not None, "the resolver gives every value a layout"
        return cls(tensor.name, tensor.dtype, tensor.dims, layout, tensor.constant)

    @cached_property
    def nbytes(self) -> int:
        """Bytes in memory, pads included."""
        return self.layout.nbytes(self.dims, self.dtype)

    def tensor(self, storage: TensorStorage | None = None) -> VTensor:
        """Return a new operand: this value, produced in its layout, with the given storage."""
        tensor = VTensor.as_known(self.dtype, dict(self.dims), Option(name=self.name))
        if storage is not None:
            tensor.storage = storage
        tensor.produced_layout = self.layout
        return tensor
