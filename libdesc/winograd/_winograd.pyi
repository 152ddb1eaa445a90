"""The types of Winograd's extension modules, which have the same kernels, one per instruction set.

There is no module of this name. A test compares this file with the modules' own signatures and
docstrings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

Sizes = Sequence[int]

class Kernel(Protocol):
    """A kernel, which supplies itself as a step."""

    @property
    def kernel(self) -> str:
        """The kernel's name."""

    @property
    def scratch_bytes(self) -> int:
        """Bytes of scratch memory, the step's last slot; 0 if it needs none."""

    def __vtensor_step__(self) -> object:
        """Return the kernel's step in a capsule, as native/include/vtensor/step.h defines it."""

class Kernels(Protocol):
    """Convolutions by Winograd's algorithm, compiled for one instruction set."""

    level: str
    lanes: int

    def machine_level(self) -> str:
        """
        Return the best instruction set, of those with a module, that this machine runs.

        One of "baseline", "avx2" and "avx512".
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
        Make a kernel for a convolution of f32 in tiles.

        Args:
            src, dst, begin, taps, results: sizes of src and dst, pads before the image, taps of the
                filter, and results of a tile: down, and across.
            step: the filter's stride, 1 or 2.
            src_block, dst_block: channels of a block after the spatial dims; 0: channels last.
            bias, other: whether a number per channel, and a tensor like dst, is added to results.
            low, high: bounds between which results are brought last.

        Slots: src, weights, bias and other if any, dst, scratch if needed.

        Weights are transformed, and laid out as products down, products across, panels of 32
        outputs, channels, 32 outputs; with groups, as products down, products across, vectors of
        outputs, the channels that each of their lanes sees, lanes. A filter of one element has
        tiles of one result, and its weights are not transformed. With stride 2 the filter is
        four filters (phases) of ``taps`` taps: in the weights, each channel stands for its
        phases down, then across; and a ``src_block`` of 1 means one channel after another.
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
        Make a kernel for a depthwise convolution of f32.

        Slots and arguments as for convolution. Weights are laid out as vectors of channels,
        taps down, taps across, channels of a vector.
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
        Make a kernel for a convolution of f32 of few channels, one after another in src.

        Slots and arguments as for convolution. Weights are laid out as vectors of outputs,
        channels, taps down, taps across, outputs of a vector.
        """
