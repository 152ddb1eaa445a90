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

        The slowest is first. Each is one of "plain", "avx2", "avx512", "vnni" and "amx"; all give
        equal results.
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
