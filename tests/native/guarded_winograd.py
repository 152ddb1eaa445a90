"""A program: every form of Winograd's convolutions on memory between unmapped pages, on one level.

``python -m tests.native.guarded_winograd LEVEL`` prints a line for each fault and, last, how many
convolutions ran. Each is compared with a direct sum in f64, and its pads are zero.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from libdesc.winograd.routine import Tile, tiles
from ptensor.layout import Layout
from ptensor.transform import transform
from tests.native.convolutions import WAYS, Array, Sums, Way, fault

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
#: Of a filter that steps: also few channels, in images that lie one channel after another.
STEPS = [
    Shape(1, 16, 32, (24, 24), (2, 2, 3, 3)),
    Shape(2, 19, 37, (25, 18), (3, 0, 2, 1)),
    Shape(1, 3, 3, (9, 131), (0, 5, 0, 8)),
    Shape(1, 5, 20, (8, 8), (7, 7, 0, 0)),
]
APART = [way._replace(src=-1) for way in WAYS]
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


def calls() -> list[tuple[Tile, Shape, Way]]:
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


def checked(kernels: Kernels, tile: Tile, shape: Shape, way: Way, behind: bool) -> str:
    """What is wrong with one convolution, or nothing."""
    random = np.random.default_rng(1)
    n, c, o, size, pads, groups = shape
    filters = (groups, o // groups, c // groups, *tile.taps)
    x, w = (random.normal(size=s).astype(np.float32) for s in ((n, c, *size), filters))
    sums = direct(x, w, pads, tile.step)
    weights, own = dict(zip("GOIhw", w.shape, strict=True)), tile.weights
    if groups == 1:
        w, weights = w[0], {dim: size for dim, size in weights.items() if dim != "G"}
    else:
        own = tile.of_groups(c // groups, kernels.lanes)
    mirrored = f"F({tile.results[1]}x1,{tile.taps[1]}x1)"
    bound = BOUNDS.get(str(tile), BOUNDS.get(mirrored, 0.0))
    given = Sums(x, transform(w, Layout.plain(weights), own, weights), sums, bound)
    make = partial(
        kernels.convolution,
        outputs=o,
        groups=groups,
        begin=pads[:2],
        taps=tile.phase,
        results=tile.results,
        step=tile.step,
    )
    return fault(make, kernels.lanes, given, way, behind, random)


def faults(level: str) -> Iterator[str]:
    """One line for each convolution, empty where it is right."""
    kernels = cast("Kernels", importlib.import_module(f"libdesc.winograd._winograd_{level}"))
    for count, (tile, shape, way) in enumerate(calls()):
        yield checked(kernels, tile, shape, way, bool(count % 2))


if __name__ == "__main__":
    lines = list(faults(sys.argv[1]))
    print(*filter(None, lines), len(lines), sep="\n")
