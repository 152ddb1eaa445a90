"""Exceptions out of signals' handlers, at any moment: they come out, and all goes on as before."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.libraries.processes import run_python
from tests.libraries.slow import ALL

ROOT = Path(__file__).parents[2]

#: What is interrupted, and about how many events that has.
CASES = {
    "open": 500,
    "open-cached": 300,
    "run": 2600,
    "run-cached": 1500,
    "run-deterministic": 2600,
    "again": 300,
    "lock": 1100,
    "close": 37,
}

#: Each event is tried, in several processes, or some of them in one.
PROCESSES, EVENTS = 4, 12


def interrupted(case: str, first: int, step: int) -> int:
    """Return how many events were tried, none of which left anything wrong."""
    done = run_python("-m", "tests.runtime.interrupts", case, first, step, timeout=3000)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    [last] = done.stdout.splitlines()
    return int(last.removeprefix("tried "))


@pytest.mark.parametrize("part", range(PROCESSES if ALL else 1))
@pytest.mark.parametrize("case", CASES)
def test_what_a_handler_raises_comes_out_and_leaves_all_whole(case: str, part: int) -> None:
    step = PROCESSES if ALL else CASES[case] // EVENTS | 1
    assert interrupted(case, 1 + part, step) >= (8 if ALL else 3)
