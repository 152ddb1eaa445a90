"""What the plans of a session share: their thread, one arena, packed weights, a budget."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vtensor.errors import BudgetError
from vtensor.runtime.budget import REMEDY
from vtensor.runtime.executor import Executor
from vtensor.runtime.weights import Weights

if TYPE_CHECKING:
    from vtensor.runtime._replay import Arena


def _arena() -> Arena:
    from vtensor.runtime import _replay  # native: loaded with the first session, not with VTensor

    return _replay.Arena()


@dataclass(frozen=True)
class Workspace:
    """Shared by the plans of a session, which run one at a time.

    Attributes:
        executor: where they run.
        max_bytes: what a plan may take.
        arena: the memory of values between steps; as large as the largest plan needs.
        weights: constants as libraries want them.
    """

    executor: Executor
    max_bytes: int
    arena: Arena = field(default_factory=_arena)
    weights: Weights = field(default_factory=Weights)

    def grow(self, nbytes: int, others: int) -> None:
        """Make the arena at least so large.

        Args:
            nbytes: what a plan's values and scratch need.
            others: what the plan has beside them.

        Raises:
            BudgetError: the budget is smaller than both.
        """
        if nbytes + others > self.max_bytes:
            raise BudgetError(
                f"the plan needs {nbytes} bytes for values and scratch and {others} for weights "
                f"and outputs, and the budget is {self.max_bytes}\n  to fix: {REMEDY}"
            )
        if nbytes > self.arena.nbytes:  # between two runs: call-backs look at the pages of theirs
            self.executor.run(lambda: self.arena.grow(nbytes))


@dataclass(frozen=True)
class Memory:
    """What a session takes for the plan of its last run, in bytes.

    The caller's inputs are not it, nor is code that libraries generate, which the process keeps.

    Attributes:
        arena: pages that all plans of the session share; as large as the largest of them needs.
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
        return cls(workspace.arena.nbytes, planned, live, workspace.weights.nbytes, outputs)

    @property
    def peak(self) -> int:
        """The most that is taken while this plan runs."""
        return self.arena + self.weights + self.outputs
