"""Where dims stand, and what normalizations share: channels, and scales along the last dims."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ptensor import PTensor
from vtensor.operators import NodeReader
from vtensor.tensor import VTensor


def behind(dims: Sequence[str], last: Sequence[str]) -> list[str]:
    """The dims, these behind all others."""
    return [*(dim for dim in dims if dim not in last), *last]


def positions(x: VTensor | PTensor, axes: Sequence[str]) -> tuple[int, ...]:
    """Where dims stand in declared order."""
    return tuple(list(x.dims).index(dim) for dim in axes)


def without(x: VTensor, axes: Iterable[str], keepdims: bool) -> dict[str, int]:
    """The sizes of x once some dims are gone, or of size 1."""
    gone = set(axes)
    kept = {dim: 1 if dim in gone else size for dim, size in x.dims.items()}
    return {dim: size for dim, size in kept.items() if keepdims or dim not in gone}


def dims_from(node: NodeReader, x: VTensor, default: int) -> tuple[str, ...]:
    """The dims of x from the one on that ``axis`` numbers."""
    [first] = positions(x, [node.axis(int(node.attribute("axis", default)), x)])
    return tuple(x.dims)[first:]


def channels(node: NodeReader) -> VTensor:
    """The first input, its second position called C."""
    names = list(node.input(0).dims)
    if len(names) < 2:
        raise node.refuse("an input without channels")
    return node.input(0, " ".join("C" if i == 1 else name for i, name in enumerate(names)))


def epsilon(node: NodeReader) -> float:
    """What a node adds to a variance."""
    return float(node.attribute("epsilon", 1e-5))
