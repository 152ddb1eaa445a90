"""The laws of element encodings: widening is exact, rounding is to the nearest, once."""

from __future__ import annotations

from itertools import product

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptensor.convert import convert, lossless, preserves
from ptensor.encoding import Encoding
from tests.property.strategies import ENCODINGS, LAWS, Array, bits, encodings, seeds, values
from vtensor.language.dtype import bits as bits_of
from vtensor.language.dtype import numpy_dtype

PAIRS = [(a, b) for a, b in product(ENCODINGS, ENCODINGS) if a != b]
F32, F64, BF16 = Encoding("f32"), Encoding("f64"), Encoding("bf16")


def _samples(encoding: Encoding) -> Array:
    """Every bit pattern of a type of up to two bytes; random and extreme ones of the others."""
    if encoding.dtype == "bool":
        return np.array([False, True])
    size = encoding.itemsize
    if size <= 2:
        codes = 1 << min(8 * size, bits_of(encoding.dtype))
        return np.arange(codes, dtype=f"u{size}").view(encoding.numpy)
    edge = [0, 1, 2**31, 2**32 - 1, 0x7F800001, 0x7FC00000, 0xFF800000, 0x00800000, 0x33000000]
    extreme = np.array(edge * 2, "u4").view(encoding.numpy)
    return np.concatenate([extreme, values([20000], encoding.dtype, 11)])


def _values(stored: Array, encoding: Encoding) -> Array:
    """What elements stand for, by the formula."""
    return (stored.astype(np.longdouble) - encoding.zero) * encoding.scale


def _settled(array: Array) -> Array:
    """Bits of elements; of a NaN of f16 or bf16, to which NaNs become quiet, only the sign."""
    words = bits(array)
    if array.dtype in (np.float16, ml_dtypes.bfloat16):
        infinity = 0x7C00 if array.dtype == np.float16 else 0x7F80
        words = np.where((words & 0x7FFF) > infinity, words | 0x7FFF, words)
    return words


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=str)
def test_lossless_pairs_come_back_and_preserving_keep_it(
    source: Encoding, target: Encoding
) -> None:
    stored = _samples(source)
    there = convert(stored, source, target)
    kept = np.array_equal(_settled(convert(there, target, source)), _settled(stored))
    assert kept or not lossless(source, target)
    # and the claim is not empty: what keeps every element of a small type is mostly known to
    if source.itemsize <= 2 and source.scale == target.scale == 1 and target.dtype != "bool":
        assert kept == lossless(source, target)
    if preserves(source, target):
        assert lossless(source, target)
        with np.errstate(invalid="ignore"):
            assert np.array_equal(_values(there, target), _values(stored, source), equal_nan=True)


@pytest.mark.parametrize(
    ("source", "middle"), [pair for pair in PAIRS if preserves(*pair)], ids=str
)
def test_rounding_after_a_preserving_step_is_at_once(source: Encoding, middle: Encoding) -> None:
    """What lets one Transform stand for two."""
    stored = _samples(source)[::7]
    wide = convert(stored, source, middle)
    for target in ENCODINGS:
        at_once, in_two = convert(stored, source, target), convert(wide, middle, target)
        assert np.array_equal(_settled(at_once), _settled(in_two)), target


def test_a_lossless_step_that_does_not_preserve_values_may_tip_a_later_rounding() -> None:
    """Why ``then`` asks for more than lossless: 0.1 in f32 lies above the tie that 0.1 / 0.2 is."""
    source, target = Encoding("s8", 0.1), Encoding("s8", 0.2)
    stored = np.arange(-128, 128, dtype=np.int8)
    assert lossless(source, F32)
    assert not preserves(source, F32)
    in_two = convert(convert(stored, source, F32), F32, target)
    assert not np.array_equal(convert(stored, source, target), in_two)


def _is_nearest_even(exact: Array, rounded: Array) -> Array:
    """Whether each bf16 is nearest to its f64, ties to the even one; NaN and infinity aside."""
    here = rounded.astype(np.float64)
    below = (rounded.view("u2") - np.uint16(1)).view(rounded.dtype).astype(np.float64)
    above = (rounded.view("u2") + np.uint16(1)).view(rounded.dtype).astype(np.float64)
    error = np.abs(exact - here)
    others = np.minimum(np.abs(exact - below), np.abs(exact - above))
    is_even = rounded.view("u2") % 2 == 0
    result: Array = (error < others) | ((error == others) & is_even)
    return result


def _near_ties(seed: int) -> Array:
    """f64 around the midpoints of bf16: on them, and off by what f32 cannot see."""
    rng = np.random.default_rng(seed)
    mantissa = rng.integers(128, 256, 2000).astype(np.float64)
    off = rng.choice([0.0, 2.0**-40, -(2.0**-40), 2.0**-18, -(2.0**-18)], 2000)
    sign = rng.choice([-1.0, 1.0], 2000)
    scaled: Array = sign * (mantissa + 0.5 + off) * 2.0 ** rng.integers(-100, 100, 2000)
    return scaled


@LAWS
@given(seeds)
def test_f64_rounds_once_to_bf16(seed: int) -> None:
    exact = _near_ties(seed)
    assert _is_nearest_even(exact, convert(exact, F64, BF16)).all()


def test_rounding_twice_would_be_caught() -> None:
    exact = _near_ties(3)
    twice = exact.astype(np.float32).astype(ml_dtypes.bfloat16)
    assert not _is_nearest_even(exact, twice).all()


@LAWS
@given(seeds)
def test_f32_rounds_as_ml_dtypes_does(seed: int) -> None:
    stored = values([4000], "f32", seed)
    got = convert(stored, F32, BF16)
    with np.errstate(over="ignore", invalid="ignore"):
        want = stored.astype(ml_dtypes.bfloat16)
    assert np.array_equal(bits(got), bits(want))
    assert np.array_equal(np.isnan(got), np.isnan(stored))


@LAWS
@given(
    st.lists(st.floats(width=32), min_size=1, max_size=40),
    st.sampled_from(["s8", "u8", "s16", "s32", "s64", "u64"]),
    st.floats(2.0**-20, 2.0**20),
)
def test_quantising_takes_the_nearest_step(numbers: list[float], name: str, scale: float) -> None:
    target = Encoding(name, scale)
    info = np.iinfo(numpy_dtype(name))
    got = convert(np.array(numbers, np.float32), F32, target)
    for number, step in zip(np.array(numbers, np.float32).tolist(), got.tolist(), strict=True):
        if np.isnan(number):
            assert step == 0
        elif abs(number) == np.inf:
            assert step == (info.max if number > 0 else info.min)
        else:  # Python's round is to even, and its integers have no end
            assert step == min(max(round(number / target.scale), int(info.min)), int(info.max))


@LAWS
@given(encodings, encodings, st.sampled_from([(), (0,), (3, 0), (1, 1)]), seeds)
def test_shape_and_zero_stay(a: Encoding, b: Encoding, shape: tuple[int, ...], seed: int) -> None:
    stored = values(shape, a.dtype, seed)
    assert convert(stored, a, b).shape == shape
    assert convert(stored, a, b).dtype == b.numpy
    zero = convert(np.full(shape, a.zero, a.numpy), a, b)
    assert np.array_equal(bits(zero), bits(np.full(shape, b.zero, b.numpy)))  # pads stay pads
