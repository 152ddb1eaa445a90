"""What nodes take whose kernels may be far slower than their library's peak: measured in passing.

An estimate takes all kernels of a library to be equally good. Where one is not, as for groups of
few channels, only its time says so. The looks are short, on one thread as estimates are, and kept
on disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from optimizer.clocks import Probing
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

#: Seconds after which no further variant of a call is measured.
CALL_SECONDS = 0.05


class Probe(Probing):
    """A clock that measures a little, on one thread.

    Args:
        preferences: which libraries may run Transforms.
        between: who waits where nobody waits for the times: they are taken between its runs.
    """

    basis: Basis = "measured"

    def __init__(self, preferences: Preferences, between: Executor | None = None) -> None:
        self._preferences, self._between = preferences, between

    def node(self, node: OpNode, values: Mapping[str, VTensor]) -> int | None:
        """Nanoseconds of a node in its variant; None if it fails, or no time is left."""
        return self._tuner.node(node, values)

    def transform(self, value: VTensor, change: LayoutChange) -> int | None:
        """Nanoseconds of a Transform; None where it fails, or no library runs it."""
        return self._tuner.transform(value, change)

    def save(self) -> None:
        """Write down what was measured, and let go of the memory that it took."""
        if "_tuner" in self.__dict__:
            self._tuner.save()
            give_back()

    @cached_property
    def _tuner(self) -> Tuner:
        """Made when it is needed, for it reads what is on disk."""
        from vtensor.runtime.tuning.measure import GLANCE
        from vtensor.runtime.tuning.tuner import Tuner

        one = Executor.of(1)
        return Tuner(
            one, self._preferences, effort=GLANCE, call_seconds=CALL_SECONDS, between=self._between
        )
