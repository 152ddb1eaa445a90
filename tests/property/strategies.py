"""What the laws are tried on: layouts, extents, element types, values.

Sizes are bounded so that every element of a tensor can be visited one by one in Python.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from ptensor.encoding import Encoding
from ptensor.layout import Axis, Layout
from tests.libraries.slow import ALL
from vtensor.language.dtype import ITEMSIZE, numpy_dtype
from vtensor.language.dtype import bits as bits_of

Array = np.ndarray[Any, np.dtype[Any]]


def laws(examples: int) -> settings:
    """Return settings of laws: ``make test`` tries a quarter of so many examples.

    They are the same in every run, so that a failure is a change of the code.
    """
    count = examples if ALL else -(-examples // 4)
    return settings(deadline=None, max_examples=count, derandomize=True, database=None)


LAWS = laws(250)

#: H beside h and C beside c: a compact block letter would be ambiguous.
NAMES = [*"NCHWchOIAY", "batch", "head", "seq", "feat", "G_0", "x1"]

#: By rank: the largest extent, and the largest product of one dim's blocks.
_BOUNDS = {0: (1, 1), 1: (70, 64), 2: (33, 32), 3: (9, 16), 4: (5, 8)}

#: Encodings of every kind; a tensor of f32 may be in any of them.
ENCODINGS = [
    *(one for name in ITEMSIZE if not (one := Encoding(name)).stands_alone),
    *(Encoding("s8", 0.5), Encoding("s8", 0.1), Encoding("u8", 0.1), Encoding("s16", 0.1)),
    *(Encoding("s32", 0.25), Encoding("s8", zero=3)),
    *(Encoding("u8", 0.1, 128), Encoding("s16", 0.5, -7)),
]

#: Those of several planes.
PLANES = [
    *map(Encoding.parse, ("bf16+bf16", "bf16+bf16+bf16", "f16+f16", "f32+f16")),
    *map(Encoding.parse, ("s8(scale=0.5)+s8(scale=0.004)", "u8(scale=0.5,zero=128)+bf16")),
    Encoding.parse("f8e5m2+s16(scale=0.001)"),
]

dtypes = st.sampled_from(sorted(ITEMSIZE))
encodings = st.sampled_from(ENCODINGS)
seeds = st.integers(0, 2**32 - 1)


def dims(max_rank: int = 4) -> st.SearchStrategy[list[str]]:
    """Dim names, each once, in any order."""
    return st.lists(st.sampled_from(NAMES), max_size=max_rank, unique=True)


@st.composite
def layouts(
    draw: st.DrawFn,
    over: Sequence[str] | None = None,
    encoding: st.SearchStrategy[Encoding | None] | None = None,
) -> Layout:
    """A layout over these dims, or over some: up to three levels of blocks, axes in any order."""
    names = draw(dims()) if over is None else list(over)
    axes = [Axis(dim) for dim in names]
    for dim in names:
        room = _BOUNDS[len(names)][1]
        for _ in range(draw(st.integers(0, 3))):
            choices = [block for block in (2, 3, 4, 5, 8, 16) if block <= room]
            if not choices:
                break
            axes.append(Axis(dim, draw(st.sampled_from(choices))))
            room //= axes[-1].block
    ordered = draw(st.permutations(axes))
    return Layout.of_axes(ordered, draw(encoding) if encoding is not None else None)


def extents(over: Sequence[str]) -> st.SearchStrategy[dict[str, int]]:
    """Sizes for these dims: 0 and 1, odd ones, multiples of blocks, below and above them."""
    limit = _BOUNDS[len(over)][0]
    sizes = [n for n in (1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 32, 33, 70) if n <= limit]
    size = st.one_of(st.sampled_from(sizes), st.integers(1, limit), st.sampled_from([1, 1, 0]))
    return st.fixed_dictionaries(dict.fromkeys(over, size))


@st.composite
def placed(draw: st.DrawFn) -> tuple[Layout, dict[str, int]]:
    layout = draw(layouts())
    return layout, draw(extents(sorted(layout.dims)))


@st.composite
def pairs(draw: st.DrawFn, count: int = 2) -> tuple[list[Layout], dict[str, int]]:
    """Several layouts of the same dims, and extents for them."""
    over = draw(dims())
    return [draw(layouts(over)) for _ in range(count)], draw(extents(over))


def values(shape: Sequence[int], dtype: str, seed: int) -> Array:
    """Random bits: every NaN, infinity and subnormal may occur."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    codes = min(256, 1 << bits_of(dtype))
    raw = rng.integers(0, codes, prod(shape) * ITEMSIZE[dtype], dtype=np.uint8)
    return raw.view(numpy_dtype(dtype)).reshape(shape)


def bits(array: Array) -> Array:
    """The bits of an array, for comparisons that must tell NaNs and zeros apart."""
    words = np.ascontiguousarray(array).reshape(*array.shape, 1).view(f"u{min(array.itemsize, 8)}")
    return words if array.itemsize > 8 else words.reshape(array.shape)


def indices(sizes: Mapping[str, int]) -> list[dict[str, int]]:
    rows = product(*(range(size) for size in sizes.values()))
    return [dict(zip(sizes, row, strict=True)) for row in rows]


def offsets(layout: Layout, sizes: Mapping[str, int]) -> list[int]:
    """The offset of every element, in the order of ``indices``: the definition, one by one."""
    return [layout.offset(index, sizes) for index in indices(sizes)]


def by_definition(logical: Array, over: Sequence[str], layout: Layout, zero: int = 0) -> Array:
    """What ``pack`` must give: element by element to its offset, what stands for 0 elsewhere."""
    sizes = dict(zip(over, logical.shape, strict=True))
    flat = np.zeros(layout.num_elements(sizes), logical.dtype)
    if zero:  # f8e8m0 has no 0
        flat[...] = zero
    flat[np.array(offsets(layout, sizes), dtype=np.intp)] = logical.reshape(-1)
    return flat.reshape(layout.physical_shape(sizes))


def pad_mask(layout: Layout, sizes: Mapping[str, int]) -> Array:
    """True at every lane of the physical array that is a pad."""
    mask = np.ones(layout.num_elements(sizes), bool)
    mask[np.array(offsets(layout, sizes), dtype=np.intp)] = False
    return mask.reshape(layout.physical_shape(sizes))


def poison(physical: Array, layout: Layout, sizes: Mapping[str, int]) -> Array:
    """A copy with all bits set in the pads: NaN in floats, -1 or the largest number in integers."""
    result = physical.copy()
    lanes = result.reshape(*result.shape, 1).view(np.uint8)
    lanes[pad_mask(layout, sizes)] = 1 if result.dtype == bool else 0xFF
    return result
