"""Eigen's routines: what an invoker returns.

Element-wise kernels run in any layout. Kernels with spatial or channel structure want the channels
last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from libdesc.eigen import native
from libdesc.eigen.memory import pads
from libdesc.eigen.reductions import reduction
from libdesc.groups import Groups
from libdesc.routine import Routine
from ptensor.evaluation import emit
from ptensor.layout import Layout
from ptensor.tensor import PTensor
from ptensor.views import produced
from vtensor.language.dtype import ITEMSIZE
from vtensor.language.tensor import VTensor

if TYPE_CHECKING:
    from libdesc.eigen._eigen import Box, Frames, Kernel, Sizes, Window

#: The element type that all kernels have, and the sizes of elements that can be copied.
DTYPES = ("f32",)
#: Those that products of matrices have.
MULTIPLIED = ("f32", "s32")
ITEMSIZES = (1, 2, 4, 8)


def _channels_last(x: VTensor) -> Layout:
    """N, then D, H and W as far as there are such, then C."""
    return _last(x, [dim for dim in "DHWC" if dim in x.dims])


def _last(x: VTensor, dims: Sequence[str]) -> Layout:
    """The declared order with some dims moved behind the others, in the order given."""
    return Layout.plain([*(dim for dim in x.dims if dim not in dims), *dims])


def copy(sources: Sequence[PTensor], dst: PTensor, boxes: Sequence[Box]) -> None:
    """Boxes of sources to where they belong in dst; elements of any one type."""
    sizes = [t.required_layout.num_elements(t.dims) for t in (*sources, dst)]
    itemsize = dst.required_layout.stored(dst.dtype).itemsize
    emit(native.load().copy(sizes, boxes, itemsize), [*sources, dst])


def emit_kernel(kernel: Kernel, operands: Sequence[PTensor]) -> None:
    """A step of the kernel, with scratch memory if it needs some."""
    emit(kernel, [*operands, *([kernel.scratch_bytes] if kernel.scratch_bytes else [])])


def _image_routine(tensors: Sequence[VTensor], run: Callable[..., None]) -> Routine:
    """A call that wants the channels of all operands last."""
    return Routine(tensors, [_channels_last(tensor) for tensor in tensors], run=run)


def matmul(left: VTensor, right: VTensor, dst: VTensor, *over: str) -> Routine:
    """The sum over dims K of left times right: left in the order B M K, right B K N, dst B M N."""
    groups = Groups.of(left, right, *over)

    def run(a: PTensor, b: PTensor, y: PTensor) -> None:
        shape = [y.size(dim) for dim in groups.batch]
        steps = _batch_strides(a, groups.batch), _batch_strides(b, groups.batch)
        height, width = (prod(map(y.size, dims)) for dims in (groups.rows, groups.columns))
        sizes = height, width, prod(map(a.size, over))
        emit(native.load().product(left.dtype, shape, *steps, *sizes), [a, b, y])

    return Routine([left, right, dst], groups.orders, run=run)


def _batch_strides(tensor: PTensor, batch: Sequence[str]) -> list[int]:
    order = tensor.required_layout
    steps = dict(zip(order.dims, order.strides(tensor.dims), strict=True))
    return [steps[dim] if tensor.size(dim) > 1 else 0 for dim in batch]


class Slide(NamedTuple):
    """A window over the spatial dims of an image: one number a dim, pads at begin, then at end."""

    kernel: Sizes
    strides: Sizes
    pads: Sizes
    dilations: Sizes


def convolution(
    src: VTensor, weights: VTensor, dst: VTensor, slide: Slide, groups: int = 1
) -> Routine:
    """Images with channels last, kernels in the order G d h w I O."""

    def run(x: PTensor, w: PTensor, y: PTensor) -> None:
        window = _window(x, y, slide)
        kernel = native.load().convolution(src.dtype, window, groups, w.size("O"))
        emit_kernel(kernel, [x, w, y])

    return _sliding(src, weights, dst, "GdhwIO", run)


def depthwise(src: VTensor, weights: VTensor, dst: VTensor, slide: Slide) -> Routine:
    """Images with channels last, kernels in the order d h w G O I, I = 1."""

    def run(x: PTensor, w: PTensor, y: PTensor) -> None:
        emit(native.load().depthwise(src.dtype, _window(x, y, slide), w.size("O")), [x, w, y])

    return _sliding(src, weights, dst, "dhwGOI", run)


def _sliding(
    src: VTensor, weights: VTensor, dst: VTensor, order: str, run: Callable[..., None]
) -> Routine:
    """A kernel of weights in an order, of which they may lack some dims, slides over an image."""
    kernel = Layout.plain(dim for dim in order if dim in weights.dims)
    wants = [_channels_last(src), kernel, _channels_last(dst)]
    return Routine([src, weights, dst], wants, run=run)


def pooling(kind: str, src: VTensor, dst: VTensor, slide: Slide, power: float = 0) -> Routine:
    """Pooling of images with channels last.

    Args:
        kind: ``max``, ``avg_include_padding``, ``avg_exclude_padding``, or ``lp``, the norm.
        src, dst: the images.
        tensors: src, weights, the offsets, a mask if there is one, dst.
        slide: the window.
        power: of the norm.
    """
    ends = _three(slide.pads[len(slide.kernel) :], 0)

    def run(x: PTensor, y: PTensor) -> None:
        emit(native.load().pooling(kind, _window(x, y, slide), ends, power), [x, y])

    return _image_routine([src, dst], run)


def mean_of_images(src: VTensor, dst: VTensor, slide: Slide) -> Routine:
    """Mean of each channel of whole images, in whatever layout the images have."""
    if src.dtype in DTYPES and produced(src) == _channels_last(src):
        return pooling("avg_exclude_padding", src, dst, slide)
    return reduction("mean", src, dst, tuple(dim for dim in "DHW" if dim in src.dims))


def largest_place(
    src: VTensor, dst: VTensor, indices: VTensor, slide: Slide, column_major: bool
) -> Routine:
    """The largest element of each window, and where it is, of images with channels last."""

    def run(x: PTensor, *results: PTensor) -> None:
        emit(
            native.load().largest_place(_window(x, results[0], slide), column_major), [x, *results]
        )

    return _image_routine([src, dst, indices], run)


def _window(src: PTensor, dst: PTensor, slide: Slide) -> Window:
    """As the native kernels take it: three spatial dims, those that lack are 1."""
    return _slid(src.size("N"), src.size("C"), _spatial(src), _spatial(dst), slide)


def _spatial(tensor: PTensor) -> list[int]:
    return [tensor.size(dim) for dim in "DHW" if dim in tensor.dims]


def _slid(images: int, channels: int, before: Sizes, after: Sizes, slide: Slide) -> Window:
    """A window over images of some spatial sizes, at so many places along each dim."""
    return (
        images,
        channels,
        _three(before, 1),
        _three(after, 1),
        _three(slide.kernel, 1),
        _three(slide.strides, 1),
        _three(slide.dilations, 1),
        _three(slide.pads[: len(slide.kernel)], 0),
    )


def _three(sizes: Sizes, missing: int) -> list[int]:
    return [missing] * (3 - len(sizes)) + list(sizes)


def softmax(src: VTensor, dst: VTensor, axes: Sequence[str]) -> Routine:
    """Softmax over axes that lie last."""
    length = prod(map(src.size, axes))
    rows = prod(size for dim, size in src.dims.items() if dim not in axes)

    def run(x: PTensor, y: PTensor) -> None:
        emit(native.load().softmax(rows, length), [x, y])

    return Routine([src, dst], [_last(tensor, axes) for tensor in (src, dst)], run=run)


def dynamic_quantize(src: VTensor, dst: VTensor, scale: VTensor, zero: VTensor) -> Routine:
    """Steps of the scale that just holds every value, in any layout; pads become 0 again."""

    def run(x: PTensor, y: PTensor, s: PTensor, z: PTensor) -> None:
        size = x.required_layout.num_elements(x.dims)
        emit(native.load().dynamic_quantize(size, pads(y)), [x, y, s, z])

    return Routine([src, dst, scale, zero], [Layout.ANY] * 4, run=run)


def lrn(src: VTensor, dst: VTensor, size: int, alpha: float, beta: float, bias: float) -> Routine:
    """Local response normalization over C, which lies last."""
    rows = prod(extent for dim, extent in src.dims.items() if dim != "C")

    def run(x: PTensor, y: PTensor) -> None:
        emit(native.load().lrn(rows, x.size("C"), size, alpha, beta, bias), [x, y])

    return _image_routine([src, dst], run)


def _planes(tensor: VTensor) -> Layout:
    """N, C, then the spatial dims."""
    return Layout.plain(dim for dim in "NCDHW" if dim in tensor.dims)


def col2im(src: VTensor, dst: VTensor, windows: Sizes, slide: Slide) -> Routine:
    """Windows (N K L) of an image added up, each at its place; so many along each spatial dim."""

    def run(x: PTensor, y: PTensor) -> None:
        layers = y.size("N") * y.size("C")
        window = _slid(layers, 1, _spatial(y), windows, slide)
        emit(native.load().col2im(src.dtype, window), [x, y])

    return Routine([src, dst], [Layout.plain("NKL"), _planes(dst)], run=run)


def deformed(tensors: Sequence[VTensor], slide: Slide, groups: int, parts: int) -> Routine:
    """A convolution that takes elements beside their places.

    Args:
        tensors: src, weights, the offsets, a mask if there is one, dst.
        slide: the window.
        groups: into which the channels fall.
        parts: of the channels that have offsets of their own.
    """
    src, weights, *bends, dst = tensors

    def run(x: PTensor, *others: PTensor) -> None:
        window = _window(x, others[-1], slide)
        form = (groups, parts, weights.size("O"), len(slide.kernel), len(bends) > 1)
        emit_kernel(native.load().deformed(window, form), [x, *others])

    kernel = Layout.plain(dim for dim in "OIdhw" if dim in weights.dims)
    places = [Layout.plain(dim for dim in "NKDHW" if dim in one.dims) for one in bends]
    return Routine(tensors, [_planes(src), kernel, *places, _planes(dst)], run=run)


def unpool(src: VTensor, indices: VTensor, dst: VTensor, counted: Sizes) -> Routine:
    """Elements at the places that indices count in an image of these spatial sizes; else 0."""

    def run(x: PTensor, *others: PTensor) -> None:
        layers, sizes = x.size("N") * x.size("C"), _three(_spatial(others[-1]), 1)
        whole, item = (layers, prod(_spatial(x)), _three(counted, 1), sizes), ITEMSIZE[src.dtype]
        emit(native.load().unpool(*whole, item), [x, *others])

    tensors = [src, indices, dst]
    return Routine(tensors, [_planes(tensor) for tensor in tensors], run=run)


def determinant(src: VTensor, dst: VTensor, rows: str, columns: str) -> Routine:
    """The determinant of each matrix of two dims of one size."""

    def run(x: PTensor, y: PTensor) -> None:
        many = prod(dst.dims.values())
        kernel = native.load().determinant(src.dtype, many, x.size(rows))
        emit_kernel(kernel, [x, y])

    wants = [Layout.plain([*dst.dims, rows, columns]), Layout.plain(dst.dims)]
    return Routine([src, dst], wants, run=run)


def fourier(tensors: Sequence[VTensor], wants: Sequence[Layout], frames: Frames) -> Routine:
    """Fourier transforms of frames of x; tensors are x, a window if there is one, and y.

    Args:
        wants: plain layouts: the dim that is transformed, then the parts of a number, lie last.
        frames: as the native kernel takes them.
    """

    def run(*operands: PTensor) -> None:
        emit_kernel(native.load().fourier(tensors[0].dtype, frames), operands)

    return Routine(tensors, wants, run=run)
