"""What tells passes how long things take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from libdesc.transforms import LayoutChange
    from ptensor.evaluation import Basis
    from resolver.lowered import OpNode
    from vtensor.language.tensor import VTensor


class Clock(Protocol):
    """What nodes and Transforms take on this machine, in nanoseconds."""

    @property
    def basis(self) -> Basis:
        """How they are known."""

    @property
    def measured(self) -> bool:
        """They were timed, call by call."""
        return self.basis == "measured"

    def node(self, node: OpNode, values: Mapping[str, VTensor]) -> int | None:
        """Of a node in its variant; None where that is not known."""

    def transform(self, value: VTensor, change: LayoutChange) -> int | None:
        """Of a value from one layout to the other; None where that is not known."""


class Probing(Clock, Protocol):
    """A clock that measures in passing."""

    def save(self) -> None:
        """Write down what was measured: nothing more is asked for now."""
