"""Conversion between VTensor's layouts and oneDNN's descriptors, which describe a tensor's memory
to oneDNN.

A descriptor has no names of dims, but numbers them 0, 1, ... An ``order`` has the name of each dim,
by its number; "" stands for a dim of size 1 that the tensor lacks. In a descriptor all blocks are
innermost. A *tag* is oneDNN's name of a memory order; a *pattern* is a memory order by dim numbers
(``Pattern``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cache, lru_cache
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING

from libdesc.onednn.native import dnnl
from libdesc.tracing import cached
from ptensor.encoding import Encoding
from ptensor.layout import Axis, Layout
from vtensor.errors import LayoutNotSupported

if TYPE_CHECKING:
    from libdesc.onednn._onednn import Desc

#: The element types that oneDNN has, by their names in VTensor.
DTYPES = ("f32", "bf16", "f16", "s32", "s8", "u8")

#: The encoding of f32 values as sums of two bf16, each of which oneDNN sees as a tensor of its own.
PLANES = Encoding("bf16", rest=Encoding("bf16"))

#: The forms of a product of f32 that multiply planes of bf16: by the beginning of the kernel's
#: name, the encoding of constant weights. The step splits src, in f32, into two planes itself. The
#: number in the name is that of products in bf16.
PLANE_FORMS: Mapping[str, Encoding] = {"bf16x3": PLANES, "bf16x2": Encoding("bf16")}

#: Names of the dims of a descriptor, by number.
Order = tuple[str, ...]

#: The memory order of a descriptor: the numbers of its outer dims, slowest first; then each block
#: as (size, number of its dim), outermost first.
Pattern = tuple[tuple[int, ...], tuple[tuple[int, int], ...]]

_ACTIVATIONS: Order = ("N", "C", "D", "H", "W")
_WEIGHTS: Order = ("G", "O", "I", "d", "h", "w")


def canonical_order(dims: Sequence[str] | Mapping[str, int]) -> Order:
    """Return the names of dims in oneDNN's order: N C D H W, or G O I d h w. If there is any other
    name, all stay in the given order.

    >>> canonical_order(["H", "W", "C", "N"])
    ('N', 'C', 'H', 'W')
    >>> canonical_order(["batch", "seq"])
    ('batch', 'seq')
    """
    for known in (_ACTIVATIONS, _WEIGHTS):
        if set(dims) <= set(known):
            return tuple(dim for dim in known if dim in dims)
    return tuple(dims)


def to_desc(layout: Layout, order: Order, extents: Mapping[str, int], dtype: str) -> Desc:
    """Return the descriptor of a tensor in a layout.

    Args:
        layout: a layout of the tensor, or ANY, which leaves the choice to oneDNN.
        order: the dims as oneDNN numbers them.
        extents: sizes by dim.
        dtype: the tensor's element type; the layout's encoding overrides it.

    Raises:
        LayoutNotSupported: oneDNN has no descriptor of the layout.
    """
    sizes = tuple([extents.get(dim, 1) for dim in order]) or (1,)
    return _to_desc(layout, order or ("",), sizes, dtype)


@cached
def _to_desc(layout: Layout, order: Order, sizes: tuple[int, ...], dtype: str) -> Desc:
    encoding = layout.encoding or Encoding(dtype)
    if encoding.dtype not in DTYPES or not encoding.simple:
        raise LayoutNotSupported(f"oneDNN has no element type {encoding}; layout {layout}")
    if len(order) > 12:
        raise LayoutNotSupported(f"oneDNN has at most 12 dims, layout {layout} has more")
    if layout.is_any:
        return dnnl.Desc.any(sizes, encoding.dtype)
    extents = {dim: size for dim, size in zip(order, sizes, strict=True) if dim}
    inner = _inner_blocks(layout, order)
    for outer in _outer_orders(layout, order, sizes):
        tag = _tag((outer, inner))
        if tag is not None:
            tagged: Desc = dnnl.Desc.tag(sizes, encoding.dtype, tag)
            return tagged
        if (match := _exchanged((outer, inner))) is not None:
            tag, exchange = match
            other = dnnl.Desc.tag(tuple(sizes[dim] for dim in exchange), encoding.dtype, tag)
            exchanged: Desc = other.permute(exchange)
            return exchanged
    if not inner:
        strides = _strides(layout, order, extents)
        return dnnl.Desc.strided(sizes, encoding.dtype, strides)
    raise LayoutNotSupported(f"oneDNN has no word for layout {layout} (dims {' '.join(order)})")


@cached
def from_desc(desc: Desc, order: Order, dtype: str) -> Layout:
    """Return the layout that a descriptor describes.

    Several layouts may put all elements at the same addresses. First choice is one that has exactly
    the strides of the descriptor, even for dims of size 1, since oneDNN's kernels compare these
    strides. Among several, the one with the most usual order of dims is taken.

    Args:
        desc: a descriptor of a primitive.
        order: the names of its dims.
        dtype: the tensor's own element type; another one in the descriptor becomes an encoding.

    Raises:
        LayoutNotSupported: the descriptor is opaque, has gaps or an offset, blocks a dim that the
            tensor lacks, or has blocks that ``to_desc`` could not make.
    """
    order = order or ("",)
    if desc.kind != "blocked":
        raise LayoutNotSupported(
            f"oneDNN answers an {desc.kind} format, which has no layout: {desc!r}"
        )
    inner = tuple(desc.inner_blocks)
    if any(not order[dim] for _, dim in inner):
        raise LayoutNotSupported(f"oneDNN blocks a dim that the tensor lacks: {desc!r}")
    pattern = _pattern(desc, order)
    axes = [Axis(order[dim], 0) for dim in pattern[0] if order[dim]]
    axes += [Axis(order[dim], block) for block, dim in inner]
    if inner and _tag(pattern) is None and _exchanged(pattern) is None:
        raise LayoutNotSupported(f"oneDNN answers blocks that have no tag: {desc!r}")
    layout = Layout.of_axes(axes, None if desc.dtype == dtype else desc.dtype)
    return _checked(layout, desc, order)


def _pattern(desc: Desc, order: Order) -> Pattern:
    """Return the pattern of a descriptor: its memory order, by the numbers of its dims.

    If several put the elements at the same addresses, one with exactly the descriptor's strides is
    preferred, then one for which oneDNN has a tag (a name).

    Raises:
        LayoutNotSupported: no pattern without gaps puts the elements where the descriptor does.
    """
    inner, sizes = tuple(desc.inner_blocks), _outer_sizes(desc)
    needed = [desc.strides[i] for i, size in enumerate(sizes) if size > 1]
    alike: list[tuple[bool, bool, int, Pattern]] = []
    for place, outer in enumerate(dict.fromkeys(_orders_of(desc, order))):
        pattern = (outer, inner)
        strides = _strides_of(pattern, sizes)
        if 0 in sizes or [s for s, size in zip(strides, sizes, strict=True) if size > 1] == needed:
            exact = strides == list(desc.strides)
            alike.append((not exact, bool(inner) and _tag(pattern) is None, place, pattern))
    if not alike:
        raise LayoutNotSupported(f"oneDNN answers a format with gaps, no layout: {desc!r}")
    return min(alike)[-1]


def _checked(layout: Layout, desc: Desc, order: Order) -> Layout:
    """Return ``layout`` if it takes as many bytes as the descriptor.

    Raises:
        LayoutNotSupported: the sizes in bytes differ, or the descriptor has an offset.
    """
    extents = {dim: size for dim, size in zip(order, desc.dims, strict=True) if dim}
    if (
        desc.offset0
        or any(desc.padded_offsets)
        or layout.nbytes(extents, desc.dtype) != desc.nbytes
    ):
        raise LayoutNotSupported(f"oneDNN pads otherwise than layout {layout}: {desc!r}")
    return layout


@lru_cache(maxsize=4096)
def _tag(pattern: Pattern) -> str | None:
    """Return oneDNN's tag for a pattern: its name of this memory order. None if it has none.

    Most tags are spelled like their pattern. Only for the others is the table of all tags needed,
    which takes long to make.
    """
    outer, inner = pattern
    letters = [chr(ord("a") + dim) for dim in range(len(outer))]
    for _, dim in inner:
        letters[dim] = letters[dim].upper()
    name = "".join(letters[dim] for dim in outer) + _spelled(inner)
    if (name, len(outer)) in _names() and _pattern_of(name, len(outer)) == pattern:
        return name
    if inner:  # the name of a tag ends with the text of its blocks
        return next((tag for tag, known in _tags_with(len(outer), inner) if known == pattern), None)
    return _tags().get(pattern)


@lru_cache(maxsize=4096)
def _exchanged(pattern: Pattern) -> tuple[str, tuple[int, ...]] | None:
    """Return (tag, numbers): oneDNN's tag for a pattern in which two dims have been exchanged, and
    the number that each dim then has.

    None if there is no such tag. For filters of transposed convolutions there is one: the tag for
    filters of convolutions, after inputs and outputs are exchanged.
    """
    outer, inner = pattern
    for i, j in combinations(range(len(outer)), 2):
        exchange = list(range(len(outer)))
        exchange[i], exchange[j] = j, i
        blocks = tuple((block, exchange[dim]) for block, dim in inner)
        tag = _tag((tuple(exchange[dim] for dim in outer), blocks)) if blocks != inner else None
        if tag is not None:
            return tag, tuple(exchange)
    return None


def _spelled(inner: tuple[tuple[int, int], ...]) -> str:
    """Return the part of a tag's name that spells its blocks, such as ``16b4a``.

    Args:
        inner: (size, dim number) of each block, outermost first.
    """
    return "".join(f"{block}{chr(ord('a') + dim)}" for block, dim in inner)


@cache
def _names() -> frozenset[tuple[str, int]]:
    """Return (name, rank) of all tags of oneDNN."""
    return frozenset((name, rank) for name, rank in dnnl.tags())


@cache
def _tags() -> dict[Pattern, str]:
    """Return oneDNN's tags by pattern; of several tags with one pattern, the first."""
    table: dict[Pattern, str] = {}
    for name, rank in dnnl.tags():
        table.setdefault(_pattern_of(name, rank), name)
    return table


