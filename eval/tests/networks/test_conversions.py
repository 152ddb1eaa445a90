"""The conversions table: what each level leaves of a network, and how that is shown."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from eval.experiment import Store
from eval.figures.conversions import counts, gained, plot, removed
from eval.figures.converted import LEVELS, Clock
from eval.figures.timing import MIXES
from eval.figures.timing import table as timings
from eval.networks import NAMES
from eval.processes import CAPS, capable, measure
from tests.libraries.bench import Bench
from tests.libraries.slow import slow
from tests.optimizer.graphs import extended_of, random_graph

Row = dict[str, Any]
RESOLVED = "(b) resolver"


def planned(cap: str, network: str, *mixes: str) -> list[Row]:
    """Return the rows of one network, untimed."""
    rows: list[Row] = []
    measure(
        "eval.figures.converted", [cap, network, ",".join(mixes), "shared", "0", "1"], rows.append
    )
    return rows


def rising(rows: list[Row]) -> list[str]:
    """Return the mixes in which a level moves more bytes than the one before it, or a baseline.

    Only EWO is below the baselines everywhere: where a library wants NHWC, as it does above sse41,
    theirs may be the better guess than the resolver's.
    """
    cost = {(row["mix"], row["level"]): row["bytes"] for row in rows}
    bound = RESOLVED if rows[0]["cap"] == "sse41" else "(d) + EWO"
    first, second, *levels = LEVELS
    pairs = [(first, bound), (second, bound), *pairwise(levels)]
    return [mix for mix in MIXES for one, next_ in pairs if cost[mix, one] < cost[mix, next_]]


def test_no_level_moves_more_than_the_one_before() -> None:
    rows = planned("sse41", "googlenet", *MIXES)
    assert rising(rows) == []
    moved = {(row["mix"], row["level"]): row for row in rows}
    first, last = moved["tensorflow", "(a) aware"], moved["onednn", "(e) all"]
    assert moved["tensorflow", RESOLVED]["bytes"] < first["bytes"] / 10
    last["bytes"] *= 9  # the twin: what rises is seen
    assert rising(rows) == ["onednn"]


@slow
@pytest.mark.parametrize("cap", CAPS)
@pytest.mark.parametrize("network", NAMES)
def test_no_level_of_any_network_moves_more(cap: str, network: str) -> None:
    if cap not in capable():
        pytest.skip(f"this processor has no {cap}")
    assert rising(planned(cap, network, *MIXES)) == []


@slow
def test_the_papers_mark() -> None:
    """ResNet-152 on the paper's instruction set in its mix: from 317 to 18, section 6.5."""
    left = {row["level"]: row["transforms"] for row in planned("sse41", "resnet152", "tensorflow")}
    assert left["(a) aware"] > 300
    assert left["(d) + EWO"] <= 18


def test_a_kind_of_transform_is_timed_once(bench: Bench) -> None:
    graph = extended_of(random_graph(1))
    clock = Clock(2, 1)
    taken = clock.seconds(graph)
    assert taken is not None
    assert taken > 0
    assert clock.seconds(graph) == taken
    assert len(clock.known) < len(list(graph.transforms()))
    assert Clock(0, 1).seconds(graph) is None


def made_up(network: str, seconds: float | None) -> list[Row]:
    """A row a level."""
    proof = {"status": "optimal", "open_nodes": 3}
    row = {"cap": "avx2", "mix": "onednn", "network": network, "seconds": seconds}
    return [
        row | {"level": level, "transforms": 9 - n, "bytes": 10**7, "certificate": proof}
        for n, level in enumerate(LEVELS)
    ]


def test_the_table() -> None:
    shown = counts([*made_up("vgg19", 0.002), *made_up("other", None)]).splitlines()
    assert shown[0].startswith("| network | (a) aware |")
    first, second, *_, proof, gain = [cell.strip() for cell in shown[2].strip("|").split("|")]
    assert (first, second) == ("vgg19", "9; 10.0; 2.00")
    assert proof == "optimal, 3 open"
    assert gain == "no improvement: neither branches nor element-wise nodes"
    assert "| other | 9; 10.0 |" in shown[3]


def test_the_picture_names_the_network(tmp_path: Path) -> None:
    plot(made_up("vgg19", None), [("avx2", "onednn")], Store(tmp_path))
    assert {file.name for file in tmp_path.iterdir()} == {"conversions.png", "conversions.svg"}
    assert b"vgg19" in (tmp_path / "conversions.svg").read_bytes()


def test_what_is_gained_is_a_share_of_the_baselines_time(tmp_path: Path) -> None:
    store = Store(tmp_path, {"when": "now"})
    about = {"network": "vgg19", "batch": 1, "cap": "sse41", "mix": "tensorflow", "runs": 3}
    times = {"baseline": 10.0, "none": 9.0, "ewo": 4.0}
    timings(store).add(
        {**about, "engine": name, "rounds_s": [[s], [2 * s], [3 * s]]} for name, s in times.items()
    )
    shares = gained(store, "sse41")["vgg19"]
    values = {part: share.value for part, share in shares.items()}
    expected = {"DLR": 0.1, "LOO": 0.5, "all three": 0.6}
    assert values == pytest.approx(expected)
    assert all(share.low == pytest.approx(share.high) for share in shares.values())
    assert gained(store, "max") == {}
    rows = [row | {"cap": "sse41", "mix": "tensorflow"} for row in made_up("vgg19", None)]
    store.table("conversions", ("network", "cap", "mix", "level")).add(rows)
    assert removed(store, "sse41") == {"vgg19": (9, 5)}
