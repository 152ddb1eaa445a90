"""A tensor between layout-aware operators: memory, and oneDNN's descriptor of its layout.

Every operator reads that descriptor, and converts if its library wants another layout, as
TensorFlow's operators do with MklDnnShape. Axes are numbered as the graph declares them: N C H W, O
I H W, N C.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from libdesc.onednn.native import dnnl
from ptensor.buffer import TensorStorage
from ptensor.layout import Layout

if TYPE_CHECKING:
    from libdesc.onednn._onednn import Desc

Sizes = tuple[int, ...]

#: The element type of everything: that of the networks.
DTYPE = "f32"


@dataclass(frozen=True, eq=False)
class Tensor:
    """Memory and its layout.

    Attributes:
        desc: sizes and layout.
        memory: a slot of the arena, of a run or of the weights.
        library: the library of the operator that made it; empty for inputs and constants.
        constant: whether the values never change.
    """

    desc: Desc
    memory: TensorStorage
    library: str = ""
    constant: bool = False

    @property
    def dims(self) -> Sizes:
        """The sizes of the axes."""
        return self.desc.dims

    def array(self) -> np.ndarray[Any, Any]:
        """The elements; the layout is plain and memory is allocated."""
        return self.memory.buffer.memory[: self.desc.nbytes].view(np.float32).reshape(self.dims)


def memory_of(nbytes: int) -> TensorStorage:
    """Memory that is still to be found."""
    return TensorStorage("u8", {"bytes": nbytes}, Layout.plain(["bytes"]))


def plain(dims: Sizes, order: Sequence[int] = ()) -> Desc:
    """Return a layout without blocks; axes are in an order, the slowest first, or as numbered."""
    strides, step = [0] * len(dims), 1
    for axis in reversed(order or range(len(dims))):
        strides[axis], step = step, step * dims[axis]
    return dnnl.Desc.strided(dims, DTYPE, strides)


def channels_last(dims: Sizes) -> Desc:
    """NHWC, for any number of spatial axes; as numbered where there are none.

    >>> channels_last((2, 3, 5, 5)).strides
    (75, 1, 15, 3)
    """
    spatial = range(2, len(dims))
    return plain(dims, (0, *spatial, 1) if spatial else ())


def lies_as(a: Desc, b: Desc) -> bool:
    """Both put every element at the same place, though they may spell it differently.

    >>> lies_as(channels_last((1, 8, 1, 1)), dnnl.Desc.tag((1, 8, 1, 1), DTYPE, "aBcd8b"))
    True
    """
    return a == b or (a.nbytes == b.nbytes and _steps(a) == _steps(b))


def _steps(desc: Desc) -> list[list[tuple[int, int]]]:
    """Return pairs (index, distance) by axis: from that index on, elements are so far apart."""
    steps: list[list[tuple[int, int]]] = [[] for _ in desc.dims]
    units, distance = [1] * len(desc.dims), 1
    rows = []
    for block, axis in reversed(desc.inner_blocks):
        rows.append((axis, units[axis], distance))
        units[axis], distance = units[axis] * block, distance * block
    rows += [(axis, units[axis], stride) for axis, stride in enumerate(desc.strides)]
    for axis, unit, step in rows:
        line = steps[axis]
        straight = line and step * line[-1][0] == line[-1][1] * unit
        if unit < desc.dims[axis] and not straight:
            line.append((unit, step))
    return steps
