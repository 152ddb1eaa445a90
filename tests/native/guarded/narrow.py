"""Random products of bytes on guarded memory, compared bit for bit with NumPy."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from math import inf, prod
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from libdesc.numpy.arrays import convolution
from ptensor.encoding import Encoding, integer_range
from ptensor.layout import Layout
from ptensor.transform import pack
from tests.native.guarded.pages import LINE, filled, guarded
from tests.native.packing import Array
from vtensor.language.dtype import numpy_dtype
from vtensor.runtime import _replay

if TYPE_CHECKING:
    from libdesc.narrow._narrow import Kernel, Kernels

BYTES = ("u8", "s8")


class Source:
    """Random operands: extremes in one of three cases."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def number(self, low: int, high: int) -> int:
        """Return a number from low to high, small ones most often."""
        return int(low + (high + 1 - low) * self.random.random() ** 2)

    def choice(self, *values: Any) -> Any:
        """Return one of the values."""
        return values[int(self.random.integers(len(values)))]

    def integers(self, dtype: str, *shape: int) -> Array:
        """Return integers of a type: of its whole range, or its ends alone."""
        low, high = integer_range(dtype)
        if self.random.random() < 1 / 3:
            return self.random.choice([low, high], size=shape).astype(numpy_dtype(dtype))
        return self.random.integers(low, high + 1, size=shape).astype(numpy_dtype(dtype))

    def floats(self, *shape: int) -> Array:
        """Return floats of noise."""
        return self.random.normal(size=shape).astype(np.float32)


class Ending:
    """What follows the sums: the arguments, the operands, and the results.

    Args:
        source: draws the stages.
        columns: number of columns.
        shape: of dst, columns last.
        depth: number of products in a sum.
    """

    def __init__(self, source: Source, columns: int, shape: tuple[int, ...], depth: int) -> None:
        self.stages: list[tuple[str, str, int]] = []
        self.operands: list[Array] = []
        self.to = source.choice("s32", "f32", "u8", "s8")
        self.low, self.high = source.choice((-inf, inf), (0.0, inf), (-0.5, 2.25))
        if self.to == "s32":
            self.low, self.high = -inf, inf
        count = (columns,) if columns == 1 else source.choice((1,), (columns,))
        if source.random.random() < 0.5:
            self._stage("sum", source.random.integers(-(2**20), 2**20, count, np.int32))
        if self.to == "s32":
            return
        rate = 1 / np.sqrt(depth) / 3000
        self._stage("scale", np.abs(source.floats(*count) * rate).astype(np.float32) + 1e-9)
        if source.random.random() < 0.3:
            code = source.choice(*BYTES)
            self._stage("code", source.integers(code, 1))
            self._stage("decode_zero", source.integers(code, 1))
            self._stage("decode_scale", np.abs(source.floats(1)))
        if source.random.random() < 0.5:
            self._stage("bias", source.floats(*count))
        other = source.choice("", "f32", *BYTES)
        if other == "f32":
            self._stage("other", source.floats(*shape))
        elif other:
            self._stage("other", source.integers(other, *shape))
            if source.random.random() < 0.5:
                self._stage("other_zero", source.integers(other, 1))
            self._stage("other_scale", np.abs(source.floats(1)))
        if self.to == "f32":
            return
        if source.random.random() < 0.5:
            self._stage("step", np.abs(source.floats(*count)) + np.float32(0.01))
        if source.random.random() < 0.5:
            self._stage("zero", source.integers(self.to, 1))

    def _stage(self, name: str, operand: Array) -> None:
        names = {"int32": "s32", "float32": "f32", "uint8": "u8", "int8": "s8"}
        self.stages.append((name, names[operand.dtype.name], operand.size))
        self.operands.append(operand.astype(operand.dtype))

    def results(self, sums: Array) -> Array:
        """Return what becomes of the sums, which are s32."""
        by = {name: x for (name, _, _), x in zip(self.stages, self.operands, strict=True)}
        if "sum" in by:
            sums = sums + by["sum"]
        if self.to == "s32":
            return sums
        value = sums.astype(np.float32) * by["scale"]
        if "code" in by:
            low, high = (np.iinfo(by["code"].dtype).min, np.iinfo(by["code"].dtype).max)
            codes = np.clip(np.rint(value).astype(np.float64) + by["code"], low, high)
            value = (codes - by["decode_zero"]).astype(np.float32) * by["decode_scale"]
        if "bias" in by:
            value = value + by["bias"]
        if "other_scale" in by:
            steps = by["other"].astype(np.int32) - by.get("other_zero", np.int8(0))
            value = value + steps.astype(np.float32) * by["other_scale"]
        elif "other" in by:
            value = value + by["other"]
        value = np.clip(value, np.float32(self.low), np.float32(self.high))
        if self.to == "f32":
            return value
        steps = np.rint(value / by.get("step", np.float32(1))).astype(np.float64)
        low, high = integer_range(self.to)
        return cast("Array", np.clip(steps + by.get("zero", 0), low, high)).astype(
            numpy_dtype(self.to)
        )


