"""The experiment on a busy machine: what is measured, not how fast it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer import Typer
from typer.testing import CliRunner

from eval import busy
from eval.busy import CONDITIONS, Row, engines
from tests.benchmark.support import fakes, relu
from vtensor.commands import bench as command

QUICK = ("--rounds", "2", "--seconds", "0.02", "--threads", "1", "--json")


def test_each_engine_is_timed_in_each_condition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, place in fakes("Agrees", "Absent").items():
        monkeypatch.setitem(command.PEERS, name, place)
    app = Typer()
    app.command()(busy.main)
    asked = [str(relu(tmp_path)), "--peers", "Agrees,Absent", "--spin", "5000", *QUICK]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)["rows"]
    assert [row.pop("engine") for row in rows] == [
        "vtensor",
        "Agrees",
        "Absent",
        "vtensor, spin 5000",
    ]
    assert {row.pop("model") for row in rows} == {"relu"}
    kinds = ("p50", "p99", "p99 / p50")
    figures = {f"{one} {what}" for one in CONDITIONS for what in kinds} | {"busy / idle"}
    assert [set(row) for row in rows] == [figures, figures, set(), figures]
    assert all(value > 0 for row in rows for value in row.values())


def test_turns_are_set_for_their_own_process_alone() -> None:
    found = engines({"vtensor": "a:A", "other": "b:B"}, ["7"], 1.0)
    assert {name: dict(one.environment) for name, one in found.items()} == {
        "vtensor": {},
        "other": {},
        "vtensor, spin 7": {"GOMP_SPINCOUNT": "7"},
    }


def test_figures() -> None:
    row = Row("m", "e", seconds={"idle": [0.001, 0.002, 0.003], "busy": [0.004]})
    assert row.figures() == pytest.approx(
        {
            "idle p50": 2,
            "idle p99": 2.98,
            "idle p99 / p50": 1.49,
            "busy p50": 4,
            "busy p99": 4,
            "busy p99 / p50": 1,
            "busy / idle": 2,
        }
    )
    assert Row("m", "e").figures() == {}
