"""Profiles: what they add up to, what they are printed, traced and drawn as."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import onnx.parser
import pytest

from ops import Add, AvgPool, BiasAdd, Conv2D, Relu, Reshape, Softmax
from tests.libraries.command import vtensor
from tests.libraries.golden import Golden
from tests.pictures.support import HOSTILE
from vtensor.commands.profile import profile_lines
from vtensor.errors import InputError, SessionClosedError
from vtensor.language.graph import Graph
from vtensor.pictures.timeline import profile_picture
from vtensor.runtime.session import Session
from vtensor.runtime.tuning import profile as profiles
from vtensor.runtime.tuning.peaks import Peaks
from vtensor.runtime.tuning.profile import Group, Profile, ProfiledStep, Work, profile_of
from vtensor.storage.inputs import Array

#: Microseconds from the beginning of a run: its calls, and its end.
CALLS, END = ((10, 14), (15, 55), (55, 80), (90, 95), (95, 97)), 100


def network() -> Graph:
    """A Transform, a convolution, a call-back, a pool, nothing, a row; on Eigen and NumPy."""
    g = Graph("small")
    with g.scope("stem"):
        w = g.constant(np.ones((4, 3, 3, 3), np.float32), "O I h w")
        x = g.add(Conv2D(), g.input("x", {"N": 1, "C": 3, "H": 8, "W": 8}), w)
        x = g.add(AvgPool((6, 6)), g.add(Relu(), x))
    g.output(g.add(Softmax(("K",)), g.add(Reshape((("N", 1), ("K", 4))), x)), "y")
    return g


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """The network, on a machine that makes 1 GFLOP/s and 2 GB/s."""
    monkeypatch.setattr(profiles, "peaks_of", lambda threads: Peaks(1.0, 2.0))
    with Session(network(), libraries=["eigen"], pin={"Relu": "numpy"}, threads=1) as made:
        yield made


@pytest.fixture
def measured(session: Session, monkeypatch: pytest.MonkeyPatch) -> Profile:
    """Three runs; in the second each call takes as given, in the others half and three times it."""
    clock = iter(np.cumsum([1000, 50_000, 1000, 100_000, 1000, 300_000]).tolist())
    scales, begins = iter((0.5, 1, 3)), iter((1000, 52_000, 153_000))

    def run(times: Array) -> None:
        times[:] = np.array(CALLS).reshape(-1) * 1000 * next(scales) + next(begins)

    with monkeypatch.context() as patched:
        patched.setattr(profiles, "perf_counter_ns", lambda: next(clock))
        return profile_of(session.plan, 1, run, 3)


def text_of(profile: Profile) -> str:
    """What is printed, with the three slowest steps."""
    return "\n".join(line.text for line in profile_lines(profile, 3))


def anywhere(step: ProfiledStep) -> ProfiledStep:
    """A step as on any instruction set: ``eigen:avx2:copy`` is ``eigen:copy``."""
    kernels = tuple(re.sub(r":\w+:", ":", kernel) for kernel in step.step.kernels)
    return replace(step, step=replace(step.step, kernels=kernels))


def test_the_report_is_exact(measured: Profile, golden: Golden) -> None:
    golden.check(text_of(replace(measured, steps=tuple(map(anywhere, measured.steps)))))


def test_runs_that_differ_are_said_to(measured: Profile) -> None:
    assert "runs differ" not in text_of(measured)
    times = measured.times.copy()
    for run, call in enumerate((1, 2, 3)):  # each run is disturbed, but each elsewhere
        times[run, call:, 1] += 40_000
        times[run, call + 1 :, 0] += 40_000
    disturbed = replace(measured, times=times)
    assert "medians of steps add up to 66% of it; what else ran?" in text_of(disturbed)


def test_what_a_run_is_made_of(measured: Profile) -> None:
    assert measured.run_ns == END * 1000
    assert list(measured.gaps) == [10_000, 11_000, 3000]
    assert sum(measured.gaps) + measured.busy_ns == measured.run_ns
    assert [one.ns for one in measured.steps] == [(end - begin) * 1000 for begin, end in CALLS]
    assert measured.total.ns == measured.busy_ns
    for key in (lambda step: step.op, lambda step: step.library):
        assert sum(group.ns for group in measured.by(key).values()) == measured.busy_ns


def test_operations_and_bytes_are_those_of_the_nodes(measured: Profile) -> None:
    steps = {one.step.op: one for one in measured.steps}
    made, image = 4 * 6 * 6, 3 * 8 * 8
    assert steps["Conv2D"].operations == 2 * made * 3 * 3 * 3
    assert steps["Conv2D"].bytes == 4 * (image + 4 * 3 * 3 * 3 + made)
    assert steps["Transform"].operations == 0
    assert steps["Transform"].bytes == 2 * 4 * image
    assert steps["Relu"].operations == made
    assert steps["Relu"].least_ns == 2 * 4 * made / 2.0  # memory takes longer than arithmetic
    assert steps["Conv2D"].least_ns == steps["Conv2D"].operations / 1.0  # and here the other way
    assert "Reshape" not in steps, "nothing runs there"


def test_what_is_fused_behind_an_operator_counts() -> None:
    g = Graph("fused")
    x = g.input("x", {"N": 1, "C": 16, "H": 8, "W": 8})
    w = g.constant(np.ones((16, 16, 1, 1), np.float32), "O I h w")
    bias = g.constant(np.ones(16, np.float32), "C")
    y = g.add(Relu(), g.add(Add(), g.add(BiasAdd(), g.add(Conv2D(), x, w), bias), x))
    g.output(y, "y")
    with Session(g, libraries=["onednn"]) as session, Session(g, optimize="none") as apart:
        fused, alone = session.profile(runs=1), apart.profile(runs=1)
    [step] = [one for one in fused.steps if one.operations]
    assert step.step.op == "Conv2D + BiasAdd + Add + Relu"
    assert step.operations == alone.total.operations == 16 * 64 * (2 * 16 + 3)
    assert step.bytes == 4 * (2 * 16 * 64 + 16 * 16 + 16)  # x, which is added too, is read once


def test_a_node_of_several_calls_is_one_step(session: Session) -> None:
    plan = session.plan
    again = (*plan.recorded, replace(plan.recorded[0], kernel="again"))
    plan.nodes = replace(plan.nodes, recorded=again)

    def run(times: Array) -> None:
        times.reshape(-1, 2)[:, 1] = 7

    found = profile_of(plan, 1, run, 1)
    assert [one.ns for one in found.steps] == [14, 7, 7, 7, 7]
    assert found.steps[0].step.kernels[1] == "again"


def test_without_peaks_nothing_is_said_of_them(measured: Profile) -> None:
    steps = tuple(replace(one, least_ns=None) for one in measured.steps)
    found = replace(measured, peaks=None, steps=steps)
    assert "no library is there" in text_of(found)
    assert "%" not in text_of(found).splitlines()[-1].split()[-1], "the column is empty"
    assert found.to_dict()["peaks"] is None
    assert found.to_dict()["total"]["of_peak"] is None
    assert "of peak" not in profile_picture(found)


def test_steps_far_from_their_peak_are_looked_at_first(measured: Profile) -> None:
    """Those that lose most come first; what hardly takes time, or is fast enough, is left out."""
    assert [one.step.op for one in measured.weak] == [
        *("Conv2D", "Relu", "AvgPool", "Transform", "Softmax")
    ]
    assert measured.to_dict()["weak"][0] == "stem/Conv2D:0"
    conv, *others = (one for one in measured.steps if one.step.op in ("Conv2D", "Relu"))
    fast = replace(conv, least_ns=conv.ns / 4)
    short = replace(measured.steps[-1], ns=0.001 * conv.ns)
    assert replace(measured, steps=(fast, *others, short)).weak == tuple(others)
    unknown = replace(measured, steps=(replace(conv, least_ns=None),))
    assert unknown.weak == ()
    assert "look here first" not in text_of(unknown)
    assert "look here first" in text_of(measured)


def test_no_time_is_no_rate() -> None:
    nothing = Group.of([])
    assert (nothing.gflops, nothing.gbytes, nothing.of_peak) == (0, 0, None)
    assert Work(10, 30, 20, 5).gflops == 3
    assert Work(10, 30, 20, 5).of_peak == 0.5


def test_a_real_run_holds_its_calls(session: Session) -> None:
    found = session.profile(runs=4)
    assert found.times.shape == (4, len(session.plan.recorded), 2)
    for wall, calls in zip(found.runs.tolist(), found.times.reshape(4, -1).tolist(), strict=True):
        moments = [wall[0], *calls, wall[1]]
        assert moments == sorted(moments), "one after another, between beginning and end"
    assert all(ended <= begun for (_, ended), (begun, _) in pairwise(found.runs.tolist()))
    assert 0 < found.busy_ns <= found.run_ns


def test_a_network_that_does_nothing_is_all_gap() -> None:
    g = Graph("idle")
    g.output(g.input("x", {"N": 2}), "y")
    with Session(g) as session:
        found = session.profile(runs=2)
    assert not found.calls
    assert not found.steps
    assert sum(found.gaps) == found.run_ns > 0
    assert "by operator" in text_of(found)
    ElementTree.fromstring(profile_picture(found))


def test_inputs_are_given_or_made_up(session: Session) -> None:
    x = np.zeros((1, 3, 8, 8), np.float32)
    assert session.profile({"x": x}, runs=1).calls
    with pytest.raises(InputError, match="unknown: z"):
        session.profile({"z": x}, runs=1)
    with pytest.raises(InputError, match="shape"):
        session.profile({"x": x[0]}, runs=1)


def test_open_sizes_are_to_be_given() -> None:
    g = Graph("open")
    g.output(g.add(Relu(), g.input("x", {"N": None})), "y")
    with Session(g) as session:
        with pytest.raises(InputError, match="input 'x' has open sizes: give x : f32 N="):
            session.profile()
        assert session.profile({"x": np.ones(5, np.float32)}, runs=1).total.operations == 5


@pytest.mark.parametrize("runs", [0, -1, True, 2.0, "3", None])
def test_runs_are_a_number(session: Session, runs: Any) -> None:
    with pytest.raises(InputError, match="must be an integer of at least 1"):
        session.profile(runs=runs)


def test_a_closed_session_has_no_profile(session: Session) -> None:
    session.close()
    with pytest.raises(SessionClosedError):
        session.profile()


WORK = {"ns", "share", "operations", "bytes", "gflops", "gbytes", "of_peak"}


def test_data_has_a_schema(measured: Profile) -> None:
    data = json.loads(json.dumps(measured.to_dict()))
    assert data.keys() == {
        *("model", "threads", "runs", "run_ns", "busy_ns", "gaps_ns", "peaks", "total"),
        *("overheads", "weak", "by_operator", "by_library", "steps"),
    }
    assert data["run_ns"] == {"median": 100_000, "min": 50_000, "max": 300_000}
    assert data["gaps_ns"] == {"before": 10_000, "between": 11_000, "after": 3000, "share": 0.24}
    assert data["peaks"] == {"gflops": 1, "gbytes": 2}
    assert data["by_library"].keys() == {"eigen", "numpy"}
    assert data["overheads"].keys() == {"conversions", "Python call-backs", "reference kernels"}
    groups = [data["total"]]
    groups += [
        one for key in ("overheads", "by_operator", "by_library") for one in data[key].values()
    ]
    assert all(group.keys() == {"steps", *WORK} for group in groups)
    assert [step["operator"] for step in data["steps"]] == [one.step.op for one in measured.steps]
    for step in data["steps"]:
        assert step.keys() == {"node", "operator", "library", "kernels", "layouts", *WORK}
    assert sum(one["share"] for one in data["steps"]) + data["gaps_ns"]["share"] == pytest.approx(1)


def faults(trace: dict[str, Any]) -> Iterator[str]:
    """What the Trace Event Format does not allow, or what would be shown wrongly."""
    rows: dict[tuple[int, int], float] = {}
    for event in trace["traceEvents"]:
        if not {"name", "ph", "pid", "tid"} <= event.keys() or event["ph"] not in ("X", "M"):
            yield f"no event: {event}"
        elif event["ph"] == "M" and not isinstance(event["args"]["name"], str):
            yield f"no name: {event}"
        elif event["ph"] == "X":
            row = event["pid"], event["tid"]
            if not (event.get("dur", -1) >= 0 and isinstance(event["ts"], float)):
                yield f"no time: {event}"
            elif event["ts"] + 1e-6 < rows.get(row, 0):  # microseconds; less than a nanosecond
                yield f"overlaps what is before it: {event}"
            else:
                rows[row] = event["ts"] + event["dur"]


def test_a_trace_is_as_its_format_says(measured: Profile, session: Session) -> None:
    for found in (measured, session.profile(runs=3)):
        trace = json.loads(json.dumps(found.to_trace()))
        assert list(faults(trace)) == []
        events = [one for one in trace["traceEvents"] if one["ph"] == "X"]
        assert len(events) == 3 + 3 * len(CALLS)
        for run in (one for one in events if one["name"].startswith("run ")):
            end = run["ts"] + run["dur"]
            held = [one for one in events if run["ts"] <= one["ts"] < end and one is not run]
            assert len(held) == len(CALLS)
            assert all(one["ts"] + one["dur"] <= end + 1e-6 for one in held)
    names = [one["name"] for one in trace["traceEvents"] if one["ph"] == "M"]
    assert names == ["process_name", "thread_name", "thread_name"]


def test_a_trace_says_what_runs(measured: Profile) -> None:
    events = measured.to_trace()["traceEvents"]
    [first, *_] = [one for one in events if one["name"] == "Conv2D"]
    assert (first["ts"], first["dur"], first["cat"]) == (7.5, 20.0, "eigen")
    args = first["args"]
    assert args["kernel"].endswith(":gemm_convolution")
    assert (args["node"], args["layouts"]) == ("stem/Conv2D:0", "NHWC, hwIO -> NHWC")
    assert (args["operations"], args["bytes"]) == (7776, 1776)


@pytest.mark.parametrize(
    "change",
    [{"ts": 0.0}, {"dur": -1.0}, {"ts": None}, {"ph": "?"}, {"tid": ...}],
    ids=["overlap", "negative", "no time", "no kind", "no row"],
)
def test_a_fault_in_a_trace_is_found(measured: Profile, change: dict[str, Any]) -> None:
    trace = measured.to_trace()
    event = trace["traceEvents"][-1] | change
    trace["traceEvents"][-1] = {key: value for key, value in event.items() if value is not ...}
    assert len(list(faults(trace))) == 1


def test_a_picture_has_a_bar_an_operator_and_a_part_a_call(measured: Profile) -> None:
    svg = ElementTree.fromstring(profile_picture(measured))
    texts = [one.text for one in svg.iterfind(".//{*}text")]
    assert {"small: 0.10 ms", "Conv2D", "Transform", "gaps", "40.0%", "24.0%"} <= set(texts)
    hints = [one.text or "" for one in svg.iterfind(".//{*}title")]
    assert len(hints) == len(CALLS)
    assert hints[2] == "stem/Relu:0: Relu on numpy, python, 25.0 µs"
    widths = [float(one.attrib["width"]) for one in svg.iterfind(".//{*}rect") if len(one)]
    assert sum(widths) == pytest.approx((1080 - 80) * 0.76)


def test_hostile_names_are_text(measured: Profile) -> None:
    for name in HOSTILE:
        svg = ElementTree.fromstring(profile_picture(replace(measured, name=name)))
        assert not svg.findall(".//{*}script")


SMALL = """<ir_version: 8, opset_import: ["" : 17]> small
(float[1, 4] x) => (float[1, 4] y) { s = Softmax(x) y = Relu(s) }"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A model of two nodes."""
    file = tmp_path / "small.onnx"
    onnx.save(onnx.parser.parse_model(SMALL), str(file))
    return file


def test_the_command_prints_traces_and_draws(small: Path, tmp_path: Path) -> None:
    trace, svg = tmp_path / "out.json", tmp_path / "out.svg"
    ran = vtensor(
        "profile", small, "--runs", 2, "--threads", 1, "--trace", trace, "--svg", svg, "--top", 1
    )
    assert ran.exit_code == 0, ran.output
    assert "median of 2 runs on 1 thread" in ran.stdout
    assert re.search(r"machine: \d+ GFLOP/s", ran.stdout)
    assert "the slowest 1 of 2" in ran.stdout
    assert list(faults(json.loads(trace.read_text()))) == []
    ElementTree.fromstring(svg.read_text())
    data = json.loads(
        vtensor("profile", small, "--runs", 2, "--libraries", "numpy", "--json").stdout
    )
    assert data["by_library"].keys() == {"numpy"}
    assert data["overheads"]["Python call-backs"]["steps"] == 2
