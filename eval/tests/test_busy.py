"""The experiment on a busy machine: what is measured, not how fast it is."""

from __future__ import annotations

import os
import re
from contextlib import nullcontext
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from eval import busy
from eval.busy import CONDITIONS, Row, engines
from eval.quota import PROCESSES, Group, limited
from eval.tests.benchmark.support import fakes, json_of, relu
from vtensor.benchmark.race import Contender
from vtensor.commands import bench as command
from vtensor.errors import InputError


def measured(model: Path, *options: str) -> Any:
    """Return what the experiment prints for a model, quickly."""
    quick = ("--rounds", "2", "--seconds", "0.02", "--threads", "1")
    return json_of(busy.main, model, *options, *quick)


@pytest.fixture(autouse=True)
def _warm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(busy, "WARMS", 0.02)


def test_each_engine_is_timed_in_each_condition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, place in fakes("Agrees", "Absent").items():
        monkeypatch.setitem(command.PEERS, name, place)
    rows = measured(relu(tmp_path), "--peers", "Agrees,Absent", "--spin", "5000")["rows"]
    names = ["vtensor", "Agrees", "Absent", "vtensor, spin 5000"]
    assert [row.pop("engine") for row in rows] == names
    assert {row.pop("model") for row in rows} == {"relu"}
    kinds = ("p50", "p99", "p99 / p50")
    figures = {f"{name} {kind}" for name in CONDITIONS for kind in kinds} | {"busy / idle"}
    assert [set(row) for row in rows] == [figures, figures, set(), figures]
    assert all(value > 0 for row in rows for value in row.values())


def group(root: Path, version: int) -> tuple[Path, Path, Path]:
    """Make a control group, a file that puts this process in it, and the mount of groups."""
    mount, membership = root / "mount", root / "membership"
    own = mount / ("own" if version == 2 else "cpu/own")
    own.mkdir(parents=True)
    (own / PROCESSES).touch()
    membership.write_text("0::/own\n" if version == 2 else "3:cpu:/own\n0::/\n")
    return own, membership, mount


#: The files of a group with its quota, by version, for one and a half processors.
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

    def mkdir_of_the_system(folder: Path) -> None:
        mkdir(folder)
        for name in (PROCESSES, *QUOTAS[version]):
            (folder / name).touch()

    monkeypatch.setattr(Path, "mkdir", mkdir_of_the_system)
    monkeypatch.setattr(Path, "rmdir", rmtree)
    with limited(1.5, *places) as quota:
        assert quota.folder.parent == quota.outside == own
        for name, text in QUOTAS[version].items():
            assert (quota.folder / name).read_text() == text
        (own / PROCESSES).write_text("")
        with quota.inside():
            assert (quota.folder / PROCESSES).read_text() == number
            assert not (own / PROCESSES).read_text()
        assert (own / PROCESSES).read_text() == number
    assert not quota.folder.exists()


@pytest.mark.parametrize("version", QUOTAS)
def test_a_quota_that_no_group_can_have_is_an_error(version: int, tmp_path: Path) -> None:
    own, membership, mount = group(tmp_path, version)
    for quota, places, reason in (
        (1.5, (membership, mount), f"made in {own}"),
        (1.5, (mount, membership), "no control groups"),
        (0.0, (membership, mount), "no process runs"),
    ):
        with pytest.raises(InputError, match=re.escape(reason)), limited(quota, *places):
            pass
        assert [*own.iterdir()] == [own / PROCESSES]


def test_engines_under_a_quota_begin_in_its_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    for folder in (inner, outer):
        folder.mkdir()
        (folder / PROCESSES).touch()
    monkeypatch.setattr(busy, "limited", lambda _: nullcontext(Group(inner, outer)))
    entered: list[bool] = []

    def enter(self: Contender, task: object) -> None:
        assert task
        texts = [(folder / PROCESSES).read_text() for folder in (inner, outer)]
        entered.append(bool(texts[0]) and not texts[1])

    monkeypatch.setattr(Contender, "enter", enter)
    measured(relu(tmp_path), "--peers", "", "--quota", "1.5")
    assert entered == [False, True]


def test_the_spin_is_set_for_its_own_process_alone() -> None:
    places = engines({"vtensor": "a:A", "other": "b:B"}, ["7"], 1.0)
    assert {name: dict(place.environment) for name, place in places.items()} == {
        "vtensor": {},
        "other": {},
        "vtensor, spin 7": {"GOMP_SPINCOUNT": "7"},
    }


def test_figures() -> None:
    """Of a turn each; the second has the machine at half its speed."""
    idle = [[0.001, 0.002, 0.003], [0.004, 0.004, 0.004]]
    row = Row("m", "e", turns={"idle": [*idle], "busy": [[0.004], [0.012, 0.012]]})
    wanted = {"idle p50": 3, "idle p99": 4.425, "idle p99 / p50": 1.475}
    wanted |= {"busy p50": 8, "busy p99": 8, "busy p99 / p50": 1, "busy / idle": 2.5}
    assert row.figures() == pytest.approx(wanted)
    assert Row("m", "e").figures() == {}


def test_a_slower_machine_is_no_slow_run() -> None:
    """Half the turns take twice as long: no run among them is far from the usual one."""
    usual = [0.001] * 50
    row = Row("m", "e", turns={"idle": [usual, [2 * seconds for seconds in usual]] * 2})
    assert row.figures()["idle p99 / p50"] == 1
    assert "busy / idle" not in row.figures()
