"""Calls of Eigen's kernels: what an invoker says after its tagger.

Element-wise kernels run in any layout. Kernels with spatial or channel structure want the channels
last; ``channels_last`` is what their invokers require.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from libdesc.eigen import native
from libdesc.eigen.expression import Expression, compiled
from libdesc.eigen.interface import Box, Sizes, Window
from libdesc.eigen.memory import Part, copied, filled, pads, part
from ptensor.evaluation import emit
from ptensor.layout import Layout
from ptensor.tensor import PTensor
from vtensor.tensor import VTensor

#: The element type that all kernels have, and the sizes of elements that can be copied.
DTYPES = ("f32",)
ITEMSIZES = (1, 2, 4, 8)


def channels_last(x: VTensor) -> Layout:
    """N, then D, H and W as far as there are such, then C."""
    return last(x, [dim for dim in "DHWC" if dim in x.dims])


def last(x: VTensor, dims: Sequence[str]) -> Layout:
    """The declared order with some dims moved behind the others, in the order given."""
    return Layout.plain([*(dim for dim in x.dims if dim not in dims), *dims])


def pointwise(
    function: Callable[..., Expression], sources: Sequence[PTensor], dst: PTensor
) -> None:
    """An element-wise expression of operands in one joint layout; pads become 0 again."""
    program = compiled(function, len(sources))
    shape = dst.required_layout.physical_shape(dst.dims)
    strides = [_strides(source, dst) for source in sources]
    rest = (program.constants, program.instructions, pads(dst))
    emit(native.load().pointwise(shape, strides, *rest), [*sources, dst])


def _strides(source: PTensor, dst: PTensor) -> list[int]:
    """Along each axis of dst: how far the operand's elements are, 0 where it is repeated."""
    layout = source.required_layout
    shape, strides = layout.physical_shape(source.dims), layout.strides(source.dims)
    rows = zip(_places(layout), shape, strides, strict=True)
    steps = {place: 0 if size == 1 else stride for place, size, stride in rows}
    return [steps.get(place, 0) for place in _places(dst.required_layout)]


def _places(layout: Layout) -> Iterator[tuple[str, int]]:
    """Dim and unit of each axis: two blocks of a dim may be of one size, as in ``OI4i16o4i``."""
    return zip((axis.dim for axis in layout.axes), layout.units, strict=True)


def copy(sources: Sequence[PTensor], dst: PTensor, boxes: Sequence[Box]) -> None:
    """Boxes of sources to where they belong in dst; elements of any one type."""
    sizes = [t.required_layout.num_elements(t.dims) for t in (*sources, dst)]
    itemsize = dst.required_layout.stored(dst.dtype).itemsize
    emit(native.load().copy(sizes, boxes, itemsize), [*sources, dst])


def concat(sources: Sequence[PTensor], dst: PTensor, dim: str) -> None:
    """Sources one behind another along a dim, all in one plain order."""
    boxes, begin = [], 0
    for index, source in enumerate(sources):
        end = begin + source.size(dim)
        boxes.append(copied(index, part(source), _cut(dst, {dim: slice(begin, end)})))
        begin = end
    copy(sources, dst, boxes)


def pad(src: PTensor, dst: PTensor, before: Mapping[str, int], value: float) -> None:
    """A value around the source, which begins ``before`` elements behind dst's beginning.

    Both are in one plain order; where ``before`` is negative, the source begins earlier.
    """
    inner, outer = {}, {}
    for dim, begin in before.items():
        first, stop = max(begin, 0), min(begin + src.size(dim), dst.size(dim))
        outer[dim] = slice(first, max(stop, first))
        inner[dim] = slice(first - begin, max(stop, first) - begin)
    place = _cut(dst, outer)
    boxes = [copied(0, _cut(src, inner), place)]
    if prod(place.shape) < prod(dst.dims.values()):
        boxes.insert(0, filled(part(dst), int(np.float32(value).view(np.uint32))))
    copy([src], dst, boxes)


def _cut(tensor: PTensor, slices: Mapping[str, slice]) -> Part:
    """What slices by name cut out of a plain order."""
    return part(tensor, [slices.get(dim, slice(None)) for dim in tensor.required_layout.dims])


