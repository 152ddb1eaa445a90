"""Eigen's routines that move and pick elements, whatever these mean."""

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

#: The element types that can be moved, and those that can be compared and summed up in a row.
MOVED = tuple(name for name, size in ITEMSIZE.items() if size in (1, 2, 4, 8))
COMPARED = ("f64", "f32", "f16", "bf16", "s64", "s32", "s8", "u8")


class Following(Routine):
    """A call whose operands all lie as the first one does, each restricted to its own dims.

    Args:
        tensors: the operands of the call in their order; the first one has the dims of all.
        unblocked: the dims that must not be blocked; by default all of them.
        run: makes the call.
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
        """The layout of the first operand, without the blocks that must not be there."""
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
        """None where all operands lie alike, in plain elements, unblocked where they must be."""
        lead = row[0]
        if lead.encoding is not None:
            return f"moves elements as they are, not {lead}"
        if blocked := [dim for dim in self.unblocked if lead.block(dim) != 1]:
            return f"{lead} blocks {', '.join(sorted(blocked))}"
        if [*row] != self._row(lead):
            return "all operands must lie alike"
        return None


def picked(x: VTensor, y: VTensor, runs: Mapping[str, Sequence[Run]], value: float = 0) -> Routine:
    """Elements of x that are known before a run.

    Args:
        x, y: the same dims.
        runs: of some dims, how its elements are made of x's, as runs (count, begin, step); begin
            -1 is filled. The others are as in x.
        value: what fills.
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

    return Following([x, y], run, unblocked=runs)


def bits_of(value: float, dtype: str) -> int:
    """Return the bits of a number as an element, as an unsigned integer."""
    array = stored(np.asarray(value), dtype).astype(numpy_dtype(dtype))
    return int(array.view(np.dtype(f"u{array.itemsize}")))


def runs_of(places: Iterable[int]) -> list[Run]:
    """Places as runs; -1 is filled.

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
    """In a plain order, how far apart elements are along each dim."""
    layout = tensor.required_layout
    return dict(zip(layout.dims, layout.strides(tensor.dims), strict=True))


def joined(
    sources: Sequence[VTensor], dst: VTensor, dim: str, follow: Sequence[Follower] = ()
) -> Routine:
    """Sources one behind another along a dim, and what is computed of that."""
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

    return Following([*sources, dst], run)


def expanded(x: VTensor, y: VTensor) -> Routine:
    """x repeated along the dims that it lacks, or has with size 1; both in declared order."""

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
    """Squares of pixels as channels, or back: the deeper of both has block * block times as many.

    ``columns_first``: the channels of a square lie side by side (CRD), else those of one place in
    all squares do (DCR).
    """

    def region_of(tensor: PTensor, deep: bool, sizes: Mapping[str, int]) -> Region:
        """Its memory as N, c, i, j, H, W: the place in a square is (i, j)."""
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

    return Following([x, y], run)


def diagonal(x: VTensor, y: VTensor, order: Sequence[str], k: int) -> Routine:
    """Ones on a diagonal of y, and zeros elsewhere; x is not looked at."""

    def run(_: PTensor, dst: PTensor) -> None:
        height, width = (dst.size(dim) for dim in order)
        rows, columns = max(-k, 0), max(k, 0)
        count = max(min(height - rows, width - columns), 0)
        ones = Region([count], rows * width + columns if count else 0, [width + 1])
        boxes = [filled(region(dst), 0), filled(ones, bits_of(1, dst.dtype))]
        emit(native.load().copy([height * width], boxes, ITEMSIZE[dst.dtype]), [dst])

    return Routine([x, y], [Layout.ANY, Layout.plain(order)], run=run)


def triangle(x: VTensor, y: VTensor, order: Sequence[str], k: int, upper: bool) -> Routine:
    """A triangle of each matrix of the last two dims of an order."""
    *rest, height, width = (x.size(dim) for dim in order)

    def run(src: PTensor, dst: PTensor) -> None:
        itemsize = ITEMSIZE[x.dtype]
        emit(native.load().triangle(prod(rest), height, width, k, upper, itemsize), [src, dst])

    return Routine([x, y], [Layout.plain(order)] * 2, run=run)


def gather(
    x: VTensor, i: VTensor, y: VTensor, wants: Sequence[Layout], axes: Sequence[str], row: str = ""
) -> Routine:
    """What lies at the places along some axes of x that indices say.

    Args:
        wants: plain layouts; in y's the dims come first over which places run, in x's the others
            come last.
        axes: the dims of x that are addressed.
        row: the dim of i along which there is one index for each of them; none for one axis.
    """

    def run(src: PTensor, indices: PTensor, dst: PTensor) -> None:
        places = _places(src, indices, dst, axes, row)
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
    """x with some elements replaced; ``tensors`` are x, i, updates, y, the rest as ``gather``."""
    x, i, *_ = tensors
    moved = reduction == "none"

    def run(src: PTensor, indices: PTensor, updates: PTensor, dst: PTensor) -> None:
        places = _places(src, indices, updates, axes, row)
        dtype = str(ITEMSIZE[x.dtype]) if moved else x.dtype
        kernel = native.load().scatter(places, ITEMSIZE[i.dtype], dtype, reduction)
        emit(kernel, [src, indices, updates, dst])

    return Routine(tensors, wants, run=run)


def _places(x: PTensor, i: PTensor, picked: PTensor, axes: Sequence[str], row: str) -> Places:
    """Where the parts of x lie that are picked, by the indices."""
    steps, along = _steps(x), _steps(i)
    own = {dim for dim in i.dims if dim != row}
    last = max(x.required_layout.dims.index(dim) for dim in axes)
    inner = [dim for dim in x.required_layout.dims[last + 1 :] if dim not in own]
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
    """One of a pair of values at each index along y's last dim, the other elsewhere."""

    def run(indices: PTensor, pair: PTensor, dst: PTensor) -> None:
        itemsizes = ITEMSIZE[i.dtype], ITEMSIZE[y.dtype]
        outer = prod(i.dims.values())
        emit(native.load().one_hot(outer, depth, 1, *itemsizes), [indices, pair, dst])

    return Routine([i, values, y], [Layout.plain(t.dims) for t in (i, values, y)], run=run)


