"""A program: convolutions of each channel by itself on memory between unmapped pages, on one level.

``python -m tests.native.guarded_depthwise LEVEL`` prints a line for each fault and, last, how many
ran. Each is compared with a direct sum in f64, and its pads are zero.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from itertools import product
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from libdesc.winograd.routine import CHANNELS_LAST
from ptensor.layout import Layout
from ptensor.physical import pads_are_zero
from ptensor.transform import transform
from tests.native.guarded import guarded
from vtensor.runtime import _replay

if TYPE_CHECKING:
    from libdesc.winograd._winograd import Kernels

#: The largest error as a part of the largest result, of noise; measured and doubled.
BOUND = 2e-6


class Shape(NamedTuple):
    """Images, channels, height and width; the filter, its steps; both begins and both ends."""

    images: int
    channels: int
    size: tuple[int, int]
    taps: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]


SHAPES = [
    Shape(1, 32, (14, 29), (3, 3), (1, 1), (1, 1, 1, 1)),
    Shape(2, 19, (13, 9), (3, 3), (2, 2), (0, 0, 1, 1)),
    Shape(1, 5, (1, 1), (3, 3), (1, 1), (1, 1, 1, 1)),
    Shape(1, 72, (40, 3), (5, 5), (1, 1), (4, 4, 4, 4)),
    Shape(1, 40, (11, 31), (5, 5), (2, 2), (2, 1, 0, 3)),
    Shape(2, 100, (7, 16), (7, 7), (1, 1), (3, 3, 3, 3)),
    Shape(1, 3, (9, 10), (7, 7), (2, 2), (3, 3, 3, 3)),
    Shape(1, 16, (6, 17), (1, 3), (3, 1), (0, 0, 0, 0)),
    Shape(1, 8, (2, 5), (6, 3), (1, 2), (5, 1, 5, 1)),
]
#: Blocks of src and dst in vectors, 0 for channels last; whether there are bias and other; bounds.
WAYS = [
    (0, 0, False, False, (-inf, inf)),
    (0, 0, True, True, (0.0, inf)),
    (1, 1, True, False, (0.0, 0.5)),
    (0, 1, False, True, (-inf, inf)),
    (1, 0, True, True, (-inf, 0.25)),
    (2, 2, True, True, (0.125, inf)),
    (2, 1, True, False, (-inf, inf)),
    (2, 0, True, False, (-inf, inf)),
]


def fault(kernels: Kernels, shape: Shape, way: Any, behind: bool) -> str:
    """What is wrong with one convolution, or nothing."""
    src_block, dst_block, bias, other, (low, high) = way
    blocks = [block * kernels.lanes for block in (src_block, dst_block)]
    random = np.random.default_rng(1)
    n, c, size, taps, strides, pads = shape
    x, w = (random.normal(size=s).astype(np.float32) for s in ((n, c, *size), (c, 1, 1, *taps)))
    around = np.pad(x.astype(np.float64), ((0, 0), (0, 0), pads[::2], pads[1::2]))
    windows = np.lib.stride_tricks.sliding_window_view(around, taps, (2, 3))
    windows = windows[:, :, :: strides[0], :: strides[1]]
    sums = np.einsum("nchwij,cij->nchw", windows, w[:, 0, 0].astype(np.float64))
    added = [random.normal(size=s).astype(np.float32) for s in ((c,), sums.shape)]
    wanted = sums + (added[0][:, None, None] if bias else 0) + (added[1] if other else 0)
    src, dst = (Layout(f"NCHW{block}c") if block else CHANNELS_LAST for block in blocks)
    declared, sizes = Layout("NCHW"), dict(zip("NCHW", sums.shape, strict=True))
    weights, lying = Layout("GOIhw"), Layout(f"GOIhw{kernels.lanes}g")
    slots = [
        transform(x, declared, src, dict(zip("NCHW", x.shape, strict=True))),
        transform(w, weights, lying, dict(zip("GOIhw", w.shape, strict=True))),
        *([added[0]] if bias else []),
        *([transform(added[1], declared, dst, sizes)] if other else []),
        np.full(dst.physical_shape(sizes), np.nan, np.float32),
    ]
    kernel = kernels.depthwise(
        images=n,
        channels=c,
        src=size,
        dst=sums.shape[2:],
        begin=pads[:2],
        taps=taps,
        strides=strides,
        src_block=blocks[0],
        dst_block=blocks[1],
        bias=bias,
        other=other,
        low=low,
        high=high,
    )
    memory = [guarded(one.ravel().view(np.uint8), behind) for one in slots]
    _replay.execute(kernel, memory, 2)
    made = memory[-1].view(np.float32).reshape(slots[-1].shape)
    found = transform(made, dst, declared, sizes)
    error = float(np.abs(found - np.clip(wanted, low, high)).max() / np.abs(sums).max())
    if not error < BOUND:
        return f"{kernel.kernel} on {shape} {way}: off by {error:.1e}"
    return "" if pads_are_zero(made, dst, sizes) else f"{kernel.kernel} {way}: pads are not zero"


def faults(level: str) -> Iterator[str]:
    """One line for each convolution, empty where it is right."""
    kernels = cast("Kernels", importlib.import_module(f"libdesc.winograd._winograd_{level}"))
    for shape, way, behind in product(SHAPES, WAYS, (False, True)):
        yield fault(kernels, shape, way, behind)


if __name__ == "__main__":
    lines = list(faults(sys.argv[1]))
    print(*filter(None, lines), len(lines), sep="\n")
