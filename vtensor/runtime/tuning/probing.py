"""Short measurements of nodes whose kernels may be far slower than their library's peak.

An estimate assumes that all kernels of a library are equally good. Exceptions, such as groups of
few channels, show in measured times only. The measurements are short, on one thread as estimates
are, and cached on disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from optimizer.choice.clocks import Probing
from ptensor.pages import give_back
from vtensor.language.cached import cached_property
from vtensor.runtime.execution.executor import Executor

if TYPE_CHECKING:
    from libdesc.preferences import Preferences
    from libdesc.transforms import LayoutChange
    from ptensor.evaluation import Basis
    from resolver.lowered import OpNode
    from vtensor.language.tensor import VTensor
    from vtensor.runtime.tuning.tuner import Tuner

#: The seconds that all measurements of a call (equal nodes in any variant) may take together. After
#: that no further variant of the call is measured.
CALL_SECONDS = 0.05


class Probe(Probing):
    """A clock that takes short measurements on one thread.

    Args:
        preferences: the libraries that may run Transforms.
        between: in background work, an executor: a measurement takes one turn in its queue. None
            queues each run of it on the clock's own executor.
    """

    basis: Basis = "measured"

    def __init__(self, preferences: Preferences, between: Executor | None = None) -> None:
        self._preferences, self._between = preferences, between

    def node(self, node: OpNode, values: Mapping[str, VTensor]) -> int | None:
        """Return the nanoseconds of a node in its variant; None if it fails or no time is left.

        Args:
            node: the node in its variant.
            values: the values that the node reads and writes, by name.
        """
        return self._tuner.node(node, values)

    def transform(self, value: VTensor, change: LayoutChange) -> int | None:
        """Return the nanoseconds of a Transform; None if it fails or no library runs it.

        Args:
            value: the type and dims of the value.
            change: the layouts before and after.
        """
        return self._tuner.transform(value, change)

    def save(self) -> None:
        """Save the measured times on disk and release the memory that measuring took."""
        if "_tuner" in self.__dict__:
            self._tuner.save()
            give_back()

    @cached_property
    def _tuner(self) -> Tuner:
        """The tuner, made at the first measurement because it reads the times on disk."""
        from vtensor.runtime.tuning.measure import GLANCE
        from vtensor.runtime.tuning.tuner import Tuner

        single_thread = Executor.of(1)
        return Tuner(
            single_thread,
            self._preferences,
            effort=GLANCE,
            call_seconds=CALL_SECONDS,
            between=self._between,
        )
