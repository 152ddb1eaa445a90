"""Element-wise programs over operands that lie and repeat in every way, element for element."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import pytest

from libdesc.eigen import native
from tests.native.packing import Array
from vtensor.runtime import _replay

#: Rows below and above what has tiles of its own; of one tile and of several, some with a rest.
SHAPES = [(), (1,), (513,), (5, 63), (4, 64), (3, 1030), (2, 3, 512), (3, 2, 700), (70, 2, 3, 65)]
#: Enough work for a team, whose parts begin within rows.
LARGE = (31, 7, 530)


def reads(shape: tuple[int, ...]) -> list[list[int]]:
    """Strides of operands: in order, reversed, and repeated along any of the axes."""
    strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    back = [prod(shape[:axis]) for axis in range(len(shape))]
    masks = product([0, 1], repeat=len(shape))
    rows = [
        back,
        *([keep * step for keep, step in zip(mask, strides, strict=True)] for mask in masks),
    ]
    return rows[:1] + rows[1::2] + rows[2::2]


def operand(shape: tuple[int, ...], strides: list[int], seed: int) -> tuple[Array, Array]:
    """Memory, and what is read of it."""
    size = 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    memory = np.random.default_rng(seed).normal(size=size).astype(np.float32)
    return memory, np.lib.stride_tricks.as_strided(memory, shape, [4 * step for step in strides])


def check(shape: tuple[int, ...], rows: list[list[int]], threads: int) -> None:
    """max((b + c) * 2, 0.5) - a * b: the first part is computed once where b and c are repeated."""
    (first, a), (second, b), (third, c) = (
        operand(shape, strides, seed) for seed, strides in enumerate(rows)
    )
    code = [("add", 1, 2), ("mul", 5, 3), ("max", 6, 4), ("mul", 0, 1), ("sub", 7, 8)]
    kernel = native.load().pointwise(shape, rows, [2.0, 0.5], code, [])
    dst = np.full(prod(shape), np.nan, np.float32)
    _replay.execute(kernel, [first, second, third, dst], threads)
    expected = np.maximum((b + c) * np.float32(2), np.float32(0.5)) - a * b
    assert np.array_equal(dst, np.ravel(expected)), f"{shape} {rows}"


@pytest.mark.parametrize("shape", SHAPES)
def test_operands_that_lie_in_any_way(shape: tuple[int, ...]) -> None:
    ways = reads(shape)
    for index in range(len(ways)):
        check(shape, [ways[index], ways[index - 1], ways[index - 2]], 1)


def test_parts_of_a_team() -> None:
    for rows in product(reads(LARGE)[:6], repeat=2):
        check(LARGE, [rows[0], rows[1], rows[0]], 4)


def test_a_wrong_repetition_is_seen() -> None:
    """The twin: an operand that is read along another axis."""
    shape = (3, 1030)
    kernels = native.load()
    memory, read = operand(shape, [1, 0], 1)
    dst = np.empty(prod(shape), np.float32)
    for strides, same in (([1, 0], True), ([0, 1], False)):
        kernel = kernels.pointwise(shape, [strides], [1.0], [("mul", 0, 1)], [])
        _replay.execute(kernel, [np.resize(memory, 1030), dst])
        assert np.array_equal(dst, read.ravel()) == same
