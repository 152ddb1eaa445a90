"""Work that nobody waits for gives way to who wants a plan."""

from __future__ import annotations

import threading

import pytest

from ptensor.background_work import checkpoint, stopping
from vtensor.runtime.planning.planning_lock import PlanningLock


@pytest.mark.parametrize("times", [1, 3])
def test_who_wants_a_plan_has_it_so_often(times: int) -> None:
    """Each beginning of the work meets somebody who wants a turn, but the last one: it is done."""
    turn, begun, had, most = PlanningLock(), list[int](), list[int](), 5

    def want() -> None:
        turn.take(lambda: had.append(len(begun)))

    def work() -> None:
        begun.append(len(had))
        asks = threading.Thread(target=want, daemon=True)
        asks.start()
        while not turn.waiting:
            asks.join(0.001)
        checkpoint()

    with stopping(lambda: len(begun) > most):
        turn.run_background(work, times)
    while len(had) < len(begun):
        pass
    assert begun == [*range(times + 1)], "whoever asked had had a turn before it began anew"
    assert had == [*range(1, times + 2)]
