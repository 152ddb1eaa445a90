"""What the library ``loopback`` demands of a call: for every argument a layout of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from random import Random

from ptensor.evaluation import Call
from ptensor.layout import Layout

#: Sizes of blocks.
BLOCKS = range(2, 9)

#: Draws for one argument, lest a search that finds nothing never ends.
_DRAWS = 1000


def demanded(call: Call) -> dict[int, Layout]:
    """For each operand a layout that no other one has, nor its producer, nor its delivery."""
    answers: dict[int, Layout] = {}
    for index, (role, operand) in enumerate(zip(call.roles, call.operands, strict=True)):
        dims, have = operand.dims, operand.produced_layout or Layout.plain(operand.dims)
        answers[index] = next(
            layout
            for layout in scrambles(f"{call.op_name} {role}", dims)
            if has_one_layout(dims) or not (layout in answers.values() or layout.same(have, dims))
        )
    return answers


def scrambles(seed: str, dims: Mapping[str, int]) -> Iterator[Layout]:
    """Layouts drawn at random, the same ones for the same seed and dims.

    Axes stand in any order. One or two of them are blocks, with pads wherever a size leaves some:
    up to three an element, more only in small tensors.
    """
    random = Random(f"{seed} {dict(dims)}")
    for _ in range(_DRAWS):
        axes = [(dim, 0) for dim in dims]
        for dim in random.choices(list(dims), k=random.randint(1, 2)) if dims else ():
            uneven = [block for block in BLOCKS if dims[dim] % block]
            axes.append((dim, random.choice(uneven or BLOCKS)))
        random.shuffle(axes)
        layout = Layout.of_axes(axes)
        if layout.num_elements(dims) <= 4 * prod(dims.values()) + 64:
            yield layout


def has_one_layout(dims: Mapping[str, int]) -> bool:
    """True of a scalar and of what has no elements: there all layouts are the same."""
    return not dims or 0 in dims.values()
