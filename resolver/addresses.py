"""Element addresses of a layout, read from its text by code that the rest of VTensor does not use.

The independent check of plans (``check.py``) relies on it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod

from vtensor.errors import UnsoundPlanError

Parts = list[tuple[str, int]]


def addresses(text: str, dims: Mapping[str, int]) -> tuple[object, ...]:
    """Return data that say where a layout puts the elements of a tensor of these sizes.

    Two layouts put all elements at the same addresses, in the same encoding, if their results are
    equal.

    Args:
        text: the layout, with or without its encoding.
        dims: sizes by name.

    Returns:
        The encoding's text; the number of elements, pads included; and for each dim, sorted by
        name, how much each of its indices adds to an element's address, in elements.

    Raises:
        UnsoundPlanError: the text does not parse, or does not hold these dims.

    >>> dims = {"N": 1, "C": 16, "H": 2, "W": 2}
    >>> addresses("NCHW16c", dims) == addresses("NHWC", dims)
    True
    >>> addresses("NCHW", dims) == addresses("NHWC", dims)
    False
    """
    return _addresses(text, tuple(dims.items()))


@lru_cache(maxsize=512)  # plans share the layouts of constants
def _addresses(text: str, sizes_by_dim: tuple[tuple[str, int], ...]) -> tuple[object, ...]:
    dims = dict(sizes_by_dim)
    order, _, encoding = text.partition(":")
    parts = _spaced(order) if " " in order or "/" in order else _compact(order, dims)
    if {name for name, _ in parts} != dims.keys():
        raise UnsoundPlanError(f"layout {text} does not hold dims {' '.join(dims)}")
    block = {name: prod(size for other, size in parts if other == name and size) for name in dims}
    sizes = [size or -(-dims[name] // block[name]) for name, size in parts]
    if 0 in dims.values():
        return (encoding, 0, ())  # there are no elements
    steps = [prod(sizes[place + 1 :]) for place in range(len(parts))]
    table = []
    for name in sorted(dims):
        places = [i for i, (other, _) in enumerate(parts) if other == name]
        outer = [steps[i] for i in places if not parts[i][1]]
        inner = [(sizes[i], steps[i]) for i in places if parts[i][1]]
        table.append((name, _column(dims[name], outer[0] if outer else 0, inner)))
    return (encoding, prod(sizes), tuple(table))


def _column(size: int, step: int, inner: list[tuple[int, int]]) -> Sequence[int]:
    """Return how much each index of a dim adds to an element's address, in elements.

    It is a ``range`` if all neighbouring indices are equally far apart, so that long dims take no
    memory.

    Args:
        size: size of the dim.
        step: distance between neighbouring positions of the dim's outer part, in elements.
        inner: (size, distance) of each block, outermost first: its size, and the distance between
            neighbouring positions in it, in elements.
    """
    if not inner:
        return range(0, size * step, step)
    block = [0]
    for count, block_step in reversed(inner):
        block = [digit * block_step + address for digit in range(count) for address in block]
    blocks = -(-size // len(block))
    column = [outer * step + address for outer in range(blocks) for address in block][:size]
    stride = column[1] if size > 1 else 1
    even = range(0, size * stride, stride) if stride else ()
    return even if column == list(even) else tuple(column)


def _compact(order: str, dims: Mapping[str, int]) -> Parts:
    """Parse a layout's compact form, ``NCHW16c``, and return (dim, block) for each axis.

    Block 0 stands for the outer part of a dim.

    Args:
        dims: the tensor's sizes by dim, which tell lower from upper case.

    Raises:
        UnsoundPlanError: the text does not parse.
    """
    parts: Parts = []
    if order == "()":
        return parts
    for number, letter in re.findall(r"(\d*)([A-Za-z])", order):
        if not number:
            parts.append((letter, 0))
        else:
            parts.append((letter if letter in dims else letter.upper(), int(number)))
    if "".join(f"{n}{c}" for n, c in re.findall(r"(\d*)([A-Za-z])", order)) != order:
        raise UnsoundPlanError(f"layout {order} of {' '.join(dims)} does not parse")
    return parts


def _spaced(order: str) -> Parts:
    """Parse a layout's spaced form, ``batch head seq/64 feat seq%64``, as ``_compact`` does."""
    parts: Parts = []
    for word in order.split():
        name, _, block = word.partition("%")
        if block:
            parts.append((name, int(block)))
        else:
            parts.append((word.partition("/")[0], 0))
    return parts
