"""The test stage: engines run in turns, forward and then backward, so that each pair is A B B A.

A turn of a short network has several runs, after one that is not counted; a turn of a long one is
one run. The stage ends when every ratio to the first engine's time is known well enough, or when
its time is over. The state of the machine is noted before and after it.

Source: Efron and Tibshirani, An Introduction to the Bootstrap, chapter 13 (percentile intervals).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np

from eval.experiment import Scope
from eval.store import Row
from vtensor.benchmark.messages import Timed
from vtensor.benchmark.race import Contender
from vtensor.benchmark.summary import CONFIDENCE, DRAWS, Logs, Ratio

T = TypeVar("T")

#: A turn has runs for this long; a run that takes longer is a turn by itself.
TURN_S = 0.02
#: After so many turns, it is looked at again whether the ratios are known well enough.
LOOK = 5
#: Fewer pairs give no interval that could be believed.
MIN_PAIRS = 6
#: A machine is disturbed if other programs use more than this share of its processors, or if its
#: speed changes by more than ``DRIFT`` while engines are measured. Pairs cancel smaller changes,
#: which are usual where a host runs several machines.
OTHERS, DRIFT = 0.05, 0.25
#: The time for each engine after the second, as a share of that for the first two.
FURTHER = 1 / 3


def interval(values: Logs, seed: int) -> Ratio:
    """Return the median of one value for each pair, with its confidence interval.

    The interval comes from random draws of pairs.

    Args:
        values: the value of each pair; at least one.
        seed: the seed of the draws.

    >>> interval(np.array([2.0, 2.0, 2.0]), seed=0)
    Ratio(value=2.0, low=2.0, high=2.0)
    """
    drawn = np.random.default_rng(seed).choice(values, (DRAWS, values.size))
    outside = (1 - CONFIDENCE) / 2
    ends = np.quantile(np.median(drawn, axis=1), [outside, 1 - outside])
    return Ratio(*(round(float(number), 12) for number in (np.median(values), *ends)))


def turn_times(rows: Sequence[Row]) -> list[Logs]:
    """Return the median seconds of each turn, for rows of one group.

    Turns that not every row has are left out.
    """
    count = min(len(row["rounds_s"]) for row in rows)
    return [np.array([np.median(runs) for runs in row["rounds_s"][:count]]) for row in rows]


def narrow_enough(ratio: Ratio, within: float) -> bool:
    """Return whether a ratio's interval reaches at most the share ``within`` from the ratio.

    >>> narrow_enough(Ratio(1.0, 0.985, 1.015), 0.02), narrow_enough(Ratio(1.0, 0.9, 1.0), 0.02)
    (True, False)
    """
    return max(ratio.high - ratio.value, ratio.value - ratio.low) <= within * ratio.value


class Engine(Protocol):
    """An engine that has turns, in this process or in one of its own."""

    @property
    def rounds(self) -> list[Sequence[float]]:
        """For each turn, the seconds of each of its runs."""
        ...

    @property
    def running(self) -> bool:
        """Whether the engine takes part; one whose process has ended does not."""
        ...

    def warm_up(self) -> None:
        """Run once, and note whether a turn is one run or several; earlier turns may be
        forgotten.
        """
        ...

    def turn(self) -> None:
        """Take a turn, and add it to ``rounds``."""
        ...


@dataclass
class Remote:
    """A contender, whose process takes the turns.

    Attributes:
        contender: the engine.
        told: called with a description of each turn.
        budget_s: the seconds of a turn; 0 is one run.
    """

    contender: Contender
    told: Callable[[str], None]
    budget_s: float = 0.0

    @property
    def rounds(self) -> list[Sequence[float]]:
        """The contender's rounds."""
        return self.contender.rounds

    @property
    def running(self) -> bool:
        """Whether the contender has a process."""
        return self.contender.worker is not None

    def warm_up(self) -> None:
        """Run once, and set ``budget_s``."""
        self.told(f"warm-up, {self.contender.peer}")
        if answer := self.contender.ask(0.0, Timed):
            self.budget_s = budget(min(answer.seconds))

    def turn(self) -> None:
        """Ask the process for a turn."""
        self.told(f"turn {len(self.rounds) + 1}, {self.contender.peer}")
        if answer := self.contender.ask(self.budget_s, Timed):
            self.rounds.append(answer.seconds)


