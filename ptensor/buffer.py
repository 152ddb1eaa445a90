"""Memory: buffers with an owner, and the storage of a VTensor on top of one.

A buffer is an array of bytes, together with the object that owns them; it keeps this owner alive.
Several storages may use one buffer without a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ptensor.layout import Layout
from ptensor.pages import OWN_PAGES_BYTES, contiguous, passing
from ptensor.parts import Part
from ptensor.planes import memory_shape
from ptensor.transform import pack
from vtensor.errors import ContractError, LayoutError

if TYPE_CHECKING:
    from vtensor.language.tensor import VTensor

#: Alignment of every buffer, in bytes: a cache line, and the widest vector register.
ALIGNMENT = 64


def fresh(nbytes: int) -> np.ndarray[Any, Any]:
    """Return bytes of unspecified content that begin at a multiple of ``ALIGNMENT``.

    They come from NumPy's allocator, which can give the same memory again to the next run.
    """
    raw = np.empty(nbytes + ALIGNMENT, np.uint8)
    begin = -raw.__array_interface__["data"][0] % ALIGNMENT
    return raw[begin : begin + nbytes]


def fresh_pages(nbytes: int) -> np.ndarray[Any, Any]:
    """Return bytes as ``fresh`` does, but ``OWN_PAGES_BYTES`` or more on pages of their own.

    Outputs of runs use ``fresh`` instead, since each run would request such pages again.
    """
    if nbytes < OWN_PAGES_BYTES:
        return fresh(nbytes)
    return passing((nbytes,), np.dtype(np.uint8))


class Buffer:
    """Contiguous bytes, and the object that owns them.

    Args:
        memory: one-dimensional array of bytes, which keeps the owner of the bytes alive.
    """

    __slots__ = ("memory",)

    def __init__(self, memory: np.ndarray[Any, Any]) -> None:
        self.memory = memory

    @classmethod
    def allocate(cls, nbytes: int) -> Buffer:
        """Allocate a buffer of unspecified content, aligned to 64 bytes."""
        return cls(fresh_pages(nbytes))

    @classmethod
    def wrap(cls, array: np.ndarray[Any, Any]) -> Buffer:
        """Return a buffer on the memory of a C-contiguous array, without a copy; the buffer keeps
        the array alive.

        Raises:
            LayoutError: the array is not C-contiguous.
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
    """Base of storages whose elements are in an array of the layout's shape."""

    __slots__ = ()

    layout: Layout
    extents: dict[str, int]

    def data(self) -> np.ndarray[Any, Any]:
        """Return the elements, one axis per axis of the layout, pads included."""
        raise NotImplementedError

    def logical(self, tensor: VTensor) -> np.ndarray[Any, Any]:
        """Return the elements of a tensor as an array with one axis per dim of the tensor, no pads.

        The array shares the storage's memory if the layout allows it.

        Args:
            tensor: the tensor that has this storage, or a view of that tensor.
        """
        part = Part(self.data(), self.layout, self.extents)
        array = part.logical(list(self.extents), tensor.dtype)
        return array if tensor.base is None else array.reshape(list(tensor.dims.values()))

    def part(self, tensor: VTensor) -> Part | None:
        """Return the elements, not copied, with their layout under the dim names of ``tensor``.

        None if no layout describes the elements under these dims.

        Args:
            tensor: the tensor that has this storage, or a view of that tensor.
        """
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
        """Return a storage whose memory is ``array``; nothing is copied.

        Args:
            array: the elements, with an axis per axis of the layout, or per dim without a layout.
            extents: sizes by dim.
            layout: layout of the array; None is the order of the axes by stride.
        """
        return ArrayStorage(array, extents, layout)

    def export(self, tensor: VTensor, **options: Any) -> object:
        """Return a DLPack capsule of the elements, or of a copy if the layout has blocks.

        Args:
            tensor: the tensor that has this storage, or a view of that tensor.
            options: keyword arguments of ``ptensor.dlpack.export``.
        """
        array = self.logical(tensor)
        copied = array.size > 0 and not np.may_share_memory(array, self.data())
        from ptensor.dlpack import export

        return export(array, copied=copied, **options)


