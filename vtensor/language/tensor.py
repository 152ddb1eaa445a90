"""VTensor: named dims and an element type, and no memory order.

A VTensor with elements in memory has a *storage*: a protocol here, implemented in
``ptensor/buffer.py``, so that the language knows nothing of layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from vtensor.errors import ContractError, DimError, DTypeError, LayoutError
from vtensor.language.dims import dim_names
from vtensor.language.dtype import ITEMSIZE, NARROW_FLOATS, bits
from vtensor.language.records import dataclass
from vtensor.language.symbolic.sizes import OpenSize

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from ptensor.layout import Layout
    from ptensor.parts import Part


#: The most bytes of a tensor: the largest number of the C type ``ptrdiff_t``.
MAX_BYTES = 2**63 - 1


class Storage(Protocol):
    """The memory of a VTensor: the elements, their layout, and whether they ever change."""

    @property
    def layout(self) -> Layout:
        """The layout of the bytes."""

    @property
    def constant(self) -> bool:
        """True if the values are known before a run and never change."""

    def data(self) -> np.ndarray[Any, Any]:
        """Return the elements as an array with an axis for each axis of the layout, with pads."""

    def logical(self, tensor: VTensor) -> np.ndarray[Any, Any]:
        """Return a tensor's elements as an array with an axis for each of its dims, without pads.

        The array shares the storage's memory if the layout allows a view, else it is a copy.

        Args:
            tensor: the tensor that has this storage, or a view of it.
        """

    def part(self, tensor: VTensor) -> Part | None:
        """Return a view of a tensor's elements in this memory, and their layout in its dims.

        None if the tensor is a view, and no layout with the view's dims describes this memory.

        Args:
            tensor: the tensor that has this storage, or a view of it.
        """

    def over(
        self,
        array: np.ndarray[Any, Any],
        extents: Mapping[str, int],
        layout: Layout | None = None,
    ) -> Storage:
        """Return a new storage that holds an array.

        Args:
            array: the elements, with an axis for each axis of ``layout``, or for each dim if
                ``layout`` is None.
            extents: the sizes by dim.
            layout: the layout of the array; None if it has an axis for each dim.
        """

    def export(self, tensor: VTensor, **options: Any) -> object:
        """Return a DLPack capsule of the array ``logical(tensor)``.

        Args:
            tensor: the tensor that has this storage, or a view of it.
            options: those of ``VTensor.__dlpack__``.
        """


#: The name of the default device.
CPU = "cpu"


@dataclass(frozen=True)
class Option:
    """The origin of a VTensor: output ``index`` of ``node``.

    In the paper, it is the third argument of VTensor.

    Attributes:
        node: name of the node; empty for inputs, constants and tensors outside a graph.
        op: name of the node's operator.
        index: index among the node's outputs, from 0.
        device: the device that holds the value.
        name: the value's name; empty means that the name is ``node`` for output 0, ``node:index``
            for others.
    """

    node: str = ""
    op: str = ""
    index: int = 0
    device: str = CPU
    name: str = ""


@dataclass(frozen=True)
class DimView:
    """How the dims of a view are made from those of its base, the tensor that it is a view of.

    Attributes:
        names: by dim of the base, the dims that it becomes in the view. One dim means that it is
            renamed; several, slowest first, that it is split. Empty for a tensor that is no view.
    """

    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


#: The ``option`` of a tensor that no node computes, and the ``view`` of a tensor that is no view.
_NO_ORIGIN, _NO_VIEW = Option(), DimView()


def _check_dim(name: object, size: object) -> None:
    if not isinstance(name, str) or not name.isidentifier():
        raise DimError(f"a dim's name is an identifier such as 'N' or 'batch', not {name!r}")
    if isinstance(size, OpenSize):
        return
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise DimError(f"dim {name} has size {size!r}; a size is an integer of at least 0")


class VTensor:
    """A tensor as an operator sees it: an element type and named dims with sizes.

    The order of ``dims`` is *presentation order*, the order of axes of the user's arrays (in NumPy,
    in ONNX); it says nothing about memory.

    Args:
        dtype: element type, ``"f32"``, ``"bf16"``, ...
        dims: sizes by name, each at least 0.
        option: the origin of the tensor: for output i of a node, ``ctx.output(i)``.

    Raises:
        DimError: a name is no identifier, a size is negative or no integer, or the tensor has more
            than ``MAX_BYTES`` bytes.
        DTypeError: the element type is unknown.

    >>> x = VTensor("f32", {"N": 1, "C": 64, "H": 56, "W": 56})
    >>> x.size("C"), x.ndimensions(), x.nbytes
    (64, 4, 802816)

    Source: the paper, section 4.1.
    """

    __slots__ = ("_dims", "_storage", "base", "dtype", "option", "produced_layout", "view")

    def __init__(self, dtype: str, dims: Mapping[str, int], option: Option | None = None) -> None:
        if dtype not in ITEMSIZE:
            raise DTypeError(f"unknown element type {dtype!r}; one of {', '.join(ITEMSIZE)}")
        known = []
        for name, size in dims.items():
            if type(size) is not int or size < 0 or not (type(name) is str and name.isidentifier()):
                _check_dim(name, size)
            if not isinstance(size, OpenSize):
                known.append(size)
        if max(prod(known), *known, 0) * ITEMSIZE[dtype] > MAX_BYTES:
            raise DimError(f"{dict(dims)} of {dtype} takes more bytes than 64 bits can count")
        self.dtype = dtype
        self._dims = MappingProxyType(dict(dims))
        self.option = option or _NO_ORIGIN
        #: The layout in which the node leaves the values; None before the resolver has run.
        self.produced_layout: Layout | None = None
        self._storage: Storage | None = None
        self.base: VTensor | None = None
        self.view = _NO_VIEW

    @classmethod
    def as_known(cls, dtype: str, dims: dict[str, int], option: Option) -> VTensor:
        """Return a tensor without checks, given a valid element type and valid dims."""
        tensor = cls.__new__(cls)
        tensor.dtype, tensor._dims, tensor.option = dtype, MappingProxyType(dims), option
        tensor.produced_layout = tensor._storage = tensor.base = None
        tensor.view = _NO_VIEW
        return tensor

    @property
    def dims(self) -> Mapping[str, int]:
        """Sizes by dim, in the order of the axes of the user's arrays."""
        return self._dims

    @property
    def name(self) -> str:
        """The value's name in its graph: ``node`` or ``node:index``; empty outside a graph."""
        option = self.option
        return option.name or (f"{option.node}:{option.index}" if option.index else option.node)

    @property
    def op(self) -> str:
        """The name of the operator that computes this value; empty for inputs and constants."""
        return self.option.op

    @property
    def device(self) -> str:
        """The device that holds the value."""
        return self.option.device

    @property
    def num_elements(self) -> int:
        """Number of elements, pads excluded."""
        return prod(self._dims.values())

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, pads excluded."""
        return self.num_elements * ITEMSIZE[self.dtype]

    @property
    def storage(self) -> Storage | None:
        """The memory of this tensor; None while the tensor has no elements in memory."""
        return self.base.storage if self.base is not None else self._storage

    @storage.setter
    def storage(self, storage: Storage) -> None:
        self._storage = storage
        self.produced_layout = storage.layout

    @property
    def constant(self) -> bool:
        """True if the values are known before a run."""
        return self.storage is not None and self.storage.constant

    def size(self, dim: str) -> int:
        """Return the size of a dim.

        Raises:
            DimError: this tensor has no such dim.
        """
        try:
            return self._dims[dim]
        except KeyError:
            names = " ".join(self._dims) or "none"
            raise DimError(
                f"{self.name or 'tensor'} has no dim {dim!r}; its dims are {names}"
            ) from None

    def ndimensions(self) -> int:
        """Return the number of dims."""
        return len(self._dims)

    def data(self) -> np.ndarray[Any, Any]:
        """Return the elements as an array with an axis for each axis of the layout, with pads.

        Raises:
            ContractError: the tensor has no elements in memory yet, as in partial evaluation.
        """
        if self.storage is None:
            raise ContractError(
                f"{self.name or 'this VTensor'} has no data: nothing has computed it"
            )
        return self.storage.data()

    def part(self) -> Part | None:
        """Return a view of the elements, and their layout in this tensor's dims.

        None if the tensor is a view, and no layout with the view's dims describes its memory.

        Raises:
            ContractError: the tensor has no elements in memory yet.
        """
        self.data()
        assert self.storage is not None, "data() has seen to it"
        return self.storage.part(self)

    def numpy(
        self, order: str | Sequence[str] | None = None, *, copy: bool | None = None
    ) -> np.ndarray[Any, Any]:
        """Return the elements as an array with an axis for each dim, without pads.

        Args:
            order: the dim of each axis, ``"N H W C"``; None is the order of ``dims``.
            copy: True copies, False never does, None copies only if the layout allows no view.

        Raises:
            ContractError: the tensor has no elements in memory yet.
            DimError: the order does not name each dim once.
            LayoutError: ``copy=False``, and the layout allows no view.
        """
        array = self._logical(copy is False)
        if order is not None:
            names = dim_names(order)
            if sorted(names) != sorted(self._dims):
                have = " ".join(self._dims)
                raise DimError(f"order {' '.join(names)!r} does not name each dim of {have} once")
            place = list(self._dims)
            array = array.transpose([place.index(name) for name in names])
        return array.copy() if copy else array

    def slice(self, *, copy: bool | None = None, **ranges: tuple[int, int]) -> VTensor:
        """Return a part of this tensor: a range of indices along each named dim.

        The part is a view of the same memory if the layout allows it: along dims without blocks,
        and in whole blocks.

        Args:
            copy: True copies, False never does, None copies only if the layout allows no view.
            ranges: by dim, the first index and the end, which is excluded.

        Raises:
            ContractError: the tensor has no elements in memory yet.
            DimError: there is no such dim, or a range exceeds its size.
            LayoutError: ``copy=False``, and the layout allows no view.

        ``x.slice(H=(2, 5))`` has size 3 in H.
        """
        for dim, span in ranges.items():
            size = self.size(dim)
            if not _is_span(span, size):
                raise DimError(f"{dim}={span!r}: a slice is (begin, end), within 0 and {size}")
        spans = {dim: ranges.get(dim, (0, size)) for dim, size in self._dims.items()}
        sizes = {dim: end - begin for dim, (begin, end) in spans.items()}
        part = self.part()
        view = part.sliced(ranges) if part is not None else None
        places: list[Any] = [slice(*span) for span in spans.values()]
        return self._view_or_copy(view, sizes, copy, lambda: self.numpy()[(*places, ...)])

    def merge(self, dims: str | Sequence[str], into: str, *, copy: bool | None = None) -> VTensor:
        """Return this tensor with several dims merged into one.

        In the order of dims, the new dim is where the first of the merged ones was. The result is a
        view of the same memory if the layout allows it. For that, the merged dims must have no
        blocks and be neighbours in memory; other dims may have blocks. ``split`` is the inverse.

        Args:
            dims: the dims to merge, slowest first: ``"H W"``.
            into: the name of the merged dim.
            copy: True copies, False never does, None copies only if the layout allows no view.

        Raises:
            ContractError: the tensor has no elements in memory yet.
            DimError: ``dims`` is empty, names a dim twice or one that the tensor lacks, or ``into``
                is the name of another dim or no identifier.
            LayoutError: ``copy=False``, and the layout allows no view.
        """
        parts = dim_names(dims)
        for dim in parts:
            self.size(dim)
        others = [dim for dim in self._dims if dim not in parts]
        if not parts or into in others or not into.isidentifier():
            raise DimError(f"{parts} cannot become {into!r}: name some dims, and a free name")
        at = sum(dim in others for dim in list(self._dims)[: list(self._dims).index(parts[0])])
        order = [*others[:at], *parts, *others[at:]]
        whole = {into: prod(map(self.size, parts))}
        sizes = {d: whole.get(d, self._dims.get(d, 0)) for d in [*others[:at], into, *others[at:]]}
        part = self.part()
        view = part.merged(parts, into) if part is not None else None
        return self._view_or_copy(
            view, sizes, copy, lambda: self.numpy(order).reshape(list(sizes.values()))
        )

    def shares_memory(self, other: VTensor | np.ndarray[Any, Any]) -> bool:
        """Return whether this tensor and another, or an array, share memory, pads included.

        If that would take too long to decide, return whether the bounds of the memory overlap.
        """
        import numpy as np

        left, right = self.data(), other.data() if isinstance(other, VTensor) else other
        try:
            return bool(np.shares_memory(left, right, max_work=1_000_000))  # type: ignore[arg-type]  # NumPy takes any number
        except np.exceptions.TooHardError:  # deciding would take too long
            return bool(np.may_share_memory(left, right))

    def to_proto(self, name: str = "", *, raw: bool = True) -> onnx.TensorProto:
        """Return the elements as an ONNX tensor with its axes in the order of ``dims``.

        Args:
            name: the ONNX tensor's name; by default this tensor's.
            raw: True stores the elements as bytes in ``raw_data``, False as numbers in the field
                for the element type.

        Raises:
            ContractError: the tensor has no elements in memory yet.
            DTypeError: the installed ONNX is older than the element type.
        """
        from onnx import helper, numpy_helper

        array = self.numpy()
        try:
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        except ValueError:
            raise DTypeError(f"the installed onnx has no {self.dtype}; to fix: update it") from None
        proto = numpy_helper.from_array(array, name or self.name)
        if raw:
            return proto
        if self.dtype in ("f16", "bf16", *NARROW_FLOATS) and bits(self.dtype) >= 8:
            # The field holds the elements' bits as integers. They are taken from memory, since a
            # conversion to Python's floats would change some of them.
            proto.ClearField("raw_data")
            codes = array.view(f"u{array.itemsize}")
            proto.int32_data.extend(codes.ravel().tolist())
            return proto
        return helper.make_tensor(name or self.name, kind, array.shape, array.ravel().tolist())

    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """Return a DLPack capsule of the elements, with an axis for each dim.

        The capsule shares this tensor's memory if the layout allows it.

        Args:
            stream, max_version, dl_device, copy: as in the standard that is named at the end.

        Raises:
            ContractError: the tensor has no elements in memory yet.
            DLPackError: the consumer asks for another device or a stream; or a copy is needed in
                spite of ``copy=False``; or the memory is read-only, and the consumer's version of
                DLPack cannot mark it so.

        Source: the Python array API standard 2023.12, data interchange.
        """
        self.data()
        assert self.storage is not None, "data() has seen to it"
        return self.storage.export(
            self, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's number of the device type CPU, and the device's index."""
        return (1, 0)

    def _logical(self, view: bool) -> np.ndarray[Any, Any]:
        """Return the elements as an array with an axis for each dim, without pads.

        Args:
            view: True if the array must share this tensor's memory.

        Raises:
            LayoutError: ``view`` is True, and the layout allows no view.
        """
        memory = self.data()
        assert self.storage is not None, "data() has seen to it"
        array = self.storage.logical(self)
        if view and not _within(array, memory):
            layout = self.storage.layout
            raise LayoutError(f"{self!r} has the layout {layout}: no array is a view of it")
        return array

    def _view_or_copy(
        self,
        view: Part | None,
        sizes: Mapping[str, int],
        copy: bool | None,
        logical: Callable[[], np.ndarray[Any, Any]],
    ) -> VTensor:
        """Return a new tensor that holds a view of this tensor's elements, or a copy.

        Args:
            view: the view; None if the layout allows none.
            sizes: the sizes of the new tensor by dim.
            copy: True copies, False never does, None copies only if the layout allows no view.
            logical: returns the new tensor's elements with an axis for each dim; called only if
                there is no view.

        Raises:
            LayoutError: ``copy=False``, and there is no view.
        """
        assert self.storage is not None, "a tensor with a part has a storage"
        tensor = VTensor(self.dtype, sizes)
        if view is not None:
            array = view.array.copy() if copy else view.array
            tensor.storage = self.storage.over(array, sizes, view.layout)
        elif copy is False:
            layout = self.storage.layout
            raise LayoutError(
                f"{self!r} has the layout {layout}: {tensor!r} cannot be a view of it; "
                "a copy is needed"
            )
        else:
            tensor.storage = self.storage.over(logical(), sizes)
        return tensor

    def rename(self, names: Mapping[str, str]) -> VTensor:
        """Return a view of this tensor under other dim names.

        Args:
            names: by dim of this tensor, its new name; dims that are left out keep their names.

        Raises:
            DimError: this tensor lacks a dim in ``names``; two dims would have one name; or this
                tensor is a view already.

        >>> VTensor("f32", {"N": 2, "C": 3}).rename({"C": "K"}).summary()
        'f32 N=2 K=3'
        """
        for dim in names:
            self.size(dim)
        mapping = {dim: (names.get(dim, dim),) for dim in self._dims}
        return self._as_view({names.get(d, d): s for d, s in self._dims.items()}, mapping)

    def split(self, dim: str, into: Mapping[str, int]) -> VTensor:
        """Return a view of this tensor with one dim split into several.

        Args:
            dim: the dim to split.
            into: sizes by name of the new dims, slowest first.

        Raises:
            DimError: the product of the sizes in ``into`` is not the dim's size; two dims would
                have one name; or this tensor is a view already.

        >>> VTensor("f32", {"O": 8, "I": 3}).split("O", {"G": 2, "O": 4}).summary()
        'f32 G=2 O=4 I=3'
        """
        if prod(into.values()) != self.size(dim):
            raise DimError(f"{dim}={self.size(dim)} cannot be split into {dict(into)}")
        dims: dict[str, int] = {}
        for name, size in self._dims.items():
            dims.update(into if name == dim else {name: size})
        mapping = {name: tuple(into) if name == dim else (name,) for name in self._dims}
        return self._as_view(dims, mapping)

    def _as_view(self, dims: Mapping[str, int], names: Mapping[str, tuple[str, ...]]) -> VTensor:
        if len(dims) != sum(len(parts) for parts in names.values()):
            raise DimError(f"a view names a dim twice: {[n for p in names.values() for n in p]}")
        if self.base is not None:
            raise DimError("a view of a view is not taken: view the operand itself")
        view = VTensor(self.dtype, dims, self.option)
        view.base = self
        view.view = DimView(names)
        return view

    def summary(self) -> str:
        """Return the element type and the sizes in one line."""
        return " ".join([self.dtype, *(f"{d}={s}" for d, s in self._dims.items())])

    def __repr__(self) -> str:
        label = f" {self.name!r}" if self.name else ""
        return f"<VTensor{label} {self.summary()}>"


def _is_span(span: object, size: int) -> bool:
    if not isinstance(span, tuple) or len(span) != 2:
        return False
    begin, end = span
    whole = all(
        isinstance(bound, (int, OpenSize)) and not isinstance(bound, bool) for bound in span
    )
    return whole and 0 <= begin <= end <= size


def _within(array: np.ndarray[Any, Any], memory: np.ndarray[Any, Any]) -> bool:
    """Return whether an array that was made from ``memory``, as a view or a copy, is a view of it.

    A copy has memory of its own, so overlapping bounds prove a view.
    """
    import numpy as np

    return array.size == 0 or bool(np.may_share_memory(array, memory))
