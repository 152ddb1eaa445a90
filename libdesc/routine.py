"""A routine: one library call, described before it is made.

An invoker makes the routine from its PTensors and parameters, before the tagger. The library's
guideline then knows what is about to be called without knowing any operator, and the same
description makes the call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from ptensor.evaluation import Call, Variant, caller, current_call
from ptensor.layout import Layout
from vtensor.errors import ContractError


def reference_kernel(kernel: str) -> bool:
    """True for the name of a library's reference code, alone or inside of another kernel.

    >>> [reference_kernel(name) for name in ("ref:any", "conv:any+ref:any", "brgconv:avx2")]
    [True, True, False]
    """
    return any(part.startswith("ref") for part in kernel.split("+"))


class Routine(ABC):
    """Base of a library's routines; making one announces it to the call that is under way.

    Attributes:
        heavy: arithmetic outweighs the memory that it touches, as in a product of matrices.

    Raises:
        ContractError: outside an invoker, or after its tagger.
    """

    heavy: ClassVar[bool] = False

    def __init__(self) -> None:
        call = current_call()
        if call is None:
            raise ContractError(f"{type(self).__name__} outside an invoker ({caller()})")
        if call.tagged:
            raise call.misuse(f"{type(self).__name__} is made after lib_tagger: describe it before")
        self.call = call
        call.routine = self

    @abstractmethod
    def preferred(self, call: Call) -> Mapping[int, Layout | Sequence[Layout]]:
        """The layouts that the library would like, by operand index."""

    @abstractmethod
    def confirm(self, call: Call, row: Sequence[Layout]) -> str | None:
        """None when the library takes the call so, else why not."""

    def variants(self) -> Iterable[Variant]:
        """The variants that are worth measuring; none where there is nothing to choose."""
        return ()

    @abstractmethod
    def __call__(self) -> None:
        """Make the call: emit its steps."""
