"""The types of Winograd's extension modules, which have the same kernels, one per instruction set.

There is no module of this name. A test compares this file with the modules' own signatures and
docstrings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

Sizes = Sequence[int]

class Kernel(Protocol):
    """A kernel as a step."""

    @property
    def kernel(self) -> str:
        """The kernel's name."""

    @property
    def scratch_bytes(self) -> int:
        """Bytes of scratch memory, the step's last slot; 0 if it needs none."""

    def __vtensor_step__(self) -> object:
        """Return a capsule with a step of native/include/vtensor/step.h."""

class Kernels(Protocol):
    """Convolutions by Winograd's algorithm, compiled for one instruction set."""

    level: str
    lanes: int

    def machine_level(self) -> str:
        """
        Return the best of the modules that this machine runs: baseline, avx2 or avx512.
        """

    def convolution(
        self,
        images: int,
        channels: int,
        outputs: int,
        groups: int,
        src: Sizes,
        dst: Sizes,
        begin: Sizes,
        taps: Sizes,
        results: Sizes,
        step: int,
        src_block: int,
        dst_block: int,
        bias: bool,
        other: bool,
        low: float,
        high: float,
    ) -> Kernel:
        """
        A convolution of f32 in tiles; arguments src, weights, bias and other if any, dst.

        Sizes are of two spatial dims. Blocks are of channels behind the spatial dims; 0: channels
        last. Weights are transformed, and lie in products down, products across, outputs, channels,
        32 outputs; with groups in products down, products across, vectors of outputs, the channels
        that each of their lanes sees, lanes. A filter of one element has tiles of one result; its
        weights are not transformed. One that steps by 2 is four filters of half the taps: weights
        of channels are of each by each phase down, and across; src may have a block of 1, which is
        one channel after another. To each result bias and other are added, then it is brought
        between low and high.
        """

    def depthwise(
        self,
        images: int,
        channels: int,
        src: Sizes,
        dst: Sizes,
        begin: Sizes,
        taps: Sizes,
        strides: Sizes,
        src_block: int,
        dst_block: int,
        bias: bool,
        other: bool,
        low: float,
        high: float,
    ) -> Kernel:
        """
        A convolution of f32 of each channel by itself; arguments as of a convolution.

        Weights lie in vectors of channels, taps down, taps across, channels of a vector.
        """

    def direct(
        self,
        images: int,
        channels: int,
        outputs: int,
        src: Sizes,
        dst: Sizes,
        begin: Sizes,
        taps: Sizes,
        strides: Sizes,
        src_block: int,
        dst_block: int,
        bias: bool,
        other: bool,
        low: float,
        high: float,
    ) -> Kernel:
        """
        A convolution of f32 of few channels, one after another; arguments as of a convolution.

        Weights lie in vectors of outputs, channels, taps down, taps across, outputs of a vector.
        """
