"""The table of profiles: its rows from a real network, smaller."""

from __future__ import annotations

import json

import pytest

from eval.figures.profiled import HEAVY, row
from eval.networks import build
from eval.profiles import KINDS, shown
from vtensor.language.operators import OPERATORS
from vtensor.runtime.session import Session


def test_kinds_share_out_a_run() -> None:
    with Session(build("mobilenet_v1", size=64)) as session:
        found = session.profile(runs=3)
    data = json.loads(json.dumps(row(found)))
    assert data["by_kind"].keys() <= set(KINDS)
    assert sum(one["ns"] for one in data["by_kind"].values()) == pytest.approx(data["total"]["ns"])
    assert sum(one["steps"] for one in data["by_kind"].values()) == len(found.steps)
    heavy = data["by_kind"]["heavy"]
    assert heavy["operations"] > 0.9 * data["total"]["operations"]
    line = shown([{"network": "mobilenet_v1", **data}]).splitlines()[-1].split(" | ")
    assert line[0] == "| mobilenet_v1"
    assert line[1] == f"{data['run_ns']['median'] / 1e6:.2f}"
    assert line[2] == f"{heavy['share']:.1%}".replace("%", " %")


def test_the_names_are_operators() -> None:
    assert set(HEAVY) <= OPERATORS.keys()
