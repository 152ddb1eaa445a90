"""Laws of originals: each derived form behaves as the NumPy array of the same steps does."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.constants.originals import Original, Step
from tests.property.strategies import LAWS

Array = np.ndarray[Any, Any]


def sized(factors: list[int], cuts: list[int]) -> tuple[int, ...]:
    """Return sizes whose product is that of the factors, grouped at the cuts."""
    return tuple(prod(factors[begin:end]) for begin, end in pairwise([0, *cuts, len(factors)]))


@st.composite
def derivations(draw: st.DrawFn) -> tuple[tuple[int, ...], list[Step]]:
    """Draw the shape of an array and steps that can follow one another from it."""
    factors = draw(st.lists(st.sampled_from([1, 2, 3, 5]), min_size=1, max_size=5))

    def shape() -> tuple[int, ...]:
        cuts = st.lists(st.integers(0, len(factors)), max_size=4).map(sorted)
        return sized(draw(st.permutations(factors)), draw(cuts))

    first = current = shape()
    steps: list[Step] = []
    for _ in range(draw(st.integers(0, 4))):
        if draw(st.booleans()):
            axes = tuple(draw(st.permutations(range(len(current)))))
            current = tuple(current[axis] for axis in axes)
            steps.append(("order", axes))
        else:
            current = shape()
            steps.append(("shape", current))
    return first, steps


def expected(array: Array, steps: list[Step]) -> Array:
    for kind, numbers in steps:
        array = array.transpose(numbers) if kind == "order" else array.reshape(numbers)
    return array


def in_memory(array: Array) -> Original:
    return Original(array)


def in_a_file(array: Array) -> Original:
    memory = array.reshape(-1).view(np.uint8)

    def read(room: Callable[[int], Array]) -> Array:
        target = room(memory.nbytes)
        target[:] = memory
        return target

    return Original.deferred(array.shape, array.dtype, read)


@pytest.mark.parametrize("source", [in_memory, in_a_file])
@LAWS
@given(derivation=derivations())
def test_every_method_agrees_with_numpy(
    source: Callable[[Array], Original], derivation: tuple[tuple[int, ...], list[Step]]
) -> None:
    shape, steps = derivation
    array = np.arange(prod(shape), dtype=np.float32).reshape(shape)
    root = source(array)
    wanted, derived = expected(array, steps), root.derived(steps)
    assert (derived.shape, derived.ndim) == (wanted.shape, wanted.ndim)
    assert (derived.size, derived.nbytes, derived.dtype.str) == (wanted.size, wanted.nbytes, "<f4")
    assert derived.root is root
    np.testing.assert_array_equal(expected(array, [*derived.steps]), wanted)
    if derived.reader is not None:  # the file has the elements in this order
        held = derived.reader(lambda nbytes: np.empty(nbytes, np.uint8))
        np.testing.assert_array_equal(held.view("f4"), wanted.reshape(-1))
    np.testing.assert_array_equal(derived.now(), wanted)
    assert root.asks == derived.asks == 0
    np.testing.assert_array_equal(derived.array, wanted)
    assert root.asks == derived.asks == 1
    derived.hold()
    assert derived.held
    derived.let_go()
    np.testing.assert_array_equal(derived.now(), wanted)
    derived.recovered_by(lambda: np.ascontiguousarray(wanted).reshape(derived.shape))
    derived.let_go()
    np.testing.assert_array_equal(derived.now(), wanted)
    np.testing.assert_array_equal(derived.whole.now().reshape(wanted.shape), wanted)
    back: tuple[int, ...] = tuple(range(derived.ndim))[::-1]
    np.testing.assert_array_equal(derived.turned(back).now(), wanted.transpose())
    assert derived.turned(back) is derived.turned(back)
    np.testing.assert_array_equal(derived.reshape((wanted.size,)).now(), wanted.reshape(-1))
    np.testing.assert_array_equal(root.now(), array)