def reverse_sequence(tensors: Sequence[VTensor], wants: Sequence[Layout]) -> Routine:
    """x, lengths and y: x's first two dims are the batch and the dim that is reversed."""

    def run(src: PTensor, lengths: PTensor, dst: PTensor) -> None:
        batch, time, *inner = src.required_layout.physical_shape(src.dims)
        itemsizes = ITEMSIZE[lengths.dtype], ITEMSIZE[src.dtype]
        kernel = native.load().reverse_sequence(batch, time, prod(inner), *itemsizes)
        emit(kernel, [src, lengths, dst])

    return Routine(tensors, wants, run=run)


def _around(x: PTensor, axis: str) -> tuple[int, int, int]:
    """The elements before a dim, along it, and behind it."""
    shape, at = x.required_layout.physical_shape(x.dims), x.required_layout.dims.index(axis)
    return prod(shape[:at]), shape[at], prod(shape[at + 1 :])


def extreme_place(x: VTensor, y: VTensor, axis: str, largest: bool, last: bool) -> Routine:
    """Where along a dim the largest or the smallest element is."""

    def run(src: PTensor, dst: PTensor) -> None:
        around = _around(src, axis)
        emit(native.load().extreme_place(x.dtype, *around, largest, last), [src, dst])

    return Following([x, y], run)


def hardmax(x: VTensor, y: VTensor, axes: Sequence[str]) -> Routine:
    """1 for the first of the largest elements along some dims, 0 for all others."""
    order = [*(dim for dim in x.dims if dim not in axes), *axes]
    length = prod(map(x.size, axes))
    rows = prod(size for dim, size in x.dims.items() if dim not in axes)

    def run(src: PTensor, dst: PTensor) -> None:
        emit(native.load().hardmax(x.dtype, rows, length), [src, dst])

    return Routine([x, y], [Layout.plain(order)] * 2, run=run)


def top(
    x: VTensor, values: VTensor, indices: VTensor, axis: str, count: int, largest: bool
) -> Routine:
    """So many of the largest or the smallest elements along a dim, in order."""

    def run(src: PTensor, *results: PTensor) -> None:
        kernel = native.load().top(x.dtype, *_around(src, axis), count, largest)
        emit_kernel(kernel, [src, *results])

    return Following([x, values, indices], run)


def running(
    x: VTensor, y: VTensor, axis: str, multiplies: bool, exclusive: bool, reverse: bool
) -> Routine:
    """Running sums or products along a dim."""

    def run(src: PTensor, dst: PTensor) -> None:
        rest = (multiplies, exclusive, reverse)
        emit(native.load().running(x.dtype, *_around(src, axis), *rest), [src, dst])

    return Following([x, y], run)


def overwritten(tensors: Sequence[VTensor], axis: str, batch: str, circular: bool) -> Routine:
    """A tensor, some of whose elements along an axis are overwritten, in each batch elsewhere.

    Args:
        tensors: the tensor, what is written, the places (s64) of each batch if there are any, dst.
        axis, batch: the dims.
        circular: beyond the last element comes the first.
    """
    past, update, *starts, _ = tensors

    def run(src: PTensor, *others: PTensor) -> None:
        outer, size, inner = _around(src, axis)
        places = src.size(batch) if starts else -1
        rows = (outer, (size, inner, axis), update.size(axis), inner, places, circular)
        emit(native.load().overwrite(rows, ITEMSIZE[past.dtype]), [src, *others])

    order = [batch, *(dim for dim in past.dims if dim != batch)]
    wants = [Layout.plain(dim for dim in order if dim in one.dims) for one in tensors]
    return Routine(tensors, wants, run=run)
