"""Random products with weights in blocks, and lookups in them, on guarded memory."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import numpy as np

from ops._blocks import packed
from tests.native.guarded.narrow import Source, run
from tests.native.packing import Array

if TYPE_CHECKING:
    from libdesc.narrow._narrow import Kernel, Kernels


def rounded(x: Array, block: int) -> Array:
    """Return x in steps of a 127th of the largest number of each row and block."""
    result = x.copy()
    for begin in range(0, x.shape[-1], block):
        own = x[..., begin : begin + block]
        most = np.abs(own).max(-1, keepdims=True)
        codes = np.rint(own * (np.float32(127) / most))
        result[..., begin : begin + block] = codes * (most / np.float32(127))
    return result


def faults(kernels: Kernels, source: Source) -> list[str]:
    """Return what is wrong with one random call."""
    bits, block = source.choice(2, 4, 8), source.choice(16, 32, 64, 256)
    depth, outputs = source.number(1, 700), source.number(1, 70)
    blocks, zeros = -(-depth // block), source.choice("", "u8", "f32")
    codes = source.random.integers(0, 1 << bits, (outputs, depth)).astype(np.uint8)
    scales = (np.abs(source.floats(outputs, blocks)) + 0.1).astype(np.float32)
    points: Array = source.random.integers(0, 1 << bits, (outputs, blocks)).astype(np.uint8)
    points = points.astype(np.float32) + np.float32(0.25) if zeros == "f32" else points
    shift = points if zeros else np.full((outputs, blocks), 1 << bits - 1)
    at = np.arange(depth) // block
    weights = (codes - shift[:, at].astype("f8")) * scales[:, at]
    sizes = {"depth": depth, "outputs": outputs, "bits": bits, "block": block}
    sizes["zero_bytes"] = {"": 0, "u8": 1, "f32": 4}[zeros]
    stored = [packed(codes, bits, block), scales, *([points] if zeros else [])]
    if source.choice(True, False, False):
        kind = source.choice(np.int32, np.int64)
        indices = source.random.integers(-outputs - 1, outputs + 1, source.number(1, 20), kind)
        inside = (indices >= -outputs) & (indices < outputs)
        expected = np.where(inside[:, None], weights[np.where(inside, indices, 0)], 0)
        kernel = kernels.block_rows(
            **sizes, count=len(indices), lines=1, index_bytes=indices.itemsize, checked=False
        )
        return compared(kernel, [*stored, indices], expected, source)
    rows = source.number(1, 40)
    has_bias, is_rounded = source.choice(True, False), source.choice(True, False)
    x, bias = source.floats(rows, depth), source.floats(outputs)
    kernel = kernels.block_product(rows=rows, **sizes, bias=has_bias, rounded=is_rounded)
    expected = (rounded(x, block) if is_rounded else x).astype("f8") @ weights.T
    slots = [x, *stored, *([bias] if has_bias else [])]
    return compared(kernel, slots, expected + (bias if has_bias else 0), source)


def compared(kernel: Kernel, slots: list[Array], expected: Array, source: Source) -> list[str]:
    """Run a kernel and return in what its results are wrong."""
    dst = np.full(expected.shape, np.nan, np.float32)
    found = run(kernel, [*slots, dst], bool(source.choice(0, 1))).view(np.float32)
    worst = np.abs(found - expected.ravel()).max() / np.abs(expected).max(initial=1e-30)
    shapes = [slot.shape for slot in slots]
    return [] if worst < 1e-5 else [f"{kernel.kernel} {shapes}: off by {worst}"]


def cases(kind: str, level: str, seed: int, count: int) -> Iterator[tuple[str, list[str]]]:
    """Run random calls on the kernels of a level."""
    kernels = cast("Kernels", importlib.import_module(f"libdesc.narrow._narrow_{level}"))
    source = Source(seed)
    for _ in range(count):
        yield kind, faults(kernels, source)
