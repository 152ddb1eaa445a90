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
def test_into_strided_memory(case: Pair, dtype: str, seed: int) -> None:
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
def test_composition(case: Pair, chosen: tuple[Encoding, Encoding, Encoding], seed: int) -> None:
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
def test_inverse(case: Pair, chosen: tuple[Encoding, Encoding], seed: int) -> None:
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
def test_pads_are_zero_after_every_conversion(
    case: Pair, chosen: tuple[Encoding, Encoding], seed: int
) -> None:
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
def test_zeroing_pads(case: Case, dtype: str, seed: int) -> None:
    layout, sizes = case
    zeroes_pads_only(zero_pads, _stored(layout, Encoding(dtype), sizes, seed), layout, sizes)


@LAWS
@given(placed())
def test_checking_pads(case: Case) -> None:
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

BLOCKED = Layout("NCHW4c")
SIZES = {"N": 2, "C": 6, "H": 3, "W": 1}
DIMS = ["N", "C", "H", "W"]


def _logical(dtype: str = "f32", seed: int = 7) -> Array:
    return values(list(SIZES.values()), dtype, seed)


def test_pack_of_swapped_elements_is_caught() -> None:
    def swapped(logical: Array, dims: Sequence[str], layout: Layout) -> Array:
        return pack(logical[:, ::-1], dims, layout)

    with pytest.raises(AssertionError):
        packs_by_definition(swapped, _logical(), DIMS, BLOCKED)


def test_a_negative_zero_in_a_pad_is_caught() -> None:
    def negative(logical: Array, dims: Sequence[str], layout: Layout) -> Array:
        physical = pack(logical, dims, layout)
        physical[pad_mask(layout, SIZES)] = -0.0
        return physical

    with pytest.raises(AssertionError):
        packs_by_definition(negative, _logical(), DIMS, BLOCKED)


def test_a_move_that_computes_is_caught() -> None:
    """Arithmetic makes signalling NaNs quiet, even a multiplication by 1."""

    def computes(src: Array, source: Layout, target: Layout, sizes: Sizes, dtype: str) -> Array:
        with np.errstate(invalid="ignore"):
            return transform(src * np.float32(1), source, target, sizes, dtype)

    logical = _logical()
    logical.view(np.uint32)[...] = 0x7F800001
    with pytest.raises(AssertionError):
        moves_bits(computes, logical, DIMS, [BLOCKED, Layout("NHWC")], "f32")


def test_a_move_that_carries_pads_along_is_caught() -> None:
    def carries(src: Array, source: Layout, target: Layout, sizes: Sizes, dtype: str) -> Array:
        moved = transform(src, source, target, sizes, dtype)
        if source == BLOCKED:
            moved = moved + 0 * src.sum()  # as a convolution that reads its pads
        return moved

    with pytest.raises(AssertionError):
        moves_bits(carries, np.zeros((2, 6, 3, 1), "f4"), DIMS, [BLOCKED, Layout("NHWC")], "f32")


def test_a_composition_that_drops_a_step_is_caught() -> None:
    first = Transform(Layout("NCHW"), Layout("NHWC"))
    second = Transform(Layout("NHWC"), Layout("HWCN"))

    def drops(change: Transform, src: Array, sizes: Sizes) -> Array:
        if change == second:
            return np.zeros(second.target.physical_shape(sizes), np.float32)
        return change.apply(src, sizes)

    with pytest.raises(AssertionError):
        composes(drops, first, second, _logical(), SIZES)


def test_composing_over_a_rounding_would_be_caught() -> None:
    """Why ``then`` refuses: to bf16 and back is not f32 to f32."""

    class Careless(Transform):
        def then(self, other: Transform) -> Transform:
            return Transform(self.source, other.target, self.dtype)

    narrow = Careless(Layout("NCHW"), Layout("NCHW:bf16"))
    wide = Transform(Layout("NCHW:bf16"), Layout("NCHW"))
    with pytest.raises(AssertionError):
        composes(Transform.apply, narrow, wide, _logical(), SIZES)
    with pytest.raises(LayoutError, match="no single Transform"):
        Transform(narrow.source, narrow.target).then(wide)


def test_an_inverse_of_a_rounding_would_be_caught() -> None:
    class Careless(Transform):
        def inverse(self) -> Transform:
            return Transform(self.target, self.source, self.dtype)

    change = Careless(Layout("NCHW"), Layout("NHWC:bf16"))
    with pytest.raises(AssertionError):
        undoes(Transform.apply, change, _logical(), SIZES)


@pytest.mark.parametrize("fault", ["too little", "too much"])
def test_a_wrong_zeroing_is_caught(fault: str) -> None:
    def zero(physical: Array, *_: object) -> None:
        physical[:, -1, ..., 3 if fault == "too little" else 1 :] = 0

    with pytest.raises(AssertionError):
        zeroes_pads_only(zero, by_definition(_logical(), DIMS, BLOCKED), BLOCKED, SIZES)


def test_a_blind_pad_check_is_caught() -> None:
    with pytest.raises(AssertionError):  # of the two lanes of padding, it looks at one
        sees_every_pad(lambda array, *_: not array[:, -1, ..., 3].any(), BLOCKED, SIZES)
    with pytest.raises(AssertionError):
        sees_every_pad(lambda *_: False, BLOCKED, SIZES)
