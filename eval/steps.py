"""The cost of a run besides its kernels: ``python -m eval.steps``.

It times programs of steps that do nothing, so that only the loop over steps remains, and the queue
of runs before it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from vtensor.commands.shared import print_json
from vtensor.runtime.execution.executor import Executor


def main(
    steps: Annotated[int, typer.Option(min=1, help="Steps of a program.")] = 1000,
    rounds: Annotated[int, typer.Option(min=1, help="Medians are of so many.")] = 200,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Print nanoseconds: of a step, native or in Python, and of a run from another thread."""
    times = measured(steps, rounds)
    if as_json:
        print_json({"steps": steps, "rounds": rounds, **times})
        return
    table = Table("what", "ns")
    for what, nanoseconds in times.items():
        table.add_row(what, f"{nanoseconds:.1f}")
    Console().print(table)


def measured(steps: int, rounds: int) -> dict[str, float]:
    """Return median times in nanoseconds, by what was timed.

    ``step``: an empty native step; ``timed step``: one whose begin and end are recorded; ``python
    step``: an empty Python function; ``run``: an empty program on a team of one thread, started
    from another thread; ``run of a team``: the same on a team of two threads; ``call``: a Python
    function on a team of one thread, likewise.

    Args:
        steps: the number of steps of a program.
        rounds: of how many runs a time is the median.
    """
    from vtensor.runtime._replay import Program, empty_step

    team = Executor.of(1).team
    empty = Program([], [])
    native = Program([], [(empty_step(), [])] * steps)
    python = Program([], [(lambda: None, [])] * steps)
    clock = np.zeros(2 * steps, np.int64)

    def inside(program: Program, times: object = None) -> float:
        """Return the time of a step of a program, run on the team's own thread, without a queue."""
        return team.call(lambda: nanoseconds(lambda: team.run(program, [], times), rounds)) / steps

    return {
        "step": inside(native),
        "timed step": inside(native, clock),
        "python step": inside(python),
        "run": nanoseconds(lambda: team.run(empty, []), rounds),
        "run of a team": nanoseconds(lambda: Executor.of(2).team.run(empty, []), rounds),
        "call": nanoseconds(lambda: team.call(int), rounds),
    }


def nanoseconds(run: Callable[[], object], rounds: int) -> float:
    """Return the median time of a call of ``run``, in ns; a first call does not count."""
    times = []
    for _ in range(rounds + 1):
        begin = time.perf_counter_ns()
        run()
        times.append(time.perf_counter_ns() - begin)
    return median(times[1:])


if __name__ == "__main__":
    typer.run(main)
