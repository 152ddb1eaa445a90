"""Where dims stand, and what normalizations share: channels, and scales along the last dims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ptensor import PTensor
from vtensor.operators import NodeReader
from vtensor.tensor import VTensor

Array = np.ndarray[Any, Any]


def behind(dims: Sequence[str], last: Sequence[str]) -> list[str]:
    """The dims, these behind all others."""
    return [*(dim for dim in dims if dim not in last), *last]


def positions(x: VTensor | PTensor, axes: Sequence[str]) -> tuple[int, ...]:
    """Where dims stand in declared order."""
    return tuple(list(x.dims).index(dim) for dim in axes)


def channels(node: NodeReader) -> VTensor:
    """The first input, its second position called C."""
    names = list(node.input(0).dims)
    if len(names) < 2:
        raise node.refuse("an input without channels")
    return node.input(0, " ".join("C" if i == 1 else name for i, name in enumerate(names)))


def epsilon(node: NodeReader) -> float:
    """What a node adds to a variance."""
    return float(node.attribute("epsilon", 1e-5))
