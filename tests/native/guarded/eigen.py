"""Random kernels on Eigen on guarded memory; each element of dst must be written."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from itertools import islice, pairwise
from typing import TYPE_CHECKING

import numpy as np

from libdesc.eigen import native
from tests.native.guarded.pages import LINE, filled, guarded
from tests.native.packing import Array
from vtensor.runtime import _replay

if TYPE_CHECKING:
    from libdesc.eigen._eigen import Box, Kernel, Kernels, Sizes, Window

#: Below, at and above whole registers, strips of channels, squares and tiles.
EXTENTS = [1, 1, 2, 3, 5, 7, 8, 9, 16, 17, 31, 33, 48, 63, 65, 130]
SPATIAL = [1, 2, 3, 4, 5, 7, 9]
#: By name, for kernels that compute.
TYPES = ["f32", "f64", "f16", "bf16", "s64", "s32", "s8", "u8"]
#: By cell, the functions of a direction.
CELLS = {"rnn": 1, "gru": 2, "lbr_gru": 2, "lstm": 3}
#: Those with fractions that are computed with in f32.
FRACTIONS = ["f32", "f16", "bf16"]


class Source:
    """Random kernels that write each element of dst, all of one seed."""

    def __init__(self, seed: int, kernels: Kernels) -> None:
        self.pick, self.kernels = random.Random(seed), kernels

    def __iter__(self) -> Iterator[Kernel]:
        """Draw kernels without end."""
        kinds = (
            *(self.pointwise, self.copy, self.product, self.window, self.along, self.quantized),
            *(self.picked, self.placed, self.ranked, self.sampled, self.attention),
            *(self.transformed, self.recurrent),
        )
        while True:
            yield self.pick.choice(kinds)()

    def extents(self, count: int) -> list[int]:
        """Some sizes."""
        return [self.pick.choice(EXTENTS) for _ in range(count)]

    def pointwise(self) -> Kernel:
        """Operands of any type, repeated along some axes; one lies the other way round."""
        shape = self.extents(self.pick.choice([1, 2, 3]))
        rows = [dense(shape), dense(shape[::-1])[::-1]]
        rows += [[step * self.pick.choice([0, 1]) for step in rows[0]]]
        program = [("add f32", [0, 1]), ("max f32", [4, 2]), ("mul f32", [5, 3])]
        types = [self.pick.choice(["f32", "f16", "bf16", "bool"]) for _ in rows]
        kinds, numbers = [*types, "f32"], [("f32", 2.0)]
        if self.pick.choice([False, True]):
            pieces = self.divided(shape[-1])
            return self.kernels.joined(shape, rows, kinds, numbers, program, [], pieces)
        return self.kernels.pointwise(shape, rows, kinds, numbers, program, [])

    def divided(self, size: int) -> list[int]:
        """Parts of a size."""
        cuts = sorted({0, size, *(self.pick.randrange(size) for _ in range(3))})
        return [end - begin for begin, end in pairwise(cuts)]

    def attention(self) -> Kernel:
        """Rows side by side, or of all heads in any order of rows; a mask of either kind."""
        heads, queries, keys, features, values = self.extents(5)
        rows = [(queries, features), (keys, features), (keys, values), (queries, values)]
        apart, strides = self.pick.choice([True, False]), list[list[int]]()
        for n, width in rows:
            order = range(n) if apart else self.pick.sample(range(n), n)
            far = [n * width, width] if apart else [width, heads * width]
            strides.append([far[0], *(place * far[1] for place in order)])
        steps = [step * self.pick.choice([0, 1]) for step in (queries * keys, keys, 1)]
        masks = [(steps, self.pick.choice([True, False]))]
        sizes = queries, keys, features, values
        return self.kernels.attention([heads], sizes, strides, masks, 0.5, -1.0, True)

    def copy(self) -> Kernel:
        """A permutation, of elements of any size, after a fill of everything."""
        shape = self.extents(3)
        order = self.pick.sample(range(3), 3)
        steps = dense([shape[axis] for axis in order])
        strides = [steps[order.index(axis)] for axis in range(3)]
        size = int(np.prod(shape))
        boxes: list[Box] = [(-1, (size,), 0, (0,), 0, (1,), 1)]
        boxes += [(0, shape, 0, dense(shape), 0, strides, 0)]
        return self.kernels.copy([size, size], boxes, self.pick.choice([1, 2, 4, 8]))

    def product(self) -> Kernel:
        """A batch, either factor repeated."""
        batch, (rows, columns, depth) = self.pick.choice([1, 2, 3]), self.extents(3)
        left, right = (self.pick.choice([0, size]) for size in (rows * depth, depth * columns))
        element = self.pick.choice(["f32", "s32"])
        return self.kernels.product(element, [batch], [left], [right], rows, columns, depth)

    def quantized(self) -> Kernel:
        """Steps of a row."""
        return self.kernels.dynamic_quantize(self.pick.choice(EXTENTS), [])

    def window(self) -> Kernel:
        """A convolution, a depthwise one, or a pool."""
        pick, element = self.pick, self.pick.choice(["f32", "s32"])
        pools = ["max", "avg_include_padding", "lp", "place"]
        kind = pick.choice(["convolution", "depthwise", "col2im", "deformed", *pools])
        groups = pick.choice([1, 1, 2, 3]) if kind in ("convolution", "deformed") else 1
        inputs = 1 if kind == "col2im" else pick.choice(EXTENTS)
        window, end = self.geometry(groups * inputs)
        if kind == "convolution":
            return self.kernels.convolution(element, window, groups, pick.choice(EXTENTS))
        if kind == "col2im":
            return self.kernels.col2im(pick.choice(TYPES), window)
        if kind == "deformed":
            bends = (groups, pick.choice([1, groups]), groups * pick.choice(EXTENTS), 3)
            return self.kernels.deformed(window, (*bends, pick.choice([False, True])))
        if kind == "depthwise":
            return self.kernels.depthwise(element, window, pick.choice([1, 1, 2, 5]))
        if kind == "place":
            return self.kernels.largest_place(window, pick.choice([False, True]))
        return self.kernels.pooling(kind, window, end, pick.choice([1, 2, 3]))

    def geometry(self, channels: int) -> tuple[Window, Sizes]:
        """A window that fits, and pads at the end."""
        pick = self.pick
        kernel, strides, dilations = ([pick.choice([1, 1, 2, 3]) for _ in range(3)] for _ in "ksd")
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        begin, end = ([pick.randrange(min(r, 3)) for r in reach] for _ in range(2))
        src = [max(pick.choice(SPATIAL), r) for r in reach]
        rows = zip(src, begin, end, reach, strides, strict=True)
        dst = [(size + b + e - r) // step + 1 for size, b, e, r, step in rows]
        images = pick.choice([1, 2])
        return (images, channels, src, dst, kernel, strides, dilations, begin), end

    def along(self) -> Kernel:
        """A reduction, a softmax, or a normalization."""
        rows, length, inner = shape = self.extents(3)
        every, gone = (rows, inner), length * inner
        kept = (0, every, 0, (gone, 1), 0, (inner, 1), 0)
        reduced = (0, (length,), 0, (inner,), 0, (0,), 0)
        kind = self.pick.choice(["sum", "max", "l2", "log_sum_exp"])
        sizes = rows * gone, rows * inner
        scale = self.pick.choice([(0, inner, 1), (0, 1, 0), (1, 0, 0)])
        whole, line, pieces = dense(shape), (0, length, 1), [rows, 2, length]
        torn = [length, rows * length, 1]  # the halves of all rows, one after another
        there = self.pick.choice([torn, dense(pieces)])
        norm = (self.pick.choice(["rms", "l1"]), "f32", "f32")
        made = [
            lambda: self.kernels.reduction(kind, "f32", *sizes, [kept], [reduced], []),
            lambda: self.kernels.normalization(*norm, shape, 1, 2, [whole, whole, scale], 0.1),
            lambda: self.kernels.normalization(*norm, pieces, 1, 3, [torn, there, line], 0.1),
            lambda: self.kernels.softmax(rows, length),
            lambda: self.kernels.lrn(rows, length, self.pick.choice([1, 2, 5, 300]), 0.1, 0.7, 1.0),
        ]
        return self.pick.choice(made)()

    def picked(self) -> Kernel:
        """Runs of each kind along each axis."""
        pick, axes = self.pick, []
        shape = self.extents(pick.choice([1, 2, 3]))
        for size, step in zip(shape, dense(shape), strict=True):
            runs = [(size, 0, step), (size, (size - 1) * step, -step), (2, -1, 0), (3, step, 0)]
            usual = [runs[0]] if size == 1 else pick.sample(runs, pick.choice([1, 2, 4]))
            axes.append(usual)
        return self.kernels.pick(axes, int(np.prod(shape)), 1, pick.choice([1, 2, 4, 8]))

    def placed(self) -> Kernel:
        """What indices address, which are all 0."""
        (rows, many, inner), size = self.extents(3), self.pick.choice(EXTENTS)
        item, index = self.pick.choice([1, 2, 4, 8]), self.pick.choice([4, 8])
        all_of, axis = rows * size * inner, [(size, inner, "A")]
        places = ([rows, many], [many, 1], [size * inner, 0], axis, inner, rows * many, all_of)
        made = [
            lambda: self.kernels.gather(places, index, item),
            lambda: self.kernels.scatter(places, index, str(item), "none"),
            lambda: self.kernels.scatter(places, index, self.pick.choice(TYPES), "add"),
            lambda: self.kernels.one_hot(rows, size, inner, index, item),
            lambda: self.kernels.overwrite((rows * many, axis[0], 1, inner, many, False), item),
            lambda: self.kernels.overwrite((rows, axis[0], size, inner, -1, True), item),
            lambda: self.kernels.unpool(rows, many, (1, 2, 3), (1, 2, 3 + inner), item),
            lambda: self.kernels.reverse_sequence(rows, many, inner, index, item),
        ]
        return self.pick.choice(made)()

    def ranked(self) -> Kernel:
        """What goes along an axis, and a triangle."""
        pick, dtype, (outer, length, inner) = self.pick, self.pick.choice(TYPES), self.extents(3)
        one, other = pick.random() < 0.5, pick.random() < 0.5
        made = [
            lambda: self.kernels.running(dtype, outer, length, inner, one, other, one),
            lambda: self.kernels.extreme_place(dtype, outer, length, inner, one, other),
            lambda: self.kernels.hardmax(dtype, outer, length),
            lambda: self.kernels.top(dtype, outer, length, inner, pick.randint(1, length), one),
            lambda: self.kernels.triangle(outer, length, inner, pick.randint(-9, 9), one, 4),
        ]
        return pick.choice(made)()

    def sampled(self) -> Kernel:
        """Images at other sizes, at places, and boxes of them."""
        pick, (images, channels) = self.pick, (self.pick.choice([1, 2]), self.pick.choice(EXTENTS))
        src, dst = ([1, *(pick.choice(SPATIAL) for _ in "HW")] for _ in range(2))
        height, ends = dst[1], list(range(1, dst[1] + 1))
        blends = [(images, src[1], channels, ends, [src[1] - 1] * height, [0.5] * height)]
        blends += [(images * height, channels, 1, [1, 2], [0, channels - 1], [1.0, 2.0])]
        boxes, largest = pick.choice(EXTENTS), pick.random() < 0.5
        mode = pick.choice(["nearest", "linear", "cubic"])
        padding = pick.choice(["zeros", "border", "reflection"])
        image = (images, channels, src, dst, 2)
        sizes = (boxes, images, channels, src[1], src[2])
        align = (*sizes, 2, 3, largest, pick.choice([0, 2]), 64, 1.0, True)
        first, second = (
            (n, [n - 1] * m, [0] * m, [0.5] * m, [0.5] * m)
            for n, m in zip(src[1:], dst[1:], strict=True)
        )
        made = [
            lambda: self.kernels.bilinear(pick.choice(FRACTIONS), images, first, second, channels),
            lambda: self.kernels.blend("f32", blends[: pick.choice([1, 2])]),
            lambda: self.kernels.grid_sample(
                pick.choice(FRACTIONS), pick.choice(FRACTIONS), image, mode, padding, True
            ),
            lambda: self.kernels.roi_align("f32", "f32", align, 8),
        ]
        return pick.choice(made)()

    def transformed(self) -> Kernel:
        """Fourier transforms of frames, and determinants."""
        pick, (series, length) = self.pick, self.extents(2)
        frames, step, parts = pick.choice([1, 2, 9]), pick.choice([0, 1, 5]), pick.choice([1, 2])
        mirrored = pick.random() < 0.3
        taken = min(pick.choice(EXTENTS), length // 2 + 1 if mirrored else length)
        size = (frames - 1) * step + taken
        row = (series, size, parts, frames, step, taken, length, pick.randint(1, length), parts)
        made = [
            lambda: self.kernels.fourier("f32", (*row, pick.random() < 0.5, mirrored, parts == 1)),
            lambda: self.kernels.determinant("f32", series, pick.choice(SPATIAL)),
        ]
        return pick.choice(made)()

    def recurrent(self) -> Kernel:
        """A network along sequences."""
        pick, (batch, features) = self.pick, self.extents(2)
        cell, direction = pick.choice(list(CELLS)), pick.choice(["reverse", "bidirectional"])
        functions = [("tanh", 0.0, 0.0)] * CELLS[cell] * (1 + (direction == "bidirectional"))
        given = ["bias", "lengths", "hidden", *["cell", "peepholes"] * (cell == "lstm")]
        given = pick.sample(given, pick.randint(0, len(given)))
        sizes = (cell, direction, pick.choice(SPATIAL), batch, features, pick.choice(EXTENTS))
        network = (*sizes, functions, 1.0, True, False)
        return self.kernels.recurrent(network, given, pick.choice([4, 8]))


def dense(shape: Sizes) -> list[int]:
    """Strides in which the last axis is fastest."""
    return [int(np.prod(shape[axis + 1 :])) for axis in range(len(shape))]


def faults(kernel: Kernel, behind: bool) -> Iterator[str]:
    """Yield what of dst is not written; running off the buffers ends the process."""
    memory = []
    # The steps of ones would be the bits that memory is filled with.
    zeros = ("indices", "lengths", "image", "start", *["src"] * ("quantize" in kernel.kernel))
    for name, size, access in _replay.describe(kernel)["slots"]:
        if access == "read" and name in zeros:
            memory.append(guarded(np.zeros(size, np.uint8), behind))
        elif access == "read":
            memory.append(guarded(np.ones(size // 4 + 1, np.float32).view(np.uint8)[:size], behind))
        else:
            room = size if access == "write" else -(-size // LINE) * LINE
            memory.append(filled(room, behind))
    _replay.execute(kernel, memory)
    if missed := unwritten(kernel, memory):
        yield f"{kernel}: {missed} bytes of dst are not written"


def unwritten(kernel: Kernel, memory: list[Array]) -> int:
    """Return how many bytes of what is written are as before, when whole elements are."""
    slots = zip(_replay.describe(kernel)["slots"], memory, strict=True)
    written = [one for (_, _, access), one in slots if access == "write"]
    words = [one[: one.size // 4 * 4].view(np.uint32) for one in written]
    return sum(int((one == 0xFFFFFFFF).sum() * 4) for one in words)


def cases(_: str, cap: str, seed: int, count: int) -> Iterator[tuple[str, list[str]]]:
    """Draw so many kernels, and run each between both guards."""
    native.limit(cap)
    for kernel in islice(Source(seed, native.load()), count):
        print("running", kernel, file=sys.stderr, flush=True)
        name = kernel.kernel.rpartition(":")[2]
        yield name, [fault for behind in (True, False) for fault in faults(kernel, behind)]
