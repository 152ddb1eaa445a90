"""Values of a lowered graph: tensors on its edges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ptensor.layout import Layout
from vtensor.language.cached import cached_property
from vtensor.language.dtype import bits
from vtensor.language.records import dataclass
from vtensor.language.tensor import Option, VTensor

if TYPE_CHECKING:
    from ptensor.buffer import TensorStorage


def stored_as(dtype: str, layout: Layout) -> str:
    """Return a layout as text, with the element type ``dtype`` if that is a number of fewer than 32
    bits and the layout has no encoding of its own.
    """
    named = layout.encoding is None and bits(dtype) < 32 and dtype != "bool"
    return str(layout.with_encoding(dtype) if named else layout)


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

    @property
    def stored_as(self) -> str:
        """The layout as text, with the element type if that is a number of fewer than 32 bits.

        >>> Value("x", "bf16", {"N": 2}, Layout("N")).stored_as
        'N:bf16'
        """
        return stored_as(self.dtype, self.layout)

    def tensor(self, storage: TensorStorage | None = None) -> VTensor:
        """Return a new operand: this value, produced in its layout, with the given storage."""
        tensor = VTensor.as_known(self.dtype, dict(self.dims), Option(name=self.name))
        if storage is not None:
            tensor.storage = storage
        tensor.produced_layout = self.layout
        return tensor
