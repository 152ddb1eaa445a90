"""What passes are told, beside the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vtensor.errors import InputError
from vtensor.language.records import dataclass

if TYPE_CHECKING:
    from optimizer.errors import Allowed
    from optimizer.estimate import Speeds
    from optimizer.problem import Clock, Probing

#: Seconds that a solver may take.
TIME_LIMIT = 10.0

#: What the integer program may minimise.
OBJECTIVES = ("shared", "paper", "time")


@dataclass(frozen=True)
class Settings:
    """Options of the passes.

    Attributes:
        objective: ``shared`` (bytes that Transforms move, identical ones once), ``paper`` (edges
            whose ends differ) or ``time`` (nanoseconds of kernels and Transforms, as measured);
            empty is the pass's own: bytes for EWO, estimated nanoseconds for the joint choice.
        clock: where measured nanoseconds come from.
        speeds: what libraries reach on this machine, for estimates; called where one is needed.
            None is what they declare.
        probe: times nodes whose kernels may be far from their estimates, where ``clock`` is None;
            None times nothing.
        solver: ``HiGHS`` or ``CBC``; empty is the first that is installed.
        time_limit: seconds for the solver.
        only: nodes that the joint choice may have in other variants; None is all.
        allowed: the error that results may have, where ``clock`` measures; None is strict.
        room: bytes by which packed constants may take more; None is any.
        price: what each Transform is charged beside its time, as a part of what all nodes take.
        light: readers of Transforms are asked only where they are light: others hardly ever gain.

    Raises:
        InputError: there is no such objective, or a clock is missing, or given for another one.
    """

    objective: str = ""
    solver: str = ""
    time_limit: float = TIME_LIMIT
    clock: Clock | None = None
    speeds: Speeds | None = None
    probe: Probing | None = None
    only: frozenset[str] | None = None
    allowed: Allowed | None = None
    room: int | None = None
    price: float = 0.0
    light: bool = False

    def may_change(self, node: str) -> bool:
        """The joint choice may have a node in another variant."""
        return self.only is None or node in self.only

    def __post_init__(self) -> None:
        if self.objective not in ("", *OBJECTIVES):
            known = ", ".join(OBJECTIVES)
            raise InputError(
                f"objective={self.objective!r} (--objective) is none; objectives are {known}"
            )
        if (self.objective == "time") != (self.clock is not None):
            raise InputError("objective='time' and a clock go together: tune=True (--tune)")
