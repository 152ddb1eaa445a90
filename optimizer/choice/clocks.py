"""The interface through which passes learn the times of nodes and Transforms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from libdesc.transforms import LayoutChange
    from ptensor.evaluation import Basis
    from resolver.lowered import OpNode
    from vtensor.language.tensor import VTensor


class Clock(Protocol):
    """The nanoseconds that nodes and Transforms take on this machine."""

    @property
    def basis(self) -> Basis:
        """The basis of the times, which tells how they are known: declared, calibrated or
        measured.
        """

    @property
    def measured(self) -> bool:
        """True if the time of each call was measured on this machine."""
        return self.basis == "measured"

    def node(self, node: OpNode, values: Mapping[str, VTensor]) -> int | None:
        """Return the nanoseconds of a node in its variant; None if they are unknown.

        ``values`` has the graph's tensors by name.
        """

    def transform(self, value: VTensor, change: LayoutChange) -> int | None:
        """Return the nanoseconds of a Transform that makes ``change`` of a value's layout; None if
        they are unknown.
        """


class Probing(Clock, Protocol):
    """A clock that measures a node when its time is first asked for, while a plan is made."""

    def save(self) -> None:
        """Save the measurements; called when a pass has asked for all that it needs."""
