"""Indices of dims, and shared parts of normalizations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ptensor import PTensor
from vtensor.operators import NodeReader
from vtensor.tensor import VTensor


def moved_last(dims: Sequence[str], last: Sequence[str]) -> list[str]:
    """Return ``dims`` with the dims ``last`` moved to the end."""
    return [*(dim for dim in dims if dim not in last), *last]


def positions(x: VTensor | PTensor, axes: Sequence[str]) -> tuple[int, ...]:
    """Return the index of each of the dims ``axes`` in x's declared order of dims, from 0."""
    return tuple(list(x.dims).index(dim) for dim in axes)


def without(x: VTensor, axes: Iterable[str], keepdims: bool) -> dict[str, int]:
    """Return x's sizes by dim without ``axes``, or, with ``keepdims``, with size 1 along them."""
    removed = set(axes)
    kept = {dim: 1 if dim in removed else size for dim, size in x.dims.items()}
    return {dim: size for dim, size in kept.items() if keepdims or dim not in removed}


def dims_from(node: NodeReader, x: VTensor, default: int) -> tuple[str, ...]:
    """Return the dims of ``x`` from the one whose index is the attribute ``axis`` to the last.

    ``default`` is the index if the attribute is absent.
    """
    [first] = positions(x, [node.axis(int(node.attribute("axis", default)), x)])
    return tuple(x.dims)[first:]


def channels(node: NodeReader) -> VTensor:
    """Return the first input, its second dim named C; refuse the node if there is no such dim."""
    names = list(node.input(0).dims)
    if len(names) < 2:
        raise node.refuse("an input without channels")
    return node.input(0, " ".join("C" if i == 1 else name for i, name in enumerate(names)))


def epsilon(node: NodeReader) -> float:
    """Return the attribute ``epsilon``, a number to add to a variance; 1e-5 if it is absent."""
    return float(node.attribute("epsilon", 1e-5))