class TensorStorage(_InMemory):
    """The memory of one VTensor: a buffer whose bytes are read as elements in a layout.

    A storage is *bound* once it has a buffer, or a function that will return one. A storage may
    also use the memory of another storage; ``root`` is then the storage that owns the memory.

    Args:
        dtype: element type.
        extents: sizes by dim.
        layout: layout of the elements.
        buffer: the memory; None leaves the storage without memory until ``bind``.
        constant: whether the values never change.
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
        #: The storage whose memory this one shares, or None. It is never this storage itself: a
        #: cycle would keep memory after its last user is gone.
        self._owner: TensorStorage | None = None
        self._begin = 0
        self._array: np.ndarray[Any, Any] | None = None
        self._source: Callable[[], Buffer] | None = None
        self._buffer = buffer
        if buffer is not None:
            self.bind(buffer)

    @classmethod
    def allocate(cls, tensor: VTensor, layout: Layout) -> TensorStorage:
        """Allocate memory for a VTensor in a layout."""
        storage = cls(tensor.dtype, tensor.dims, layout)
        storage.bind(Buffer.allocate(storage.nbytes))
        return storage

    @classmethod
    def of_array(
        cls, array: np.ndarray[Any, Any], tensor: VTensor, layout: Layout, constant: bool
    ) -> TensorStorage:
        """Return a storage that holds an array's values in a layout.

        The array itself is the memory if it already has the layout; otherwise it is copied.

        Args:
            array: the values; its axes are the dims of ``tensor``, in order.
            tensor: type and dims.
            layout: layout of the elements.
            constant: whether the values never change.
        """
        buffer = _packed(array, list(tensor.dims), layout)
        return cls(tensor.dtype, tensor.dims, layout, buffer, constant)

    @classmethod
    def deferred(
        cls, values: Callable[[], np.ndarray[Any, Any]], tensor: VTensor, layout: Layout
    ) -> TensorStorage:
        """Return a storage of a constant whose values are computed at the first use of its memory.

        Args:
            values: returns the array, with the tensor's dims in order as axes.
            tensor: type and dims.
            layout: layout of the elements.
        """
        storage = cls(tensor.dtype, tensor.dims, layout, constant=True)
        dims = list(tensor.dims)  # to refer to the tensor itself would make a cycle
        storage._source = lambda: _packed(values(), dims, layout)
        return storage

    @classmethod
    def like(
        cls,
        other: TensorStorage,
        extents: Mapping[str, int] | None = None,
        layout: Layout | None = None,
    ) -> TensorStorage:
        """Return a storage that equals ``other`` but has no memory yet.

        Args:
            other: gives the new storage its element type, its size in bytes, and ``constant``.
            extents: sizes by dim; None takes those of ``other``.
            layout: layout of the elements; None takes that of ``other``.
        """
        storage = cls.__new__(cls)
        storage.dtype, storage.layout = other.dtype, layout or other.layout
        storage.extents = dict(other.extents if extents is None else extents)
        storage.constant, storage.nbytes = other.constant, other.nbytes
        storage._owner, storage._begin = None, 0
        storage._array = storage._buffer = storage._source = None
        return storage

    @classmethod
    def stand_in(cls, other: TensorStorage) -> TensorStorage:
        """Return a storage equal to ``other`` that takes the memory of ``other`` at its first use.

        If ``other`` is not bound, the new storage has no memory.
        """
        storage = cls.like(other)
        if other.bound:
            storage._source = lambda: Buffer(other.memory)
        return storage

    @property
    def buffer(self) -> Buffer:
        """The buffer of ``root``, the storage that owns the memory.

        If only a function is known that returns the buffer, it is called now.

        Raises:
            ContractError: no memory is bound yet.
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
        """True if ``root``, the storage that owns the memory, has no buffer yet.

        It may still have a function that will return one.
        """
        return self.root._buffer is None

    @property
    def root(self) -> TensorStorage:
        """The storage that owns the memory: this one, or the one whose memory it shares."""
        root, owner = self, self._owner
        while owner is not None:
            root, owner = owner, owner._owner
        return root

    @property
    def begin(self) -> int:
        """Offset of this storage's first byte in the buffer of ``root``, in bytes."""
        storage, begin = self, 0
        while storage._owner is not None:
            begin += storage._begin
            storage = storage._owner
        return begin

    @property
    def memory(self) -> np.ndarray[Any, Any]:
        """The bytes of this storage.

        Raises:
            ContractError: no memory is bound yet.
        """
        begin = self.begin
        return self.buffer.memory[begin : begin + self.nbytes]

    @property
    def bound(self) -> bool:
        """True if ``root`` has a buffer, or a function that will return one at the first use."""
        return self.root._buffer is not None or self.root._source is not None

    def bind(self, buffer: Buffer) -> None:
        """Use the memory of ``buffer`` from now on.

        Raises:
            LayoutError: the buffer is smaller than the tensor.
        """
        if buffer.nbytes < self.nbytes:
            raise LayoutError(f"{self.nbytes} bytes are needed, the buffer has {buffer.nbytes}")
        self._buffer = buffer
        self._array = None

    def bind_later(self, buffer: Callable[[], Buffer]) -> None:
        """Release the memory; at the next use, call ``buffer()`` and take its result as the
        memory.
        """
        self.release()
        self._source = buffer

    def release(self) -> None:
        """Release the memory. A function given to ``bind_later`` or ``deferred`` is kept, and
        called again at the next use.
        """
        self._buffer = None
        self._array = None

    def forget(self) -> None:
        """Release the memory, and the function given to ``bind_later`` or ``deferred``."""
        self._source = None
        self.release()

    def share(self, other: TensorStorage) -> None:
        """Use the memory of ``other``: the same bytes, read with this storage's dims and layout.

        Raises:
            LayoutError: the two storages differ in number of bytes.
        """
        if other.nbytes != self.nbytes:
            raise LayoutError(f"{self.nbytes} bytes cannot share {other.nbytes} bytes")
        self.lie_in(other)

    def lie_in(self, other: TensorStorage, begin: int = 0) -> None:
        """Use the part of the memory of ``other`` that begins at byte ``begin``.

        Storages that share this storage's memory then use that part, too. If ``other`` itself
        shares this storage's memory, this storage stays the owner, and its memory is released as by
        ``release``.

        Raises:
            LayoutError: the part would begin before ``other`` or end behind it.
        """
        if not 0 <= begin <= other.nbytes - self.nbytes:
            raise LayoutError(f"{other.nbytes} bytes hold no {self.nbytes} from {begin} on")
        self._owner, self._begin = (None, 0) if other.root is self else (other, begin)
        self._buffer = None  # its own memory is not used any more
        self._array = None

    def data(self) -> np.ndarray[Any, Any]:
        """Return the elements, one axis per axis of the layout, pads included.

        With an encoding of several planes the result is their bytes, on one axis.
        """
        if self._owner is None and self._array is not None:
            return self._array
        stored = self.layout.stored(self.dtype)
        flat = self.memory.view(stored.numpy)
        array = flat.reshape(memory_shape(stored, self.layout.physical_shape(self.extents)))
        if self._owner is None:
            self._array = array
        return array


def _packed(array: np.ndarray[Any, Any], dims: list[str], layout: Layout) -> Buffer:
    """Return a new buffer with the values of ``array`` in ``layout``, or the array's own memory if
    it has this layout already.

    Args:
        dims: the names of the array's axes.
    """
    return Buffer.wrap(contiguous(pack(array, dims, layout)))


class ArrayStorage(_InMemory):
    """The memory of a VTensor as an array with any strides, such as a slice, which has gaps.

    Args:
        array: the elements; it keeps its owner alive. One axis per axis of the layout, or per dim
            without a layout.
        extents: sizes by dim.
        layout: layout of the array; None takes the dims as axes, in the order of their strides, the
            largest first.
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
        """Return the elements, one axis per axis of the layout, pads included."""
        return self.array


def _order(array: np.ndarray[Any, Any]) -> list[int]:
    """Return the indices of the array's axes, sorted by stride, the largest first.

    The index of an axis of size 1, whose stride means nothing, stays where it is.
    """
    axes = [axis for axis in range(array.ndim) if array.shape[axis] != 1]
    by_stride = iter(sorted(axes, key=lambda axis: -abs(array.strides[axis])))
    return [next(by_stride) if axis in axes else axis for axis in range(array.ndim)]