def _pattern_of(name: str, rank: int) -> Pattern:
    """Return the pattern of a tag, read from a descriptor that oneDNN makes of it."""
    blocks = dnnl.Desc.tag([1] * rank, "u8", name).padded_dims
    desc = dnnl.Desc.tag([2 * block for block in blocks], "u8", name)
    outer = tuple(sorted(range(rank), key=desc.strides.__getitem__, reverse=True))
    return outer, tuple(desc.inner_blocks)


@cache
def _orders_with(rank: int, inner: tuple[tuple[int, int], ...]) -> tuple[tuple[int, ...], ...]:
    """Return the orders of outer dims, by number and slowest first, of all tags with these blocks.

    Args:
        rank: the number of dims.
        inner: (size, dim number) of each block, outermost first.
    """
    return tuple(dict.fromkeys(outer for _, (outer, _) in _tags_with(rank, inner)))


@cache
def _tags_with(rank: int, inner: tuple[tuple[int, int], ...]) -> tuple[tuple[str, Pattern], ...]:
    """Return (name, pattern) of all tags with these blocks.

    Args:
        rank: number of dims.
        inner: (size, dim number) of each block, outermost first.
    """
    spelled = _spelled(inner)
    named = (name for name, have in dnnl.tags() if have == rank and name[rank:] == spelled)
    patterns = ((name, _pattern_of(name, rank)) for name in named)
    return tuple(row for row in patterns if row[1][1] == inner)


