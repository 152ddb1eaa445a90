"""The laws, each a function of the thing that must keep it: a broken thing can be fed to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ptensor.layout import Layout
from ptensor.transform import Transform
from tests.property.strategies import (
    Array,
    bits,
    by_definition,
    indices,
    offsets,
    pad_mask,
    poison,
)

Sizes = Mapping[str, int]
Mover = Callable[[Array, Layout, Layout, Sizes, str], Array]


def reads_back(spell: Callable[[Layout], str], layout: Layout) -> None:
    """The text of a layout parses to that layout."""
    assert Layout(spell(layout)) == layout


def one_place_each(
    offset: Callable[[Layout, Sizes, Sizes], int], layout: Layout, sizes: Sizes
) -> None:
    """No two elements share an offset, and each is inside what is allocated."""
    places = [offset(layout, index, sizes) for index in indices(sizes)]
    assert len(set(places)) == len(places)
    assert all(0 <= place < layout.num_elements(sizes) for place in places)


def strides_lead_there(
    strides: Callable[[Layout, Sizes], Sequence[int]], layout: Layout, sizes: Sizes
) -> None:
    """Digit times stride, summed over the axes, is the offset; the shape holds every digit."""
    shape = layout.physical_shape(sizes)
    assert int(np.prod(shape, dtype=np.int64)) == layout.num_elements(sizes)
    for index in indices(sizes):
        digits = _digits(layout, index)
        assert all(digit < size for digit, size in zip(digits, shape, strict=True))
        steps = zip(digits, strides(layout, sizes), strict=True)
        assert sum(digit * stride for digit, stride in steps) == layout.offset(index, sizes)


def _digits(layout: Layout, index: Sizes) -> list[int]:
    """The position on each axis: the index divided by its blocks, innermost first."""
    rest = dict(index)
    digits = {}
    for i in reversed(range(len(layout.axes))):
        dim, block = layout.axes[i]
        if block:
            rest[dim], digits[i] = divmod(rest[dim], block)
    for i, (dim, block) in enumerate(layout.axes):
        if not block:
            digits[i] = rest[dim]
    return [digits[i] for i in range(len(layout.axes))]


def same_is_same_places(
    same: Callable[[Layout, Layout, Sizes], bool], one: Layout, other: Layout, sizes: Sizes
) -> None:
    """``same`` says what enumeration says: the same offsets, the same allocation."""
    alike = offsets(one, sizes) == offsets(other, sizes)
    allocated = one.num_elements(sizes) == other.num_elements(sizes)
    assert same(one, other, sizes) == (alike and allocated)


def packs_by_definition(
    pack: Callable[[Array, Sequence[str], Layout], Array],
    logical: Array,
    dims: Sequence[str],
    layout: Layout,
) -> None:
    """Every element lies at its offset, bit for bit; every other lane is +0."""
    got, want = pack(logical, dims, layout), by_definition(logical, dims, layout)
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    assert np.array_equal(bits(got), bits(want))


def moves_bits(
    move: Mover, logical: Array, dims: Sequence[str], pair: Sequence[Layout], dtype: str
) -> None:
    """From poisoned pads to the other layout and back: the definition's bits, no poison."""
    source, target = pair
    sizes = dict(zip(dims, logical.shape, strict=True))
    stored = by_definition(logical, dims, source)
    moved = move(poison(stored, source, sizes), source, target, sizes, dtype)
    assert np.array_equal(bits(moved), bits(by_definition(logical, dims, target)))
    assert np.array_equal(bits(move(moved, target, source, sizes, dtype)), bits(stored))


def composes(
    apply: Callable[[Transform, Array, Sizes], Array],
    first: Transform,
    second: Transform,
    stored: Array,
    sizes: Sizes,
) -> None:
    """One Transform for two gives the bits that the two give one after the other."""
    one_by_one = apply(second, apply(first, stored, sizes), sizes)
    assert np.array_equal(bits(apply(first.then(second), stored, sizes)), bits(one_by_one))


def undoes(
    apply: Callable[[Transform, Array, Sizes], Array],
    change: Transform,
    stored: Array,
    sizes: Sizes,
) -> None:
    """The inverse brings every bit back."""
    back = apply(change.inverse(), apply(change, stored, sizes), sizes)
    assert np.array_equal(bits(back), bits(stored))


def zeroes_pads_only(
    zero: Callable[[Array, Layout, Sizes], None], physical: Array, layout: Layout, sizes: Sizes
) -> None:
    """Every pad becomes +0 and every element stays."""
    done = poison(physical, layout, sizes)
    zero(done, layout, sizes)
    pads = pad_mask(layout, sizes)
    assert not bits(done)[pads].any()
    assert np.array_equal(bits(done)[~pads], bits(physical)[~pads])


def sees_every_pad(
    are_zero: Callable[[Array, Layout, Sizes], bool], layout: Layout, sizes: Sizes
) -> None:
    """True on zero pads whatever the elements are; False as soon as one single pad is not zero."""
    pads = pad_mask(layout, sizes)
    array = np.where(pads, 0.0, np.nan).astype(np.float32)
    assert are_zero(array, layout, sizes)
    for lane in np.argwhere(pads)[:: max(1, int(pads.sum()) // 16)]:
        spoilt = array.copy()
        spoilt[tuple(lane)] = np.nan
        assert not are_zero(spoilt, layout, sizes)
