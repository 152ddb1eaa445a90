"""Eigen's routines for products, windows and Fourier transforms, as invokers return them.

Most kernels for images need the channels last.
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

#: The element types that every kernel of this module supports.
DTYPES = ("f32",)
#: The element types of products of matrices and convolutions.
MULTIPLIED = ("f32", "s32")
#: The sizes of elements that can be copied, in bytes.
ITEMSIZES = (1, 2, 4, 8)


def _channels_last(x: VTensor) -> Layout:
    """Return a tensor's plain layout that ends with D, H, W, C, as far as it has these dims."""
    return _last(x, [dim for dim in "DHWC" if dim in x.dims])


def _last(x: VTensor, dims: Sequence[str]) -> Layout:
    """Return a tensor's plain layout in declared order, but with ``dims`` at the end."""
    return Layout.plain([*(dim for dim in x.dims if dim not in dims), *dims])


def copy(sources: Sequence[PTensor], dst: PTensor, boxes: Sequence[Box]) -> None:
    """Emit a step that copies boxes from sources to dst; all elements have the size of dst's."""
    sizes = [t.required_layout.num_elements(t.dims) for t in (*sources, dst)]
    itemsize = dst.required_layout.stored(dst.dtype).itemsize
    emit(native.load().copy(sizes, boxes, itemsize), [*sources, dst])


def emit_kernel(kernel: Kernel, operands: Sequence[PTensor]) -> None:
    """Emit a kernel as a step on operands, with scratch memory if the kernel needs any."""
    emit(kernel, [*operands, *([kernel.scratch_bytes] if kernel.scratch_bytes else [])])


def _image_routine(tensors: Sequence[VTensor], run: Callable[..., None]) -> Routine:
    """Return a routine that needs the channels of all operands last; ``run`` makes the call."""
    return Routine(tensors, [_channels_last(tensor) for tensor in tensors], run=run)


def matmul(left: VTensor, right: VTensor, dst: VTensor, *over: str) -> Routine:
    """Return the routine of a product of matrices, summed over the dims ``over``.

    left is B M K, right B K N, dst B M N, where each letter stands for any number of dims.
    """
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
    """A window that slides over an image.

    Attributes:
        kernel: the size of the window along each spatial dim, in elements.
        strides: for each spatial dim, the distance from one position of the window to the next.
        dilations: for each spatial dim, the distance between neighbouring elements of the window.
        pads: number of elements that are added before each spatial dim, then after each.
    """

    kernel: Sizes
    strides: Sizes
    pads: Sizes
    dilations: Sizes


def convolution(
    src: VTensor, weights: VTensor, dst: VTensor, slide: Slide, groups: int = 1
) -> Routine:
    """Return the routine of a convolution: channels last, weights in the order G d h w I O.

    Args:
        src, weights, dst: the operands.
        slide: the window.
        groups: number of groups of channels.
    """

    def run(x: PTensor, w: PTensor, y: PTensor) -> None:
        window = _window(x, y, slide)
        kernel = native.load().convolution(src.dtype, window, groups, w.size("O"))
        emit_kernel(kernel, [x, w, y])

    return _sliding(src, weights, dst, "GdhwIO", run)


def depthwise(src: VTensor, weights: VTensor, dst: VTensor, slide: Slide) -> Routine:
    """Return the routine of a depthwise convolution.

    Images have channels last, weights the order d h w G O I with I = 1.
    """

    def run(x: PTensor, w: PTensor, y: PTensor) -> None:
        emit(native.load().depthwise(src.dtype, _window(x, y, slide), w.size("O")), [x, w, y])

    return _sliding(src, weights, dst, "dhwGOI", run)


def _sliding(
    src: VTensor, weights: VTensor, dst: VTensor, order: str, run: Callable[..., None]
) -> Routine:
    """Return a routine on images with channels last and weights in a given order of dims.

    Args:
        src, weights, dst: the operands.
        order: the dims of the weights, slowest first; the weights may lack some.
        run: makes the call on the PTensors of src, weights and dst.
    """
    kernel = Layout.plain(dim for dim in order if dim in weights.dims)
    wants = [_channels_last(src), kernel, _channels_last(dst)]
    return Routine([src, weights, dst], wants, run=run)


