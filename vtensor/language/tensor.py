"""VTensor: named dims and an element type, and no memory order.

What a VTensor holds in memory, once it holds anything, is a *storage*: a protocol here, implemented
in ``ptensor/buffer.py``, so that the language knows nothing of layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from vtensor.errors import ContractError, DimError, DTypeError, LayoutError
from vtensor.language.dims import dim_names
from vtensor.language.dtype import ITEMSIZE
from vtensor.language.records import dataclass
from vtensor.language.sizes import OpenSize

if TYPE_CHECKING:
    import numpy as np
    import onnx

    from ptensor.layout import Layout
    from ptensor.parts import Part


#: The most bytes that a tensor may have: what an address can count.
MAX_BYTES = 2**63 - 1


class Storage(Protocol):
    """The memory behind a VTensor: who owns it, in which layout, and whether it ever changes."""

    @property
    def layout(self) -> Layout:
        """The layout that the bytes are in."""

    @property
    def constant(self) -> bool:
        """True when the values are known before a run and never change."""

    def data(self) -> np.ndarray[Any, Any]:
        """The elements, one axis an axis of the layout; pads included."""

    def logical(self, tensor: VTensor) -> np.ndarray[Any, Any]:
        """The elements of a tensor with this storage, or of a view of it: one axis a dim, no pads.

        The array shares this memory where the layout allows.
        """

    def part(self, tensor: VTensor) -> Part | None:
        """The elements of such a tensor where they lie; None if a view's dims cannot say where."""

    def over(
        self,
        array: np.ndarray[Any, Any],
        extents: Mapping[str, int],
        layout: Layout | None = None,
    ) -> Storage:
        """A storage that is an array: as it lies in a layout, or with an axis a dim."""

    def export(self, tensor: VTensor, **options: Any) -> object:
        """A DLPack capsule of ``logical``; options as for ``VTensor.__dlpack__``."""


#: The name of the device that everything runs on unless it is placed elsewhere.
CPU = "cpu"


@dataclass(frozen=True)
class Option:
    """Where a VTensor comes from: the output ``index`` of ``node`` (the paper's third argument)."""

    node: str = ""
    op: str = ""
    index: int = 0
    device: str = CPU
    name: str = ""


@dataclass(frozen=True)
class DimView:
    """How a view's dims map to its base's: each base dim to the names that it goes by in the view.

    One name is a renaming; several, slowest first, split the dim into that many.
    """

    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


#: What a VTensor has that is no output of a node, and no view.
_NOWHERE, _WHOLE = Option(), DimView()


def _check_dim(name: object, size: object) -> None:
    if not isinstance(name, str) or not name.isidentifier():
        raise DimError(f"a dim's name is an identifier such as 'N' or 'batch', not {name!r}")
    if isinstance(size, OpenSize):
        return
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise DimError(f"dim {name} has size {size!r}; a size is an integer of at least 0")


