"""The experiment on a busy machine: what is measured, not how fast it is."""

from __future__ import annotations

import json
import os
import re
from contextlib import nullcontext
from pathlib import Path
from shutil import rmtree

import pytest
from typer import Typer
from typer.testing import CliRunner

from eval import busy
from eval.busy import CONDITIONS, Row, engines
from eval.quota import PROCESSES, Group, limited
from eval.tests.benchmark.support import fakes, relu
from vtensor.benchmark.race import Contender
from vtensor.commands import bench as command
from vtensor.errors import InputError

QUICK = ("--rounds", "2", "--seconds", "0.02", "--threads", "1", "--json")


@pytest.fixture(autouse=True)
def _warm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(busy, "WARMS", 0.02)


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


def group(root: Path, version: int) -> tuple[Path, Path, Path]:
    """A control group, who says that this process is in it, and where groups are mounted."""
    mount, membership = root / "mount", root / "membership"
    own = mount / ("own" if version == 2 else "cpu/own")
    own.mkdir(parents=True)
    (own / PROCESSES).touch()
    membership.write_text("0::/own\n" if version == 2 else "3:cpu:/own\n0::/\n")
    return own, membership, mount


#: The files of a group that say how much it has, by version, for one and a half processors.
QUOTAS = {
    1: {"cpu.cfs_quota_us": "150000", "cpu.cfs_period_us": "100000"},
    2: {"cpu.max": "150000 100000"},
}


@pytest.mark.parametrize("version", QUOTAS)
def test_a_quota_is_a_group_of_either_version(
    version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, *places = group(tmp_path, version)
    mkdir, number = Path.mkdir, str(os.getpid())

    def made(folder: Path) -> None:
        """As the system makes one."""
        mkdir(folder)
        for name in (PROCESSES, *QUOTAS[version]):
            (folder / name).touch()

    monkeypatch.setattr(Path, "mkdir", made)
    monkeypatch.setattr(Path, "rmdir", rmtree)
    with limited(1.5, *places) as found:
        assert found.folder.parent == found.outside == own
        for name, text in QUOTAS[version].items():
            assert (found.folder / name).read_text() == text
        (own / PROCESSES).write_text("")
        with found.inside():
            assert (found.folder / PROCESSES).read_text() == number
            assert not (own / PROCESSES).read_text()
        assert (own / PROCESSES).read_text() == number
    assert not found.folder.exists()


@pytest.mark.parametrize("version", QUOTAS)
def test_where_no_group_can_have_a_quota_that_is_said(version: int, tmp_path: Path) -> None:
    own, *places = group(tmp_path, version)
    membership, mount = places
    with pytest.raises(InputError, match=re.escape(f"made in {own}")), limited(1.5, *places):
        pass
    assert [*own.iterdir()] == [own / PROCESSES]
    with pytest.raises(InputError, match="no control groups"), limited(1.5, mount, membership):
        pass
    with pytest.raises(InputError, match="no process runs"), limited(0.0, *places):
        pass


def test_under_a_quota_engines_have_processes_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Begun in the group."""
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    for folder in (inner, outer):
        folder.mkdir()
        (folder / PROCESSES).touch()
    monkeypatch.setattr(busy, "limited", lambda _: nullcontext(Group(inner, outer)))
    entered: list[bool] = []

    def enter(self: Contender, task: object) -> None:
        assert task
        entered.append(
            bool((inner / PROCESSES).read_text()) and not (outer / PROCESSES).read_text()
        )

    monkeypatch.setattr(Contender, "enter", enter)
    app = Typer()
    app.command()(busy.main)
    asked = [str(relu(tmp_path)), "--peers", "", "--quota", "1.5", *QUICK]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    assert entered == [False, True]


def test_turns_are_set_for_their_own_process_alone() -> None:
    found = engines({"vtensor": "a:A", "other": "b:B"}, ["7"], 1.0)
    assert {name: dict(one.environment) for name, one in found.items()} == {
        "vtensor": {},
        "other": {},
        "vtensor, spin 7": {"GOMP_SPINCOUNT": "7"},
    }


def test_figures() -> None:
    """Of a turn each; the second has the machine at half its speed."""
    idle = [[0.001, 0.002, 0.003], [0.004, 0.004, 0.004]]
    row = Row("m", "e", turns={"idle": [*idle], "busy": [[0.004], [0.012, 0.012]]})
    assert row.figures() == pytest.approx(
        {
            "idle p50": 3,
            "idle p99": 4.425,
            "idle p99 / p50": 1.475,
            "busy p50": 8,
            "busy p99": 8,
            "busy p99 / p50": 1,
            "busy / idle": 2.5,
        }
    )
    assert Row("m", "e").figures() == {}


def test_a_slower_machine_is_no_slow_run() -> None:
    """Half the turns take twice as long: no run among them is far from the usual one."""
    usual = [0.001] * 50
    row = Row("m", "e", turns={"idle": [usual, [2 * one for one in usual]] * 2})
    assert row.figures()["idle p99 / p50"] == 1
    assert "busy / idle" not in row.figures()
