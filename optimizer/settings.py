"""The options of passes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vtensor.errors import InputError
from vtensor.language.records import dataclass

if TYPE_CHECKING:
    from optimizer.choice.errors import Allowed
    from optimizer.choice.estimate import Speeds
    from optimizer.choice.problem import Clock, Probing

#: The default time limit of a solver, in seconds.
TIME_LIMIT = 10.0

#: The objectives of the integer program.
OBJECTIVES = ("shared", "paper", "time")


@dataclass(frozen=True)
class Settings:
    """Options of the passes.

    Attributes:
        objective: ``shared`` (bytes that Transforms move, identical ones once), ``paper`` (edges
            whose ends differ) or ``time`` (nanoseconds of kernels and Transforms, as measured);
            empty is the pass's own objective: bytes for EWO, estimated nanoseconds for the joint
            choice.
        clock: the clock that measures times, for the objective ``time``; else None.
        speeds: returns the rates that libraries reach on this machine, for estimates; called when
            the first estimate is made. None uses declared rates.
        probe: if ``clock`` is None, a clock that measures only nodes whose time may be far from the
            estimate; None measures nothing.
        solver: ``HiGHS`` or ``CBC``; empty is the first that is installed.
        time_limit: seconds for the solver.
        only: names of the nodes whose variants the joint choice may change; None is all.
        allowed: the error that results may have, if ``clock`` measures; None admits no approximate
            variants.
        room: the bytes that packed constants may take beyond those of the resolver's variants; None
            for no limit.
        price: a charge for each Transform on top of its time, as a fraction of the time of all
            nodes.
        light: True makes the pass ``absorb`` keep a Transform that has a heavy reader (a node
            dominated by arithmetic). Its removal hardly ever saves time.

    Raises:
        InputError: the objective is unknown, or it is ``time`` without a clock, or another with a
            clock.
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
        """Return whether the joint choice may change a node's variant."""
        return self.only is None or node in self.only

    def __post_init__(self) -> None:
        if self.objective not in ("", *OBJECTIVES):
            known = ", ".join(OBJECTIVES)
            raise InputError(
                f"objective={self.objective!r} (--objective) is none; objectives are {known}"
            )
        if (self.objective == "time") != (self.clock is not None):
            raise InputError("objective='time' and a clock go together: tune=True (--tune)")
