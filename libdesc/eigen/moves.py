"""Eigen's routines that move, pick and compare elements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from libdesc.eigen import native
from libdesc.eigen.elementwise import of_joined
from libdesc.eigen.kernels import copy, emit_kernel
from libdesc.eigen.memory import Region, copied, filled, pads, region
from libdesc.numpy.casts import stored
from libdesc.routine import Routine
from ptensor.evaluation import Call, emit
from ptensor.layout import Layout
from ptensor.tensor import PTensor
from vtensor.language.dtype import ITEMSIZE, numpy_dtype
from vtensor.language.operators import Follower
from vtensor.language.tensor import VTensor

if TYPE_CHECKING:
    from libdesc.eigen._eigen import Places, Run

#: The element types that can be copied: those of 1, 2, 4 or 8 bytes.
MOVED = tuple(name for name, size in ITEMSIZE.items() if size in (1, 2, 4, 8))
#: The element types of comparisons, and of running sums and products.
COMPARED = ("f64", "f32", "f16", "bf16", "s64", "s32", "s8", "u8")


class SameLayout(Routine):
    """A routine whose operands all have the same layout; an operand that lacks dims has it without
    these dims.

    Args:
        tensors: the operands in the order of the call; the first one has the dims of all.
        run: makes the call; it gets a PTensor for each of ``tensors``.
        unblocked: the dims that must have no blocks; None means all dims.
    """

    def __init__(
        self,
        tensors: Sequence[VTensor],
        run: Callable[..., None],
        unblocked: Iterable[str] | None = None,
    ) -> None:
        super().__init__(tensors, run=run)
        self.unblocked = set(tensors[0].dims if unblocked is None else unblocked)

    def preferred(self, call: Call) -> Mapping[int, Layout | Sequence[Layout]]:
        """Return a layout by operand index: that in which the first operand is produced.

        Each operand gets it without the dims that it lacks, without an encoding, and without blocks
        of the dims ``unblocked``.
        """
        lead = call.operands[0].produced_layout
        if lead is None or lead.is_any or set(lead.dims) != self.tensors[0].dims.keys():
            lead = Layout.plain(self.tensors[0].dims)
        lead = lead.with_encoding(None)
        for dim in self.unblocked:
            lead = lead.unblock(dim)
        return dict(enumerate(self._row(lead)))

    def _row(self, lead: Layout) -> list[Layout]:
        return [lead.restrict(tensor.dims) for tensor in self.tensors]

    def confirm(self, call: Call, row: Sequence[Layout]) -> str | None:  # noqa: ARG002
        """Return None if the library takes these layouts, else the reason why not.

        All operands must have the first one's layout, without an encoding and without blocks of
        the dims ``unblocked``.
        """
        lead = row[0]
        if lead.encoding is not None:
            return f"moves elements without conversion, not {lead}"
        if blocked := [dim for dim in self.unblocked if lead.block(dim) != 1]:
            return f"{lead} blocks {', '.join(sorted(blocked))}"
        if [*row] != self._row(lead):
            return "all operands must have one layout"
        return None


def picked(x: VTensor, y: VTensor, runs: Mapping[str, Sequence[Run]], value: float = 0) -> Routine:
    """Return the routine that copies elements of x to y, from indices that are known before a run.

    Args:
        x, y: the same dims.
        runs: by dim, from which index in x the elements of y are taken, one after another: (count,
            first index in x, stride) for ``count`` elements each. A first index of -1 means that
            these elements come from no element of x. A missing dim is copied whole.
        value: the number for the elements of y that come from no element of x.
    """
    bits = bits_of(value, y.dtype)

    def run(src: PTensor, dst: PTensor) -> None:
        layout = dst.required_layout
        shape, strides = layout.physical_shape(dst.dims), src.required_layout.strides(src.dims)
        axes = [
            [
                (count, begin * stride if begin >= 0 else -1, step * stride)
                for count, begin, step in runs.get(axis.dim, [(size, 0, 1)])
            ]
            for axis, size, stride in zip(layout.axes, shape, strides, strict=True)
        ]
        size = src.required_layout.num_elements(src.dims)
        itemsize = ITEMSIZE[dst.dtype]
        emit(native.load().pick(axes, size, bits, itemsize), [src, dst])
        if bits and (lanes := pads(dst)):
            size = layout.num_elements(dst.dims)
            emit(native.load().copy([size], lanes, itemsize), [dst])

    return SameLayout([x, y], run, unblocked=runs)


def bits_of(value: float, dtype: str) -> int:
    """Return the bits of a number in an element type, as an unsigned integer."""
    array = stored(np.asarray(value), dtype).astype(numpy_dtype(dtype))
    return int(array.view(np.dtype(f"u{array.itemsize}")))


def runs_of(places: Iterable[int]) -> list[Run]:
    """Return indices as a list of (count, first index, stride). An index of -1 stands for no index.

    >>> runs_of([3, 4, 5, 5, 5, -1, -1])
    [(3, 3, 1), (2, 5, 0), (2, -1, 0)]
    """
    runs: list[Run] = []
    for place in places:
        if runs:
            count, begin, step = runs[-1]
            further = place - begin if count == 1 else step
            filled_too = begin < 0 and place < 0
            if filled_too or (begin >= 0 and place >= 0 and place == begin + count * further):
                runs[-1] = (count + 1, begin, 0 if filled_too else further)
                continue
        runs.append((1, place, 0))
    return runs


def _steps(tensor: PTensor) -> dict[str, int]:
    """Return the strides of a tensor in a plain layout, in elements by dim."""
    layout = tensor.required_layout
    return dict(zip(layout.dims, layout.strides(tensor.dims), strict=True))


def joined(
    sources: Sequence[VTensor], dst: VTensor, dim: str, follow: Sequence[Follower] = ()
) -> Routine:
    """Return the routine that concatenates sources along ``dim`` and computes the followers."""
    if follow:
        return of_joined(sources, dst, dim, follow)

    def run(*tensors: PTensor) -> None:
        *parts, whole = tensors
        boxes, begin = [], 0
        at = whole.required_layout.dims.index(dim)
        for index, source in enumerate(parts):
            cut = [slice(None)] * len(whole.required_layout.axes)
            cut[at] = slice(begin, begin + source.size(dim))
            boxes.append(copied(index, region(source), region(whole, cut)))
            begin += source.size(dim)
        copy(parts, whole, boxes)

    return SameLayout([*sources, dst], run)


def expanded(x: VTensor, y: VTensor) -> Routine:
    """Return the routine that repeats x along the dims of y that x lacks or has with size 1.

    Both operands have the plain layout in declared order.
    """

    def run(src: PTensor, dst: PTensor) -> None:
        steps = _steps(src)
        strides = [
            steps[dim] if src.dims.get(dim) == size and size > 1 else 0
            for dim, size in dst.dims.items()
        ]
        whole = region(dst)
        copy([src], dst, [copied(0, Region(whole.shape, 0, strides), whole)])

    return Routine([x, y], [Layout.plain(x.dims), Layout.plain(y.dims)], run=run)


def squares(x: VTensor, y: VTensor, block: int, columns_first: bool) -> Routine:
    """Return the routine of DepthToSpace or SpaceToDepth, which moves squares of pixels to
    channels, or back.

    Args:
        x, y: the images. The deeper one has block * block times as many channels as the other.
        block: height and width of a square.
        columns_first: True for ONNX's mode CRD, False for DCR. Let the other image have C channels.
            Its channel c at pixel p of a square is the channel c * block * block + p of the deeper
            image for CRD, and p * C + c for DCR.
    """

    def region_of(tensor: PTensor, deep: bool, sizes: Mapping[str, int]) -> Region:
        """Return a tensor's memory as a box with the axes N, C, i, j, H, W, for pixel (i, j) of
        square (H, W).

        Args:
            tensor: x or y.
            deep: True if ``tensor`` is the one with more channels.
            sizes: N, H and W of the deeper image, C of the other one.
        """
        step = _steps(tensor)
        c, h, w = (step[dim] for dim in "CHW")
        if deep:
            square = (1, block * block) if columns_first else (sizes["C"], 1)
            strides = [c * square[1], c * block * square[0], c * square[0], h, w]
        else:
            strides = [c, h, w, h * block, w * block]
        shape = [sizes["N"], sizes["C"], block, block, sizes["H"], sizes["W"]]
        return Region(shape, 0, [step["N"], *strides])

    def run(src: PTensor, dst: PTensor) -> None:
        spreads = src.size("C") > dst.size("C") or src.size("H") < dst.size("H")
        small, image = (src, dst) if spreads else (dst, src)
        sizes = {**small.dims, "C": image.size("C")}
        regions = [region_of(tensor, tensor is small, sizes) for tensor in (src, dst)]
        copy([src], dst, [copied(0, *regions)])

    return SameLayout([x, y], run)


def diagonal(x: VTensor, y: VTensor, order: Sequence[str], k: int) -> Routine:
    """Return the routine that writes ones on a diagonal of y and zeros elsewhere; x is not read.

    Args:
        x, y: the operands, with the same dims.
        order: the dims of rows and columns.
        k: which diagonal: 0 is the main one, 1 the next one to the right, -1 the next one to the
            left.
    """

    def run(_: PTensor, dst: PTensor) -> None:
        height, width = (dst.size(dim) for dim in order)
        rows, columns = max(-k, 0), max(k, 0)
        count = max(min(height - rows, width - columns), 0)
        ones = Region([count], rows * width + columns if count else 0, [width + 1])
        boxes = [filled(region(dst), 0), filled(ones, bits_of(1, dst.dtype))]
        emit(native.load().copy([height * width], boxes, ITEMSIZE[dst.dtype]), [dst])

    return Routine([x, y], [Layout.ANY, Layout.plain(order)], run=run)


def triangle(x: VTensor, y: VTensor, order: Sequence[str], k: int, upper: bool) -> Routine:
    """Return the routine that copies a triangle of each matrix, with zeros elsewhere.

    Args:
        x, y: the operands, with the same dims.
        order: all dims; the last two are rows and columns.
        k: the diagonal that bounds the triangle: 0 is the main one, larger is to the right.
        upper: True for the part on and above the diagonal, else on and below it.
    """
    *batch, height, width = (x.size(dim) for dim in order)

    def run(src: PTensor, dst: PTensor) -> None:
        itemsize = ITEMSIZE[x.dtype]
        emit(native.load().triangle(prod(batch), height, width, k, upper, itemsize), [src, dst])

    return Routine([x, y], [Layout.plain(order)] * 2, run=run)


def gather(
    x: VTensor, i: VTensor, y: VTensor, wants: Sequence[Layout], axes: Sequence[str], row: str = ""
) -> Routine:
    """Return the routine that copies to y the elements of x at the indices in i.

    Args:
        x, i, y: the source, the indices, and the result.
        wants: the layouts of x, i and y, all plain. In that of y the dims of i come first; in that
            of x the dims that are copied whole come last.
        axes: the dims of x that are indexed.
        row: the dim of i along which it has an index for each of ``axes``; empty if there is a
            single axis.
    """

    def run(src: PTensor, indices: PTensor, dst: PTensor) -> None:
        places = _positions(src, indices, dst, axes, row)
        itemsizes = ITEMSIZE[i.dtype], ITEMSIZE[x.dtype]
        emit(native.load().gather(places, *itemsizes), [src, indices, dst])

    return Routine([x, i, y], wants, run=run)


def scatter(
    tensors: Sequence[VTensor],
    wants: Sequence[Layout],
    axes: Sequence[str],
    reduction: str,
    row: str = "",
) -> Routine:
    """Return the routine that copies x to y and combines the elements of y at given indices with
    ``updates``.

    Args:
        tensors: x, indices, updates and y.
        wants, axes, row: see ``gather``.
        reduction: ``none`` (an update replaces the element), ``add``, ``mul``, ``max`` or ``min``.
    """
    x, i, *_ = tensors
    moved = reduction == "none"

    def run(src: PTensor, indices: PTensor, updates: PTensor, dst: PTensor) -> None:
        places = _positions(src, indices, updates, axes, row)
        dtype = str(ITEMSIZE[x.dtype]) if moved else x.dtype
        kernel = native.load().scatter(places, ITEMSIZE[i.dtype], dtype, reduction)
        emit(kernel, [src, indices, updates, dst])

    return Routine(tensors, wants, run=run)


def _positions(x: PTensor, i: PTensor, picked: PTensor, axes: Sequence[str], row: str) -> Places:
    """Return where the indices i point in x, as ``Places`` of ``_eigen.pyi``.

    Args:
        x: the tensor that the indices point into.
        i: the indices.
        picked: the result of a gather, or the updates of a scatter: it has an element for each
            element of x that the indices point to.
        axes, row: see ``gather``.
    """
    steps, along = _steps(x), _steps(i)
    index_dims = {dim for dim in i.dims if dim != row}
    last = max(x.required_layout.dims.index(dim) for dim in axes)
    inner = [dim for dim in x.required_layout.dims[last + 1 :] if dim not in index_dims]
    over = [dim for dim in picked.required_layout.dims if dim not in inner]
    return (
        [picked.size(dim) for dim in over],
        [along.get(dim, 0) for dim in over],
        [0 if dim in axes else steps.get(dim, 0) for dim in over],
        [(x.size(dim), steps[dim], dim) for dim in axes],
        prod(map(x.size, inner)),
        prod(i.dims.values()),
        prod(x.dims.values()),
    )


def one_hot(i: VTensor, values: VTensor, y: VTensor, depth: int) -> Routine:
    """Return the routine of OneHot: along the last dim of y one value at the index that i gives,
    and another value elsewhere.

    Args:
        i: the indices.
        values: two elements: the value elsewhere, then the value at the index.
        y: the result.
        depth: size of y's last dim.
    """

    def run(indices: PTensor, pair: PTensor, dst: PTensor) -> None:
        itemsizes = ITEMSIZE[i.dtype], ITEMSIZE[y.dtype]
        outer = prod(i.dims.values())
        emit(native.load().one_hot(outer, depth, 1, *itemsizes), [indices, pair, dst])

    return Routine([i, values, y], [Layout.plain(t.dims) for t in (i, values, y)], run=run)


def reverse_sequence(tensors: Sequence[VTensor], wants: Sequence[Layout]) -> Routine:
    """Return the routine that copies sequences, with the first elements of each in reverse order.

    Args:
        tensors: x; how many elements of each of its sequences are reversed; and y.
        wants: the layouts of ``tensors``, all plain. In that of x the first dim is the batch, and
            the second one runs along the sequences.
    """

    def run(src: PTensor, lengths: PTensor, dst: PTensor) -> None:
        batch, time, *inner = src.required_layout.physical_shape(src.dims)
        itemsizes = ITEMSIZE[lengths.dtype], ITEMSIZE[src.dtype]
        kernel = native.load().reverse_sequence(batch, time, prod(inner), *itemsizes)
        emit(kernel, [src, lengths, dst])

    return Routine(tensors, wants, run=run)


def _around(x: PTensor, axis: str) -> tuple[int, int, int]:
    """Return three products of sizes in x's layout: of the dims before ``axis``, of ``axis``
    itself, and of the dims after it.
    """
    shape, at = x.required_layout.physical_shape(x.dims), x.required_layout.dims.index(axis)
    return prod(shape[:at]), shape[at], prod(shape[at + 1 :])


def extreme_place(x: VTensor, y: VTensor, axis: str, largest: bool, last: bool) -> Routine:
    """Return the routine of ArgMax or ArgMin along a dim.

    Args:
        x, y: the operands.
        axis: the dim.
        largest: True for ArgMax, False for ArgMin.
        last: True if the last of equal elements counts, False if the first does.
    """

    def run(src: PTensor, dst: PTensor) -> None:
        around = _around(src, axis)
        emit(native.load().extreme_place(x.dtype, *around, largest, last), [src, dst])

    return SameLayout([x, y], run)


def hardmax(x: VTensor, y: VTensor, axes: Sequence[str]) -> Routine:
    """Return the routine that writes 1 at the first largest element over ``axes``, 0 elsewhere."""
    order = [*(dim for dim in x.dims if dim not in axes), *axes]
    length = prod(map(x.size, axes))
    rows = prod(size for dim, size in x.dims.items() if dim not in axes)

    def run(src: PTensor, dst: PTensor) -> None:
        emit(native.load().hardmax(x.dtype, rows, length), [src, dst])

    return Routine([x, y], [Layout.plain(order)] * 2, run=run)


def top(
    x: VTensor, values: VTensor, indices: VTensor, axis: str, count: int, largest: bool
) -> Routine:
    """Return the routine of TopK: the ``count`` largest or smallest elements, and their indices.

    Args:
        x: the elements.
        values, indices: the results.
        axis: the dim along which elements are compared.
        count: size of the results along ``axis``.
        largest: True for the largest elements, False for the smallest.
    """

    def run(src: PTensor, *results: PTensor) -> None:
        kernel = native.load().top(x.dtype, *_around(src, axis), count, largest)
        emit_kernel(kernel, [src, *results])

    return SameLayout([x, values, indices], run)


def running(
    x: VTensor, y: VTensor, axis: str, multiplies: bool, exclusive: bool, reverse: bool
) -> Routine:
    """Return the routine of running sums or products along a dim.

    Args:
        x, y: the same dims.
        axis: the dim.
        multiplies: True for products, False for sums.
        exclusive: True if an element of y does not include the element of x at its index.
        reverse: True to begin at the last element.
    """

    def run(src: PTensor, dst: PTensor) -> None:
        flags = (multiplies, exclusive, reverse)
        emit(native.load().running(x.dtype, *_around(src, axis), *flags), [src, dst])

    return SameLayout([x, y], run)


def overwritten(tensors: Sequence[VTensor], axis: str, batch: str, circular: bool) -> Routine:
    """Return the routine that copies a tensor and overwrites some indices along one of its dims.

    Args:
        tensors: the tensor; the update, which has the new elements; optionally the starts, of type
            s64; and dst. A start is the first index along ``axis`` that is overwritten. Without
            starts it is 0.
        axis: the dim along which elements are overwritten.
        batch: the dim along which starts differ.
        circular: True if index 0 follows the last index, so that an update may go past the end.
    """
    past, update, *starts, _ = tensors

    def run(src: PTensor, *others: PTensor) -> None:
        outer, size, inner = _around(src, axis)
        places = src.size(batch) if starts else -1
        rows = (outer, (size, inner, axis), update.size(axis), inner, places, circular)
        emit(native.load().overwrite(rows, ITEMSIZE[past.dtype]), [src, *others])

    order = [batch, *(dim for dim in past.dims if dim != batch)]
    wants = [Layout.plain(dim for dim in order if dim in tensor.dims) for tensor in tensors]
    return Routine(tensors, wants, run=run)
