"""What the programs of guarded convolutions share: one is run, and compared with its sums."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from libdesc.winograd.routine import CHANNELS_FIRST, CHANNELS_LAST
from ptensor.layout import Layout
from ptensor.physical import pads_are_zero
from ptensor.transform import transform
from tests.native.guarded import guarded
from vtensor.runtime import _replay

if TYPE_CHECKING:
    from libdesc.winograd._winograd import Kernel

Array = np.ndarray[Any, np.dtype[Any]]

LINE = 64  # bytes at a multiple of which scratch begins


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


class Sums(NamedTuple):
    """A convolution and what comes of it.

    Attributes:
        image: N C H W.
        weights: as they lie for the kernel.
        sums: in f64, N C H W.
        bound: the largest error as a part of the largest sum.
    """

    image: Array
    weights: Array
    sums: Array
    bound: float


def fault(
    make: Callable[..., Kernel], lanes: int, given: Sums, way: Way, behind: bool, random: Any
) -> str:
    """What is wrong with it, or nothing.

    Args:
        make: makes the kernel, told of everything but the filter.
        lanes: of a vector.
        given: the convolution.
        way: how it is run.
        behind: operands end at memory that nobody may touch; else they begin there.
        random: what draws bias and other.
    """
    image, weights, sums, bound = given
    blocks = [max(block * lanes, -block) for block in (way.src, way.dst)]
    bias, other = (random.normal(size=s).astype(np.float32) for s in (sums.shape[1], sums.shape))
    wanted = sums + (bias[:, None, None] if way.bias else 0) + (other if way.other else 0)
    plain = {0: CHANNELS_LAST, 1: CHANNELS_FIRST}
    src, dst = (plain.get(block) or Layout(f"NCHW{block}c") for block in blocks)
    declared, sizes = Layout("NCHW"), dict(zip("NCHW", sums.shape, strict=True))
    slots = [
        transform(image, declared, src, dict(zip("NCHW", image.shape, strict=True))),
        weights,
        *([bias] if way.bias else []),
        *([transform(other, declared, dst, sizes)] if way.other else []),
        np.full(dst.physical_shape(sizes), np.nan, np.float32),
    ]
    kernel = make(
        images=image.shape[0],
        channels=image.shape[1],
        src=image.shape[2:],
        dst=sums.shape[2:],
        src_block=blocks[0],
        dst_block=blocks[1],
        bias=way.bias,
        other=way.other,
        low=way.low,
        high=way.high,
    )
    memory = [guarded(one.ravel().view(np.uint8), behind) for one in slots]
    made = memory[-1]
    if kernel.scratch_bytes:
        scratch = np.full(-(-kernel.scratch_bytes // LINE) * LINE, 255, np.uint8)
        memory.append(guarded(scratch, behind))
    _replay.execute(kernel, memory, 2)
    made = made.view(np.float32).reshape(slots[-1].shape)
    found = transform(made, dst, declared, sizes)
    error = float(np.abs(found - np.clip(wanted, way.low, way.high)).max() / np.abs(sums).max())
    if not error < bound:
        return f"{kernel.kernel} on {image.shape} {way}: off by {error:.1e}"
    return "" if pads_are_zero(made, dst, sizes) else f"{kernel.kernel} {way}: pads are not zero"
