"""Memory: buffers with an owner, and the storage of a VTensor on top of one.

A buffer is bytes and whoever owns them; several storages may look at one buffer (an alias moves
nothing).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ptensor.layout import Layout
from ptensor.pages import LEAST, contiguous, passing
from ptensor.parts import Part
from ptensor.planes import memory_shape
from ptensor.transform import pack
from vtensor.errors import ContractError, LayoutError

if TYPE_CHECKING:
    from vtensor.language.tensor import VTensor

#: Bytes on which every buffer of ours begins: a cache line, and the widest vector register.
ALIGNMENT = 64


def fresh(nbytes: int) -> np.ndarray[Any, Any]:
    """Bytes of unspecified content that begin at a multiple of ``ALIGNMENT``: the allocator's, who
    has them for the next run again.
    """
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    begin = -raw.__array_interface__["data"][0] % ALIGNMENT
    return raw[begin : begin + nbytes]


def fresh_pages(nbytes: int) -> np.ndarray[Any, Any]:
    """The same for all but outputs of runs: on pages of its own, unless it is small."""
    if nbytes < LEAST:
        return fresh(nbytes)
    return passing((nbytes,), np.dtype(np.uint8))


class Buffer:
    """A run of bytes and its owner.

    Args:
        memory: one-dimensional array of bytes; it keeps the owner alive.
    """

    __slots__ = ("memory",)

    def __init__(self, memory: np.ndarray[Any, Any]) -> None:
        self.memory = memory

    @classmethod
    def allocate(cls, nbytes: int) -> Buffer:
        """Fresh memory, aligned to 64 bytes, of unspecified content."""
        return cls(fresh_pages(nbytes))

    @classmethod
    def wrap(cls, array: np.ndarray[Any, Any]) -> Buffer:
        """The memory of a C-contiguous array, without a copy; the array stays its owner.

        Raises:
            LayoutError: the array is not contiguous.
        """
        if not array.flags.c_contiguous:
            raise LayoutError("only contiguous memory can be wrapped: copy the array first")
        return cls(array.reshape(-1).view(np.uint8))

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return int(self.memory.nbytes)

    def __repr__(self) -> str:
        return f"<Buffer {self.nbytes} bytes>"


class _InMemory:
    """What storages share that have their elements in an array of the layout's shape."""

    __slots__ = ()

    layout: Layout
    extents: dict[str, int]

    def data(self) -> np.ndarray[Any, Any]:
        """The elements, one axis an axis of the layout; pads included."""
        raise NotImplementedError

    def logical(self, tensor: VTensor) -> np.ndarray[Any, Any]:
        """The elements of a tensor with this storage, or a view of it: one axis a dim, no pads."""
        whole = Part(self.data(), self.layout, self.extents)
        array = whole.logical(list(self.extents), tensor.dtype)
        return array if tensor.base is None else array.reshape(list(tensor.dims.values()))

    def part(self, tensor: VTensor) -> Part | None:
        """The elements where they lie, under the names of a tensor with this storage, or a view."""
        whole = Part(self.data(), self.layout, self.extents)
        for dim, names in tensor.view.names.items():
            if len(names) > 1:
                return whole.split(dim, {name: tensor.size(name) for name in names})
        return whole.renamed({dim: name for dim, [name] in tensor.view.names.items()})

    def over(
        self,
        array: np.ndarray[Any, Any],
        extents: Mapping[str, int],
        layout: Layout | None = None,
    ) -> ArrayStorage:
        """A storage that is an array: as it lies in a layout, or with an axis a dim."""
        return ArrayStorage(array, extents, layout)

    def export(self, tensor: VTensor, **options: Any) -> object:
        """A DLPack capsule of the elements; of a copy where the layout has blocks."""
        array = self.logical(tensor)
        copied = array.size > 0 and not np.may_share_memory(array, self.data())
        from ptensor.dlpack import export

        return export(array, copied=copied, **options)


