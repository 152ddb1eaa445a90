"""What the plans of a session share: their thread, one arena, packed weights, a budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING

from ptensor.background_work import checkpoint, in_no_hurry
from vtensor.errors import BudgetError
from vtensor.language.cached import cached_property
from vtensor.language.records import dataclass
from vtensor.runtime.execution.executor import Executor
from vtensor.runtime.execution.lanes import Lane, Lanes
from vtensor.runtime.recording.weights import Weights
from vtensor.storage.budget import REMEDY

if TYPE_CHECKING:
    from vtensor.runtime._replay import Arena
    from vtensor.runtime.recording.call_kinds import CallKinds
    from vtensor.runtime.recording.packer import Expected


#: Bytes of room that arenas get beyond what plans have needed, at most.
AHEAD = 8 << 20

#: So many are asked of the system at once: what others want of it waits meanwhile.
PAGE = 2 << 20


def _arena() -> Arena:
    from vtensor.runtime import _replay  # native: loaded with the first session, not with VTensor

    return _replay.Arena()


@dataclass(frozen=True, eq=False)
class Workspace:
    """Shared by the plans of a session.

    Attributes:
        executor: what plans are made for, and where they run.
        max_bytes: what a plan may take.
        further: where they run beside that, side by side: other executors of the same budget.
        arena: the memory of values between steps, as large as the largest plan needs or larger
            (``make_room``); each other lane has one of its own.
        weights: constants as libraries want them.
        lanes: all places where plans run.
        needed: what plans need of an arena at most, so far.
        expected: memory for the weights of the first plan, as long as there is none.
    """

    executor: Executor
    max_bytes: int
    further: Sequence[Executor] = ()
    arena: Arena = field(default_factory=_arena)
    weights: Weights = field(default_factory=Weights)
    lanes: Lanes = field(init=False)
    needed: int = 0
    expected: list[Expected] = field(default_factory=list)

    def __post_init__(self) -> None:
        first = Lane(self.executor, self.arena)
        others = [Lane(executor, _arena()) for executor in self.further]
        object.__setattr__(self, "lanes", Lanes([first, *others]))

    @cached_property
    def kinds(self) -> CallKinds:
        """The kinds of calls that plans have recorded."""
        from vtensor.runtime.recording.call_kinds import CallKinds  # a saved plan records nothing

        return CallKinds()

    def expect(self, nbytes: int) -> None:
        """A plan with so many bytes of weights is likely to come: let their pages come before."""
        from vtensor.runtime.recording import packer

        if self.executor.threads > 1 and packer.LEAST <= nbytes <= self.max_bytes // 2:
            self.expected.append(packer.Expected(nbytes))

    def grow(self, nbytes: int, others: int) -> None:
        """Make each arena at least so large.

        Args:
            nbytes: what a plan's values and scratch need.
            others: what the plan has beside them.

        Raises:
            BudgetError: the budget is smaller than all.
        """
        lanes = self.lanes.every
        if nbytes * len(lanes) + others > self.max_bytes:
            times = f" in each of {len(lanes)} streams" if len(lanes) > 1 else ""
            raise BudgetError(
                f"the plan needs {nbytes} bytes for values and scratch{times} and {others} for "
                f"weights and outputs, and the budget is {self.max_bytes}\n  to fix: {REMEDY}"
            )
        object.__setattr__(self, "needed", max(self.needed, nbytes))
        self._grow(nbytes)

    def _grow(self, nbytes: int) -> None:
        for lane in self.lanes.every:
            if nbytes > lane.arena.nbytes:  # between two runs: call-backs look at theirs
                lane.executor.run(partial(lane.arena.grow, nbytes))

    def make_room(self) -> None:
        """Be ready for plans that need up to three times as much as those so far: the first run
        that touches a page waits for the system to clear it, which can take longer than the run.
        """
        lanes = self.lanes.every
        before = [lane.arena.nbytes for lane in lanes]
        wanted = self.needed + min(2 * self.needed, AHEAD // len(lanes))
        if wanted * len(lanes) + self.weights.nbytes > self.max_bytes:
            return
        self._grow(wanted)
        with in_no_hurry():
            for lane, begin in zip(lanes, before, strict=True):
                for place in range(begin, lane.arena.nbytes + PAGE, PAGE):
                    lane.arena.bring(place, PAGE)
                    checkpoint()

    @property
    def full(self) -> bool:
        """Plans hold more than the budget together: packed weights in many forms, and arenas."""
        arenas = sum(lane.arena.nbytes for lane in self.lanes.every)
        return arenas + self.weights.nbytes > self.max_bytes

    def closed(self) -> Workspace:
        """A new one, and none of what queues in this one's arenas begins."""
        for lane in self.lanes.every:
            lane.arena.close()
        return Workspace(self.executor, self.max_bytes, self.further)


@dataclass(frozen=True)
class Memory:
    """What a session takes for the plan of its last run, in bytes.

    The caller's inputs are not it, nor is code that libraries generate, which the process keeps.

    Attributes:
        arena: pages that all plans of the session share, as large as the largest of them needs or
            larger, to be ready for other sizes; once for each run side by side.
        planned: what this plan needs of the arena: values between steps, and scratch.
        live: what this plan needs at once at most: no plan of the same steps needs less.
        weights: constants that were packed, of all plans that the session keeps.
        outputs: what each run allocates and hands over.
    """

    arena: int
    planned: int
    live: int
    weights: int
    outputs: int

    @classmethod
    def of(cls, workspace: Workspace, planned: int, live: int, outputs: int) -> Memory:
        """What is taken for a plan."""
        arena = sum(lane.arena.nbytes for lane in workspace.lanes.every)
        return cls(arena, planned, live, workspace.weights.nbytes, outputs)

    @property
    def peak(self) -> int:
        """The most that is taken while this plan runs."""
        return self.arena + self.weights + self.outputs