def pooling(kind: str, src: VTensor, dst: VTensor, slide: Slide, power: float = 0) -> Routine:
    """Return the routine of a pooling of images with channels last.

    Args:
        kind: ``max``, ``avg_include_padding``, ``avg_exclude_padding``, or ``lp``, the norm.
        src, dst: the images.
        slide: the window.
        power: exponent of the norm; other kinds do not use it.
    """
    ends = _to_three_dims(slide.pads[len(slide.kernel) :], 0)

    def run(x: PTensor, y: PTensor) -> None:
        emit(native.load().pooling(kind, _window(x, y, slide), ends, power), [x, y])

    return _image_routine([src, dst], run)


def mean_of_images(src: VTensor, dst: VTensor, slide: Slide) -> Routine:
    """Return the routine of the mean of each channel over whole images, in any layout.

    If src is f32 and produced with channels last, the routine is a pooling by ``slide``, a window
    of the size of an image; else it is a reduction, which does not use ``slide``.
    """
    if src.dtype in DTYPES and produced(src) == _channels_last(src):
        return pooling("avg_exclude_padding", src, dst, slide)
    return reduction("mean", src, dst, tuple(dim for dim in "DHW" if dim in src.dims))


def largest_place(
    src: VTensor, dst: VTensor, indices: VTensor, slide: Slide, column_major: bool
) -> Routine:
    """Return the routine of a max pooling with indices, of images with channels last.

    Args:
        src, dst: the images.
        indices: gets the index of each maximum among all elements of src in the order N C D H W.
        slide: the window.
        column_major: True if the elements are counted in the order N C W H D instead, with the
            first spatial dim fastest.
    """

    def run(x: PTensor, *results: PTensor) -> None:
        emit(
            native.load().largest_place(_window(x, results[0], slide), column_major), [x, *results]
        )

    return _image_routine([src, dst, indices], run)


def _window(src: PTensor, dst: PTensor, slide: Slide) -> Window:
    """Return how the window ``slide`` moves over src to make dst, as a ``Window`` of
    ``_eigen.pyi``.
    """
    return _native_window(src.size("N"), src.size("C"), _spatial(src), _spatial(dst), slide)


def _spatial(tensor: PTensor) -> list[int]:
    return [tensor.size(dim) for dim in "DHW" if dim in tensor.dims]


def _native_window(images: int, channels: int, before: Sizes, after: Sizes, slide: Slide) -> Window:
    """Return a ``Window`` of ``_eigen.pyi``; dims of size 1 are added up to three spatial dims.

    Args:
        images, channels: number of images, and of channels.
        before: spatial sizes of the input.
        after: number of windows along each spatial dim.
        slide: the window.
    """
    return (
        images,
        channels,
        _to_three_dims(before, 1),
        _to_three_dims(after, 1),
        _to_three_dims(slide.kernel, 1),
        _to_three_dims(slide.strides, 1),
        _to_three_dims(slide.dilations, 1),
        _to_three_dims(slide.pads[: len(slide.kernel)], 0),
    )


def _to_three_dims(sizes: Sizes, missing: int) -> list[int]:
    return [missing] * (3 - len(sizes)) + list(sizes)


def softmax(src: VTensor, dst: VTensor, axes: Sequence[str]) -> Routine:
    """Return the routine of a softmax over the dims ``axes``, which come last in the layout."""
    length = prod(map(src.size, axes))
    rows = prod(size for dim, size in src.dims.items() if dim not in axes)

    def run(x: PTensor, y: PTensor) -> None:
        emit(native.load().softmax(rows, length), [x, y])

    return Routine([src, dst], [_last(tensor, axes) for tensor in (src, dst)], run=run)


def dynamic_quantize(src: VTensor, dst: VTensor, scale: VTensor, zero: VTensor) -> Routine:
    """Return the routine of a dynamic quantization of src to u8, in any layout.

    It writes dst, whose pads are zeroed, and the scale and the zero point of dst.
    """

    def run(x: PTensor, y: PTensor, s: PTensor, z: PTensor) -> None:
        size = x.required_layout.num_elements(x.dims)
        emit(native.load().dynamic_quantize(size, pads(y)), [x, y, s, z])

    return Routine([src, dst, scale, zero], [Layout.ANY] * 4, run=run)