class TensorStorage(_InMemory):
    """The memory of one VTensor: a buffer seen in a layout.

    Args:
        dtype: element type.
        extents: sizes by dim.
        layout: how the elements lie.
        buffer: the memory, or another storage whose memory this one shares.
        constant: the values never change.
    """

    __slots__ = (
        "__weakref__",
        "_array",
        "_begin",
        "_buffer",
        "_owner",
        "_source",
        "constant",
        "dtype",
        "extents",
        "layout",
        "nbytes",
    )

    def __init__(
        self,
        dtype: str,
        extents: Mapping[str, int],
        layout: Layout,
        buffer: Buffer | None = None,
        constant: bool = False,
    ) -> None:
        self.dtype = dtype
        self.extents = dict(extents)
        self.layout = layout
        self.constant = constant
        self.nbytes = layout.nbytes(extents, dtype)
        #: Whose memory this shares; None, not itself, so that memory goes with its last user.
        self._owner: TensorStorage | None = None
        self._begin = 0
        self._array: np.ndarray[Any, Any] | None = None
        self._source: Callable[[], Buffer] | None = None
        self._buffer = buffer
        if buffer is not None:
            self.bind(buffer)

    @classmethod
    def allocate(cls, tensor: VTensor, layout: Layout) -> TensorStorage:
        """Fresh memory for a VTensor in a layout."""
        storage = cls(tensor.dtype, tensor.dims, layout)
        storage.bind(Buffer.allocate(storage.nbytes))
        return storage

    @classmethod
    def of_array(
        cls, array: np.ndarray[Any, Any], tensor: VTensor, layout: Layout, constant: bool
    ) -> TensorStorage:
        """The values of an array whose axes are the tensor's dims in order, in a layout.

        No copy is made where the array already lies so.
        """
        buffer = _packed(array, list(tensor.dims), layout)
        return cls(tensor.dtype, tensor.dims, layout, buffer, constant)

    @classmethod
    def deferred(
        cls, values: Callable[[], np.ndarray[Any, Any]], tensor: VTensor, layout: Layout
    ) -> TensorStorage:
        """A constant, as ``of_array``, that is computed when its memory is first looked at."""
        storage = cls(tensor.dtype, tensor.dims, layout, constant=True)
        dims = list(tensor.dims)  # the tensor itself would make a circle
        storage._source = lambda: _packed(values(), dims, layout)
        return storage

    @classmethod
    def like(
        cls,
        other: TensorStorage,
        extents: Mapping[str, int] | None = None,
        layout: Layout | None = None,
    ) -> TensorStorage:
        """A storage of the same kind, without memory; perhaps with other names of dims."""
        made = cls.__new__(cls)
        made.dtype, made.layout = other.dtype, layout or other.layout
        made.extents = dict(other.extents if extents is None else extents)
        made.constant, made.nbytes = other.constant, other.nbytes
        made._owner, made._begin = None, 0
        made._array = made._buffer = made._source = None
        return made

    @classmethod
    def stand_in(cls, other: TensorStorage) -> TensorStorage:
        """One of the same kind that shows another's values, if it has any, to whoever looks."""
        made = cls.like(other)
        if other.bound:
            made._source = lambda: Buffer(other.memory)
        return made

    @property
    def buffer(self) -> Buffer:
        """The memory.

        Raises:
            ContractError: none is bound yet.
        """
        root = self.root
        if root._buffer is None and root._source is not None:
            root.bind(root._source())
        buffer = root._buffer
        if buffer is None:
            raise ContractError("this storage has no memory: nothing has been bound to it")
        return buffer

    @property
    def untouched(self) -> bool:
        """Nobody has looked at the values yet, which are computed when somebody does."""
        return self.root._buffer is None

    @property
    def root(self) -> TensorStorage:
        """The storage that owns the memory: this one, or the one that it shares."""
        found, owner = self, self._owner
        while owner is not None:
            found, owner = owner, owner._owner
        return found

    @property
    def begin(self) -> int:
        """Where it begins in the memory of its root, in bytes."""
        found, begin = self, 0
        while found._owner is not None:
            begin += found._begin
            found = found._owner
        return begin

    @property
    def memory(self) -> np.ndarray[Any, Any]:
        """Its own bytes.

        Raises:
            ContractError: no memory is bound yet.
        """
        begin = self.begin
        return self.buffer.memory[begin : begin + self.nbytes]

    @property
    def bound(self) -> bool:
        """True when there is memory."""
        return self.root._buffer is not None or self.root._source is not None

    def bind(self, buffer: Buffer) -> None:
        """Look at other memory from now on.

        Raises:
            LayoutError: the memory is smaller than the tensor.
        """
        if buffer.nbytes < self.nbytes:
            raise LayoutError(f"{self.nbytes} bytes are needed, the buffer has {buffer.nbytes}")
        self._buffer = buffer
        self._array = None

    def bind_later(self, buffer: Callable[[], Buffer]) -> None:
        """Look at memory that is not filled yet: whoever looks first calls this."""
        self.release()
        self._source = buffer

    def release(self) -> None:
        """Let go of the memory; it must be bound again before the next use."""
        self._buffer = None
        self._array = None

    def forget(self) -> None:
        """Let go of the memory, and of what would give it."""
        self._source = None
        self.release()

    def share(self, other: TensorStorage) -> None:
        """Use another storage's memory: the same bytes under these dims and this layout."""
        if other.nbytes != self.nbytes:
            raise LayoutError(f"{self.nbytes} bytes cannot share {other.nbytes} bytes")
        self.lie_in(other)

    def lie_in(self, other: TensorStorage, begin: int = 0) -> None:
        """Use a stretch of another storage's memory, from a byte on; what shares this one follows.

        Raises:
            LayoutError: the other has no such stretch.
        """
        if not 0 <= begin <= other.nbytes - self.nbytes:
            raise LayoutError(f"{other.nbytes} bytes hold no {self.nbytes} from {begin} on")
        self._owner, self._begin = (None, 0) if other.root is self else (other, begin)
        self._buffer = None  # memory of its own would lie idle
        self._array = None

    def data(self) -> np.ndarray[Any, Any]:
        """The elements, one axis an axis of the layout, pads included; several planes as bytes."""
        if self._owner is None and self._array is not None:
            return self._array
        stored = self.layout.stored(self.dtype)
        flat = self.memory.view(stored.numpy)
        array = flat.reshape(memory_shape(stored, self.layout.physical_shape(self.extents)))
        if self._owner is None:
            self._array = array
        return array


