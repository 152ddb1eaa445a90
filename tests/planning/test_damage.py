"""Damaged, cut, swapped, foreign, older and newer entries, and other fields under a right digest.

No kind of entry is named here: all files of a cache are taken as they are.
"""

from __future__ import annotations

from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np
import pytest

from tests.libraries.slow import ALL
from tests.planning import cells
from tests.planning.support import Expected, Process, process

#: Rows whose caches are damaged, by which costs, and how; then all of these, and how many cases
#: there are of each kind.
USUAL = [
    ("heads", "declared", "bytes"),
    ("heads", "declared", "values"),
    ("fixed small inside", "calibrated", "kinds"),
]
ROWS = [
    ("heads", "declared"),
    ("masks", "declared"),
    ("fixed small inside", "calibrated"),
    ("spread", "declared"),
    ("weights beside", "calibrated"),
    ("fixed folded inside", "declared"),
    ("attention", "calibrated"),
    ("call-back", "declared"),
    ("overridden", "declared"),
    ("detector", "declared"),
]
EACH = [(*row, how) for row in ROWS for how in ("bytes", "kinds", "values")]
COUNT = 12 if ALL else 3


def filled(name: str, costs: str, here: Process, folder: Path) -> tuple[Path, Path]:
    """A model, and a cache that has all that sessions leave of it."""
    folder.mkdir()
    model, cache = cells.write(name, folder / "net.onnx"), folder / "cache"
    count = len(cells.feeds_of(name, 0))
    for _ in range(3):
        here.call(cells.visit, name, model, cache, range(count), 0, costs)
    return model, cache


@pytest.mark.parametrize(("name", "costs", "how"), EACH if ALL else USUAL)
def test_no_entry_changes_an_answer(
    name: str, costs: str, how: str, here: Process, tmp_path: Path
) -> None:
    model, cache = filled(name, costs, here, tmp_path / "one")
    _, other = filled("turning", costs, here, tmp_path / "other")
    wanted = [one.given for one in Expected(name, model, here).answers]
    with process(tmp_path / "timings") as apart:  # which may not survive
        try:
            tried, faults = apart.call(
                cells.damaged, name, model, cache, other, how, wanted, COUNT, costs
            )
        except BrokenProcessPool:
            pytest.fail(f"the process crashed: {(cache.parent / 'last').read_text()}")
    assert tried >= COUNT
    if how == "values":  # what no other part of an entry repeats may be another number
        assert all(": off by" in one and "off by inf" not in one for one in faults), faults
        assert len(faults) <= max(1, tried // 20), faults
    else:
        assert not faults


def test_damage_that_changes_an_answer_is_seen(here: Process, tmp_path: Path) -> None:
    model, cache = filled("heads", "declared", here, tmp_path / "one")
    answers = Expected("heads", model, here).answers
    wanted = [[np.asarray(answer.given[0]) + 1] for answer in answers]
    about = "heads", model, cache, cache, "bytes", wanted, 0, "declared"
    tried, faults = here.call(cells.damaged, *about)
    assert len(faults) == tried > 0
