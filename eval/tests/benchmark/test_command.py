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
from typer.testing import Result

from eval import bench
from eval.tests.benchmark.support import fakes, json_of, product, relu, task_of
from tests.libraries import command
from vtensor import load_onnx
from vtensor.benchmark import plot as drawing
from vtensor.benchmark.ours import VTensor
from vtensor.benchmark.race import OURS
from vtensor.benchmark.report import Case
from vtensor.commands.bench import PEERS
from vtensor.errors import InputError, PeerError

QUICK = ("--rounds", "2", "--seconds", "0.002", "--threads", "1")

#: Keys of a row, by the type of their values.
KEYS = {
    str: ("model", "group", "peer", "precision", "status"),
    float: ("difference", "load_s", "first_s"),
    int: ("peak_bytes", "conversions"),
    dict: ("times", "limits_s", "ratio"),
    list: ("rounds_s",),
}
MAY_BE_NONE = {"version", "reason", "no_limits", "python_steps"}


@pytest.fixture(autouse=True)
def peers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made-up peers are known, too."""
    for name, place in fakes("Agrees", "Disagrees", "Absent", "SaysNothing", "HasNoLimits").items():
        monkeypatch.setitem(PEERS, name, place)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A network of one Relu."""
    return relu(tmp_path)


def vtensor(*arguments: object) -> Result:
    """Run ``vtensor bench``."""
    return command.vtensor("bench", *arguments)


def shown(*arguments: object) -> Result:
    """Run ``vtensor bench`` quickly; it must not fail."""
    ran = vtensor(*arguments, *QUICK)
    assert ran.exit_code == 0, ran.output
    return ran


def report(*arguments: object) -> Any:
    """Return what a quick ``vtensor bench`` says as JSON."""
    return json.loads(shown(*arguments, "--json").stdout)


def test_throughput_is_measured_side_by_side(file: Path) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("openvino")
    many = ("--hint", "throughput", "--rounds", 2, "--seconds", 0.02, "--threads", 2)
    data = command.data_of("bench", file, *many)
    assert data["settings"]["hint"] == "throughput"
    assert [row["peer"] for row in data["rows"]] == ["vtensor", "openvino", "onnxruntime"]
    assert all(row["times"]["median_s"] > 0 for row in data["rows"])


def test_json_has_all_of_it(file: Path) -> None:
    pytest.importorskip("onnxruntime")
    data = report(file, "--peers", "onnxruntime", "--seed", 3)
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