def _inner_blocks(layout: Layout, order: Order) -> tuple[tuple[int, int], ...]:
    """Return (size, dim number) of each block of a layout, outermost first.

    Raises:
        LayoutNotSupported: a block is not innermost, which no descriptor can express.
    """
    blocks = [axis.block for axis in layout.axes]
    first = next((i for i, block in enumerate(blocks) if block), len(blocks))
    if not all(blocks[first:]):
        raise LayoutNotSupported(f"oneDNN's blocks are innermost; layout {layout}")
    return tuple((axis.block, order.index(axis.dim)) for axis in layout.axes[first:])


def _outer_orders(layout: Layout, order: Order, sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield orders of a descriptor's dims, by number and slowest first, that put the elements where
    the layout does.

    First come orders that are right for all sizes. If the tensor has all dims, that is the order of
    the layout's axes. If it lacks some, these may be anywhere, and the usual orders (``_familiar``)
    that fit are yielded. Then come usual orders that are right for the given sizes only: a dim with
    a single element or block may be anywhere, too. The order of the layout's axes is last, even if
    it has been yielded before.

    Args:
        layout: the layout.
        order: the names of the dims, by number.
        sizes: the sizes of the dims, by number.
    """
    place = {dim: i for i, dim in enumerate(layout.dims)}
    literal = tuple(sorted(range(len(order)), key=lambda i: (place.get(order[i], -1), i)))
    lacked = {i for i, dim in enumerate(order) if not dim}
    if lacked:
        yield from _familiar_like(literal, order, lacked)
    else:
        yield literal
    single = {i for i, dim in enumerate(order) if dim and sizes[i] <= layout.block(dim)}
    yield from _familiar_like(literal, order, lacked | single)
    yield literal


def _familiar_like(
    literal: tuple[int, ...], order: Order, free: Set[int]
) -> Iterator[tuple[int, ...]]:
    """Yield the usual orders (``_familiar``) that agree with ``literal``, apart from the positions
    of the dims ``free``.
    """
    fixed = [i for i in literal if i not in free]
    return (known for known in _familiar(order) if [i for i in known if i not in free] == fixed)


def _familiar(order: Order) -> Iterator[tuple[int, ...]]:
    """Yield the usual orders of a descriptor's dims, by number: in the order of the numbers,
    channels last, and for filters O last.
    """
    rank = len(order)
    yield tuple(range(rank))
    if rank > 2:
        yield (0, *range(2, rank), 1)
    if "O" in order and "I" in order:
        o, i = order.index("O"), order.index("I")
        window = [dim for dim in range(rank) if dim not in (o, i) and order[dim] != "G"]
        yield (*(dim for dim in range(o) if dim != i), *window, i, o)


def _orders_of(desc: Desc, order: Order) -> Iterator[tuple[int, ...]]:
    """Yield orders that a descriptor's outer dims may have in memory, the most usual first."""
    yield from _familiar(order)
    yield from _orders_with(len(order), tuple(desc.inner_blocks))
    sizes = _outer_sizes(desc)
    yield tuple(sorted(range(len(order)), key=lambda i: (-desc.strides[i], sizes[i] == 1, i)))


def _outer_sizes(desc: Desc) -> list[int]:
    sizes = list(desc.padded_dims)
    for block, dim in desc.inner_blocks:
        sizes[dim] //= block
    return sizes


def _strides_of(pattern: Pattern, sizes: Sequence[int]) -> list[int]:
    """Return the stride of each outer dim, by its number, in a pattern without gaps. The unit is
    elements.

    Args:
        pattern: the pattern.
        sizes: the sizes of the outer dims, in blocks, by number.
    """
    outer, inner = pattern
    stride = prod(block for block, _ in inner)
    strides = [0] * len(outer)
    for dim in reversed(outer):
        strides[dim] = stride
        stride *= sizes[dim]
    return strides


def _strides(layout: Layout, order: Order, extents: Mapping[str, int]) -> list[int]:
    """Return the stride of each numbered dim in a plain layout, in elements.

    The stride of a dim that the tensor lacks is the number of all elements.
    """
    by_dim = dict(zip(layout.dims, layout.strides(extents), strict=True))
    whole = max(layout.num_elements(extents), 1)
    return [by_dim[dim] if dim else whole for dim in order]
