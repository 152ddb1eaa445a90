"""What passes are told, beside the graph."""

from __future__ import annotations

from dataclasses import dataclass

from optimizer.solver import TIME_LIMIT
from vtensor.errors import InputError

#: What the integer program may minimise.
OBJECTIVES = ("shared", "paper")


@dataclass(frozen=True)
class Settings:
    """Options of the passes.

    Attributes:
        objective: ``shared`` (bytes that Transforms move, identical ones once) or ``paper``
            (edges whose ends differ).
        solver: ``HiGHS`` or ``CBC``; empty is the first that is installed.
        time_limit: seconds for the solver.

    Raises:
        InputError: there is no such objective.
    """

    objective: str = "shared"
    solver: str = ""
    time_limit: float = TIME_LIMIT

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            known = ", ".join(OBJECTIVES)
            raise InputError(f"objective={self.objective!r} is none; objectives are {known}")