def budget(run_s: float) -> float:
    """Return the seconds of a turn of an engine whose runs take ``run_s``; 0 is one run."""
    return 0.0 if run_s > TURN_S else TURN_S


def take_turns(engines: Sequence[Engine], scope: Scope) -> None:
    """Let engines run in turns until the ratios of their times are known well enough.

    Args:
        engines: the engines. The times of all others are compared with the first one's.
        scope: gives the least number of pairs, the accepted interval and the most seconds.
    """
    for each in engines:
        if each.running:
            each.warm_up()
    further = max(len(engines) - 2, 0) * FURTHER
    until, number = time.monotonic() + scope.seconds * (1 + further), 0
    while (running := [each for each in engines if each.running]) and not (
        _known(running, number, scope) or (number >= MIN_PAIRS and time.monotonic() > until)
    ):
        for each in running if number % 2 == 0 else reversed(running):
            each.turn()
        number += 1


def _known(engines: Sequence[Engine], number: int, scope: Scope) -> bool:
    """Return whether the ratios are known well enough after ``number`` turns."""
    if number < scope.pairs or number % LOOK:
        return False
    first, *rest = turn_times([{"rounds_s": each.rounds} for each in engines])
    ratios = (interval(times / first, scope.seed) for times in rest)
    return all(narrow_enough(ratio, scope.within) for ratio in ratios)


def undisturbed(measure: Callable[[], T], tries: int) -> tuple[T, Row]:
    """Call ``measure`` again while other programs disturb the machine, at most ``tries`` times in
    all.

    Returns the last result, and a row with the machine's state ``before`` and ``after`` it, and
    whether it was ``disturbed``.
    """
    before = machine_state()
    result = measure()
    states = {"before": before, "after": machine_state()}
    spoilt = disturbed(**states)
    if spoilt and tries > 1:
        return undisturbed(measure, tries - 1)
    return result, {**states, "disturbed": spoilt}


def machine_state() -> Row:
    """Return how busy other programs keep the processors, and the seconds of a fixed loop.

    ``busy`` is a share of all processors during a fifth of a second in which this process sleeps.
    """
    before = _ticks()
    time.sleep(0.2)
    used, all_ticks = (now - then for now, then in zip(_ticks(), before, strict=True))
    return {"busy": used / max(all_ticks, 1), "loop_s": min(_loop() for _ in range(9))}


def _loop() -> float:
    begin = time.perf_counter()
    sum(range(100_000))
    return time.perf_counter() - begin


def _ticks() -> tuple[int, int]:
    """Return the clock ticks in which processors worked, and all of them, since the machine began.

    Ticks that a virtual machine's host took away count as work.
    """
    file = Path("/proc/stat")
    if not file.exists():
        return 0, 0
    user, nice, system, idle, wait, *rest = map(int, file.read_text().splitlines()[0].split()[1:9])
    used = user + nice + system + sum(rest)
    return used, used + idle + wait


def disturbed(before: Row, after: Row) -> bool:
    """Return whether the machine was busy, or changed its speed, around a measurement.

    Args:
        before, after: the results of ``machine_state`` before and after the measurement.

    >>> calm = {"busy": 0.0, "loop_s": 1.0}
    >>> disturbed(calm, calm), disturbed(calm, {"busy": 0.0, "loop_s": 1.5})
    (False, True)
    """
    drift = abs(after["loop_s"] / before["loop_s"] - 1)
    return bool(max(before["busy"], after["busy"]) > OTHERS or drift > DRIFT)
