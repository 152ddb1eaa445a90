"""Element-wise programs over operands of all strides and repetitions, element for element."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from itertools import product
from math import prod

import numpy as np
import pytest

from libdesc.eigen import native
from tests.native.packing import Array
from vtensor.language.dtype import NARROW_FLOATS, NARROW_INTEGERS, from_numpy, numpy_dtype
from vtensor.language.dtype import bits as bits_of
from vtensor.runtime import _replay

#: Rows below and above what has tiles of its own; of one tile and of several, some with a rest.
SHAPES = [(), (1,), (513,), (5, 63), (4, 64), (3, 1030), (2, 3, 512), (3, 2, 700), (70, 2, 3, 65)]
#: Rows that are short, and come again: once, and more often than a tile has room for.
SHAPES += [(40, 49, 2), (3, 5, 1100, 3), (7, 2, 3, 2, 5)]
#: Blocks of channels, which come again along a row of several tiles.
SHAPES += [(5, 130, 8), (2, 3, 70, 16)]
#: Enough work for a team, whose parts begin within rows.
LARGE = [(31, 7, 530), (31, 460, 8)]


def reads(shape: tuple[int, ...]) -> list[list[int]]:
    """Return strides of operands: reversed, and in order, repeated along any of the axes."""
    strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    back = [prod(shape[:axis]) for axis in range(len(shape))]
    masks = product([0, 1], repeat=len(shape))
    rows = [[keep * step for keep, step in zip(mask, strides, strict=True)] for mask in masks]
    return [back, *rows[::2], *rows[1::2]]


def operand(shape: tuple[int, ...], strides: list[int], seed: int) -> tuple[Array, Array]:
    """Return memory, and what is read of it."""
    size = 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    memory = np.random.default_rng(seed).normal(size=size).astype(np.float32)
    return memory, np.lib.stride_tricks.as_strided(memory, shape, [4 * step for step in strides])


def check(shape: tuple[int, ...], rows: list[list[int]], threads: int) -> None:
    """Check max((b + c) * 2, 0.5) - a * b: the first part once where b and c are repeated."""
    memory, (a, b, c) = zip(*(operand(shape, row, n) for n, row in enumerate(rows)), strict=True)
    code = [("add f32", [1, 2]), ("mul f32", [5, 3]), ("max f32", [6, 4])]
    code += [("mul f32", [0, 1]), ("sub f32", [7, 8])]
    numbers = [("f32", 2.0), ("f32", 0.5)]
    kernel = native.load().pointwise(shape, rows, ["f32"] * 4, numbers, code, [])
    dst = np.full(prod(shape), np.nan, np.float32)
    _replay.execute(kernel, [*memory, dst], threads)
    expected = np.maximum((b + c) * np.float32(2), np.float32(0.5)) - a * b
    assert np.array_equal(dst, np.ravel(expected)), f"{shape} {rows}"


@pytest.mark.parametrize("shape", SHAPES)
def test_operands_are_laid_out_in_any_way(shape: tuple[int, ...]) -> None:
    ways = reads(shape)
    for index in range(len(ways)):
        check(shape, [ways[index], ways[index - 1], ways[index - 2]], 1)


@pytest.mark.parametrize("shape", LARGE)
def test_the_parts_of_a_team_begin_within_rows(shape: tuple[int, ...]) -> None:
    for row, other in product(reads(shape)[:6], repeat=2):
        check(shape, [row, other, row], 4)


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("widths", [(48,), (3, 1, 60), (32, 32, 7, 500), (600, 1, 31)])
@pytest.mark.parametrize("rows", [1, 7, 403])
def test_a_first_operand_comes_in_pieces(rows: int, widths: tuple[int, ...], threads: int) -> None:
    """Plus a row, or a number a row: in tiles of several rows, and of parts of one."""
    generator = np.random.default_rng(0)
    pieces = [generator.standard_normal((rows, n), np.float32) for n in widths]
    width = sum(widths)
    for sizes, steps in (((1, width), [0, 1]), ((rows, 1), [1, 0])):
        other = generator.standard_normal(sizes, np.float32)
        program, types = [("add f32", [0, 1])], ["f32"] * 3
        layout = [rows, width], [[width, 1], steps]
        kernel = native.load().joined(*layout, types, [], program, [], widths)
        dst = np.full((rows, width), np.nan, np.float32)
        _replay.execute(kernel, [*pieces, other, dst], threads)
        assert np.array_equal(dst, np.concatenate(pieces, 1) + other)


def test_a_wrong_repetition_is_seen() -> None:
    """The twin: an operand that is read along another axis."""
    shape, code = (3, 1030), [("mul f32", [0, 1])]
    memory, read = operand(shape, [1, 0], 1)
    dst = np.empty(prod(shape), np.float32)
    for strides, same in (([1, 0], True), ([0, 1], False)):
        constants = [("f32", 1.0)]
        kernel = native.load().pointwise(shape, [strides], ["f32"] * 2, constants, code, [])
        _replay.execute(kernel, [np.resize(memory, 1030), dst])
        assert np.array_equal(dst, read.ravel()) == same


LEVELS = native.LEVELS[: 1 + native.LEVELS.index(native.load_baseline().machine_level())]
#: Functions, what they are in f64, and how far off they may be, in units in the last place.
FUNCTIONS: dict[str, tuple[Callable[[Array], Array], float]] = {
    "erf": (np.vectorize(math.erf), 1.2),
    "exp": (np.exp, 1),
    "tanh": (np.tanh, 1.4),
    "logistic": (lambda x: np.where(x >= 0, 1, np.exp(-abs(x))) / (1 + np.exp(-abs(x))), 2.5),
    **{
        name: (getattr(np, name), 0.51)
        for name in ["expm1", "log", "log1p", "sqrt", "sin", "cos", "tan", "sinh", "cosh"]
    },
    **{
        f"a{name}": (getattr(np, f"arc{name}"), 0.51)
        for name in ["sin", "cos", "tan", "sinh", "cosh", "tanh"]
    },
}
SPECIAL = [0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 1e-45, -1e-45, 3.4e38, 88.8, -103.9, 4e6, -4e6]


def samples() -> Array:
    """Return any bits, numbers as networks have them, and what is special."""
    random = np.random.default_rng(1)
    bits = random.integers(0, 1 << 32, 20000, np.uint32).view(np.float32)
    near = [random.uniform(-most, most, 10000) for most in (1, 12, 110)]
    with np.errstate(invalid="ignore"):
        return np.concatenate([bits, *near, SPECIAL]).astype(np.float32)


@pytest.mark.parametrize("dtype", ["u8", "s8"])
@pytest.mark.parametrize("result", ["u8", "s8", "f32"])
@pytest.mark.parametrize("size", [4095, 4096, 4200, 70_001])
def test_a_function_of_a_byte_is_the_same_in_a_table(dtype: str, result: str, size: int) -> None:
    """Results are looked up from 4,096 elements on, if both operands are the same memory."""
    limits, half = np.iinfo(numpy_dtype(dtype)), np.float32(0.5)
    generator = np.random.default_rng(size)
    x, other = generator.integers(limits.min, limits.max, (2, size), numpy_dtype(dtype), True)
    code = [("mul f32", [0, 2]), ("sub f32", [4, 3]), ("abs f32", [5]), ("mul f32", [6, 2])]
    code += [("mul f32", [1, 2]), ("min f32", [7, 8]), ("round f32", [9]), ("abs f32", [10])]
    types = [*[f"{dtype} as f32"] * 2, "f32", result if result == "f32" else f"{result} as f32"]
    for level in LEVELS:
        kernels = importlib.import_module(f"libdesc.eigen._eigen_{level}")
        kernel = kernels.pointwise([size], [[1], [1], [0]], types, [("f32", 3.0)], code, [])
        for second in (x, other):
            dst = np.zeros(size, numpy_dtype(result))
            _replay.execute(kernel, [x, second, np.array([half]), dst], 2)
            found = np.minimum(abs(x * half - np.float32(3)) * half, second * half)
            assert np.array_equal(dst, abs(np.round(found)).astype(dst.dtype)), level


def computed(level: str, function: str, *operands: Array, dst: str = "f32") -> Array:
    """Return a function of whole operands on the kernels of a level."""
    kernels = importlib.import_module(f"libdesc.eigen._eigen_{level}")
    size, types = operands[0].size, [from_numpy(operand.dtype) for operand in operands]
    code = [(function, [*range(len(operands))])]
    kernel = kernels.pointwise([size], [[1]] * len(operands), [*types, dst], [], code, [])
    result = np.full(size, 77).astype(numpy_dtype(dst))
    _replay.execute(kernel, [*operands, result])
    return result


def check_rounded(found: Array, exact: Array, most: float) -> None:
    """Check units in the last place; NaN, infinities and zeros are the same, with sign."""
    right = exact.astype(np.float32)
    plain = np.isfinite(right) & (right != 0)
    units = abs(found[plain] - exact[plain]) / np.spacing(abs(right[plain])).astype(np.float64)
    assert units.max() <= most
    assert np.array_equal(found[~plain], right[~plain], equal_nan=True)
    numbers = ~np.isnan(right)
    assert np.array_equal(np.signbit(found[numbers]), np.signbit(right[numbers]))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_as_exact_as_they_say(level: str, name: str) -> None:
    function, most = FUNCTIONS[name]
    x = samples()
    with np.errstate(all="ignore"):
        check_rounded(computed(level, f"{name} f32", x), function(x.astype(np.float64)), most)


@pytest.mark.parametrize("level", LEVELS)
def test_powers_and_rests_are_the_c_librarys(level: str) -> None:
    x = samples()
    some = np.array(SPECIAL, np.float32)
    a = np.concatenate([x, abs(x), np.repeat(some, some.size)])
    with np.errstate(all="ignore"):
        b = np.concatenate([np.rint(x[::-1] % 5), x[::-1], np.tile(some, some.size)])
        exact = np.power(a.astype(np.float64), b.astype(np.float64))
        check_rounded(computed(level, "pow f32", a, b), exact, 0.51)
        for name, rest in (("fmod", np.fmod), ("mod", np.mod)):
            assert np.array_equal(computed(level, f"{name} f32", a, b), rest(a, b), equal_nan=True)


def test_a_function_that_is_less_exact_is_seen() -> None:
    """The twin: 2 units in the last place, and a zero without its sign."""
    x = np.array([1.0, -0.0])
    for wrong in ([1 + 2**-22, -0.0], [1, 0.0]):
        with pytest.raises(AssertionError):
            check_rounded(np.array(wrong, np.float32), x, 1)
    check_rounded(np.array([1 + 2**-23, -0.0], np.float32), x, 1)


@pytest.mark.parametrize("level", LEVELS)
def test_element_types_are_widened_and_rounded_as_numpy_does(level: str) -> None:
    x = samples()
    with np.errstate(all="ignore"):
        for dtype in ("f16", "bf16", "bool"):
            narrow = x.astype(numpy_dtype(dtype))
            assert np.array_equal(
                computed(level, "copy f32", x, dst=dtype), narrow, equal_nan=dtype != "bool"
            )
            back = computed(level, "copy f32", narrow)
            assert np.array_equal(back, narrow.astype(np.float32), equal_nan=True)
    whole = np.random.default_rng(1).integers(-(1 << 63), (1 << 63) - 1, 3000)
    for dtype in ("s32", "s16", "s8", "u32", "u16", "u8", *NARROW_INTEGERS):
        narrow = whole.astype(numpy_dtype(dtype))
        assert np.array_equal(computed(level, "copy s64", whole, dst=dtype), narrow)
        assert np.array_equal(computed(level, f"to_{dtype} s64", whole, dst="s64"), narrow)
        assert np.array_equal(computed(level, "copy s64", narrow, dst="s64"), narrow)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", ["s16", "s8", "u16", "u8"])
def test_a_number_is_rounded_to_an_integer_without_leaving_f32(level: str, dtype: str) -> None:
    ends = np.array([-32769, -129, -0.6, -0.0, 127.5, 255.9, 256, 32768, 65536], np.float32)
    x = np.concatenate([samples(), np.array(SPECIAL, np.float32), ends])
    integers = computed(level, f"to_{dtype} f32", x, dst="s64")
    same_bits(computed(level, f"to_{dtype}_f32 f32", x), integers.astype(np.float32))


def same_bits(found: Array, expected: Array) -> None:
    """Check every bit; a NaN equals any other."""
    known, kind = ~np.isnan(expected.astype(np.float32)), f"u{expected.itemsize}"
    np.testing.assert_array_equal(np.isnan(found.astype(np.float32)), ~known)
    np.testing.assert_array_equal(found[known].view(kind), expected[known].view(kind))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", sorted(set(NARROW_FLOATS) - {"f8e8m0"}))
def test_narrow_floats_have_the_bits_of_ml_dtypes(level: str, dtype: str) -> None:
    codes = np.arange(1 << bits_of(dtype), dtype=np.uint8).view(numpy_dtype(dtype))
    numbers = codes.astype(np.float32)
    same_bits(computed(level, "copy f32", codes), numbers)
    known = np.unique(numbers[np.isfinite(numbers)])
    middles = (known[1:] + known[:-1]) / 2
    beside = [np.nextafter(middles, np.float32(end)) for end in (np.inf, -np.inf)]
    beyond = [known[-1] * factor for factor in (1.01, 1.0625, 1.07, 1.125, 1.25, 1.3)]
    x = np.concatenate([samples(), known, middles, *beside, np.array(beyond, np.float32)])
    with np.errstate(all="ignore"):
        rounded = x.astype(numpy_dtype(dtype))
    same_bits(computed(level, "copy f32", x, dst=dtype), rounded)
    same_bits(computed(level, f"to_{dtype} f32", x), rounded.astype(np.float32))


#: What integers are of one another, where NumPy says it.
INTEGERS: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "mod": np.mod, "fmod": np.fmod,
    "max": np.maximum, "min": np.minimum, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "div": lambda a, b: np.where(b == 0, 0, (a - np.fmod(a, b)) // np.where(b == 0, 1, b)),
}  # fmt: skip


@pytest.mark.parametrize("level", LEVELS)
def test_integers_wrap_and_divide_as_numpy_does(level: str) -> None:
    random = np.random.default_rng(2)
    ends = np.array([0, 1, -1, 7, -7, (1 << 63) - 1, -(1 << 63)])
    a = np.concatenate([random.integers(-99, 99, 900), np.repeat(ends, 7)])
    b = np.concatenate([random.integers(-9, 9, 900), np.tile(ends, 7)])
    with np.errstate(all="ignore"):
        for name, function in INTEGERS.items():
            found, right = computed(level, f"{name} s64", a, b, dst="s64"), function(a, b)
            assert np.array_equal(found, right), name
        for name, shift in (("shl", np.left_shift), ("shr", np.right_shift)):
            found = computed(level, f"{name} s64", a, b % 70, dst="s64")
            assert np.array_equal(found, shift(a, b % 70)), name
