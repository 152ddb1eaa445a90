"""Convolutions of our own on guarded memory, each compared with a direct sum in f64."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from libdesc.winograd.routine import CHANNELS_FIRST, CHANNELS_LAST, TileSize, tiles
from ptensor.layout import Layout
from ptensor.physical import pads_are_zero
from ptensor.transform import transform
from tests.libraries.slow import ALL
from tests.native.guarded.pages import LINE, filled, guarded
from tests.native.packing import Array
from vtensor.runtime import _replay

if TYPE_CHECKING:
    from libdesc.winograd._winograd import Kernels

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
#: The same of convolutions that sum directly.
DIRECT_BOUND = 2e-6
TAPS = [(3, 3), (1, 3), (3, 1), (1, 7), (7, 1)]
STEPPING = [(5, 5), (7, 7), (8, 8)]


class Way(NamedTuple):
    """Blocks of src and dst in vectors, 0 for channels last, -1 for one channel after another;
    whether there are bias and other; bounds.
    """

    src: int
    dst: int
    bias: bool
    other: bool
    low: float = -inf
    high: float = inf


WAYS = [
    Way(0, 0, False, False),
    Way(0, 0, True, True, 0.0),
    Way(1, 1, True, False, 0.0, 0.5),
    Way(0, 1, False, True),
    Way(1, 0, True, True, high=0.25),
    Way(2, 2, True, True, 0.125),
]
#: The image lies one channel after another.
APART = [way._replace(src=-1) for way in WAYS]
#: Also from one block to another.
BLOCKS = [*WAYS, Way(2, 1, True, False), Way(2, 0, True, False)]


class Shape(NamedTuple):
    """Images, channels, outputs, height and width; pads at both begins and both ends; groups; the
    filter and its steps, where no tile says them.
    """

    images: int
    channels: int
    outputs: int
    size: tuple[int, int]
    pads: tuple[int, int, int, int]
    groups: int = 1
    taps: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)


SHAPES = [
    Shape(1, 16, 32, (12, 12), (1, 1, 1, 1)),
    Shape(2, 19, 37, (13, 9), (1, 0, 2, 1)),
    Shape(1, 5, 3, (8, 23), (3, 3, 3, 3)),
]
#: Of a filter that steps: also few channels, in images that lie one channel after another.
STEPS = [
    Shape(1, 16, 32, (24, 24), (2, 2, 3, 3)),
    Shape(2, 19, 37, (25, 18), (3, 0, 2, 1)),
    Shape(1, 3, 3, (9, 131), (0, 5, 0, 8)),
    Shape(1, 5, 20, (8, 8), (7, 7, 0, 0)),
]
#: A filter of one element: images of fewer and of more pixels than a core takes at once, weights
#: that a core's cache does not hold, and weights that threads share out, as they do no pixels.
POINTS = [
    Shape(1, 16, 32, (12, 12), (0, 0, 0, 0)),
    Shape(2, 19, 37, (13, 9), (0, 0, 0, 0)),
    Shape(1, 5, 3, (1, 2), (0, 0, 0, 0)),
    Shape(1, 310, 330, (5, 7), (0, 0, 0, 0)),
    Shape(1, 48, 250, (7, 7), (0, 0, 0, 0)),
    Shape(2, 200, 1000, (5, 3), (0, 0, 0, 0)),
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
#: Each channel by itself.
DEPTHWISE = [
    Shape(1, 32, 32, (14, 29), (1, 1, 1, 1), 32, (3, 3), (1, 1)),
    Shape(2, 19, 19, (13, 9), (0, 0, 1, 1), 19, (3, 3), (2, 2)),
    Shape(1, 5, 5, (1, 1), (1, 1, 1, 1), 5, (3, 3), (1, 1)),
    Shape(1, 72, 72, (40, 3), (4, 4, 4, 4), 72, (5, 5), (1, 1)),
    Shape(1, 40, 40, (11, 31), (2, 1, 0, 3), 40, (5, 5), (2, 2)),
    Shape(2, 100, 100, (7, 16), (3, 3, 3, 3), 100, (7, 7), (1, 1)),
    Shape(1, 3, 3, (9, 10), (3, 3, 3, 3), 3, (7, 7), (2, 2)),
    Shape(1, 16, 16, (6, 17), (0, 0, 0, 0), 16, (1, 3), (3, 1)),
    Shape(1, 8, 8, (2, 5), (5, 1, 5, 1), 8, (6, 3), (1, 2)),
]
#: Few channels.
FEW = [
    Shape(1, 3, 32, (30, 61), (0, 0, 1, 1), 1, (3, 3), (2, 2)),
    Shape(2, 3, 48, (13, 90), (1, 1, 1, 1), 1, (3, 3), (1, 1)),
    Shape(1, 4, 100, (29, 31), (3, 3, 3, 3), 1, (7, 7), (2, 2)),
    Shape(1, 1, 5, (1, 1), (1, 1, 1, 1), 1, (3, 3), (1, 1)),
    Shape(1, 2, 24, (4, 40), (4, 0, 2, 0), 1, (5, 1), (3, 1)),
    Shape(1, 3, 96, (47, 47), (2, 2, 2, 2), 1, (11, 11), (4, 4)),
    Shape(2, 1, 20, (9, 16), (1, 3, 0, 0), 1, (2, 4), (1, 4)),
]


def calls(kind: str) -> list[tuple[TileSize | None, Shape, Way, bool]]:
    """The convolutions of a kind: tile, shape, way, and whether operands end at the guard.

    Of Winograd's a third, unless all tests run.
    """
    if kind != "winograd":
        shapes = DEPTHWISE if kind == "depthwise" else FEW
        ways = BLOCKS if kind == "depthwise" else list(dict.fromkeys(APART))
        return [(None, *call) for call in product(shapes, ways, (False, True))]
    forms = [tile for taps in TAPS for tile in tiles(taps)]
    stepping = [tile for taps in STEPPING for tile in tiles(taps, 2)]
    drawn = [
        *product(forms, SHAPES, WAYS),
        *product(tiles((1, 1)), POINTS, WAYS),
        *product([TileSize(taps=(3, 3), results=(4, 4))], UNEVEN, WAYS[:1]),
        *product(tiles((3, 3)), GROUPS, WAYS),
        *product(stepping, STEPS, [*WAYS, *APART]),
    ]
    numbered = list(enumerate(drawn))[:: 1 if ALL else 3]
    return [(*call, bool(number % 2)) for number, call in numbered]


def summed(x: Array, w: Array, pads: Sequence[int], strides: Sequence[int]) -> Array:
    """The sums in f64; of weights G O I h w."""
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), pads[::2], pads[1::2]))
    x = x.reshape(len(x), w.shape[0], w.shape[2], *x.shape[2:])
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[3:], (3, 4))
    windows = windows[:, :, :, :: strides[0], :: strides[1]]
    n, g, _, height, width = windows.shape[:5]
    rows = windows.transpose(0, 1, 3, 4, 2, 5, 6).reshape(n, g, height * width, -1)
    sums = rows @ w.astype(np.float64).reshape(g, w.shape[1], -1).transpose(0, 2, 1)
    return cast(Array, sums.transpose(0, 1, 3, 2).reshape(n, -1, height, width))


@cache
def operands(shape: Shape) -> tuple[Array, Array, Array]:
    """Return an image N C H W, weights G O I h w, and their sums."""
    random = np.random.default_rng(1)
    n, c, o, size, pads, groups, taps, strides = shape
    filters = (groups, o // groups, c // groups, *taps)
    x, w = (random.normal(size=s).astype(np.float32) for s in ((n, c, *size), filters))
    return x, w, summed(x, w, pads, strides)


def checked(
    kernels: Kernels, kind: str, tile: TileSize | None, shape: Shape, way: Way, behind: bool
) -> list[str]:
    """Return the faults of one convolution.

    Args:
        kernels: those of an instruction set.
        kind: of the convolution.
        tile: the form of Winograd's algorithm, if it is one.
        shape: the operands.
        way: blocks, further operands and bounds.
        behind: operands end at an unmapped page; otherwise they begin at one.
    """
    if tile is not None:
        shape = shape._replace(taps=tile.taps, strides=(tile.step, tile.step))
    n, c, o, size, pads, groups, taps, strides = shape
    image, w, sums = operands(shape)
    bound, sizes, lanes = DIRECT_BOUND, dict(zip("GOIhw", w.shape, strict=True)), kernels.lanes
    if groups == 1:
        w = w[0]
        del sizes["G"]
    random = np.random.default_rng(2)
    blocks = [max(block * lanes, -block) for block in (way.src, way.dst)]
    bias, other = (random.normal(size=s).astype(np.float32) for s in (o, sums.shape))
    arguments: dict[str, Any] = {
        "images": n, "channels": c, "src": size, "dst": sums.shape[2:], "begin": pads[:2],
        "src_block": blocks[0], "dst_block": blocks[1], "bias": way.bias, "other": way.other,
        "low": way.low, "high": way.high,
    }  # fmt: skip
    if tile is not None:
        mirrored = f"F({tile.results[1]}x1,{tile.taps[1]}x1)"
        bound = BOUNDS.get(str(tile), BOUNDS.get(mirrored, 0.0))
        layout = tile.weights if groups == 1 else tile.of_groups(c // groups, lanes)
        form: dict[str, Any] = {"taps": tile.phase, "results": tile.results, "step": tile.step}
        kernel = kernels.convolution(outputs=o, groups=groups, **form, **arguments)
    elif kind == "depthwise":
        layout = Layout(f"GOIhw{lanes}g")
        kernel = kernels.depthwise(taps=taps, strides=strides, **arguments)
    else:
        layout = Layout(f"OIhw{lanes}o")
        kernel = kernels.direct(outputs=o, taps=taps, strides=strides, **arguments)
    plain = {0: CHANNELS_LAST, 1: CHANNELS_FIRST}
    src, dst = (plain.get(block) or Layout(f"NCHW{block}c") for block in blocks)
    declared, extents = Layout("NCHW"), dict(zip("NCHW", sums.shape, strict=True))
    slots = [
        transform(image, declared, src, dict(zip("NCHW", image.shape, strict=True))),
        transform(w, Layout.plain(sizes), layout, sizes),
        *([bias] if way.bias else []),
        *([transform(other, declared, dst, extents)] if way.other else []),
        np.full(dst.physical_shape(extents), np.nan, np.float32),
    ]
    memory = [guarded(one.ravel().view(np.uint8), behind) for one in slots]
    physical = memory[-1].view(np.float32).reshape(slots[-1].shape)
    if kernel.scratch_bytes:
        memory.append(filled(-(-kernel.scratch_bytes // LINE) * LINE, behind))
    _replay.execute(kernel, memory, 2)
    wanted = sums + (bias[:, None, None] if way.bias else 0) + (other if way.other else 0)
    result = transform(physical, dst, declared, extents)
    error = float(np.abs(result - np.clip(wanted, way.low, way.high)).max() / np.abs(sums).max())
    what = f"{kernel.kernel} on {image.shape} {way}"
    if not error < bound:
        return [f"{what}: off by {error:.1e}"]
    return [] if pads_are_zero(physical, dst, extents) else [f"{what}: pads are not zero"]


def cases(kind: str, cap: str, *_: int) -> Iterator[tuple[str, list[str]]]:
    """Run every convolution of a kind on one instruction set."""
    kernels = cast("Kernels", importlib.import_module(f"libdesc.winograd._winograd_{cap}"))
    for call in calls(kind):
        yield kind, checked(kernels, kind, *call)