def lrn(src: VTensor, dst: VTensor, size: int, alpha: float, beta: float, bias: float) -> Routine:
    """Return the routine of a local response normalization over C, which comes last.

    Args:
        src, dst: the images.
        size, alpha, beta, bias: as in ONNX's LRN; ``size`` counts channels.
    """
    rows = prod(extent for dim, extent in src.dims.items() if dim != "C")

    def run(x: PTensor, y: PTensor) -> None:
        emit(native.load().lrn(rows, x.size("C"), size, alpha, beta, bias), [x, y])

    return _image_routine([src, dst], run)


def _planes(tensor: VTensor) -> Layout:
    """Return a tensor's plain layout in the order N C D H W, without the dims that the tensor
    lacks.
    """
    return Layout.plain(dim for dim in "NCDHW" if dim in tensor.dims)


def col2im(src: VTensor, dst: VTensor, windows: Sizes, slide: Slide) -> Routine:
    """Return the routine of Col2Im: windows are added to an image, each at the position from which
    it was cut out.

    Args:
        src: the windows, with dims N K L. Index of L: which window. Index of K: which of its
            elements, in all channels.
        dst: the image.
        windows: number of windows along each spatial dim.
        slide: the window.
    """

    def run(x: PTensor, y: PTensor) -> None:
        layers = y.size("N") * y.size("C")
        window = _native_window(layers, 1, _spatial(y), windows, slide)
        emit(native.load().col2im(src.dtype, window), [x, y])

    return Routine([src, dst], [Layout.plain("NKL"), _planes(dst)], run=run)


def deformed(tensors: Sequence[VTensor], slide: Slide, groups: int, parts: int) -> Routine:
    """Return the routine of a deformable convolution: src is sampled at positions that ``offsets``
    shift.

    Args:
        tensors: src, weights, offsets, an optional mask, dst.
        slide: the window.
        groups: number of groups of the convolution.
        parts: number of groups of channels for the offsets: the channels of such a group have the
            same offsets.
    """
    src, weights, *bends, dst = tensors

    def run(x: PTensor, *others: PTensor) -> None:
        window = _window(x, others[-1], slide)
        form = (groups, parts, weights.size("O"), len(slide.kernel), len(bends) > 1)
        emit_kernel(native.load().deformed(window, form), [x, *others])

    kernel = Layout.plain(dim for dim in "OIdhw" if dim in weights.dims)
    places = [Layout.plain(dim for dim in "NKDHW" if dim in bend.dims) for bend in bends]
    return Routine(tensors, [_planes(src), kernel, *places, _planes(dst)], run=run)


def unpool(src: VTensor, indices: VTensor, dst: VTensor, counted: Sizes) -> Routine:
    """Return the routine of MaxUnpool: each element of src goes to the position in dst that
    ``indices`` has for it; all other elements of dst are 0.

    Args:
        src, indices, dst: the operands.
        counted: the spatial sizes of the image whose elements ``indices`` number; dst may be
            larger.
    """

    def run(x: PTensor, *others: PTensor) -> None:
        layers, sizes = x.size("N") * x.size("C"), _to_three_dims(_spatial(others[-1]), 1)
        whole, item = (
            (layers, prod(_spatial(x)), _to_three_dims(counted, 1), sizes),
            ITEMSIZE[src.dtype],
        )
        emit(native.load().unpool(*whole, item), [x, *others])

    tensors = [src, indices, dst]
    return Routine(tensors, [_planes(tensor) for tensor in tensors], run=run)


def determinant(src: VTensor, dst: VTensor, rows: str, columns: str) -> Routine:
    """Return the routine of determinants of matrices with the dims ``rows`` and ``columns``."""

    def run(x: PTensor, y: PTensor) -> None:
        many = prod(dst.dims.values())
        kernel = native.load().determinant(src.dtype, many, x.size(rows))
        emit_kernel(kernel, [x, y])

    wants = [Layout.plain([*dst.dims, rows, columns]), Layout.plain(dst.dims)]
    return Routine([src, dst], wants, run=run)


def fourier(tensors: Sequence[VTensor], wants: Sequence[Layout], frames: Frames) -> Routine:
    """Return the routine of Fourier transforms of frames of x.

    Args:
        tensors: x, an optional window, and y.
        wants: the layouts of ``tensors``, all plain. The transformed dim is the last one; only the
            dim of real and imaginary part, if the tensor has one, comes after it.
        frames: the sizes and attributes, see ``Frames`` in ``_eigen.pyi``.
    """

    def run(*operands: PTensor) -> None:
        emit_kernel(native.load().fourier(tensors[0].dtype, frames), operands)

    return Routine(tensors, wants, run=run)
