"""The types of narrow's extension modules, which have the same kernels, one per instruction set.

There is no module of this name. A test compares this file with the modules' own signatures and
docstrings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

Sizes = Sequence[int]
Network = tuple[str, str, int, int, int, int, Sequence[tuple[str, float, float]], float, bool, bool]

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
    """Products of narrow integers, compiled for one instruction set."""

    level: str

    def machine_level(self) -> str:
        """
        Return the best instruction set, of those with a module, that this machine runs.

        One of "baseline", "avx2" and "avx512".
        """

    def instructions(self) -> list[str]:
        """
        Return the kinds of instructions that products can use in this module on this machine.

        The slowest is first. Each is one of "plain", "avx2", "avx_vnni", "avx512", "vnni" and
        "amx"; all give equal results.
        """

    def product(
        self,
        instructions: str,
        batch: Sizes,
        left_steps: Sizes,
        right_steps: Sizes,
        rows: int,
        columns: int,
        depth: int,
        left_type: str,
        right_type: str,
        right: str,
        left_zeros: int,
        right_zeros: int,
        stages: Sequence[tuple[str, str, int]],
        to: str,
        low: float,
        high: float,
    ) -> Kernel:
        """
        Make a kernel for products of matrices of bytes, one for each index of a batch.

        Args:
            instructions: one of ``instructions()``.
            batch, left_steps, right_steps: the batch's sizes, and steps along them in matrices.
            rows, columns, depth: sizes of a matrix of results; number of products in a sum.
            left_type, right_type: u8 or s8. Rows of left are dense.
            right: "rows" or "columns" if those are dense, or "panels". These are panels of 16
                columns, groups of 4 rows, 16 columns, 4 rows, as signed bytes; u8 is stored minus
                128.
            left_zeros, right_zeros: elements of the zero points: 0 if there is none, 1, or one
                for each row of all left, or column of all right matrices.
            stages: what follows the sums, in the order of this list, as (name, element type, number
                of elements) of an operand with one element or one for each column: "sum" is added
                as s32; "scale" multiplies the sum as f32; "code" is added to the rounded product,
                which becomes a byte, from which "decode_zero" is subtracted before "decode_scale"
                multiplies; "bias" is added; "other", like dst, is added, bytes minus "other_zero"
                times "other_scale"; "step" divides; "zero" is added to the rounded quotient.
            to: the element type of dst: s32 of sums, f32 or bytes of scaled sums.
            low, high: bounds between which scaled sums are brought before "step".

        Slots: left, right, zero points if any, operands of stages, dst, scratch if needed.
        """

    def convolution(
        self,
        instructions: str,
        images: int,
        channels: int,
        outputs: int,
        groups: int,
        src: Sizes,
        dst: Sizes,
        taps: Sizes,
        strides: Sizes,
        dilations: Sizes,
        begin: Sizes,
        src_type: str,
        weights_type: str,
        weights: str,
        src_zeros: int,
        weights_zeros: int,
        stages: Sequence[tuple[str, str, int]],
        to: str,
        low: float,
        high: float,
    ) -> Kernel:
        """
        Make a kernel for a convolution of bytes over three spatial dims, channels last.

        Args:
            src, dst, taps, strides, dilations, begin: a number for each spatial dim; begin are
                the pads before the image, which stand for src's zero point.
            weights: "panels" for each group, whose rows are taps, each with a group's channels
                padded to a multiple of 4; or "plain": groups, outputs, taps, channels.
            weights_zeros: 0, 1, or the number of outputs.

        Other arguments and slots as for product, with src as left and weights as right.
        """

    def depthwise(
        self,
        instructions: str,
        images: int,
        channels: int,
        outputs: int,
        groups: int,
        src: Sizes,
        dst: Sizes,
        taps: Sizes,
        strides: Sizes,
        dilations: Sizes,
        begin: Sizes,
        src_type: str,
        weights_type: str,
        weights: str,
        src_zeros: int,
        weights_zeros: int,
        stages: Sequence[tuple[str, str, int]],
        to: str,
        low: float,
        high: float,
    ) -> Kernel:
        """
        Make a kernel for a convolution of bytes with one output for each channel.

        Arguments and slots as for convolution. Weights are taps, then channels, as they are.
        """

    def block_product(
        self,
        rows: int,
        depth: int,
        outputs: int,
        bits: int,
        block: int,
        zero_bytes: int,
        bias: bool,
        rounded: bool,
    ) -> Kernel:
        """
        Make a kernel for f32 times weights of 2, 4 or 8 bits.

        Args:
            rows, depth, outputs: rows of x, numbers of a row, and rows of the weights.
            bits, block: bits of a code, and codes that have one scale, a power of two from 16 on.
            zero_bytes: 1 if zeros are u8, 4 if they are f32, 0 if there are none and zero is in the
                middle of the codes.
            bias: whether a number per output is added to results.
            rounded: whether x is first rounded to 8 bits, by a scale for each row and block.

        Slots: x, weights, scales, zeros and bias if any, dst, scratch if needed. An output has
        whole blocks of codes, the first in the lowest bits of a byte, and a scale and a zero for
        each block.
        """

    def block_rows(
        self,
        depth: int,
        outputs: int,
        bits: int,
        block: int,
        zero_bytes: int,
        count: int,
        lines: int,
        index_bytes: int,
        checked: bool,
    ) -> Kernel:
        """
        Make a kernel for the numbers that rows of weights of 2, 4 or 8 bits stand for.

        Args:
            depth, outputs, bits, block, zero_bytes: as for block_product.
            count, lines: number of indices, and of outputs that each stands for.
            index_bytes: 4 if indices are s32, 8 if they are s64, 0 if there are none: then all
                outputs are made.
            checked: whether an index outside fails the run; else it makes zeros.

        Slots: weights, scales, zeros and indices if any, dst.
        """

    def dynamic_lstm(
        self, instructions: str, network: Network, given: Sequence[str], length_bytes: int
    ) -> Kernel:
        """
        Make a kernel for an LSTM that quantizes x and the state, with weights of bytes.

        Args:
            instructions: one of ``instructions()``.
            network, given, length_bytes: as for eigen's kernel ``recurrent``; the cell is "lstm".

        Slots: x (T N F); w (dir gate unit F) and r (dir gate unit state), s8, as dir gate unit/16
        F/4 unit%16 F%4, and so with state; scales of w and r, then zero points of w and r, s8 (dir
        gate unit); the optional inputs, y (T dir N unit), the last hidden state and cell state,
        scratch.
        """
