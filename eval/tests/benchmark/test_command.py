"""``vtensor bench`` and ``python -m eval.bench``: what they print, and what they refuse."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from eval import bench
from eval.bench import cases
from eval.tests.benchmark.support import fakes, product, relu, task_of
from vtensor import load_onnx
from vtensor.benchmark import plot as drawing
from vtensor.benchmark.ours import VTensor
from vtensor.benchmark.race import OURS
from vtensor.benchmark.report import Case
from vtensor.cli import app
from vtensor.commands import bench as command
from vtensor.errors import InputError, PeerError

QUICK = ("--rounds", "2", "--seconds", "0.002", "--threads", "1")

#: Of a row, by what its value is.
KEYS = {
    str: ("model", "group", "peer", "precision", "status"),
    float: ("difference", "load_s", "first_s"),
    int: ("peak_bytes", "conversions"),
    dict: ("times", "limits_s", "ratio"),
    list: ("rounds_s",),
}
MAY_BE_NONE = {"version", "reason", "no_limits"}


def vtensor(*arguments: object) -> Result:
    """Run the command."""
    return CliRunner().invoke(app, ["bench", *map(str, arguments)])


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made-up peers are known, too."""
    for name, place in fakes("Agrees", "Disagrees", "Absent", "SaysNothing", "HasNoLimits").items():
        monkeypatch.setitem(command.PEERS, name, place)


def report(*arguments: object) -> Any:
    """What the command says as JSON."""
    ran = vtensor(*arguments, *QUICK, "--json")
    assert ran.exit_code == 0, ran.output
    return json.loads(ran.stdout)


