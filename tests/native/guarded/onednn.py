"""Random primitives of oneDNN on guarded memory; all kernels of a request must agree."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator

import numpy as np

from libdesc.onednn import _onednn as dnn
from tests.native.guarded.pages import filled, guarded
from tests.native.packing import Array, pack, pads, unpack
from vtensor.runtime import _replay

EXTENTS = [1, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 20, 32, 33]
SPATIAL = [1, 2, 3, 4, 5, 6, 7, 9]
#: The largest scratch memory and result, in bytes.
LARGEST = 1 << 26


class Source:
    """Random requests; all of one seed."""

    def __init__(self, seed: int) -> None:
        self.pick = random.Random(seed)
        self.values = np.random.default_rng(seed)
        self.tags: dict[int, list[str]] = {}
        for name, rank in dnn.tags():
            self.tags.setdefault(rank, []).append(name)
        self.makers = (self.window, self.spread, self.resampling, self.product, self.pointwise)

    def desc(self, dims: list[int], known: bool = False) -> dnn.Desc:
        """In any form at all: a tag of the right rank, pitched strides, or "any"."""
        kind = self.pick.random()
        if kind < 0.25 and not known:
            return dnn.Desc.any(dims, "f32")
        if kind < 0.6:
            return dnn.Desc.tag(dims, "f32", self.pick.choice(self.tags[len(dims)]))
        strides, step = [0] * len(dims), 1
        for dim in self.pick.sample(range(len(dims)), len(dims)):
            strides[dim] = step
            step = step * max(dims[dim], 1) + self.pick.choice([0, 0, 3])
        return dnn.Desc.strided(dims, "f32", strides)

    def extent(self) -> int:
        return self.pick.choice(EXTENTS)

    def attr(self, dims: list[int]) -> dnn.Attr:
        attr = dnn.Attr()
        for _ in range(self.pick.choice([0, 0, 0, 1, 2])):
            kind = self.pick.random()
            if kind < 0.3:
                attr = attr.sum(0.5)
            elif kind < 0.6:
                attr = attr.eltwise("relu", self.pick.choice([0.0, 0.5]))
            else:
                stretched = [size if self.pick.random() < 0.5 else 1 for size in dims]
                attr = attr.binary(self.pick.choice(["add", "mul"]), self.desc(stretched))
        return attr

    def window(self) -> dnn.Primitive:
        pick, rank = self.pick, self.pick.choice([1, 2, 3])
        size = [pick.choice(SPATIAL) for _ in range(rank)]
        kernel = [pick.choice([1, 1, 2, 3, 3, 5]) for _ in range(rank)]
        strides = [pick.choice([1, 1, 2, 3]) for _ in range(rank)]
        dilations = [pick.choice([1, 1, 1, 2]) for _ in range(rank)]
        begin, end = ([pick.choice([0, 0, 1, 2]) for _ in range(rank)] for _ in range(2))
        result = [
            (size[d] + begin[d] + end[d] - (kernel[d] - 1) * dilations[d] - 1) // strides[d] + 1
            for d in range(rank)
        ]
        groups, images = pick.choice([1, 1, 1, 2, 16, 33]), pick.choice([1, 2])
        inputs, outputs = (pick.choice([1, 3, 8, 16, 17]) for _ in range(2))
        src = [images, groups * inputs, *size]
        if min(result) < 1 or pick.random() < 0.3:
            dst = [*src[:2], *result]
            kind = pick.choice(["max", "avg_include_padding", "avg_exclude_padding"])
            pair = (self.desc(src), self.desc(dst))
            return dnn.pooling(kind, *pair, kernel, strides, dilations, begin, end, self.attr(dst))
        dst = [images, groups * outputs, *result]
        weights = [*([groups] if groups > 1 else []), outputs, inputs, *kernel]
        bias = self.desc([dst[1]]) if pick.random() < 0.5 else None
        operands = (self.desc(src), self.desc(weights), bias, self.desc(dst))
        return dnn.convolution(*operands, strides, dilations, begin, end, self.attr(dst))

    def spread(self) -> dnn.Primitive:
        pick, rank = self.pick, self.pick.choice([1, 2, 3])
        size, kernel = ([pick.choice(few) for _ in range(rank)] for few in (SPATIAL, [1, 2, 3, 4]))
        strides, dilations = ([pick.choice([1, 1, 2, 3]) for _ in range(rank)] for _ in range(2))
        begin = [pick.choice([0, 0, 1, 2]) for _ in range(rank)]
        end = [pick.choice([1 - stride, 0, 0, 1, 2]) for stride in strides]
        result = [
            (size[d] - 1) * strides[d] + (kernel[d] - 1) * dilations[d] + 1 - begin[d] - end[d]
            for d in range(rank)
        ]
        groups, images = pick.choice([1, 1, 1, 2, 16, 33]), pick.choice([1, 2])
        inputs, outputs = (pick.choice([1, 3, 8, 16, 17]) for _ in range(2))
        dst = [images, groups * outputs, *result]
        weights = [*([groups] if groups > 1 else []), outputs, inputs, *kernel]
        bias = self.desc([dst[1]]) if pick.random() < 0.5 else None
        src = self.desc([images, groups * inputs, *size])
        operands = (src, self.desc(weights), bias, self.desc(dst))
        return dnn.deconvolution(*operands, strides, dilations, begin, end, self.attr(dst))

    def resampling(self) -> dnn.Primitive:
        pick, rank = self.pick, self.pick.choice([1, 2, 3])
        src = [pick.choice([1, 2]), self.extent(), *(pick.choice(SPATIAL) for _ in range(rank))]
        dst = [*src[:2], *(pick.choice(SPATIAL) for _ in range(rank))]
        pair = (self.desc(src, True), self.desc(dst))
        return dnn.resampling(pick.choice(["nearest", "linear"]), *pair, self.attr(dst))

    def product(self) -> dnn.Primitive:
        batch = [self.extent() for _ in range(self.pick.choice([0, 0, 1]))]
        rows, inner, columns = self.extent(), self.extent(), self.extent()
        dst = [*batch, rows, columns]
        bias = self.desc([*[1] * (len(dst) - 1), columns]) if self.pick.random() < 0.5 else None
        operands = (self.desc([*batch, rows, inner]), self.desc([*batch, inner, columns]))
        return dnn.matmul(*operands, bias, self.desc(dst), self.attr(dst))

    def pointwise(self) -> dnn.Primitive:
        dims = [min(self.extent(), 17) for _ in range(self.pick.choice([1, 2, 3, 4, 4, 5]))]
        axis = self.pick.randrange(len(dims))
        other = [size if self.pick.random() < 0.7 else 1 for size in dims]
        makers: list[Callable[[], dnn.Primitive]] = [
            lambda: dnn.eltwise("tanh", self.desc(dims, True), self.desc(dims), 0, 0, attr),
            lambda: dnn.binary("add", self.desc(dims), self.desc(other), self.desc(dims), attr),
            lambda: dnn.softmax(self.desc(dims, True), self.desc(dims), axis, False, attr),
            lambda: dnn.reduction("sum", self.desc(dims), self.desc(other), 0, 0, rest),
            lambda: dnn.reorder(self.desc(dims, True), self.desc(dims, True)),
            lambda: dnn.concat(axis, [self.desc(dims, True) for _ in range(3)]),
            lambda: dnn.batch_normalization(self.desc(dims, True), self.desc(dims), 0.1),
            lambda: dnn.prelu(self.desc(dims), self.desc(other), self.desc(dims)),
            lambda: dnn.layer_normalization(
                self.desc(dims, True), self.desc(rows, True), self.desc(dims), 0.1, *pair
            ),
            lambda: dnn.lrn("across_channels", self.desc(dims), self.desc(dims), 5, 0.1, 0.75, 1),
        ]
        rows = dims[:-1] or [1]
        pair = (self.pick.random() < 0.5, self.pick.random() < 0.5)
        attr, rest = self.attr(dims), self.attr(other)
        return self.pick.choice(makers)()

    def primitive(self) -> dnn.Primitive | None:
        try:
            return self.pick.choice(self.makers)()
        except (ValueError, dnn.Unimplemented):
            return None  # it is refused


def run(primitive: dnn.Primitive, values: dict[str, Array]) -> Array:
    """Return dst's memory after a run on memory with guards."""
    memory = [
        guarded(pack(values[name], primitive.descs[name])) if "read" in access else filled(size)
        for name, size, access in _replay.describe(primitive)["slots"]
    ]
    _replay.execute(primitive, memory)
    return memory[primitive.slots.index("dst")]


