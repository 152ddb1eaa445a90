"""The workspace of a session: executors, an arena, packed weights and a budget for its plans."""

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


#: The most bytes by which all arenas together grow beyond what plans have needed so far.
RESERVE = 8 << 20

#: The bytes of an arena that are touched at a time. Meanwhile requests of other threads to the
#: system wait.
TOUCHED_BYTES = 2 << 20


def _arena() -> Arena:
    from vtensor.runtime import _replay  # native: loaded with the first session, not with VTensor

    return _replay.Arena()


@dataclass(frozen=True, eq=False)
class Workspace:
    """The resources that the plans of a session share.

    Attributes:
        executor: the executor that the plans are made for and run on.
        max_bytes: the memory budget, in bytes.
        further: other executors with the same number of threads, for concurrent runs.
        arena: the memory of values between steps, on the first lane. It is at least as large as the
            largest plan needs. Each other lane has an arena of its own.
        weights: the packed constants.
        lanes: the executors with their arenas.
        needed: the bytes of the largest arena that a plan has needed so far.
        expected: memory for the weights of the first plan, until that plan takes it; then empty.
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
        """The call kinds of the session."""
        from vtensor.runtime.recording.call_kinds import CallKinds  # a saved plan records nothing

        return CallKinds()

    def expect(self, nbytes: int) -> None:
        """Allocate memory for the weights of a plan that is likely to follow, and touch the
        memory's pages.

        Does nothing if the weights are few bytes, if there is a single thread, or if the budget is
        too small.

        Args:
            nbytes: the bytes of the weights.
        """
        from vtensor.runtime.recording import packer

        if self.executor.threads > 1 and packer.MIN_BYTES_TOUCHED <= nbytes <= self.max_bytes // 2:
            self.expected.append(packer.Expected(nbytes))

    def grow(self, nbytes: int, others: int) -> None:
        """Grow each arena to the needs of a plan.

        Args:
            nbytes: the bytes of the plan's values and scratch.
            others: the bytes of the plan's weights and outputs.

        Raises:
            BudgetError: the arenas and ``others`` together exceed the budget.
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
            if nbytes > lane.arena.nbytes:  # between two runs: call-backs use the arena
                lane.executor.run(partial(lane.arena.grow, nbytes))

    def make_room(self) -> None:
        """Grow the arenas, so that later plans may need up to three times as much memory as the
        plans so far.

        Does nothing if arenas and packed weights would exceed the budget. New pages are touched
        now, since the first touch of a page waits until the system has cleared it, which can take
        longer than a run.
        """
        lanes = self.lanes.every
        before = [lane.arena.nbytes for lane in lanes]
        wanted = self.needed + min(2 * self.needed, RESERVE // len(lanes))
        if wanted * len(lanes) + self.weights.nbytes > self.max_bytes:
            return
        self._grow(wanted)
        with in_no_hurry():
            for lane, begin in zip(lanes, before, strict=True):
                for place in range(begin, lane.arena.nbytes + TOUCHED_BYTES, TOUCHED_BYTES):
                    lane.arena.bring(place, TOUCHED_BYTES)
                    checkpoint()

    @property
    def full(self) -> bool:
        """True if packed weights and arenas together exceed the budget."""
        arenas = sum(lane.arena.nbytes for lane in self.lanes.every)
        return arenas + self.weights.nbytes > self.max_bytes

    def closed(self) -> Workspace:
        """Close the arenas, so that no queued run begins, and return a new workspace."""
        for lane in self.lanes.every:
            lane.arena.close()
        return Workspace(self.executor, self.max_bytes, self.further)


@dataclass(frozen=True)
class Memory:
    """The memory of a session for the plan of its last run, in bytes.

    The caller's inputs are not counted, nor is generated code, which the process shares.

    Attributes:
        arena: memory that all plans of the session share, the sum over all streams; for each at
            least what the largest plan needs.
        planned: the part of an arena that this plan needs: values between steps, and scratch.
        live: the most bytes of this plan that are live at one step: a lower bound of ``planned``.
        weights: packed constants of all plans of the session.
        outputs: memory that each run allocates and returns.
    """

    arena: int
    planned: int
    live: int
    weights: int
    outputs: int

    @classmethod
    def of(cls, workspace: Workspace, planned: int, live: int, outputs: int) -> Memory:
        """Return the memory of a session for a plan.

        Args:
            workspace: the workspace of the session.
            planned, live, outputs: the attributes of these names, in bytes.
        """
        arena = sum(lane.arena.nbytes for lane in workspace.lanes.every)
        return cls(arena, planned, live, workspace.weights.nbytes, outputs)

    @property
    def peak(self) -> int:
        """The most bytes that are allocated while this plan runs."""
        return self.arena + self.weights + self.outputs