def panels(weights: Array, dims: str, layout: str, dtype: str) -> Array:
    """Return weights as panels: axes named by the letters of ``dims``."""
    encoding = Encoding("s8", zero=-128 if dtype == "u8" else 0)
    return pack(weights, [*dims], Layout(layout).with_encoding(encoding))


def run(kernel: Kernel, slots: list[Array], behind: bool) -> Array:
    """Run a kernel twice on guarded memory, and return dst, the last of the slots, as bytes."""
    memory = [guarded(one.ravel().view(np.uint8), behind) for one in slots]
    dst = memory[-1]
    if kernel.scratch_bytes:
        memory.append(filled(-(-kernel.scratch_bytes // LINE) * LINE, behind))
    _replay.execute(kernel, memory, 2)
    return dst


def centered(x: Array, zero: Array | None, axes: int) -> Array:
    """Return integers minus their zero points, which are along the given number of last axes."""
    x = x.astype(np.int32)
    return x if zero is None else x - zero.astype(np.int32).reshape((*zero.shape, *[1] * axes))


def zeros(source: Source, dtype: str, *shape: int) -> Array | None:
    """Return zero points of the shape, one for all, or none."""
    kind = source.choice("", "one", "all", "plain")
    if kind == "plain":
        return np.full(shape, 0 if dtype == "s8" else 128, numpy_dtype(dtype))
    return source.integers(dtype, *(shape if kind == "all" else ())) if kind else None


def product(kernels: Kernels, instructions: str, source: Source) -> tuple[Any, ...]:
    """Return a product: the kernel, its operands, and its results."""
    batch = source.choice((), (), (2,), (2, 3))
    left_batch = tuple(source.choice(1, n) for n in batch)
    right_batch = tuple(
        source.choice(1, n) if m == n else n for m, n in zip(left_batch, batch, strict=True)
    )
    rows, columns = source.number(1, 90), source.number(1, 100)
    depth = source.choice(source.number(1, 300), 64 * source.number(1, 4), 4 * source.number(1, 40))
    left_type, right_type = source.choice(*BYTES), source.choice(*BYTES)
    left = source.integers(left_type, *left_batch, rows, depth)
    right = source.integers(right_type, *right_batch, depth, columns)
    left_zero = zeros(source, left_type, *left_batch, rows)
    right_zero = zeros(source, right_type, *right_batch, columns)
    turned = np.swapaxes(right, -1, -2)
    x = centered(left, left_zero, 1 if left_zero is not None and left_zero.ndim else 0)
    w = centered(turned, right_zero, 1 if right_zero is not None and right_zero.ndim else 0)
    sums = (x @ np.swapaxes(w, -1, -2)).astype(np.int32)
    stored = source.choice("panels", "rows", "columns")
    form = right if stored == "rows" else np.ascontiguousarray(turned)
    if stored == "panels":
        names = "BDNK"[2 - len(batch) : 2] + "NK"
        form = panels(turned, names, names + "16n4k", right_type)
    ending = Ending(source, columns, sums.shape, depth)

    def steps(sizes: tuple[int, ...]) -> list[int]:
        return [prod(sizes[i + 1 :]) if size > 1 else 0 for i, size in enumerate(sizes)]

    kernel = kernels.product(
        instructions, batch, steps(left_batch), steps(right_batch), rows, columns, depth, left_type,
        right_type, stored, 0 if left_zero is None else left_zero.size,
        0 if right_zero is None else right_zero.size, ending.stages, ending.to, ending.low,
        ending.high,
    )  # fmt: skip
    return kernel, [left, form, left_zero, right_zero], ending, sums


def sliding(kernels: Kernels, instructions: str, source: Source, deep: bool) -> tuple[Any, ...]:
    """Return a convolution; ``deep``: with one output for each channel."""
    groups = source.number(1, 70) if deep else source.choice(1, 1, 2, 3)
    inner = 1 if deep else source.choice(source.number(1, 20), 4 * source.number(1, 20))
    outer = 1 if deep else source.number(1, 40)
    taps = [source.choice(1, 1, 2), source.number(1, 3), source.number(1, 5)]
    if not deep and source.random.random() < 0.3:
        taps = [1, 1, 1]
    strides, dilations = ([source.choice(1, 1, 2, 3) for _ in range(3)] for _ in range(2))
    pads = [source.choice(0, 0, 1, 2) for _ in range(6)]
    if source.random.random() < 0.3:
        strides, pads = [1] * 3, [0] * 6
    most_sizes = (3, source.choice(9, 9, 9, 90 if deep else 9), 40)  # 90 lines are several bands
    sizes = [
        max(source.number(1, most), (n - 1) * d + 1 - begin - end)
        for most, n, d, begin, end in zip(most_sizes, taps, dilations, pads, pads[3:], strict=False)
    ]
    images = source.choice(1, 2)
    src_type, weights_type = source.choice(*BYTES), source.choice(*BYTES)
    x = source.integers(src_type, images, groups * inner, *sizes)
    w = source.integers(weights_type, groups, outer, inner, *taps)
    src_zero = source.choice(None, source.integers(src_type))
    weights_zero = zeros(source, weights_type, groups, outer)
    scalar = weights_zero is None or not weights_zero.ndim
    centers = centered(w, weights_zero, 0 if scalar else 4)
    sums = convolution(centered(x, src_zero, 0), centers, strides, pads, dilations)
    sums = np.ascontiguousarray(np.moveaxis(sums, 1, -1)).astype(np.int32)
    ending = Ending(source, groups * outer, sums.shape, inner * prod(taps))
    stored = "plain" if deep else source.choice("plain", "panels")
    if stored == "plain" and not deep:
        form = np.ascontiguousarray(np.moveaxis(w, 2, -1))
    elif deep:
        form = np.ascontiguousarray(w.reshape(groups, -1).T)
    else:
        form = panels(w, "GOIdhw", "GOdhwI16o4i", weights_type)
    make = kernels.depthwise if deep else kernels.convolution
    kernel = make(
        instructions, images, groups * inner, groups * outer, groups, sizes, sums.shape[1:-1], taps,
        strides, dilations, pads[:3], src_type, weights_type, stored,
        int(src_zero is not None),
        0 if weights_zero is None else weights_zero.size, ending.stages, ending.to, ending.low,
        ending.high,
    )  # fmt: skip
    return kernel, [np.moveaxis(x, 1, -1).copy(), form, src_zero, weights_zero], ending, sums


def faults(kernels: Kernels, instructions: str, kind: str, source: Source) -> list[str]:
    """Return what is wrong with one random call."""
    if kind == "product":
        kernel, factors, ending, sums = product(kernels, instructions, source)
    else:
        kernel, factors, ending, sums = sliding(kernels, instructions, source, kind == "depthwise")
    expected = ending.results(sums)
    slots = [
        *(one for one in factors if one is not None),
        *ending.operands,
        np.zeros_like(expected),
    ]
    slots[-1].view(np.uint8).fill(0xA5)
    slots[:-1] = [np.ascontiguousarray(np.atleast_1d(one)) for one in slots[:-1]]
    result = run(kernel, slots, bool(source.choice(0, 1))).view(expected.dtype)
    wrong = np.flatnonzero(result != expected.ravel())
    if not len(wrong):
        return []
    at = wrong[0]
    return [
        f"{kernel.kernel} {[getattr(one, 'shape', None) for one in factors]} {ending.stages} to "
        f"{ending.to}: {len(wrong)} of {result.size} differ, at {at} {result[at]} is no "
        f"{expected.ravel()[at]}"
    ]


def cases(kind: str, cap: str, seed: int, count: int) -> Iterator[tuple[str, list[str]]]:
    """Run random calls with the instructions ``cap``, as ``level:instructions``."""
    level, _, instructions = cap.partition(":")
    kernels = cast("Kernels", importlib.import_module(f"libdesc.narrow._narrow_{level}"))
    source = Source(seed)
    for number in range(count):
        name = ("product", "convolution", "depthwise")[number % 3]
        yield name, faults(kernels, instructions, name, source)
