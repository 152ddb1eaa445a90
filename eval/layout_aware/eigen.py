"""Facts about Eigen: its kernels take images with channels last, and other tensors in the order of
their axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from eval.layout_aware.context import Context
from eval.layout_aware.tensor import DTYPE, Sizes, Tensor, channels_last
from libdesc.eigen import native

if TYPE_CHECKING:
    from libdesc.eigen._eigen import Box

#: The name of a function, and the numbers of its operands. Inputs have the first numbers, then
#: constants, then the results of instructions.
Instruction = tuple[str, Sequence[int]]


def last(ctx: Context, x: Tensor) -> Tensor:
    """Return a tensor with its channels last, converted if it has another layout."""
    return ctx.convert(x, channels_last(x.dims))


def order(rank: int) -> Sizes:
    """Return the axes of an Eigen tensor in their order in memory, the slowest first."""
    return (0, *range(2, rank), 1) if rank > 2 else tuple(range(rank))


def pointwise(
    ctx: Context,
    inputs: Sequence[Tensor],
    dims: Sizes,
    instructions: Sequence[Instruction],
    constants: Sequence[float] = (),
) -> Tensor:
    """Record a function of each element, and return its output.

    Inputs of size 1 along an axis are repeated along it.

    Args:
        ctx: the context that records.
        inputs: the inputs, with as many axes as the output.
        dims: the sizes of the output.
        instructions: the function; the last instruction gives the output.
        constants: the constants.
    """
    sources, dst = [last(ctx, x) for x in inputs], ctx.allocate(channels_last(dims))
    axes = order(len(dims))
    strides = [[0 if x.dims[axis] == 1 else x.desc.strides[axis] for axis in axes] for x in sources]
    shape = [dims[axis] for axis in axes]
    numbers, types = [(DTYPE, number) for number in constants], [DTYPE] * (len(sources) + 1)
    code = [(f"{function} {DTYPE}", operands) for function, operands in instructions]
    kernel = native.load().pointwise(shape, strides, types, numbers, code, [])
    ctx.call_eigen(kernel, *sources, dst, over=sources)
    return dst


def copy(ctx: Context, sources: Sequence[Tensor], dst: Tensor, boxes: Sequence[Box]) -> None:
    """Record a copy into ``dst``: each box names a part of a source and its place in ``dst``."""
    sizes = [x.desc.nbytes // 4 for x in (*sources, dst)]
    ctx.call_eigen(native.load().copy(sizes, boxes, 4), *sources, dst)


def box(source: int, x: Tensor, begin: Sizes, shape: Sizes, dst: Tensor, to: Sizes) -> Box:
    """Return a box for ``copy``: a part of a source, and its place in ``dst``.

    Args:
        source: the number of ``x`` among the sources.
        x: the source.
        begin: the first element of the part, as an index for each axis of ``x``.
        shape: the sizes of the part.
        dst: the target.
        to: the index in ``dst`` of the part's first element.
    """
    here, there = (
        sum(i * stride for i, stride in zip(at, tensor.desc.strides, strict=True))
        for at, tensor in ((begin, x), (to, dst))
    )
    axes = order(len(shape))
    rows = ([row[axis] for axis in axes] for row in (shape, x.desc.strides, dst.desc.strides))
    sizes, steps, strides = rows
    return (source, sizes, here, steps, there, strides, 0)


def filled(dst: Tensor, value: float) -> Box:
    """Return a box for ``copy`` that fills all of ``dst`` with a number."""
    count = dst.desc.nbytes // 4
    return (-1, [count], 0, [0], 0, [1], int(np.float32(value).view(np.uint32)))