def _packed(array: np.ndarray[Any, Any], dims: list[str], layout: Layout) -> Buffer:
    """The values of an array whose axes are these dims, in a layout."""
    return Buffer.wrap(contiguous(pack(array, dims, layout)))


class ArrayStorage(_InMemory):
    """The memory of a VTensor that is an array, whatever its strides: a slice has gaps.

    Args:
        array: the elements; it keeps its owner alive. One axis an axis of the layout, or, where
            there is none, one a dim.
        extents: sizes by dim.
        layout: how they lie; None is the order of the axes by stride, the largest first.
    """

    __slots__ = ("array", "constant", "extents", "layout")

    def __init__(
        self,
        array: np.ndarray[Any, Any],
        extents: Mapping[str, int],
        layout: Layout | None = None,
    ) -> None:
        if layout is None:
            order, dims = _order(array), list(extents)
            array, layout = array.transpose(order), Layout.plain([dims[axis] for axis in order])
        self.array = array
        self.constant = False
        self.extents = dict(extents)
        self.layout = layout

    def data(self) -> np.ndarray[Any, Any]:
        """The elements, one axis an axis of the layout; pads included."""
        return self.array


def _order(array: np.ndarray[Any, Any]) -> list[int]:
    """Axes by stride, the largest first; an axis of size 1 stays where it is presented."""
    axes = [axis for axis in range(array.ndim) if array.shape[axis] != 1]
    by_stride = iter(sorted(axes, key=lambda axis: -abs(array.strides[axis])))
    return [next(by_stride) if axis in axes else axis for axis in range(array.ndim)]
