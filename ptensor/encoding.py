"""Element encodings: how one value of a tensor is stored.

An encoding may differ from the tensor's own element type: precision is a part of the layout,
resolved like the order of the dims. ``ptensor/convert.py`` changes one into another,
``ptensor/error.py`` says how much one rounds.

    encoding = plane { "+" plane }
    plane    = element type [ "(" item { "," item } ")" ]
    item     = "scale=" numbers | "zero=" numbers | "tile=" number "@" dim | "step=" number
    numbers  = number | "[" number { "," number } "]@" dim
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from operator import index as as_int
from typing import Any

import numpy as np

from ptensor.floats import FLOATS, ODD
from vtensor.errors import DimError, DTypeError, LayoutError
from vtensor.language.dtype import ITEMSIZE, bits, numpy_dtype
from vtensor.language.records import dataclass, replace

#: Alignment of each plane relative to the first, in bytes: a cache line.
ALIGNMENT = 64

_PLANE = re.compile(r"(?a:\s*(\w+)\s*(?:\(([^()]*)\))?\s*(\+|$))")
_ITEM = re.compile(
    r"(?a:\s*(scale|zero|tile|step)\s*=\s*"
    r"(?:\[([^\[\]]*)\]\s*@\s*(\w+)|([^\s,@\[\]]+)(?:\s*@\s*(\w+))?)\s*(,|$))"
)
_FORM = "'bf16', 's8(scale=0.5,zero=3)', 's8(scale=[0.5,2.0]@C)' or 'bf16+bf16'"


@dataclass(frozen=True, slots=True)
class Encoding:
    """How one value is stored: as one element, or as the sum of several, each in a plane.

    A plane is an array with one stored element for each value. A stored integer ``q`` has the value
    ``(q - zero) * scale``; any other stored element is its own value. ``rest`` encodes what this
    plane leaves of a value: ``bf16+bf16`` stores an f32 as the sum of two bf16. A buffer holds the
    planes one after another, each at a multiple of 64 bytes from the first. Pads have the value 0:
    they store the zero point. With zero points along ``axis``, pads beyond the last index of
    ``axis`` store the integer 0.

    ``tile`` is the domain of Winograd's algorithm: along each of its dims, the n elements of a
    filter are stored as the ``n + count - 1`` values that ``ptensor/winograd.py`` makes of them.
    Such an encoding rounds. With a stride above 1, named ``step`` here, the filter is split into
    ``step`` filters: the k-th has the elements k, k + step, k + 2 * step, ... of the whole filter,
    and its p-th value is stored at index ``p * step + k``.

    Args:
        dtype: the stored element type, ``"bf16"``, ``"s8"``, ...
        scale: value of one integer step, finite and above 0; 1 for types that are no integers. A
            tuple has one for each index of ``axis``.
        zero: the stored integer that means 0; a tuple as for ``scale``.
        axis: the dim along which scale or zero is a tuple.
        rest: encoding of the difference between value and plane; None if there is one plane.
        tile: pairs of a dim and the number of results that a tile has along it; for f32 only.
        step: stride of the convolution along each dim of ``tile``; 1 without a tile.

    Raises:
        DTypeError: unknown element type, or a scale or zero point that it cannot have.

    >>> Encoding("s8", scale=0.5), Encoding("s8", scale=0.5).itemsize
    (Encoding('s8(scale=0.5)'), 1)
    >>> Encoding("u8", (0.5, 2.0), 128, axis="C")
    Encoding('u8(scale=[0.5,2.0]@C,zero=128)')
    >>> Encoding("bf16", rest=Encoding("bf16")).nbytes(10)
    84
    >>> Encoding("f32", tile=(("h", 4), ("w", 4))).stored_sizes({"O": 8, "h": 3, "w": 3})
    {'O': 8, 'h': 6, 'w': 6}
    >>> Encoding("f32", tile=(("h", 3),), step=2).stored_sizes({"O": 8, "h": 7})
    {'O': 8, 'h': 12}
    """

    dtype: str
    scale: float | tuple[float, ...] = 1.0
    zero: int | tuple[int, ...] = 0
    axis: str = ""
    rest: Encoding | None = None
    tile: tuple[tuple[str, int], ...] = ()
    step: int = 1

    def __post_init__(self) -> None:
        if self.dtype not in ITEMSIZE:
            known = ", ".join(ITEMSIZE)
            raise DTypeError(f"unknown element type {self.dtype!r}; one of {known}")
        scale: Any = self.scale
        zero: Any = self.zero
        scale = tuple(map(self._scale, scale)) if isinstance(scale, tuple) else self._scale(scale)
        zero = tuple(map(self._zero, zero)) if isinstance(zero, tuple) else self._zero(zero)
        lengths = {len(numbers) for numbers in (scale, zero) if isinstance(numbers, tuple)}
        if len(lengths) > 1 or 0 in lengths or bool(lengths) != bool(self.axis):
            raise DTypeError(
                f"{self.dtype}: scales and zero points along a dim name it, axis={self.axis!r}, "
                "and are tuples of one length"
            )
        if self.rest is not None and (self.stands_alone or self.dtype == "bool"):
            raise DTypeError(f"{self.dtype} is the only plane of an encoding")
        if self.tile and (self.dtype != "f32" or self.rest is not None):
            raise DTypeError(f"{self.dtype} takes no tile: only f32 in one plane does")
        if len(dict(self.tile)) < len(self.tile) or any(count < 1 for _, count in self.tile):
            raise DTypeError(f"tile={self.tile}: each dim once, with at least 1 result")
        if self.step < 1 or (self.step > 1 and not self.tile):
            raise DTypeError(f"step={self.step}: at least 1, and of a tile")
        object.__setattr__(self, "scale", scale)
        object.__setattr__(self, "zero", zero)

    def _scale(self, value: float) -> float:
        """Check a scale and return it as a float.

        Raises:
            DTypeError: the scale is infinite, NaN, or not above 0. Or the element type is no
                integer, and the scale is not 1.
        """
        scale = float(value)
        if not (math.isfinite(scale) and scale > 0):
            raise DTypeError(f"scale {value!r} of {self.dtype}: a finite number above 0")
        if scale != 1 and self.dtype[0] not in "su":
            raise DTypeError(f"{self.dtype} takes no scale (got {scale!r}): only integers do")
        return scale

    def _zero(self, value: int) -> int:
        """Check a zero point and return it as an int.

        Raises:
            DTypeError: the element type cannot store the zero point. Or the element type is no
                integer, and the zero point is not 0.
        """
        zero = as_int(value)
        if zero and self.dtype[0] not in "su":
            raise DTypeError(f"{self.dtype} takes no zero point (got {zero}): only integers do")
        if zero and not integer_range(self.dtype)[0] <= zero <= integer_range(self.dtype)[1]:
            raise DTypeError(f"zero point {zero} is no {self.dtype}")
        return zero

    @classmethod
    def parse(cls, text: str) -> Encoding:
        """Read an encoding as ``str`` prints it: ``"bf16"``, ``"s8(scale=0.5)"``, ``"bf16+bf16"``.

        Raises:
            LayoutError: the text is no encoding; the message names it.

        >>> Encoding.parse("u8(scale=0.25)").scale
        0.25
        """
        match = _PLANE.match(text)
        if match is None or (match[3] == "+" and not text[match.end() :].strip()):
            raise LayoutError(f"encoding {text!r} is not of the form {_FORM}")
        rest = cls.parse(text[match.end() :]) if match[3] == "+" else None
        try:
            return cls(match[1], **_items(match[2] or ""), rest=rest)
        except (ValueError, DTypeError) as error:
            raise LayoutError(f"encoding {text!r}: {error}") from None

    def __str__(self) -> str:
        items = [
            f"{name}={_spelled(value, self.axis)}"
            for name, value, usual in (("scale", self.scale, 1.0), ("zero", self.zero, 0))
            if value != usual
        ]
        items += [f"tile={count}@{dim}" for dim, count in self.tile]
        items += [f"step={self.step}"] if self.step > 1 else []
        plane = f"{self.dtype}({','.join(items)})" if items else self.dtype
        return plane if self.rest is None else f"{plane}+{self.rest}"

    def __repr__(self) -> str:
        return f"Encoding({str(self)!r})"

    @property
    def planes(self) -> tuple[Encoding, ...]:
        """One encoding per plane, the coarsest first."""
        if self.rest is None:
            return (self,)
        return (replace(self, rest=None), *self.rest.planes)

    @property
    def named(self) -> frozenset[str]:
        """The dims that the encoding names: those along which scales or zero points differ, and
        those of ``tile``.
        """
        return frozenset(self.axes) | frozenset(dict(self.tile))

    def stored_sizes(self, extents: Mapping[str, int]) -> dict[str, int]:
        """Return the number of stored elements by dim, for a tensor with the sizes ``extents``."""
        sizes = dict(extents)
        for dim, count in self.tile:
            if dim in sizes:
                sizes[dim] = (-(-sizes[dim] // self.step) + count - 1) * self.step
        return sizes

    @property
    def axes(self) -> dict[str, int]:
        """The dims along which scales or zero points differ, each with the number of scales or zero
        points.
        """
        axes = {} if self.rest is None else self.rest.axes
        for along in (self.scale, self.zero):
            if isinstance(along, tuple):
                axes[self.axis] = len(along)
        return axes

    @property
    def simple(self) -> bool:
        """True for a plain element type: one plane, no scale, no zero point."""
        return self == of_type(self.dtype)

    @property
    def uniform(self) -> bool:
        """True for one plane that is the same everywhere: no tile, no scales along a dim."""
        return self.rest is None and not self.axis and not self.tile

    def at(self, index: Mapping[str, int]) -> Encoding:
        """Return the encoding of the elements that have this index in each dim of ``axes``.

        >>> Encoding("s8", (0.5, 2.0), axis="C").at({"C": 1})
        Encoding('s8(scale=2.0)')
        """
        if not self.axes:
            return self
        rest = self.rest.at(index) if self.rest is not None else None
        scale = self.scale[index[self.axis]] if isinstance(self.scale, tuple) else self.scale
        zero = self.zero[index[self.axis]] if isinstance(self.zero, tuple) else self.zero
        return Encoding(self.dtype, scale, zero, rest=rest)

    def sliced(self, dim: str, begin: int, end: int) -> Encoding:
        """Return the encoding of a slice of the tensor: indices ``begin`` to ``end - 1`` of a dim.

        Raises:
            LayoutError: the dim is one of ``tile``: each stored value depends on all its indices.
        """
        if dim in dict(self.tile):
            raise LayoutError(f"{self} has no part of {dim}")
        if dim not in self.axes:
            return self
        rest = self.rest.sliced(dim, begin, end) if self.rest is not None else None
        if self.axis != dim:
            return replace(self, rest=rest)
        scale = self.scale[begin:end] if isinstance(self.scale, tuple) else self.scale
        zero = self.zero[begin:end] if isinstance(self.zero, tuple) else self.zero
        return replace(self, scale=scale, zero=zero, rest=rest)

    def renamed(self, names: Mapping[str, str]) -> Encoding:
        """Return the same encoding with dims renamed.

        Args:
            names: the new name by old name; other dims keep their names.
        """
        rest = self.rest.renamed(names) if self.rest is not None else None
        tile = tuple((names.get(dim, dim), count) for dim, count in self.tile)
        return replace(self, axis=names.get(self.axis, self.axis), rest=rest, tile=tile)

    def check(self, extents: Mapping[str, int]) -> None:
        """Check that the encoding can store a tensor of these sizes.

        Raises:
            DimError: there are more or fewer scales or zero points along a dim than it has indices.
                Or a dim of ``tile`` has at most ``step`` elements, too few for a filter.
        """
        for dim, _ in self.tile:
            if extents[dim] <= self.step:
                raise DimError(f"{self} is for filters along {dim}, which has {extents[dim]}")
        for dim, count in self.axes.items():
            if extents[dim] != count:
                what = f"{self.dtype} has scales or zero points for {count} indices of {dim}"
                raise DimError(f"{what}, which has {extents[dim]}")

    def offsets(self, count: int) -> list[int]:
        """Return where each plane begins, and where the last one ends, in bytes from the first
        plane.

        Args:
            count: the number of elements of each plane.
        """
        ends = [0]
        for plane in self.planes:
            begin = -(-ends[-1] // ALIGNMENT) * ALIGNMENT
            ends[-1] = begin
            ends.append(begin + count * ITEMSIZE[plane.dtype])
        return ends

    def nbytes(self, count: int) -> int:
        """Return the number of bytes of ``count`` elements in all planes, with the gaps between."""
        if self.rest is None:
            return count * ITEMSIZE[self.dtype]
        return self.offsets(count)[-1]

    @property
    def itemsize(self) -> int:
        """Bytes of one stored element, in all planes together."""
        return sum(ITEMSIZE[plane.dtype] for plane in self.planes)

    @property
    def numpy(self) -> np.dtype[Any]:
        """NumPy's type of an array in memory: that of the elements, or bytes if there are several
        planes.

        >>> Encoding("f16").numpy, Encoding.parse("bf16+bf16").numpy
        (dtype('float16'), dtype('uint8'))
        """
        return numpy_dtype(self.dtype if self.rest is None else "u8")

    @property
    def is_float(self) -> bool:
        """True if the first plane has a floating-point type."""
        return self.dtype in FLOATS or self.dtype in ODD

    @property
    def stands_alone(self) -> bool:
        """True for element types that are not converted to any other: complex numbers, and f8e8m0,
        which has no 0.
        """
        return self.dtype in ("c64", "c128", "f8e8m0")


@cache
def of_type(dtype: str) -> Encoding:
    """Return the encoding that is a plain element type; one object per type.

    >>> of_type("f32") is of_type("f32")
    True
    """
    return Encoding(dtype)


def _items(text: str) -> dict[str, Any]:
    """Parse the text in the brackets of a plane into keyword arguments of ``Encoding``.

    Raises:
        ValueError: the text is not of the grammar.
    """
    arguments: dict[str, Any] = {}
    tile: list[tuple[str, int]] = []
    place = 0
    while place < len(text) or text[-1:] == ",":
        match = _ITEM.match(text, place)
        if match is None or match[1] in arguments:
            raise ValueError(f"({text}) is not of the form {_FORM}")
        number = float if match[1] == "scale" else int
        well_formed = match[1] != "step" or match[4] is not None
        if (match[1] == "tile") != (match[5] is not None) or not well_formed:
            raise ValueError(f"({text}) is not of the form {_FORM}")
        if match[1] == "tile":
            tile.append((match[5], int(match[4])))
        elif match[4] is not None:
            arguments[match[1]] = number(match[4])
        else:
            arguments[match[1]] = tuple(number(text) for text in match[2].split(","))
            if arguments.setdefault("axis", match[3]) != match[3]:
                raise ValueError(f"scales along {arguments['axis']}, zero points along {match[3]}")
        place = match.end()
        if match[6] != ",":
            break
    return arguments | ({"tile": tuple(tile)} if tile else {})


def _spelled(value: object, axis: str) -> str:
    """Return the text of a scale or zero point, followed by the dim ``axis`` if it is a tuple."""
    if not isinstance(value, tuple):
        return repr(value)
    return f"[{','.join(map(repr, value))}]@{axis}"


@cache
def integer_range(name: str) -> tuple[int, int]:
    """Return the smallest and largest stored value of an integer type or bool.

    >>> integer_range("s4")
    (-8, 7)
    """
    width = 1 if name == "bool" else bits(name)
    return (-1 << width - 1, (1 << width - 1) - 1) if name[0] == "s" else (0, (1 << width) - 1)


def indices(*encodings: Encoding) -> Iterator[dict[str, int]]:
    """Yield an index for each dim along which scales or zero points differ, in every combination,
    as a dict by dim.

    The dims are those of ``axes`` of any of the encodings. Without such dims, yield one empty dict.
    """
    axes: dict[str, int] = {}
    for encoding in encodings:
        axes |= encoding.axes
    for place in product(*(range(count) for count in axes.values())):
        yield dict(zip(axes, place, strict=True))