def test_models_have_a_mean(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    data = report(file, relu(other), "--peers", "Agrees")
    [mean], logs = data["means"], [math.log(r["ratio"]["value"]) for r in data["rows"]]
    assert mean["models"] == 2
    assert mean["value"] == pytest.approx(math.exp(sum(logs) / 2))
    assert mean["low"] <= mean["value"] <= mean["high"]


def test_the_table_names_peers_that_are_missing_or_have_no_limits(file: Path) -> None:
    ran = shown(file, "--peers", "Agrees,Absent,HasNoLimits")
    assert {"vtensor", "Agrees", "HasNoLimits"} <= set(ran.stdout.split())
    assert "warm" in ran.stdout
    assert "Absent" not in ran.stdout
    assert "relu, f32: Absent skipped: no-such-distribution is not installed" in ran.stderr
    assert "relu, f32: HasNoLimits has no limits: out of luck" in ran.stderr


def test_a_peer_that_disagrees_makes_it_fail(file: Path) -> None:
    ran = vtensor(file, "--peers", "Agrees,Disagrees", *QUICK)
    assert ran.exit_code == 1
    assert "relu, f32: Disagrees disagrees: its outputs are" in ran.stderr
    assert "Agrees" in ran.stdout


def test_times_stay_of_a_peer_that_fails_after_them(file: Path) -> None:
    ran = vtensor(file, "--peers", "SaysNothing", *QUICK, "--json")
    assert ran.exit_code == 1
    row = json.loads(ran.stdout)["rows"][1]
    assert row["status"] == "failed"
    assert row["times"]["runs"] > 0
    assert row["ratio"]["value"] > 0
    assert "SaysNothing failed: NotImplementedError: it does not tell" in ran.stderr
    assert "SaysNothing" in vtensor(file, "--peers", "SaysNothing", *QUICK).stdout


def interrupted(error: BaseException) -> Iterator[Case]:
    """Yield a model, then raise."""
    with TemporaryDirectory() as folder:
        task = task_of(relu(Path(folder)))
        yield Case("relu", task.model, task.feeds)
    raise error


@pytest.mark.parametrize(
    ("error", "code"),
    [(ZeroDivisionError(), 1), (InputError("no more"), 1), (KeyboardInterrupt(), 130)],
)
def test_an_error_between_models_leaves_the_rows_before_it(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "cases", lambda *_: interrupted(error))
    data = json_of(bench.main, "--peers", "Absent", *QUICK, code=code)
    assert data["rows"][0]["status"] == "timed"


def test_our_own_limits_are_shown(file: Path, tmp_path: Path) -> None:
    heavy, light = report(product(tmp_path), file, "--peers", "Absent")["rows"][::2]
    assert heavy["limits_s"].keys() == {"warm", "chain"}
    assert all(seconds > 0 for seconds in heavy["limits_s"].values())
    assert light["limits_s"] == {}


def test_peers_run_as_they_are_installed_at_the_default_precision(file: Path) -> None:
    data = report(file, "--peers", "onnxruntime", "--precision", "default")
    peers = {row["peer"]: (row["precision"], row["status"]) for row in data["rows"]}
    assert peers == {"vtensor": ("f32", "timed"), "onnxruntime": ("default", "timed")}


def test_bf16_is_of_the_peers_alone(file: Path) -> None:
    data = report(file, "--peers", "Agrees,onnxruntime", "--precision", "bf16")
    rows = {row["peer"]: (row["group"], row["precision"], row["status"]) for row in data["rows"]}
    assert rows["vtensor"] == ("bf16", "f32", "timed")
    assert rows["Agrees"] == ("bf16", "bf16", "timed")
    assert rows["onnxruntime"] == ("bf16", "bf16", "skipped")


def test_without_instructions_for_bf16_we_do_not_run_in_it(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tolerance = "vtensor.runtime.planning.tolerance"
    monkeypatch.setattr(f"{tolerance}.has_instructions", lambda _: False)
    with pytest.raises(PeerError, match="no instructions for bf16"):
        VTensor().load(replace(task_of(file), precision="bf16"))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--peers", "openvino,tvm"], "no peer tvm; there are openvino, onnxruntime"),
        (["--precision", "f16"], "no precision f16; there are f32, bf16"),
        (["--hint", "fast"], "no hint fast; there are latency, throughput"),
        (["--threads", "0"], "threads=0 must be an integer from 1"),
        (["--shape", "z=1,4"], "no input 'z'; there are x"),
        ([], "give them, as in shapes="),
        (["--shape", "x=3,4", "--plot", "no/such/folder.png"], "there is no folder no/such"),
        (["--shape", "x=3,4", "none.onnx"], "none.onnx"),
    ],
)
def test_a_wrong_argument_is_named_before_anything_is_timed(
    tmp_path: Path, arguments: list[str], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(OURS, "vtensor", "no.such:Peer")  # nothing is started
    ran = vtensor(relu(tmp_path, "rows"), *arguments)
    assert ran.exit_code == 1
    assert reason in ran.stderr
    assert "Traceback" not in ran.output


def test_a_plot_is_drawn_twice(file: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot = tmp_path / "plot.png"
    shown(file, "--peers", "Agrees,Absent", "--plot", plot)
    assert plot.read_bytes().startswith(b"\x89PNG")
    text = plot.with_suffix(".svg").read_text()
    assert all(word in text for word in ("Agrees", "relu", "geometric mean", "VTensor = 1"))
    assert "Absent" not in text
    alone = tmp_path / "alone.svg"
    shown(file, "--peers", "Absent", "--plot", alone)
    assert alone.is_file(), "a plot is drawn without any peer's time"


def test_without_matplotlib_a_plot_is_refused(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawing, "find_spec", lambda _: None)
    ran = vtensor(file, "--plot", tmp_path / "plot")
    assert ran.exit_code == 1
    assert "--plot needs matplotlib: pip install vtensor-layouts[plot]" in ran.stderr


@pytest.mark.parametrize(("load", "noted"), [(0.5, False), (3.0, True)])
def test_a_busy_machine_is_named(
    file: Path, monkeypatch: pytest.MonkeyPatch, load: float, noted: bool
) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (load, 0.0, 0.0))
    assert ("the load average was" in shown(file, "--peers", "Absent").stderr) == noted


def test_the_networks_are_files_that_hold_their_graphs() -> None:
    [(name, graph, shape)] = [
        (case.name, load_onnx(case.model), case.feeds["image"].shape)
        for case in bench.cases(["mobilenet_v1"], 1, 32)
    ]
    assert (name, graph.name, shape) == ("mobilenet_v1", "mobilenet_v1", (1, 3, 32, 32))