def matmul(left: PTensor, right: PTensor, dst: PTensor, groups: Groups) -> None:
    """Products of matrices: left in the order B M K, right B K N, dst B M N."""
    batch, rows, columns, over = groups
    shape = [dst.size(dim) for dim in batch]
    steps = _batch_strides(left, batch), _batch_strides(right, batch)
    height, width = (prod(dst.size(dim) for dim in dims) for dims in (rows, columns))
    product = native.load().product(shape, *steps, height, width, left.size(over))
    emit(product, [left, right, dst])


def _batch_strides(tensor: PTensor, batch: Sequence[str]) -> list[int]:
    order = tensor.required_layout
    steps = dict(zip(order.dims, order.strides(tensor.dims), strict=True))
    return [steps[dim] if tensor.size(dim) > 1 else 0 for dim in batch]


class Groups(NamedTuple):
    """The dims of a product of matrices: of both factors, of the left, of the right; summed."""

    batch: Sequence[str]
    rows: Sequence[str]
    columns: Sequence[str]
    over: str

    @classmethod
    def of(cls, a: VTensor, b: VTensor, over: str) -> Groups:
        """The groups of the dims of a and b."""
        batch = [dim for dim in a.dims if dim in b.dims and dim != over]
        rows, columns = (
            [dim for dim in t.dims if dim not in batch and dim != over] for t in (a, b)
        )
        return cls(batch, rows, columns, over)


class Slide(NamedTuple):
    """A window over the spatial dims of an image: one number a dim, pads at begin, then at end."""

    kernel: Sizes
    strides: Sizes
    pads: Sizes
    dilations: Sizes


def convolution(
    src: PTensor, weights: PTensor, dst: PTensor, slide: Slide, groups: int = 1
) -> None:
    """Images with channels last, kernels in the order G d h w I O."""
    kernel = native.load().convolution(_window(src, dst, slide), groups, weights.size("O"))
    emit(kernel, [src, weights, dst, *([kernel.scratch_bytes] if kernel.scratch_bytes else [])])


def depthwise(src: PTensor, weights: PTensor, dst: PTensor, slide: Slide) -> None:
    """Images with channels last, kernels in the order d h w G I O, I = 1."""
    kernel = native.load().depthwise(_window(src, dst, slide), weights.size("O"))
    emit(kernel, [src, weights, dst])


def pooling(kind: str, src: PTensor, dst: PTensor, slide: Slide) -> None:
    """``max``, ``avg_include_padding`` or ``avg_exclude_padding`` of images with channels last."""
    ends = _three(slide.pads[len(slide.kernel) :], 0)
    emit(native.load().pooling(kind, _window(src, dst, slide), ends), [src, dst])


def _window(src: PTensor, dst: PTensor, slide: Slide) -> Window:
    """As the native kernels take it: three spatial dims, those that lack are 1."""
    rank = len(slide.kernel)
    before, after = ([t.size(dim) for dim in "DHW" if dim in t.dims] for t in (src, dst))
    return (
        src.size("N"),
        src.size("C"),
        _three(before, 1),
        _three(after, 1),
        _three(slide.kernel, 1),
        _three(slide.strides, 1),
        _three(slide.dilations, 1),
        _three(slide.pads[:rank], 0),
    )


def _three(sizes: Sizes, missing: int) -> list[int]:
    return [missing] * (3 - len(sizes)) + list(sizes)


def mean(src: PTensor, dst: PTensor, axes: Sequence[str]) -> None:
    """The mean over axes that lie side by side in src."""
    dims = src.required_layout.dims
    first = min((dims.index(dim) for dim in axes), default=0)
    parts = dims[:first], dims[first : first + len(axes)], dims[first + len(axes) :]
    emit(native.load().mean(*(prod(src.size(d) for d in part) for part in parts)), [src, dst])


def softmax(src: PTensor, dst: PTensor, axes: Sequence[str]) -> None:
    """Softmax over axes that lie last."""
    length = prod(src.size(dim) for dim in axes)
    rows = prod(size for dim, size in src.dims.items() if dim not in axes)
    emit(native.load().softmax(rows, length), [src, dst])


def lrn(src: PTensor, dst: PTensor, size: int, alpha: float, beta: float, bias: float) -> None:
    """Local response normalization over C, which lies last."""
    rows = prod(extent for dim, extent in src.dims.items() if dim != "C")
    emit(native.load().lrn(rows, src.size("C"), size, alpha, beta, bias), [src, dst])
