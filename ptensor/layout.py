"""The layout algebra: the place in memory of each element of a tensor with named dims.

A layout is an order of dims from slowest to fastest, some of them split into blocks, and optionally
an element encoding. It is a value without extents: methods that depend on extents take them as a
mapping from dim to size. The text forms are described in ``ptensor/parse.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from math import prod
from operator import index as as_int
from typing import ClassVar, NoReturn, TypeVar, final

from ptensor.convert import preserves
from ptensor.encoding import Encoding, of_type
from ptensor.parse import Axis, check_axes, parse, spell
from vtensor.errors import DimError, LayoutError
from vtensor.language.dims import is_one

__all__ = ["Axis", "Encoding", "Layout"]

T = TypeVar("T")
Sizes = tuple[tuple[str, int], ...]


@final
class Layout:
    """A memory order of named dims: ``Layout("NHWC")``, ``Layout("NCHW16c")``, ``Layout.ANY``.

    Equal layouts have equal axes and equal encodings; they hash alike and may be the same object.
    ``same`` tells whether two layouts agree on given sizes.

    Let a dim have blocks b1, ..., bn, the outermost first. Index i of the dim is at position i //
    (b1*...*bn) of the outer axis, at (i // (b2*...*bn)) % b1 of the first block's axis, and so on.
    In ``OIhw16i64o2i``, an index of I is outer*32 + b16*2 + b2. The size of the dim is padded to a
    multiple of b1*...*bn.

    Args:
        layout: a text in the compact form (``"OIhw16i64o2i:bf16"``) or the spaced one (``"batch
            head seq/64 feat seq%64"``), or a Layout, which comes back as it is.

    Raises:
        LayoutError: the text does not parse; the message has text, place and remedy.
        DimError: a dim occurs twice, or a block's dim not at all.

    >>> layout = Layout("NCHW16c")
    >>> layout.dims, layout.blocks("C")
    (('N', 'C', 'H', 'W'), (16,))
    >>> layout.physical_shape({"N": 1, "C": 20, "H": 7, "W": 7})
    (1, 2, 7, 7, 16)

    Source: DESIGN.md section 5; the paper, section 4.1 (LAYOUT).
    """

    __slots__ = (
        "__weakref__",
        "_axes",
        "_blocks",
        "_dims",
        "_encoding",
        "_hash",
        "_text",
        "_units",
    )

    #: A layout has no symbolic sizes (``vtensor.language.symbolic.trace.is_open``).
    holds_no_sizes: ClassVar[bool] = True

    ANY: ClassVar[Layout]
    """No constraint. Methods that need an order raise LayoutError on it."""

    _axes: tuple[Axis, ...] | None
    _blocks: dict[str, tuple[int, ...]]
    _dims: tuple[str, ...]
    _encoding: Encoding | None
    _hash: int
    _text: str
    _units: tuple[int, ...]

    def __new__(cls, layout: str | Layout) -> Layout:
        if isinstance(layout, Layout):
            return layout
        if not isinstance(layout, str):
            raise LayoutError(f"a layout is a text such as 'NHWC' or a Layout, not {layout!r}")
        return _from_text(layout)

    @staticmethod
    def plain(dims: Iterable[str], encoding: Encoding | str | None = None) -> Layout:
        """Return the layout without blocks that has ``dims`` from slowest to fastest.

        >>> Layout.plain(["batch", "seq"])
        Layout('batch seq')
        """
        return _plain(tuple(dims), _encoding(encoding))

    @staticmethod
    def of_axes(axes: Iterable[tuple[str, int]], encoding: Encoding | str | None = None) -> Layout:
        """Return the layout with these axes, slowest first: (dim, block), block 0 for the outer
        part.

        >>> Layout.of_axes([("N", 0), ("C", 0), ("W", 0), ("C", 8)], "bf16")
        Layout('NCW8c:bf16')
        """
        return _build(check_axes(axes), _encoding(encoding))

    @property
    def is_any(self) -> bool:
        """True for ANY, with an encoding (``"ANY:bf16"``) or without."""
        return self._axes is None

    @property
    def is_plain(self) -> bool:
        """True if no dim has blocks (whatever the encoding); False for ANY."""
        return not (self._axes is None or self._blocks)

    @property
    def encoding(self) -> Encoding | None:
        """Encoding of an element; None for the tensor's own element type."""
        return self._encoding

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes of the physical array, slowest to fastest."""
        return self._order()

    @property
    def dims(self) -> tuple[str, ...]:
        """The dims in the order of their outer parts, slowest first."""
        self._order()
        return self._dims

    @property
    def units(self) -> tuple[int, ...]:
        """For each axis, how much the index of its dim grows from one position of the axis to the
        next one.

        >>> Layout("OIhw16i64o2i").units
        (64, 32, 1, 1, 2, 1, 1)
        """
        self._order()
        return self._units

    def blocks(self, dim: str) -> tuple[int, ...]:
        """Return the sizes of a dim's blocks, outermost first; empty if it has none.

        Raises:
            DimError: the layout has no such dim.

        >>> Layout("OIhw16i64o2i").blocks("I")
        (16, 2)
        """
        self._check_dims([dim])
        return self._blocks.get(dim, ())

    def block(self, dim: str) -> int:
        """Return the product of the sizes of a dim's blocks; 1 if it has none. The dim is padded to
        a multiple of it.

        >>> Layout("OIhw16i64o2i").block("I"), Layout("OIhw16i64o2i").block("h")
        (32, 1)
        """
        return prod(self.blocks(dim))

    def stored(self, dtype: str) -> Encoding:
        """Return the encoding of an element: the layout's own encoding, else plain ``dtype``.

        Args:
            dtype: the tensor's own element type.
        """
        return self._encoding or of_type(dtype)

    def stored_sizes(self, extents: Mapping[str, int]) -> dict[str, int]:
        """Return the number of stored elements by dim, without pads.

        It is the dim's size, except along a dim of the encoding's tile, where more elements are
        stored.

        >>> Layout("Ow:f32(tile=4@w)").stored_sizes({"O": 8, "w": 3})
        {'O': 8, 'w': 6}
        """
        sizes = self._sizes(extents)
        return sizes if self._encoding is None else self._encoding.stored_sizes(sizes)

    def padded(self, extents: Mapping[str, int]) -> dict[str, int]:
        """Return the size of each dim with its pads, in the order of ``dims``.

        It is the number of stored elements along the dim, rounded up to a multiple of
        ``block(dim)``.

        >>> Layout("NC16c").padded({"N": 3, "C": 17})
        {'N': 3, 'C': 32}
        """
        sizes = self.stored_sizes(extents)
        return {dim: -(-size // self.block(dim)) * self.block(dim) for dim, size in sizes.items()}

    def physical_shape(self, extents: Mapping[str, int]) -> tuple[int, ...]:
        """Return the shape of the array in memory, pads included: one number per axis.

        Args:
            extents: the size of exactly the dims of this layout, each at least 0.

        Raises:
            DimError: a dim is missing or unknown to the layout, or its size is negative or no
                integer; the encoding has another number of scales or zero points along a dim.
            LayoutError: ANY has no shape.

        >>> Layout("C8c").physical_shape({"C": 9})
        (2, 8)
        """
        sizes = self._sizes(extents)
        if self._encoding is not None:
            self._encoding.check(sizes)
            sizes = self._encoding.stored_sizes(sizes)
        if not self._blocks:
            return tuple(sizes.values())
        rows = zip(self._order(), self._units, strict=True)
        return tuple([axis.block or -(-sizes[axis.dim] // unit) for axis, unit in rows])

    def num_elements(self, extents: Mapping[str, int]) -> int:
        """Return the number of elements in memory, pads included."""
        return prod(self.physical_shape(extents))

    def nbytes(self, extents: Mapping[str, int], dtype: str) -> int:
        """Return the bytes in memory, pads and planes included; the layout's encoding overrides
        ``dtype``.

        >>> Layout("NHWC:bf16").nbytes({"N": 1, "H": 2, "W": 2, "C": 3}, "f32")
        24
        """
        return self.stored(dtype).nbytes(self.num_elements(extents))

    def step(self, dim: str, start: int, length: int, extents: Mapping[str, int]) -> int:
        """Return how far the element at index ``start + length`` of a dim is behind that at
        ``start``, in elements.

        Args:
            dim: a dim of the layout.
            start: the first index. Both indices may be beyond the size of the dim.
            length: the second index minus the first one.
            extents: the size of each dim of this layout.

        >>> Layout("NCHW16c").step("C", 0, 16, {"N": 1, "C": 32, "H": 2, "W": 3})
        96
        """
        return sum(
            (_digit(start + length, unit, block) - _digit(start, unit, block)) * stride
            for (axis_dim, block), unit, stride in zip(
                self._order(), self._units, self.strides(extents), strict=True
            )
            if axis_dim == dim
        )

    def strides(self, extents: Mapping[str, int]) -> tuple[int, ...]:
        """Return the distance in elements from one position of each axis to the next; the last is
        1.

        >>> Layout("NHWC").strides({"N": 2, "H": 5, "W": 7, "C": 3})
        (105, 21, 3, 1)
        """
        shape = self.physical_shape(extents)
        return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))

    def offset(self, index: Mapping[str, int], extents: Mapping[str, int]) -> int:
        """Return the offset of the element with this index, in elements from the start.

        Args:
            index: one number per dim, at least 0 and below the padded extent: pads have offsets.
            extents: the size of each dim of this layout.

        Raises:
            DimError: an index is missing, for an unknown dim, or out of range.

        >>> sizes = {"N": 1, "C": 32, "H": 2, "W": 3}
        >>> Layout("NCHW16c").offset({"N": 0, "C": 17, "H": 0, "W": 2}, sizes)
        129
        """
        strides = self.strides(extents)
        place = self._sizes(index, "an index")
        for dim, limit in self.padded(extents).items():
            if place[dim] >= limit:
                raise DimError(f"index {place[dim]} of dim {dim} in {self}: must be below {limit}")
        total = 0
        for (dim, block), unit, stride in zip(self._order(), self._units, strides, strict=True):
            total += _digit(place[dim], unit, block) * stride
        return total

    def same(self, other: Layout, extents: Mapping[str, int], dtype: str | None = None) -> bool:
        """Return whether a tensor of these sizes occupies memory in the same way under both
        layouts.

        Then every element has the same offset and the same encoding, and the same number of
        elements is allocated, so that pads have the same offsets, too. An example of two layouts
        that differ: C and C16c put 12 elements of C at the same offsets, but C allocates 12
        elements and C16c 16. Axes of size 1 may be anywhere. If a dim has size 0, all layouts with
        one encoding are the same.

        Args:
            other: the layout to compare with, of the same dims.
            extents: the size of each dim of this layout.
            dtype: the tensor's element type, which is then the encoding of a layout without one.

        Raises:
            DimError: the dims differ.
            LayoutError: one of the two is ANY.

        Cost: proportional to the number of axes, not of elements.

        >>> size = {"N": 8, "C": 16, "H": 7, "W": 7}
        >>> Layout("NCHW16c").same(Layout("NHWC"), size)
        True
        >>> Layout("NCHW16c").same(Layout("NHWC"), size | {"C": 12})
        False
        """
        sizes = tuple(self._sizes(extents).items())
        mine = _count(self, sizes)
        if other == self:
            return True
        theirs = _count(other, sizes)
        if self._encoding != other._encoding and (
            dtype is None or self.stored(dtype) != other.stored(dtype)
        ):
            return False
        if self._axes == other._axes:
            return True
        if mine != theirs or mine == 0:
            return mine == theirs
        steps = _steps(self, sizes), _steps(other, sizes)
        # A dim of size 1 has no pairs, unless its size is symbolic: then the pairs may differ.
        return prod(size for dim, size in sizes if steps[0][dim] != steps[1][dim]) == 1

    def _steps(self, extents: Mapping[str, int]) -> dict[str, list[tuple[int, int]]]:
        """Return for each dim the pairs (unit, stride) that tell how an index of the dim changes an
        element's offset.

        Index i of a dim adds f(i) elements to the offset. f(i) is a sum over the dim's axes: the
        position of i along the axis, times the stride of the axis.

        A pair (unit, stride) says that f(unit) = stride. The pairs are in the order of their units.
        Each axis of the dim gives one pair, except in two cases: its unit is not below the dim's
        size, so that all positions along it are 0; or its stride is in proportion to the pair
        before.

        The pairs then depend on f alone. The first is (1, f(1)); the unit of each further pair is
        the first index at which f departs from the proportion. So two layouts put every element at
        the same offset exactly if their pairs are equal. A dim of symbolic size counts as having
        several indices; if its size is 1, the pairs may differ although the layouts agree.
        """
        sizes = self.stored_sizes(extents)
        steps: dict[str, list[tuple[int, int]]] = {dim: [] for dim in sizes}
        rows = zip(self._order(), self._units, self.strides(extents), strict=True)
        for (dim, _), unit, stride in sorted(rows, key=lambda row: row[1]):
            line = steps[dim]
            if (is_one(sizes[dim]) if unit == 1 else unit >= sizes[dim]) or (
                line and stride * line[-1][0] == line[-1][1] * unit
            ):
                continue
            line.append((unit, stride))
        return steps

    def rename(self, mapping: Mapping[str, str]) -> Layout:
        """Return this layout with dims renamed, all at once, so that two may swap their names. ANY
        stays ANY.

        Args:
            mapping: the new name by old name; other dims keep their names.

        Raises:
            DimError: the layout lacks a dim to rename, or two dims end up with one name.

        >>> Layout("NCHW16c").rename({"C": "K", "H": "W", "W": "H"})
        Layout('NKWH16k')
        """
        if self._axes is None:
            return self
        self._check_dims(mapping)
        encoding = self._encoding.renamed(mapping) if self._encoding is not None else None
        return Layout.of_axes(((mapping.get(d, d), b) for d, b in self._axes), encoding)

    def restrict(self, dims: Iterable[str]) -> Layout:
        """Return this layout without the axes of all dims that are not in ``dims``. ANY stays ANY.

        If the encoding has scales, zero points or a tile along a removed dim, it is dropped, too.

        >>> Layout("NCHW16c").restrict({"C", "W"})
        Layout('CW16c')
        """
        if self._axes is None:
            return self
        keep = set(dims)
        if keep.issuperset(self._dims):
            return self
        encoding = self._encoding
        if encoding is not None and not keep.issuperset(encoding.named):
            encoding = None
        return _build(tuple(axis for axis in self._axes if axis.dim in keep), encoding)

    def unblock(self, dim: str) -> Layout:
        """Return this layout without the blocks of one dim. ANY stays ANY.

        >>> Layout("OIhw16i64o2i").unblock("I")
        Layout('OIhw64o')
        """
        if self._axes is None:
            return self
        self._check_dims([dim])
        axes = tuple(axis for axis in self._axes if not (axis.dim == dim and axis.block))
        return _build(axes, self._encoding)

    def with_encoding(self, encoding: Encoding | str | None) -> Layout:
        """Return the same order with another encoding; None for the tensor's own element type.

        >>> Layout("NHWC").with_encoding("s8(scale=0.5)")
        Layout('NHWC:s8(scale=0.5)')
        """
        return _build(self._axes, _encoding(encoding))

    def normalized(self, dtype: str) -> Layout:
        """Return this layout without its encoding if that is plain ``dtype``; otherwise this
        layout.

        Args:
            dtype: the tensor's own element type.

        >>> Layout("NHWC:f32").normalized("f32"), Layout("NHWC:bf16").normalized("f32")
        (Layout('NHWC'), Layout('NHWC:bf16'))
        """
        repeats_type = self._encoding is not None and self._encoding == of_type(dtype)
        return _build(self._axes, None) if repeats_type else self

    def rounds(self, dtype: str) -> bool:
        """Return whether storing values of an element type in this layout's encoding may round
        them.

        >>> Layout("NC:bf16").rounds("f32"), Layout("NC:f64").rounds("f32")
        (True, False)
        """
        return self._encoding is not None and not preserves(of_type(dtype), self._encoding)

    def _order(self) -> tuple[Axis, ...]:
        """Return the axes; raise LayoutError for ANY."""
        if self._axes is None:
            raise LayoutError(f"{self} has no order of dims: resolve it to a layout first")
        return self._axes

    def _check_dims(self, dims: Iterable[str]) -> None:
        """Check that the layout has these dims; raise DimError if it does not."""
        self._order()
        for dim in dims:
            if dim not in self._dims:
                raise DimError(
                    f"layout {self} has no dim {dim!r}; its dims are {self._dims_text()}"
                )

    def _sizes(self, extents: Mapping[str, int], what: str = "a size") -> dict[str, int]:
        """Check the numbers given for the dims of this layout, and return them by dim, in the order
        of ``dims``.

        Args:
            extents: a number for each dim of this layout, and for no other dim.
            what: what each number means, such as "a size", for messages.

        Raises:
            DimError: a dim is missing or unknown, or its number is no integer or negative.
            LayoutError: the layout is ANY.
        """
        self._order()
        sizes, least = {}, 0
        try:
            for dim in self._dims:
                size = extents[dim]
                if type(size) is not int:
                    size = _integer(size)
                if size < 0:
                    least = -1
                sizes[dim] = size
        except KeyError:
            self._refuse_dims(extents)
        except TypeError:
            raise DimError(f"{what} of {self} is no integer: {dict(extents)}") from None
        if len(sizes) != len(extents):
            self._refuse_dims(extents)
        if least < 0:
            raise DimError(f"{what} of {self} is negative: {dict(extents)}")
        return sizes

    def _refuse_dims(self, extents: Mapping[str, int]) -> NoReturn:
        """Raise DimError; the message lists the dims that ``extents`` lacks and those that the
        layout lacks.
        """
        missing = [dim for dim in self._dims if dim not in extents]
        unknown = [str(dim) for dim in extents if dim not in self._dims]
        problems = [
            f"{' '.join(names)} {what}"
            for names, what in ((missing, "missing"), (unknown, "not in the layout"))
            if names
        ]
        raise DimError(
            f"layout {self} has the dims {self._dims_text()}: {', '.join(problems)}"
        ) from None

    def _dims_text(self) -> str:
        return " ".join(self._dims) or "none"

    def __str__(self) -> str:
        if not self._text:
            suffix = "" if self._encoding is None else f":{self._encoding}"
            text = f"ANY{suffix}" if self._axes is None else spell(self._axes, self._encoding)
            object.__setattr__(self, "_text", text)
        return self._text

    def __repr__(self) -> str:
        return f"Layout({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Layout):
            return NotImplemented
        return self._axes == other._axes and self._encoding == other._encoding

    def __hash__(self) -> int:
        return self._hash

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a Layout is a value: {name} cannot be set")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"a Layout is a value: {name} cannot be deleted")

    def __reduce__(self) -> tuple[type[Layout], tuple[str]]:
        return Layout, (str(self),)


def _integer(size: int) -> int:
    """Return a size as an integer; an ``int`` or symbolic size comes back as it is.

    Raises:
        TypeError: the size is no integer.
    """
    return size if isinstance(size, int) else as_int(size)


def _encoding(encoding: Encoding | str | None) -> Encoding | None:
    """Return an encoding, parsed if it is text."""
    return Encoding.parse(encoding) if isinstance(encoding, str) else encoding


def _remembered(function: Callable[[Layout, Sizes], T]) -> Callable[[Layout, Sizes], T]:
    """Return ``function`` with a cache of its results. Calls with symbolic sizes are not cached."""
    cached = lru_cache(maxsize=4096)(function)

    def call(layout: Layout, sizes: Sizes) -> T:
        try:
            return cached(layout, sizes)
        except TypeError:  # a symbolic size has no hash
            return function(layout, sizes)

    return call


@lru_cache(maxsize=4096)
def _plain(dims: tuple[str, ...], encoding: Encoding | None) -> Layout:
    return _build(check_axes([(dim, 0) for dim in dims]), encoding)


@lru_cache(maxsize=4096)
def _from_text(text: str) -> Layout:
    return _build(*parse(text))


def _digit(index: int, unit: int, block: int) -> int:
    """Return the position along an axis that an index of its dim has.

    Args:
        index: an index of the dim.
        unit: how much the index grows from one position along the axis to the next.
        block: the size of the axis if it is a block; 0 for the outer part.
    """
    digit = index // unit
    return digit % block if block else digit


@_remembered
def _count(layout: Layout, sizes: Sizes) -> int:
    return layout.num_elements(dict(sizes))


@_remembered
def _steps(layout: Layout, sizes: Sizes) -> dict[str, list[tuple[int, int]]]:
    return layout._steps(dict(sizes))


def _build(axes: tuple[Axis, ...] | None, encoding: Encoding | None) -> Layout:
    """Return the layout of axes that are checked already; ANY if ``axes`` is None."""
    return Layout.ANY if axes is None and encoding is None else _make(axes, encoding)


@lru_cache(maxsize=4096)
def _make(axes: tuple[Axis, ...] | None, encoding: Encoding | None) -> Layout:
    """Return the layout of checked axes. Equal arguments give the same object as long as the cache
    holds it.

    Raises:
        DimError: the encoding has scales, zero points or a tile along a dim that has no axis.
    """
    if axes is not None and encoding is not None and encoding.named:
        for dim in sorted(encoding.named - {axis.dim for axis in axes}):
            raise DimError(
                f"{encoding.dtype} has scales, zero points or a tile along {dim}, no dim here"
            )
    layout = object.__new__(Layout)
    blocks: dict[str, tuple[int, ...]] = {}
    units: list[int] = []
    for dim, block in reversed(axes or ()):
        units.append(prod(blocks.get(dim, ())))
        if block:
            blocks[dim] = (block, *blocks.get(dim, ()))
    units.reverse()
    values = {
        "_axes": axes,
        "_encoding": encoding,
        "_hash": hash((axes, encoding)),
        "_text": "",
        "_dims": tuple(dim for dim, block in axes or () if not block),
        "_blocks": blocks,
        # The unit of a dim's outer part is the product of all blocks of the dim, even of blocks
        # that are slower than the outer part.
        "_units": tuple(
            unit if axis.block else prod(blocks.get(axis.dim, ()))
            for axis, unit in zip(axes or (), units, strict=True)
        ),
    }
    for name, value in values.items():
        object.__setattr__(layout, name, value)
    return layout


Layout.ANY = _make(None, None)
