"""A tensor between layout-aware operators: memory, and oneDNN's descriptor of its layout.

Every operator reads the descriptor, and converts if its library needs another layout, as
TensorFlow's operators do with MklDnnShape. Axes are numbered as the graph declares them: N C H W, O
I H W, N C. A *plain* layout has elements in the order of the axes, without blocks.
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

#: The element type of all tensors, as the networks have no other.
DTYPE = "f32"


@dataclass(frozen=True, eq=False)
class Tensor:
    """Memory and its layout.

    Attributes:
        desc: sizes and layout.
        memory: its memory: in the arena, of an input or output of a run, or of a constant.
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
        """Return the elements as an array; the layout must be plain, and the memory bound."""
        return self.memory.buffer.memory[: self.desc.nbytes].view(np.float32).reshape(self.dims)


def memory_of(nbytes: int) -> TensorStorage:
    """Return memory of a number of bytes whose buffer is bound later."""
    return TensorStorage("u8", {"bytes": nbytes}, Layout.plain(["bytes"]))


def plain(dims: Sizes, order: Sequence[int] = ()) -> Desc:
    """Return a descriptor without blocks; ``order`` has the axes, the slowest first (empty: 0, 1,
    ...).
    """
    strides, step = [0] * len(dims), 1
    for axis in reversed(order or range(len(dims))):
        strides[axis], step = step, step * dims[axis]
    return dnnl.Desc.strided(dims, DTYPE, strides)


def channels_last(dims: Sizes) -> Desc:
    """Return a descriptor with axis 1 last, as NHWC; a plain one if there are no spatial axes.

    >>> channels_last((2, 3, 5, 5)).strides
    (75, 1, 15, 3)
    """
    spatial = range(2, len(dims))
    return plain(dims, (0, *spatial, 1) if spatial else ())


def lies_as(a: Desc, b: Desc) -> bool:
    """Return whether two descriptors place every element alike, even if they are written otherwise.

    >>> lies_as(channels_last((1, 8, 1, 1)), dnnl.Desc.tag((1, 8, 1, 1), DTYPE, "aBcd8b"))
    True
    """
    return a == b or (a.nbytes == b.nbytes and _steps(a) == _steps(b))


def _steps(desc: Desc) -> list[list[tuple[int, int]]]:
    """Return pairs (count, distance) for each axis, the innermost first.

    An element ``count`` further along the axis is ``distance`` elements further in memory, up to
    the count of the next pair.
    """
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
