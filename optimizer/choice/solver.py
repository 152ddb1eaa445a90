"""Solvers of integer programs: HiGHS if it is installed, else the CBC that comes with PuLP."""

from __future__ import annotations

import importlib.util
import math
import re
import time
from pathlib import Path
from typing import Any

from optimizer.detached_import import import_on_thread
from optimizer.settings import TIME_LIMIT
from vtensor.language.process.interrupts import pass_signals
from vtensor.language.records import dataclass


class SolverError(Exception):
    """A solver is missing, failed, or found nothing within its time."""


@dataclass(frozen=True)
class Solved:
    """The result of a solver: how it ended, the objective and a bound.

    Attributes:
        solver: the solver's name.
        status: ``optimal``, or ``time limit`` if the solution is the best found by then.
        objective: the objective's value of the solution.
        bound: a lower bound of the objective.
        seconds: the time that the solver took.
    """

    solver: str
    status: str
    objective: float
    bound: float
    seconds: float

    @property
    def gap(self) -> float:
        """The most by which the objective may exceed the least possible one, as a share of the
        objective.
        """
        distance = max(self.objective - self.bound, 0.0)
        return distance / abs(self.objective) if distance else 0.0


def solver_name() -> str:
    """Return the name of the solver that ``solve`` uses by default."""
    return "HiGHS" if importlib.util.find_spec("highspy") else "CBC"


def solve(model: Any, solver: str = "", time_limit: float = TIME_LIMIT) -> Solved:
    """Solve a ``pulp.LpProblem`` to proven optimality, or until the time limit.

    Args:
        model: the problem; its variables hold the solution afterwards.
        solver: ``HiGHS`` or ``CBC``; empty is ``solver_name()``.
        time_limit: seconds.

    Raises:
        SolverError: the solver is missing, fails, or finds nothing within its time.
    """
    name, begin = solver or solver_name(), time.perf_counter()
    try:
        ended, bound = _highs(model, time_limit) if name == "HiGHS" else _cbc(model, time_limit)
    except Exception as error:  # callers go on without a solution, whatever a solver raises
        pass_signals(error)
        raise SolverError(f"{name}: {type(error).__name__}: {error}") from error
    objective = model.objective.value() if model.objective else 0.0
    if objective is None or any(variable.value() is None for variable in model.variables()):
        raise SolverError(f"{name} found nothing: {ended}")
    value = float(objective)
    optimal = ended == "optimal"
    if not optimal and ended != "time limit":
        raise SolverError(f"{name}: {ended}")
    return Solved(name, ended, value, value if optimal else bound, time.perf_counter() - begin)


def _highs(model: Any, time_limit: float) -> tuple[str, float]:
    """Solve with HiGHS; return the status and the lower bound of the objective.

    The status is a value of ``Solved.status``, or else HiGHS's own word.
    """
    pulp = import_on_thread("pulp")
    model.solve(pulp.HiGHS(msg=False, gapRel=0.0, timeLimit=time_limit, threads=1))
    ended = model.solverModel.getModelStatus().name
    words = {"kOptimal": "optimal", "kTimeLimit": "time limit", "kModelEmpty": "optimal"}
    return words.get(ended, ended), float(model.solverModel.getInfo().mip_dual_bound)


def _cbc(model: Any, time_limit: float) -> tuple[str, float]:
    """Solve with CBC; return the status and the lower bound of the objective.

    The status is a value of ``Solved.status``, or else PuLP's own word. The bound is read from
    CBC's log. It is NaN for an optimal solution, whose objective is itself the bound. It is minus
    infinity if the log states none.
    """
    pulp = import_on_thread("pulp")
    from tempfile import TemporaryDirectory  # imported here: it imports much else

    with TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        command = pulp.COIN_CMD(
            path=pulp.PULP_CBC_CMD.pulp_cbc_path,  # the solver that PuLP includes
            msg=False,
            gapRel=0.0,
            timeLimit=time_limit,
            threads=1,
            logPath=str(log),
        )
        model.solve(command)
        text = log.read_text() if log.is_file() else ""
    if model.sol_status == pulp.LpSolutionOptimal:
        return "optimal", math.nan
    logged = re.search(r"Lower bound:\s+(\S+)", text)
    timed_out = model.sol_status == pulp.LpSolutionIntegerFeasible
    bound = float(logged[1]) if logged else -math.inf
    return "time limit" if timed_out else pulp.LpSolution[model.sol_status], bound