def faults(first: dnn.Primitive, source: Source) -> list[str]:
    """Return what is wrong with any kernel: values that differ, pads that are not zero."""
    values = {
        name: source.values.integers(1, 4, desc.dims).astype(np.float32)
        for name, desc in first.descs.items()
    }
    wrong, expected = [], None
    primitive: dnn.Primitive | None = first
    while primitive is not None:
        desc = primitive.descs["dst"]
        if primitive.scratch_bytes < LARGEST and desc.nbytes < LARGEST:
            print("running", primitive, primitive.descs, file=sys.stderr, flush=True)
            memory = run(primitive, values)
            result = unpack(memory, desc)
            expected = result if expected is None else expected
            if not np.allclose(result, expected, rtol=1e-3, atol=1e-3):
                wrong.append(f"{primitive} differs: {primitive.descs}")
            if desc.padded_dims != desc.dims and pads(memory, desc).any():
                wrong.append(f"{primitive} leaves pads: {primitive.descs}")
        primitive = primitive.next_kernel()
    return wrong


def cases(_: str, cap: str, seed: int, count: int) -> Iterator[tuple[str, list[str]]]:
    """Draw so many requests, and run those that oneDNN takes."""
    dnn.limit_isa(cap)
    source = Source(seed)
    for _request in range(count):
        primitive = source.primitive()
        if primitive is not None:
            yield "request", faults(primitive, source)
