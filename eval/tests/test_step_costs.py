"""The experiment on what a step costs: what is measured, not how fast it is."""

from __future__ import annotations

import json

from typer import Typer
from typer.testing import CliRunner

from eval import steps


def test_each_part_is_measured() -> None:
    app = Typer()
    app.command()(steps.main)
    done = CliRunner().invoke(app, ["--steps", "20", "--rounds", "5", "--json"])
    found = json.loads(done.stdout)
    assert (found.pop("steps"), found.pop("rounds")) == (20, 5)
    parts = {"step", "timed step", "python step", "run", "run of a team", "call"}
    assert set(found) == parts
    assert min(found.values()) > 0
