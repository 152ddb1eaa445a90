"""The fuzz finds what is planted, repeats what it made, and finds nothing for a while."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from tests.fuzz import __main__ as command
from tests.fuzz.attempt import attempt
from tests.fuzz.campaign import Campaign, Case
from tests.fuzz.mutate import mutated
from tests.fuzz.planted import CRASH, HANG, RIGHT, UNTYPED, planted
from tests.fuzz.seeds import corpus
from tests.libraries.slow import ALL
from vtensor.runtime.session import Session


def test_what_is_planted_is_found(tmp_path: Path) -> None:
    campaign = Campaign([], 3, tmp_path, planted, processes=1, limit_s=1.0)
    models = [RIGHT, CRASH, RIGHT, HANG, UNTYPED, RIGHT]
    cases = (Case(model, 3, index) for index, model in enumerate(models))
    list(campaign.over(cases, 60))
    assert campaign.counts == {"ran": 3, "crash": 1, "hang": 1, "untyped": 1}
    crash, hang, untyped = campaign.findings
    assert crash.kind == "crash"
    assert crash.detail.startswith("SIGSEGV Fatal Python error")
    assert "in planted" in crash.detail
    assert hang.kind == "hang"
    assert "in planted" in hang.detail
    assert (untyped.kind, untyped.detail) == ("untyped", "planted")
    assert Case.read(hang.file) == Case(HANG, 3, 3)


def test_a_saved_case_is_repeated_by_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "attempt", planted)
    file = tmp_path / "untyped-3-4.onnx"
    file.write_bytes(UNTYPED)
    app = typer.Typer()
    app.command()(command.main)
    arguments = ["--replay", str(file), "--folder", str(tmp_path)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert f"untyped: planted\n  python -m tests.fuzz --replay {file}\n" in result.output
    file.write_bytes(RIGHT)
    assert CliRunner().invoke(app, arguments).exit_code == 0


def test_a_seed_makes_the_same_cases_and_they_differ() -> None:
    models = corpus(suite=False)
    made = [Case.make(models, 5, index) for index in range(50)]
    assert made == [Case.make(models, 5, index) for index in range(50)]
    assert len({case.model for case in made}) > 40


def test_what_is_changed_was_right_before() -> None:
    models = corpus(suite=False)
    outcomes = [attempt(model, seed)[0] for seed, model in enumerate(models[::4])]
    assert outcomes.count("ran") > len(outcomes) / 2, outcomes
    changed = [mutated(np.random.default_rng(index), models[-1]) for index in range(60)]
    outcomes = [attempt(model, seed)[0] for seed, model in enumerate(changed)]
    assert {"ran", "refused"} == set(outcomes)


def test_an_untyped_error_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: object, **named: object) -> None:
        raise KeyError("planted")

    monkeypatch.setattr(Session, "run", fail)
    assert attempt(corpus(suite=False)[-1], 0)[0] == "untyped"


def test_nothing_is_found(tmp_path: Path) -> None:
    campaign = Campaign(corpus(suite=False), 1, tmp_path, attempt)
    for _ in campaign.run(10.0 if ALL else 60.0):
        if not ALL and min(campaign.counts["ran"], campaign.counts["refused"]) > 30:
            break
    assert [(finding.kind, finding.detail) for finding in campaign.findings] == []
    assert campaign.counts["ran"] > 20
    assert campaign.counts["refused"] > 20
