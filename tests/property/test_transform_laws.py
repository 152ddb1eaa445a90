"""The laws of the NumPy transform, and a broken version of each that the checker must catch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptensor.convert import convert, preserves
from ptensor.encoding import Encoding
from ptensor.layout import Layout
from ptensor.physical import pads_are_zero, zero_pads
from ptensor.transform import Transform, pack, transform, transform_into, unpack
from tests.property.checkers import (
    composes,
    moves_bits,
    packs_by_definition,
    sees_every_pad,
    undoes,
    zeroes_pads_only,
)
from tests.property.strategies import (
    LAWS,
    Array,
    bits,
    by_definition,
    dtypes,
    encodings,
    pad_mask,
    pairs,
    placed,
    poison,
    seeds,
    values,
)
from vtensor.errors import LayoutError

Sizes = Mapping[str, int]
Case = tuple[Layout, dict[str, int]]
Pair = tuple[list[Layout], dict[str, int]]
Two = tuple[Encoding, Encoding]


@LAWS
@given(placed(), dtypes, seeds, st.randoms(use_true_random=False))
def test_pack_is_the_definition(case: Case, dtype: str, seed: int, random: object) -> None:
    layout, sizes = case
    names = sorted(sizes, key=lambda _: random.random())  # type: ignore[attr-defined]
    logical = values([sizes[dim] for dim in names], dtype, seed)
    packs_by_definition(pack, logical, names, layout)
    back = unpack(pack(logical, names, layout), layout, names, sizes)
    assert back.shape == logical.shape
    assert np.array_equal(bits(back), bits(logical))


@LAWS
@given(placed(), dtypes, seeds)
def test_pack_takes_any_strides(case: Case, dtype: str, seed: int) -> None:
    layout, sizes = case
    names = sorted(sizes)
    every_second: list[Any] = [slice(None, None, -2) for _ in names]
    logical = values([2 * sizes[dim] for dim in names], dtype, seed)[(*every_second, ...)]
    packs_by_definition(pack, logical, names, layout)


@LAWS
@given(pairs(), dtypes, seeds)
def test_moving_there_and_back_keeps_every_bit(case: Pair, dtype: str, seed: int) -> None:
    layouts, sizes = case
    names = sorted(sizes)
    logical = values([sizes[dim] for dim in names], dtype, seed)
    moves_bits(transform, logical, names, layouts, dtype)


@LAWS
@given(pairs(), dtypes, seeds)
def test_strided_memory_is_written_in_its_lanes(case: Pair, dtype: str, seed: int) -> None:
    """Into every second lane of an array: those are all written, the others not touched."""
    (source, target), sizes = case
    names = sorted(sizes)
    logical = values([sizes[dim] for dim in names], dtype, seed)
    shape = target.physical_shape(sizes)
    room = np.ones([2 * size for size in shape], logical.dtype)
    every_second: list[Any] = [slice(None, None, 2) for _ in shape]
    dst = room[(*every_second, ...)]
    src = poison(by_definition(logical, names, source), source, sizes)
    transform_into(src, dst, source, target, sizes, dtype)
    assert np.array_equal(bits(dst), bits(by_definition(logical, names, target)))
    dst[...] = 1
    assert (room == 1).all()


def _stored(layout: Layout, encoding: Encoding, sizes: Sizes, seed: int) -> Array:
    names = sorted(sizes)
    logical = values([sizes[dim] for dim in names], encoding.dtype, seed)
    assert isinstance(encoding.zero, int)
    return by_definition(logical, names, layout, encoding.zero)


@LAWS
@given(pairs(3), st.tuples(encodings, encodings, encodings), seeds)
def test_a_composition_gives_the_same_bits(
    case: Pair, chosen: tuple[Encoding, Encoding, Encoding], seed: int
) -> None:
    layouts, sizes = case
    a, b, c = (lay.with_encoding(enc) for lay, enc in zip(layouts, chosen, strict=True))
    first, second = Transform(a, b), Transform(b, c)
    try:
        first.then(second)
    except LayoutError:
        assert not preserves(chosen[0], chosen[1])
        assert chosen[1] != chosen[2]
        assert chosen[0] != chosen[2] or first.rounding
        return
    composes(Transform.apply, first, second, _stored(a, chosen[0], sizes, seed), sizes)


@LAWS
@given(pairs(2), st.tuples(encodings, encodings), seeds)
def test_an_inverse_brings_every_bit_back(case: Pair, chosen: Two, seed: int) -> None:
    layouts, sizes = case
    source, target = (lay.with_encoding(enc) for lay, enc in zip(layouts, chosen, strict=True))
    change = Transform(source, target)
    if change.rounding:
        with pytest.raises(LayoutError, match="rounds"):
            change.inverse()
        return
    undoes(Transform.apply, change, _stored(source, chosen[0], sizes, seed), sizes)
    there_and_back = change.then(change.inverse())
    assert there_and_back.exact
    assert there_and_back.is_identity(sizes)


@LAWS
@given(pairs(2), st.tuples(encodings, encodings), seeds)
def test_pads_are_zero_after_every_conversion(case: Pair, chosen: Two, seed: int) -> None:
    layouts, sizes = case
    source, target = (lay.with_encoding(enc) for lay, enc in zip(layouts, chosen, strict=True))
    clean = _stored(source, chosen[0], sizes, seed)
    done = transform(poison(clean, source, sizes), source, target, sizes)
    zero = chosen[1].zero
    assert isinstance(zero, int)
    assert (bits(done)[pad_mask(target, sizes)] == bits(np.array(zero, done.dtype))).all()
    assert np.array_equal(bits(done), bits(transform(clean, source, target, sizes)))
    names = sorted(sizes)
    raw = unpack(clean, source.with_encoding(None), names, sizes, chosen[0].dtype)
    elements = convert(raw, *chosen)
    assert np.array_equal(bits(done), bits(by_definition(elements, names, target, zero)))


@LAWS
@given(placed(), dtypes, seeds)
def test_zeroing_changes_pads_only(case: Case, dtype: str, seed: int) -> None:
    layout, sizes = case
    zeroes_pads_only(zero_pads, _stored(layout, Encoding(dtype), sizes, seed), layout, sizes)


@LAWS
@given(placed())
def test_pad_checks_see_every_pad(case: Case) -> None:
    sees_every_pad(pads_are_zero, *case)


@LAWS
@given(placed(), dtypes, seeds)
def test_a_plain_layout_is_only_a_view(case: Case, dtype: str, seed: int) -> None:
    layout, sizes = Layout.plain(case[0].dims), case[1]
    physical = _stored(layout, Encoding(dtype), sizes, seed)
    view = unpack(physical, layout, sorted(sizes), sizes)
    assert np.shares_memory(view, physical) == (physical.size > 0)
    again = pack(view, sorted(sizes), layout)
    assert np.shares_memory(again, physical) == (physical.size > 0)
    assert again.flags.c_contiguous


# The checkers see a fault.

BLOCKED, NCHW, NHWC = Layout("NCHW4c"), Layout("NCHW"), Layout("NHWC")
SIZES = {"N": 2, "C": 6, "H": 3, "W": 1}
DIMS = ["N", "C", "H", "W"]
LOGICAL = values(list(SIZES.values()), "f32", 7)


def swapped(logical: Array, dims: Sequence[str], layout: Layout) -> Array:
    return pack(logical[:, ::-1], dims, layout)


def negative(logical: Array, dims: Sequence[str], layout: Layout) -> Array:
    """A negative zero in a pad."""
    physical = pack(logical, dims, layout)
    physical[pad_mask(layout, SIZES)] = -0.0
    return physical


@pytest.mark.parametrize("broken", [swapped, negative])
def test_a_wrong_pack_is_caught(broken: Any) -> None:
    with pytest.raises(AssertionError):
        packs_by_definition(broken, LOGICAL, DIMS, BLOCKED)


def computes(src: Array, source: Layout, target: Layout, sizes: Sizes, dtype: str) -> Array:
    """Arithmetic makes signalling NaNs quiet, even a multiplication by 1."""
    with np.errstate(invalid="ignore"):
        return transform(src * np.float32(1), source, target, sizes, dtype)


def carries(src: Array, source: Layout, target: Layout, sizes: Sizes, dtype: str) -> Array:
    """Pads have a part in the result, as in a convolution that reads its pads."""
    moved = transform(src, source, target, sizes, dtype)
    return moved + 0 * src.sum() if source == BLOCKED else moved


@pytest.mark.parametrize(("broken", "element"), [(computes, 0x7F800001), (carries, 0)])
def test_a_wrong_move_is_caught(broken: Any, element: int) -> None:
    logical = np.full(LOGICAL.shape, element, np.uint32).view(np.float32)
    with pytest.raises(AssertionError):
        moves_bits(broken, logical, DIMS, [BLOCKED, NHWC], "f32")


class Careless(Transform):
    """It composes over a rounding, and undoes one: to bf16 and back is not f32 to f32."""

    def then(self, other: Transform) -> Transform:
        return Transform(self.source, other.target, self.dtype)

    def inverse(self) -> Transform:
        return Transform(self.target, self.source, self.dtype)


def drops(change: Transform, src: Array, sizes: Sizes) -> Array:
    """The second step is left out."""
    if change.source == NHWC:
        return np.zeros(change.target.physical_shape(sizes), np.float32)
    return change.apply(src, sizes)


def test_a_wrong_composition_or_inverse_is_caught() -> None:
    narrow, wide = Layout("NCHW:bf16"), Transform(Layout("NCHW:bf16"), NCHW)
    first, second = Transform(NCHW, NHWC), Transform(NHWC, Layout("HWCN"))
    with pytest.raises(AssertionError):
        composes(drops, first, second, LOGICAL, SIZES)
    with pytest.raises(AssertionError):
        composes(Transform.apply, Careless(NCHW, narrow), wide, LOGICAL, SIZES)
    with pytest.raises(LayoutError, match="no single Transform"):
        Transform(NCHW, narrow).then(wide)
    with pytest.raises(AssertionError):
        undoes(Transform.apply, Careless(NCHW, Layout("NHWC:bf16")), LOGICAL, SIZES)


@pytest.mark.parametrize("first", [3, 1], ids=["too little", "too much"])
def test_a_wrong_zeroing_is_caught(first: int) -> None:
    def zero(physical: Array, *_: object) -> None:
        physical[:, -1, ..., first:] = 0

    with pytest.raises(AssertionError):
        zeroes_pads_only(zero, by_definition(LOGICAL, DIMS, BLOCKED), BLOCKED, SIZES)


def half_blind(array: Array, *_: object) -> bool:
    """Of the two lanes of padding, it looks at one."""
    return not array[:, -1, ..., 3].any()


@pytest.mark.parametrize("broken", [half_blind, lambda *_: False])
def test_a_blind_pad_check_is_caught(broken: Any) -> None:
    with pytest.raises(AssertionError):
        sees_every_pad(broken, BLOCKED, SIZES)
