"""The types of narrow's extension modules, which have the same kernels, one per instruction set.

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

        The slowest is first. Each is one of "plain", "avx2", "avx512", "vnni" and "amx"; all give
        equal results.
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
