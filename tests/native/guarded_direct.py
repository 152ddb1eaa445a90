"""A program: convolutions of few channels on memory between unmapped pages, on one level.

``python -m tests.native.guarded_direct LEVEL`` prints a line for each fault and, last, how many
ran. Each is compared with a direct sum in f64, and its pads are zero.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from ptensor.layout import Layout
from ptensor.transform import transform
from tests.native.convolutions import WAYS, Sums, Way, fault

if TYPE_CHECKING:
    from libdesc.winograd._winograd import Kernels

#: The largest error as a part of the largest result, of noise; measured and doubled.
BOUND = 2e-6


class Shape(NamedTuple):
    """Images, channels, outputs, height and width; the filter, its steps; begins and ends."""

    images: int
    channels: int
    outputs: int
    size: tuple[int, int]
    taps: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]


SHAPES = [
    Shape(1, 3, 32, (30, 61), (3, 3), (2, 2), (0, 0, 1, 1)),
    Shape(2, 3, 48, (13, 90), (3, 3), (1, 1), (1, 1, 1, 1)),
    Shape(1, 4, 100, (29, 31), (7, 7), (2, 2), (3, 3, 3, 3)),
    Shape(1, 1, 5, (1, 1), (3, 3), (1, 1), (1, 1, 1, 1)),
    Shape(1, 2, 24, (4, 40), (5, 1), (3, 1), (4, 0, 2, 0)),
    Shape(1, 3, 96, (47, 47), (11, 11), (4, 4), (2, 2, 2, 2)),
    Shape(2, 1, 20, (9, 16), (2, 4), (1, 4), (1, 3, 0, 0)),
]
#: The image lies one channel after another.
OWN_WAYS = [*dict.fromkeys(way._replace(src=-1) for way in WAYS)]


def checked(kernels: Kernels, shape: Shape, way: Way, behind: bool) -> str:
    """What is wrong with one convolution, or nothing."""
    random = np.random.default_rng(1)
    n, c, o, size, taps, strides, pads = shape
    x, w = (random.normal(size=s).astype(np.float32) for s in ((n, c, *size), (o, c, *taps)))
    around = np.pad(x.astype(np.float64), ((0, 0), (0, 0), pads[::2], pads[1::2]))
    windows = np.lib.stride_tricks.sliding_window_view(around, taps, (2, 3))
    windows = windows[:, :, :: strides[0], :: strides[1]]
    sums = np.einsum("nchwij,ocij->nohw", windows, w.astype(np.float64))
    lying, sizes = Layout(f"OIhw{kernels.lanes}o"), dict(zip("OIhw", w.shape, strict=True))
    given = Sums(x, transform(w, Layout("OIhw"), lying, sizes), sums, BOUND)
    make = partial(kernels.direct, outputs=o, begin=pads[:2], taps=taps, strides=strides)
    return fault(make, kernels.lanes, given, way, behind, random)


def faults(level: str) -> Iterator[str]:
    """One line for each convolution, empty where it is right."""
    kernels = cast("Kernels", importlib.import_module(f"libdesc.winograd._winograd_{level}"))
    for shape, way, behind in product(SHAPES, OWN_WAYS, (False, True)):
        yield checked(kernels, shape, way, behind)


if __name__ == "__main__":
    lines = list(faults(sys.argv[1]))
    print(*filter(None, lines), len(lines), sep="\n")
