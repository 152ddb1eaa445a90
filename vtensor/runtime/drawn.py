"""Plans whose steps come from elsewhere than nodes: a blueprint, or the cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vtensor.language.cached import cached_property
from vtensor.language.records import dataclass
from vtensor.runtime.origin import SPECIALISED
from vtensor.runtime.plan import Nodes, Plan

if TYPE_CHECKING:
    from ptensor.buffer import TensorStorage
    from resolver.values import Value
    from vtensor.runtime._replay import Arena, Program
    from vtensor.runtime.delivery import Delivery
    from vtensor.runtime.packed import PackedWeights
    from vtensor.runtime.weights import Packed
    from vtensor.runtime.workspace import Workspace

Array = np.ndarray[Any, Any]

#: Makes a plan node by node.
Full = Callable[[], Plan]

#: Steps, with where each of their slots lies: a region, and the byte at which it begins there.
Placed = Sequence[tuple[object, Sequence[tuple[int, int]]]]


@dataclass(frozen=True)
class Brought:
    """What runs of a plan bring and deliver; attributes as for ``Plan``."""

    inputs: Sequence[Value]
    own: Sequence[TensorStorage]
    deliveries: Mapping[str, Delivery]


class DrawnPlan(Plan):
    """A plan of such steps: its nodes are there when somebody looks at them.

    Args:
        brought: what its runs bring.
        steps, nbytes: where their slots lie, and the size of the arena.
        constants: what lies in the regions behind those that a run brings.
        packed: constants, which are kept as long as this.
        workspace: what it shares with others.
        full: makes the same plan node by node.
    """

    origin = SPECIALISED

    def __init__(
        self,
        brought: Brought,
        steps: Placed,
        nbytes: int,
        constants: Sequence[Array],
        packed: PackedWeights | Packed,
        workspace: Workspace,
        full: Full,
    ) -> None:
        self.inputs, self.own, self.deliveries = brought.inputs, brought.own, brought.deliveries
        self.packed, self.calls_back = packed, False
        self.taken_from, self.anew, self.replaces = None, (), None
        self.better = self.drawing = self.writing = None
        self._strictly, self._workspace, self._make = None, workspace, full
        workspace.grow(nbytes, packed.nbytes + sum(self.own_sizes))
        self._held = constants
        self._steps_placed = steps
        self._programs = {workspace.lanes.every[0]: self._program(workspace.arena)}
        if len(workspace.lanes.every) == 1:
            self._steps_placed = ()  # nobody asks for another program

    def _program(self, arena: Arena) -> Program:
        from vtensor.runtime import _replay

        inputs = [one.nbytes for one in self.inputs]
        regions = [arena, *inputs, *self.own_sizes, *self._held]
        return _replay.Program(regions, self._steps_placed, repeatable=True)

    @cached_property
    def nodes(self) -> Nodes:
        """What the same plan has that is made node by node."""
        return self._workspace.executor.planning(lambda: self._make().nodes)