class VTensor:
    """A tensor as an operator sees it: an element type and named dims with sizes.

    The order in which the dims are given is how the tensor is *presented* (to ONNX, to NumPy); it
    says nothing about memory.

    Args:
        dtype: element type, ``"f32"``, ``"bf16"``, ...
        dims: sizes by name, each at least 0.
        option: which output of which node this is, from ``ctx.output(i)``.

    Raises:
        DimError: a name is no identifier, a size is negative or no integer, or all together are
            more than memory can ever hold.
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
        self.option = option or _NOWHERE
        #: The layout in which the producer leaves the values; None before the resolver.
        self.produced_layout: Layout | None = None
        self._storage: Storage | None = None
        self.base: VTensor | None = None
        self.view = _WHOLE

    @classmethod
    def as_known(cls, dtype: str, dims: dict[str, int], option: Option) -> VTensor:
        """A tensor whose type and dims were checked before."""
        made = cls.__new__(cls)
        made.dtype, made._dims, made.option = dtype, MappingProxyType(dims), option
        made.produced_layout = made._storage = made.base = None
        made.view = _WHOLE
        return made

    @property
    def dims(self) -> Mapping[str, int]:
        """Sizes by name, in presentation order."""
        return self._dims

    @property
    def name(self) -> str:
        """The value's name in its graph: ``node`` or ``node:index``; empty outside a graph."""
        option = self.option
        return option.name or (f"{option.node}:{option.index}" if option.index else option.node)

    @property
    def op(self) -> str:
        """The operator that makes this value; empty for inputs and constants."""
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
        """The memory behind this tensor, or None while it is only a description."""
        return self.base.storage if self.base is not None else self._storage

    @storage.setter
    def storage(self, storage: Storage) -> None:
        self._storage = storage
        self.produced_layout = storage.layout

    @property
    def constant(self) -> bool:
        """True when the values are known before a run."""
        return self.storage is not None and self.storage.constant

    def size(self, dim: str) -> int:
        """Size of a dim.

        Raises:
            DimError: this tensor has no such dim.
        """
        try:
            return self._dims[dim]
        except KeyError:
            have = " ".join(self._dims) or "none"
            raise DimError(
                f"{self.name or 'tensor'} has no dim {dim!r}; its dims are {have}"
            ) from None

    def ndimensions(self) -> int:
        """Number of dims."""
        return len(self._dims)

    def data(self) -> np.ndarray[Any, Any]:
        """The elements as they lie in memory (``produced_layout`` says how), pads included.

        Raises:
            ContractError: there is nothing in memory yet, as in partial evaluation.
        """
        if self.storage is None:
            raise ContractError(
                f"{self.name or 'this VTensor'} has no data: nothing has computed it"
            )
        return self.storage.data()

    def part(self) -> Part | None:
        """A view of the elements by this tensor's dims; None if the layout does not allow one.

        Raises:
            ContractError: there is nothing in memory yet.
        """
        self.data()
        assert self.storage is not None, "data() has seen to it"
        return self.storage.part(self)

    def numpy(
        self, order: str | Sequence[str] | None = None, *, copy: bool | None = None
    ) -> np.ndarray[Any, Any]:
        """The elements as an array with an axis for each dim, without pads.

        Args:
            order: the dims in the order of the axes, ``"N H W C"``; None is presentation order.
            copy: True copies, False never does, None copies only if the layout allows no view.

        Raises:
            ContractError: there is nothing in memory yet.
            DimError: the order does not name each dim once.
            LayoutError: ``copy=False``, and no array has these elements where they lie.
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
        """A part of this tensor: of each dim named, the indices from begin to end, end excluded.

        A view of the same memory where the layout allows one: for dims without blocks, and for
        whole blocks; ``copy`` as in ``numpy``.

        Raises:
            ContractError: there is nothing in memory yet.
            DimError: there is no such dim, or a range leaves it.
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
        return self._seen(view, sizes, copy, lambda: self.numpy()[(*places, ...)])

    def merge(self, dims: str | Sequence[str], into: str, *, copy: bool | None = None) -> VTensor:
        """This tensor with several dims merged into one, at the place of the first; undoes split.

        A view of the same memory where the layout allows one: the dims must have no blocks and be
        neighbours in memory (other dims may have blocks); ``copy`` as in ``numpy``.

        Args:
            dims: the dims to merge, slowest first: ``"H W"``.
            into: the name of the merged dim.

        Raises:
            ContractError: there is nothing in memory yet.
            DimError: dims are missing or repeated, or the name is taken.
            LayoutError: ``copy=False``, and the layout allows no view.
        """
        parts = dim_names(dims)
        for dim in parts:
            self.size(dim)
        rest = [dim for dim in self._dims if dim not in parts]
        if not parts or into in rest or not into.isidentifier():
            raise DimError(f"{parts} cannot become {into!r}: name some dims, and a free name")
        at = sum(dim in rest for dim in list(self._dims)[: list(self._dims).index(parts[0])])
        order = [*rest[:at], *parts, *rest[at:]]
        whole = {into: prod(map(self.size, parts))}
        sizes = {d: whole.get(d, self._dims.get(d, 0)) for d in [*rest[:at], into, *rest[at:]]}
        part = self.part()
        view = part.merged(parts, into) if part is not None else None
        return self._seen(
            view, sizes, copy, lambda: self.numpy(order).reshape(list(sizes.values()))
        )

    def shares_memory(self, other: VTensor | np.ndarray[Any, Any]) -> bool:
        """True when some of this tensor's memory, pads included, is another's (or an array's)."""
        import numpy as np

        left, right = self.data(), other.data() if isinstance(other, VTensor) else other
        try:
            return bool(np.shares_memory(left, right, max_work=1_000_000))  # type: ignore[arg-type]  # any number will do
        except np.exceptions.TooHardError:  # strides that no one can decide in good time
            return bool(np.may_share_memory(left, right))

    def to_proto(self, name: str = "", *, raw: bool = True) -> onnx.TensorProto:
        """The elements as an ONNX tensor, in presentation order: layouts never leak.

        Args:
            name: the ONNX tensor's name; this tensor's own when not given.
            raw: as bytes; otherwise in the typed field of the element type.

        Raises:
            ContractError: there is nothing in memory yet.
            DTypeError: the installed ONNX is older than its element type.
        """
        from onnx import helper, numpy_helper

        array = self.numpy()
        try:
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        except ValueError:
            raise DTypeError(f"the installed onnx has no {self.dtype}; to fix: update it") from None
        if raw:
            return numpy_helper.from_array(array, name or self.name)
        return helper.make_tensor(name or self.name, kind, array.shape, array.ravel().tolist())

    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """The elements for another framework, an axis a dim: this memory if the layout allows.

        Raises:
            ContractError: there is nothing in memory yet.
            DLPackError: another device or a stream is asked for; a copy is needed in spite of
                ``copy=False``; or the memory is read-only, and the consumer too old to be told.

        Source: the Python array API standard 2023.12, data interchange.
        """
        self.data()
        assert self.storage is not None, "data() has seen to it"
        return self.storage.export(
            self, stream=stream, max_version=max_version, dl_device=dl_device, copy=copy
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's number of the CPU, and which one."""
        return (1, 0)

    def _logical(self, view: bool) -> np.ndarray[Any, Any]:
        """The elements, an axis a dim; with ``view``, where they lie or not at all."""
        memory = self.data()
        assert self.storage is not None, "data() has seen to it"
        array = self.storage.logical(self)
        if view and not _within(array, memory):
            raise LayoutError(f"{self!r} lies in {self.storage.layout}: no view of it is an array")
        return array

    def _seen(
        self,
        view: Part | None,
        sizes: Mapping[str, int],
        copy: bool | None,
        logical: Callable[[], np.ndarray[Any, Any]],
    ) -> VTensor:
        """A tensor of some of the elements: on a view of them, else on a copy."""
        assert self.storage is not None, "who has a part has a storage"
        tensor = VTensor(self.dtype, sizes)
        if view is not None:
            array = view.array.copy() if copy else view.array
            tensor.storage = self.storage.over(array, sizes, view.layout)
        elif copy is False:
            raise LayoutError(
                f"{self!r} lies in {self.storage.layout}: {tensor!r} cannot be a view of it; "
                "a copy is needed"
            )
        else:
            tensor.storage = self.storage.over(logical(), sizes)
        return tensor

    def rename(self, names: Mapping[str, str]) -> VTensor:
        """This tensor under other dim names; a view, nothing moves.

        >>> VTensor("f32", {"N": 2, "C": 3}).rename({"C": "K"}).summary()
        'f32 N=2 K=3'
        """
        for dim in names:
            self.size(dim)
        mapping = {dim: (names.get(dim, dim),) for dim in self._dims}
        return self._as_view({names.get(d, d): s for d, s in self._dims.items()}, mapping)

    def split(self, dim: str, into: Mapping[str, int]) -> VTensor:
        """This tensor with one dim seen as several, slowest first; a view, nothing moves.

        Raises:
            DimError: the sizes do not multiply to the dim's.

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
        """Element type and sizes in one line."""
        return " ".join([self.dtype, *(f"{d}={s}" for d, s in self._dims.items())])

    def __repr__(self) -> str:
        label = f" {self.name!r}" if self.name else ""
        return f"<VTensor{label} {self.summary()}>"


def _is_span(span: object, size: int) -> bool:
    if not isinstance(span, tuple) or len(span) != 2:
        return False
    begin, end = span
    whole = all(isinstance(one, (int, OpenSize)) and not isinstance(one, bool) for one in span)
    return whole and 0 <= begin <= end <= size


def _within(array: np.ndarray[Any, Any], memory: np.ndarray[Any, Any]) -> bool:
    """True when an array made from another is a view of it: fresh memory overlaps nothing."""
    import numpy as np

    return array.size == 0 or bool(np.may_share_memory(array, memory))
