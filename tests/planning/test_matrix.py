"""Networks, in each way that a plan may come: the answers are those of fresh sessions.

A row is a network with inputs of several sizes, a cell is a way to come to the plans for them. What
a cell answers is compared with a fresh session for each input, without a cache: bit for bit where
the same was chosen, and else within the tolerance.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

from tests.libraries.slow import ALL
from tests.planning import cells
from tests.planning.cells import Given, entries_of
from tests.planning.rows import ROWS
from tests.planning.support import Expected, Process

#: Sizes that are drawn at random for each network of open sizes.
COUNT = 8 if ALL else 1

#: Rows that are always tried; the others with VTENSOR_TEST_ALL=1.
USUAL = {
    *("transformer", "reader", "places", "queries", "pairs"),
    *("fixed folded inside", "fixed product in nodes", "fixed words beside", "packed beside"),
    *("weights beside", "masks", "heads", "resized", "computed masked", "turned reshaped"),
    *("broadcast", "border of a block", "int4", "sizes that cannot be", "values decide"),
    *("call-back", "inner values", "overridden", "any rank", "two streams"),
}

#: Rows whose plans are made better in the background, and which threads run at once.
BACKGROUND = ["masks", "fixed residual inside", "mobile", "attention", "spread", "call-back"]


@pytest.mark.parametrize("name", [one for one in ROWS if ALL or one in USUAL])
def test_each_way_answers_as_fresh_sessions_do(
    name: str, here: Process, there: Process, tmp_path: Path
) -> None:
    row, cache = cells.row_of(name), tmp_path / "cache"
    expected = Expected(name, cells.write(name, tmp_path / "net.onnx"), here, COUNT)
    backwards = expected.order[::-1]
    for answer in expected.answers:
        assert answer.origin is None or (answer.origin.way in row.ways and not answer.origin.cached)
    for cell, process, folder, order, cached in (
        ("no cache", here, None, expected.order, False),
        ("cold cache", here, cache, expected.order, False),
        ("warm, another session", here, cache, expected.order, True),
        ("warm, another process, other sizes first", there, cache, backwards, True),
        ("warm, once more", here, cache, expected.order, True),
    ):
        last = cell == "warm, once more"
        origin = expected.visit(process, folder, cell, order, looks=last).origin
        if origin is not None:
            assert origin.cached == cached or (cached and not row.caches), cell
            assert cached or origin.way in row.ways, cell
        if last and row.specialises:
            assert origin is not None
            assert origin.way == "specialised"
    random = Random(name)
    for entry in entries_of(cache):
        content = bytearray(entry.read_bytes())
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)
        entry.write_bytes(content)
    origin = expected.visit(there, cache, "damaged").origin
    assert origin is None or not origin.cached
    origin = expected.visit(here, cache, "damaged, and made again").origin
    assert origin is None or origin.cached == row.caches


@pytest.mark.parametrize("name", BACKGROUND if ALL else BACKGROUND[:2])
def test_plans_that_others_take_the_place_of(
    name: str, here: Process, there: Process, tmp_path: Path
) -> None:
    """First plans are provisional where estimates are by measured speeds."""
    cache = tmp_path / "cache"
    expected = Expected(name, cells.write(name, tmp_path / "net.onnx"), here)
    for process, folder, cell in (
        (here, None, "no cache"),
        (here, cache, "cold cache"),
        (there, cache, "warm"),
        (here, cache, "warm again"),
    ):
        was_refined, found = process.call(cells.refined, name, expected.model, folder, 0)
        assert was_refined, cell
        for at, given, _ in found:
            expected.check(at, given, f"refined, {cell}")
        ways = [origin.way for _, _, origin in found if origin is not None]
        assert {*ways[-len(expected.order) :]} <= {"in memory"}, cell
    for costs, cell in (("calibrated", "behind that"), ("declared", "by declared costs")):
        expected.visit(there, cache, cell, costs=costs)


@pytest.mark.parametrize("name", BACKGROUND if ALL else BACKGROUND[:1])
def test_threads_with_sizes_of_their_own(name: str, here: Process, tmp_path: Path) -> None:
    expected = Expected(name, cells.write(name, tmp_path / "net.onnx"), here, COUNT)
    for cache in (None, tmp_path / "cache", tmp_path / "cache"):
        found = here.call(cells.crowd, name, expected.model, cache, COUNT, 4)
        for at, given in found:
            expected.check(at, given, "threads")


def test_a_cell_that_is_wrong_is_seen(here: Process, tmp_path: Path) -> None:
    expected = Expected("heads", cells.write("heads", tmp_path / "net.onnx"), here)
    wanted = np.asarray(expected.answers[0].given[0])
    expected.check(0, [wanted], "right", same=True)
    wrong: list[tuple[Given, bool]] = [
        ([wanted * np.float32(1 + 1e-3)], False),
        ([wanted * np.float32(1 + 1e-6)], True),
        ([wanted.astype(np.float64)], True),
        (("InputError", "no"), False),
    ]
    for given, same in wrong:
        with pytest.raises(AssertionError):
            expected.check(0, given, "wrong", same)
