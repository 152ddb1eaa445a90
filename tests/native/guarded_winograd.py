"""A program: every form of Winograd's convolutions on memory between unmapped pages, on one level.

``python -m tests.native.guarded_winograd LEVEL`` prints a line for each fault and, last, how many
convolutions ran. Each is compared with a direct sum in f64, and its pads are zero.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from itertools import product
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from libdesc.winograd.routine import CHANNELS_APART, CHANNELS_LAST, Tile, tiles
from ptensor.layout import Layout
from ptensor.physical import pads_are_zero
from ptensor.transform import transform
from tests.native.guarded import guarded
from vtensor.runtime import _replay

if TYPE_CHECKING:
    from libdesc.winograd._winograd import Kernels

Array = np.ndarray[Any, np.dtype[Any]]

#: By form, the largest error as a part of the largest result, of noise; measured and doubled.
BOUNDS = {
    "F(1x1,1x1)": 6e-7,
    "F(2x2,3x3)": 6e-7,
    "F(4x4,3x3)": 3e-6,
    "F(6x6,3x3)": 1.5e-5,
    **{f"F({m}x1,3x1)": 4e-6 for m in (2, 4, 6)},
    **{f"F({m}x1,7x1)": 8e-6 for m in (2, 4)},
    "F(2x2,5x5/2)": 8e-7,
    **{f"F({m}x{m},{r}x{r}/2)": 3e-6 for m, r in ((4, 5), (3, 7), (3, 8))},
    **{f"F({m}x{m},{r}x{r}/2)": 1.5e-5 for m, r in ((6, 5), (5, 7), (5, 8))},
}
TAPS = [(3, 3), (1, 3), (3, 1), (1, 7), (7, 1)]
STEPPING = [(5, 5), (7, 7), (8, 8)]


class Shape(NamedTuple):
    """Images, channels, outputs, height and width; pads at both begins and both ends; groups."""

    images: int
    channels: int
    outputs: int
    size: tuple[int, int]
    pads: tuple[int, int, int, int]
    groups: int = 1


SHAPES = [
    Shape(1, 16, 32, (12, 12), (1, 1, 1, 1)),
    Shape(2, 19, 37, (13, 9), (1, 0, 2, 1)),
    Shape(1, 5, 3, (8, 23), (3, 3, 3, 3)),
]
#: Blocks of src and dst in vectors, 0 for channels last, -1 for one after another; whether there
#: are bias and other; bounds.
WAYS = [
    (0, 0, False, False, (-inf, inf)),
    (0, 0, True, True, (0.0, inf)),
    (1, 1, True, False, (0.0, 0.5)),
    (0, 1, False, True, (-inf, inf)),
    (1, 0, True, True, (-inf, 0.25)),
    (2, 2, True, True, (0.125, inf)),
]
#: Of a filter that steps: also few channels, in images that lie one channel after another.
STEPS = [
    Shape(1, 16, 32, (24, 24), (2, 2, 3, 3)),
    Shape(2, 19, 37, (25, 18), (3, 0, 2, 1)),
    Shape(1, 3, 3, (9, 131), (0, 5, 0, 8)),
    Shape(1, 5, 20, (8, 8), (7, 7, 0, 0)),
]
APART = [(-1, *way[1:]) for way in WAYS]
#: A filter of one element: images of fewer and of more pixels than a core takes at once, and
#: weights that a core's cache does not hold.
POINTS = [
    Shape(1, 16, 32, (12, 12), (0, 0, 0, 0)),
    Shape(2, 19, 37, (13, 9), (0, 0, 0, 0)),
    Shape(1, 5, 3, (1, 2), (0, 0, 0, 0)),
    Shape(1, 310, 330, (5, 7), (0, 0, 0, 0)),
]
#: Tiles that two threads share unevenly, in as many blocks as caches ask for: one may have a block
#: more than the other.
UNEVEN = [Shape(1, 16, 512, (4, 4 * count), (1, 1, 1, 1)) for count in range(7, 62, 2)]
#: Groups of parts of a vector, of one, and of several; few tiles and many.
GROUPS = [
    Shape(1, 32, 32, (12, 12), (1, 1, 1, 1), 8),
    Shape(2, 48, 48, (13, 9), (1, 0, 2, 1), 3),
    Shape(1, 64, 64, (29, 31), (0, 1, 0, 1), 2),
    Shape(1, 16, 16, (5, 4), (1, 1, 1, 1), 16),
]


def calls() -> list[tuple[Tile, Shape, Any]]:
    """What is compared."""
    forms = [tile for taps in TAPS for tile in tiles(taps)]
    stepping = [tile for taps in STEPPING for tile in tiles(taps, 2)]
    return [
        *product(forms, SHAPES, WAYS),
        *product(tiles((1, 1)), POINTS, WAYS),
        *product([Tile(taps=(3, 3), results=(4, 4))], UNEVEN, WAYS[:1]),
        *product(tiles((3, 3)), GROUPS, WAYS),
        *product(stepping, STEPS, [*WAYS, *APART]),
    ]


def direct(x: Array, w: Array, pads: tuple[int, int, int, int], step: int) -> Array:
    """The sums in f64; of weights G O I h w."""
    top, left, bottom, right = pads
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (top, bottom), (left, right)))
    x = x.reshape(len(x), w.shape[0], w.shape[2], *x.shape[2:])
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[3:], (3, 4))
    windows = windows[:, :, :, ::step, ::step]
    sums = np.einsum("ngchwij,gocij->ngohw", windows, w.astype(np.float64))
    return cast(Array, sums.reshape(len(x), -1, *sums.shape[3:]))


def fault(kernels: Kernels, tile: Tile, shape: Shape, way: Any, behind: bool) -> str:
    """What is wrong with one convolution, or nothing."""
    src_block, dst_block, bias, other, (low, high) = way
    blocks = [max(block * kernels.lanes, -block) for block in (src_block, dst_block)]
    random = np.random.default_rng(1)
    n, c, o, size, pads, groups = shape
    filters = (groups, o // groups, c // groups, *tile.taps)
    x, w = (random.normal(size=s).astype(np.float32) for s in ((n, c, *size), filters))
    sums = direct(x, w, pads, tile.step)
    added: list[Array] = [random.normal(size=s).astype(np.float32) for s in ((o,), sums.shape)]
    wanted = sums + (added[0][:, None, None] if bias else 0) + (added[1] if other else 0)
    plain = {0: CHANNELS_LAST, 1: CHANNELS_APART}
    src, dst = (plain.get(block) or Layout(f"NCHW{block}c") for block in blocks)
    declared, sizes = Layout("NCHW"), dict(zip("NCHW", sums.shape, strict=True))
    weights, own = dict(zip("GOIhw", w.shape, strict=True)), tile.weights
    if groups == 1:
        w, weights = w[0], {dim: size for dim, size in weights.items() if dim != "G"}
    else:
        own = tile.of_groups(c // groups, kernels.lanes)
    slots = [
        transform(x, declared, src, dict(zip("NCHW", x.shape, strict=True))),
        transform(w, Layout.plain(weights), own, weights),
        *([added[0]] if bias else []),
        *([transform(added[1], declared, dst, sizes)] if other else []),
        np.full(dst.physical_shape(sizes), np.nan, np.float32),
    ]
    kernel = kernels.convolution(
        images=n,
        channels=c,
        outputs=o,
        groups=groups,
        src=size,
        dst=sums.shape[2:],
        begin=pads[:2],
        taps=tile.phase,
        results=tile.results,
        step=tile.step,
        src_block=blocks[0],
        dst_block=blocks[1],
        bias=bias,
        other=other,
        low=low,
        high=high,
    )
    memory = [guarded(one.ravel().view(np.uint8), behind) for one in slots]
    made = memory[-1]
    if kernel.scratch_bytes:
        scratch = np.full(-(-kernel.scratch_bytes // 64) * 64, 255, np.uint8)
        memory.append(guarded(scratch, behind))
    _replay.execute(kernel, memory, 2)
    made = made.view(np.float32).reshape(slots[-1].shape)
    found = transform(made, dst, declared, sizes)
    error = float(np.abs(found - np.clip(wanted, low, high)).max() / np.abs(sums).max())
    mirrored = f"F({tile.results[1]}x1,{tile.taps[1]}x1)"
    if not error < BOUNDS.get(str(tile), BOUNDS.get(mirrored, 0.0)):
        return f"{kernel.kernel} on {shape} {way}: off by {error:.1e}"
    return "" if pads_are_zero(made, dst, sizes) else f"{kernel.kernel} {way}: pads are not zero"


def faults(level: str) -> Iterator[str]:
    """One line for each convolution, empty where it is right."""
    kernels = cast("Kernels", importlib.import_module(f"libdesc.winograd._winograd_{level}"))
    for count, (tile, shape, way) in enumerate(calls()):
        yield fault(kernels, tile, shape, way, bool(count % 2))


if __name__ == "__main__":
    lines = list(faults(sys.argv[1]))
    print(*filter(None, lines), len(lines), sep="\n")