def test_throughput_is_measured_side_by_side(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("openvino")
    many = ("--hint", "throughput", "--rounds", 2, "--seconds", 0.02, "--threads", 2)
    ran = vtensor(relu(tmp_path), *many, "--json")
    assert ran.exit_code == 0, ran.output
    data = json.loads(ran.stdout)
    assert data["settings"]["hint"] == "throughput"
    assert [row["peer"] for row in data["rows"]] == ["vtensor", "openvino", "onnxruntime"]
    assert all(row["times"]["median_s"] > 0 for row in data["rows"])


def test_an_unknown_hint_is_refused(tmp_path: Path) -> None:
    ran = vtensor(relu(tmp_path), "--hint", "fast")
    assert ran.exit_code != 0
    assert "no hint fast; there are latency, throughput" in ran.output


def test_json_has_all_of_it(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    data = report(relu(tmp_path), "--peers", "onnxruntime", "--seed", 3)
    assert data.keys() == {"machine", "settings", "rows", "means"}
    assert {"processor", "load_average", "libraries", "environment"} < data["machine"].keys()
    assert data["settings"]["seed"] == 3
    assert data["settings"]["bounds"]["f32"] == 1e-4
    ours, peer = data["rows"]
    assert [ours["peer"], peer["peer"]] == ["vtensor", "onnxruntime"]
    for row in (ours, peer):
        for kind, keys in KEYS.items():
            assert {type(row[key]) for key in keys} == {kind}
        assert row.keys() == {key for keys in KEYS.values() for key in keys} | MAY_BE_NONE
        assert row["times"]["runs"] == sum(map(len, row["rounds_s"]))
    assert ours["ratio"] == {"value": 1, "low": 1, "high": 1}
    assert data["means"] == [{"peer": "onnxruntime", "group": "f32", "models": 1, **peer["ratio"]}]


def test_openvino_runs_too(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    row = report(relu(tmp_path, "rows"), "--peers", "openvino", "--shape", "x=5,4")["rows"][1]
    assert (row["status"], row["difference"]) == ("timed", 0)
    assert row["conversions"] is not None


def test_models_have_a_mean(tmp_path: Path, peers: None) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
    data = report(relu(one), relu(other), "--peers", "Agrees")
    [mean], logs = data["means"], [math.log(r["ratio"]["value"]) for r in data["rows"]]
    assert mean["models"] == 2
    assert mean["value"] == pytest.approx(math.exp(sum(logs) / 2))
    assert mean["low"] <= mean["value"] <= mean["high"]


def test_the_table_names_who_is_missing(tmp_path: Path, peers: None) -> None:
    ran = vtensor(relu(tmp_path), "--peers", "Agrees,Absent", *QUICK)
    assert ran.exit_code == 0, ran.output
    assert {"vtensor", "Agrees"} <= set(ran.stdout.split())
    assert "warm" in ran.stdout
    assert "Absent" not in ran.stdout
    assert "relu, f32: Absent skipped: no-such-distribution is not installed" in ran.stderr


def test_who_disagrees_makes_it_fail(tmp_path: Path, peers: None) -> None:
    ran = vtensor(relu(tmp_path), "--peers", "Agrees,Disagrees", *QUICK)
    assert ran.exit_code == 1
    assert "relu, f32: Disagrees disagrees: its outputs are" in ran.stderr
    assert "Agrees" in ran.stdout


def test_times_stay_of_who_fails_after_them(tmp_path: Path, peers: None) -> None:
    ran = vtensor(relu(tmp_path), "--peers", "SaysNothing", *QUICK, "--json")
    assert ran.exit_code == 1
    row = json.loads(ran.stdout)["rows"][1]
    assert row["status"] == "failed"
    assert row["times"]["runs"] > 0
    assert row["ratio"]["value"] > 0
    assert "SaysNothing failed: NotImplementedError: it does not tell" in ran.stderr
    assert "SaysNothing" in vtensor(relu(tmp_path), "--peers", "SaysNothing", *QUICK).stdout


def interrupted(what: BaseException) -> Iterator[Case]:
    """A model, and then no second one."""
    with TemporaryDirectory() as folder:
        task = task_of(relu(Path(folder)))
        yield Case("relu", task.model, task.feeds)
    raise what


@pytest.mark.parametrize(
    ("what", "code"),
    [(ZeroDivisionError(), 1), (InputError("no more"), 1), (KeyboardInterrupt(), 130)],
)
def test_what_is_raised_between_models_leaves_the_rows_before_it(
    what: BaseException, code: int, peers: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "cases", lambda *_: interrupted(what))
    networks = typer.Typer()
    networks.command()(bench.main)
    ran = CliRunner().invoke(networks, ["--peers", "Absent", *QUICK, "--json"])
    assert ran.exit_code == code
    assert json.loads(ran.stdout)["rows"][0]["status"] == "timed"


def test_limits_that_are_absent_are_named(tmp_path: Path, peers: None) -> None:
    ran = vtensor(relu(tmp_path), "--peers", "HasNoLimits", *QUICK)
    assert ran.exit_code == 0, ran.output
    assert "HasNoLimits" in ran.stdout
    assert "relu, f32: HasNoLimits has no limits: out of luck" in ran.stderr


def test_our_own_limits_are_shown(tmp_path: Path, peers: None) -> None:
    ours = report(product(tmp_path), "--peers", "Absent")["rows"][0]
    assert ours["limits_s"].keys() == {"warm", "chain"}
    assert all(seconds > 0 for seconds in ours["limits_s"].values())
    [nothing_heavy, _] = report(relu(tmp_path), "--peers", "Absent")["rows"]
    assert nothing_heavy["limits_s"] == {}


def test_bf16_is_of_the_peers_alone(tmp_path: Path, peers: None) -> None:
    data = report(relu(tmp_path), "--peers", "Agrees,onnxruntime", "--precision", "bf16")
    found = {row["peer"]: (row["group"], row["precision"], row["status"]) for row in data["rows"]}
    assert found["vtensor"] == ("bf16", "f32", "timed")
    assert found["Agrees"] == ("bf16", "bf16", "timed")
    assert found["onnxruntime"] == ("bf16", "bf16", "skipped")


def test_that_we_have_no_bf16_is_said(tmp_path: Path, peers: None) -> None:
    for precision, said in (("bf16", True), ("f32", False)):
        ran = vtensor(relu(tmp_path), "--peers", "Absent", "--precision", precision, *QUICK)
        assert ("VTensor runs in f32: it has no bf16 yet" in ran.stderr) == said
    with pytest.raises(PeerError, match="no bf16"):
        VTensor().load(replace(task_of(relu(tmp_path)), precision="bf16"))


def test_a_second_model_that_is_not_there_is_said_before_the_first_is_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(OURS, "vtensor", "no.such:Peer")  # nothing is started
    ran = vtensor(relu(tmp_path), tmp_path / "none.onnx")
    assert ran.exit_code == 1
    assert "ModelError" in ran.stderr
    assert "none.onnx" in ran.stderr


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["--peers", "openvino,tvm"], "no peer tvm; there are openvino, onnxruntime"),
        (["--precision", "f16"], "no precision f16; there are f32, bf16"),
        (["--threads", "0"], "threads=0 must be an integer from 1"),
        (["--shape", "z=1,4"], "no input 'z'; there are x"),
        ([], "give them, as in shapes="),
        (["--shape", "x=3,4", "--plot", "no/such/folder.png"], "there is no folder no/such"),
    ],
)
def test_what_cannot_be_is_said_at_once(
    tmp_path: Path, arguments: list[str], wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(OURS, "vtensor", "no.such:Peer")  # nothing is started
    ran = vtensor(relu(tmp_path, "rows"), *arguments)
    assert ran.exit_code == 1
    assert wanted in ran.stderr
    assert "Traceback" not in ran.output


def test_a_plot_is_drawn_twice(tmp_path: Path, peers: None) -> None:
    pytest.importorskip("matplotlib")
    plot = tmp_path / "plot.png"
    ran = vtensor(relu(tmp_path), "--peers", "Agrees,Absent", "--plot", plot, *QUICK)
    assert ran.exit_code == 0, ran.output
    assert plot.read_bytes().startswith(b"\x89PNG")
    text = plot.with_suffix(".svg").read_text()
    assert all(word in text for word in ("Agrees", "relu", "geometric mean", "VTensor = 1"))
    assert "Absent" not in text


def test_a_plot_where_nobody_was_timed_is_drawn_too(tmp_path: Path, peers: None) -> None:
    pytest.importorskip("matplotlib")
    plot = tmp_path / "plot.svg"
    assert vtensor(relu(tmp_path), "--peers", "Absent", "--plot", plot, *QUICK).exit_code == 0
    assert plot.is_file()


def test_without_matplotlib_a_plot_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawing, "find_spec", lambda _: None)
    ran = vtensor(relu(tmp_path), "--plot", tmp_path / "plot")
    assert ran.exit_code == 1
    assert "--plot needs matplotlib: pip install vtensor-layouts[plot]" in ran.stderr


def test_a_busy_machine_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, peers: None
) -> None:
    for load, noted in ((0.5, False), (3.0, True)):
        monkeypatch.setattr("os.getloadavg", lambda load=load: (load, 0.0, 0.0))
        ran = vtensor(relu(tmp_path), "--peers", "Absent", *QUICK)
        assert ("the load average was" in ran.stderr) == noted


def test_the_networks_are_files_that_hold_their_graphs() -> None:
    [case] = [
        (case.name, load_onnx(case.model), case.feeds["image"].shape)
        for case in cases(["mobilenet_v1"], 1, 32)
    ]
    name, graph, shape = case
    assert (name, graph.name, shape) == ("mobilenet_v1", "mobilenet_v1", (1, 3, 32, 32))
