"""Profiles: their sums, their report, their trace and their picture."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest

from ops import Add, AvgPool, BiasAdd, Conv2D, Relu, Reshape, Softmax
from tests.frontends.support import model
from tests.libraries.command import data_of, vtensor
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
    """Return a Transform, a convolution, a call-back, a pool, a view, a row; on Eigen and NumPy."""
    g = Graph("small")
    with g.scope("stem"):
        w = g.constant(np.ones((4, 3, 3, 3), np.float32), "O I h w")
        x = g.add(Conv2D(), g.input("x", {"N": 1, "C": 3, "H": 8, "W": 8}), w)
        x = g.add(AvgPool((6, 6)), g.add(Relu(), x))
    g.output(g.add(Softmax(("K",)), g.add(Reshape((("N", 1), ("K", 4))), x)), "y")
    return g


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """Open the network on a machine with peaks of 1 GFLOP/s and 2 GB/s."""
    monkeypatch.setattr(profiles, "peaks_of", lambda threads: Peaks(1.0, 2.0))
    with Session(network(), libraries=["eigen"], pin={"Relu": "numpy"}, threads=1) as session:
        yield session


@pytest.fixture
def measured(session: Session, monkeypatch: pytest.MonkeyPatch) -> Profile:
    """Profile three runs: the calls take half the times of ``CALLS``, these times, and three times
    as much.
    """
    clock = iter(np.cumsum([1000, 50_000, 1000, 100_000, 1000, 300_000]).tolist())
    scales, begins = iter((0.5, 1, 3)), iter((1000, 52_000, 153_000))

    def run(times: Array) -> None:
        times[:] = np.array(CALLS).reshape(-1) * 1000 * next(scales) + next(begins)

    with monkeypatch.context() as patched:
        patched.setattr(profiles, "perf_counter_ns", lambda: next(clock))
        return profile_of(session.plan, 1, run, 3)


def text_of(profile: Profile) -> str:
    """Return the report with the three slowest steps."""
    return "\n".join(line.text for line in profile_lines(profile, 3))


def portable(step: ProfiledStep) -> ProfiledStep:
    """Return a step without its instruction set: ``eigen:avx2:copy`` is ``eigen:copy``."""
    kernels = tuple(re.sub(r":\w+:", ":", kernel) for kernel in step.step.kernels)
    return replace(step, step=replace(step.step, kernels=kernels))


def test_report_is_exact(measured: Profile, golden: Golden) -> None:
    golden.check(text_of(replace(measured, steps=tuple(map(portable, measured.steps)))))
    times = measured.times.copy()
    for run, call in enumerate((1, 2, 3)):  # each run is disturbed, but each elsewhere
        times[run, call:, 1] += 40_000
        times[run, call + 1 :, 0] += 40_000
    disturbed = text_of(replace(measured, times=times))
    assert "medians of steps add up to 66% of it; what else ran?" in disturbed


def test_run_is_the_sum_of_its_calls_and_gaps(measured: Profile) -> None:
    assert measured.run_ns == END * 1000
    assert list(measured.gaps) == [10_000, 11_000, 3000]
    assert sum(measured.gaps) + measured.busy_ns == measured.run_ns
    assert [step.ns for step in measured.steps] == [(end - begin) * 1000 for begin, end in CALLS]
    assert measured.total.ns == measured.busy_ns
    for key in (lambda step: step.op, lambda step: step.library):
        assert sum(group.ns for group in measured.by(key).values()) == measured.busy_ns


def test_operations_and_bytes_are_those_of_the_nodes(measured: Profile) -> None:
    steps = {step.step.op: step for step in measured.steps}
    made, image = 4 * 6 * 6, 3 * 8 * 8
    assert steps["Conv2D"].operations == 2 * made * 3 * 3 * 3
    assert steps["Conv2D"].bytes == 4 * (image + 4 * 3 * 3 * 3 + made)
    assert steps["Transform"].operations == 0
    assert steps["Transform"].bytes == 2 * 4 * image
    assert steps["Relu"].operations == made
    assert steps["Relu"].least_ns == 2 * 4 * made / 2.0  # memory takes longer than arithmetic
    assert steps["Conv2D"].least_ns == steps["Conv2D"].operations / 1.0  # and here the other way
    assert "Reshape" not in steps, "nothing runs there"
    nothing = Group.of([])
    assert (nothing.gflops, nothing.gbytes, nothing.of_peak) == (0, 0, None)
    assert (Work(10, 30, 20, 5).gflops, Work(10, 30, 20, 5).of_peak) == (3, 0.5)


def test_operations_of_fused_operators_count() -> None:
    g = Graph("fused")
    x = g.input("x", {"N": 1, "C": 16, "H": 8, "W": 8})
    w = g.constant(np.ones((16, 16, 1, 1), np.float32), "O I h w")
    bias = g.constant(np.ones(16, np.float32), "C")
    y = g.add(Relu(), g.add(Add(), g.add(BiasAdd(), g.add(Conv2D(), x, w), bias), x))
    g.output(y, "y")
    with Session(g, libraries=["onednn"]) as session, Session(g, optimize="none") as apart:
        fused, alone = session.profile(runs=1), apart.profile(runs=1)
    [step] = [step for step in fused.steps if step.operations]
    assert step.step.op == "Conv2D + BiasAdd + Add + Relu"
    assert step.operations == alone.total.operations == 16 * 64 * (2 * 16 + 3)
    assert step.bytes == 4 * (2 * 16 * 64 + 16 * 16 + 16)  # x, which is added too, is read once


def test_node_of_several_calls_is_one_step(session: Session) -> None:
    plan = session.plan
    again = (*plan.recorded, replace(plan.recorded[0], kernel="again"))
    plan.nodes = replace(plan.nodes, recorded=again)

    def run(times: Array) -> None:
        times.reshape(-1, 2)[:, 1] = 7

    profile = profile_of(plan, 1, run, 1)
    assert [step.ns for step in profile.steps] == [14, 7, 7, 7, 7]
    assert profile.steps[0].step.kernels[1] == "again"


def test_profile_without_peaks_has_no_shares_of_them(measured: Profile) -> None:
    steps = tuple(replace(step, least_ns=None) for step in measured.steps)
    profile = replace(measured, peaks=None, steps=steps)
    text, data = text_of(profile), profile.to_dict()
    assert "no library is there" in text
    assert "%" not in text.splitlines()[-1].split()[-1], "the column is empty"
    assert data["peaks"] is data["total"]["of_peak"] is None
    assert "of peak" not in profile_picture(profile)
    assert profile.weak == ()
    assert "look here first" not in text


def test_weak_steps_are_those_that_lose_most(measured: Profile) -> None:
    """A step that hardly takes time, or is fast enough, is left out."""
    operators = ["Conv2D", "Relu", "AvgPool", "Transform", "Softmax"]
    assert [step.step.op for step in measured.weak] == operators
    assert measured.to_dict()["weak"][0] == "stem/Conv2D:0"
    assert "look here first" in text_of(measured)
    conv, *others = (step for step in measured.steps if step.step.op in ("Conv2D", "Relu"))
    fast = replace(conv, least_ns=conv.ns / 4)
    short = replace(measured.steps[-1], ns=0.001 * conv.ns)
    assert replace(measured, steps=(fast, *others, short)).weak == tuple(others)


def test_calls_of_a_real_run_are_inside_of_it(session: Session) -> None:
    profile = session.profile({"x": np.zeros((1, 3, 8, 8), np.float32)}, runs=4)
    assert profile.times.shape == (4, len(session.plan.recorded), 2)
    for wall, calls in zip(
        profile.runs.tolist(), profile.times.reshape(4, -1).tolist(), strict=True
    ):
        moments = [wall[0], *calls, wall[1]]
        assert moments == sorted(moments)
    assert all(ended <= begun for (_, ended), (begun, _) in pairwise(profile.runs.tolist()))
    assert 0 < profile.busy_ns <= profile.run_ns


def test_run_without_calls_is_all_gap() -> None:
    g = Graph("idle")
    g.output(g.input("x", {"N": 2}), "y")
    with Session(g) as session:
        profile = session.profile(runs=2)
    assert not profile.calls
    assert not profile.steps
    assert sum(profile.gaps) == profile.run_ns > 0
    assert "by operator" in text_of(profile)
    ElementTree.fromstring(profile_picture(profile))


def test_wrong_arguments_are_typed_errors(session: Session) -> None:
    x = np.zeros((1, 3, 8, 8), np.float32)
    wrong: Any
    for feeds, text in (({"z": x}, "unknown: z"), ({"x": x[0]}, "shape")):
        with pytest.raises(InputError, match=text):
            session.profile(feeds, runs=1)
    for wrong in (0, -1, True, 2.0, "3", None):
        with pytest.raises(InputError, match="must be an integer of at least 1"):
            session.profile(runs=wrong)
    session.close()
    with pytest.raises(SessionClosedError):
        session.profile()
    g = Graph("open")
    g.output(g.add(Relu(), g.input("x", {"N": None})), "y")
    with Session(g) as session:
        with pytest.raises(InputError, match="input 'x' has open sizes: give x : f32 N="):
            session.profile()
        assert session.profile({"x": np.ones(5, np.float32)}, runs=1).total.operations == 5


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
    groups = [data[key].values() for key in ("overheads", "by_operator", "by_library")]
    for group in (data["total"], *chain(*groups)):
        assert group.keys() == {"steps", *WORK}
    assert [row["operator"] for row in data["steps"]] == [step.step.op for step in measured.steps]
    for row in data["steps"]:
        assert row.keys() == {"node", "operator", "library", "kernels", "layouts", *WORK}
    shares = sum(row["share"] for row in data["steps"])
    assert shares + data["gaps_ns"]["share"] == pytest.approx(1)


def faults(trace: dict[str, Any]) -> Iterator[str]:
    """Yield what the Trace Event Format does not allow, or a viewer would show wrongly."""
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


def test_trace_has_an_event_a_call_inside_of_its_run(measured: Profile, session: Session) -> None:
    for profile in (session.profile(runs=3), measured):
        trace = json.loads(json.dumps(profile.to_trace()))
        assert list(faults(trace)) == []
        events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
        assert len(events) == 3 + 3 * len(CALLS)
        for run in (event for event in events if event["name"].startswith("run ")):
            end = run["ts"] + run["dur"]
            calls = [event for event in events if run["ts"] <= event["ts"] < end]
            assert len(calls) == 1 + len(CALLS)
            assert all(event["ts"] + event["dur"] <= end + 1e-6 for event in calls)
    names = [event["name"] for event in trace["traceEvents"] if event["ph"] == "M"]
    assert names == ["process_name", "thread_name", "thread_name"]
    first = next(event for event in events if event["name"] == "Conv2D")
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
def test_fault_in_a_trace_is_found(measured: Profile, change: dict[str, Any]) -> None:
    trace = measured.to_trace()
    event = trace["traceEvents"][-1] | change
    trace["traceEvents"][-1] = {key: value for key, value in event.items() if value is not ...}
    assert len(list(faults(trace))) == 1


def test_picture_has_a_bar_an_operator_and_a_part_a_call(measured: Profile) -> None:
    svg = ElementTree.fromstring(profile_picture(measured))
    texts = {element.text for element in svg.iterfind(".//{*}text")}
    assert {"small: 0.10 ms", "Conv2D", "Transform", "gaps", "40.0%", "24.0%"} <= texts
    hints = [element.text or "" for element in svg.iterfind(".//{*}title")]
    assert len(hints) == len(CALLS)
    assert hints[2] == "stem/Relu:0: Relu on numpy, python, 25.0 µs"
    bars = [bar for bar in svg.iterfind(".//{*}rect") if len(bar)]
    assert sum(float(bar.attrib["width"]) for bar in bars) == pytest.approx((1080 - 80) * 0.76)
    for name in HOSTILE:
        svg = ElementTree.fromstring(profile_picture(replace(measured, name=name)))
        assert not svg.findall(".//{*}script")


def test_command_prints_traces_and_draws(tmp_path: Path) -> None:
    file, trace, svg = tmp_path / "small.onnx", tmp_path / "out.json", tmp_path / "out.svg"
    text = "small (float[1, 4] x) => (float[1, 4] y) { s = Softmax(x) y = Relu(s) }"
    onnx.save(model(text), str(file))
    options = ("--runs", 2, "--threads", 1, "--trace", trace, "--svg", svg, "--top", 1)
    ran = vtensor("profile", file, *options)
    assert ran.exit_code == 0, ran.output
    assert "median of 2 runs on 1 thread" in ran.stdout
    assert re.search(r"machine: \d+ GFLOP/s", ran.stdout)
    assert "the slowest 1 of 2" in ran.stdout
    assert list(faults(json.loads(trace.read_text()))) == []
    ElementTree.fromstring(svg.read_text())
    data = data_of("profile", file, "--runs", 2, "--libraries", "numpy")
    assert data["by_library"].keys() == {"numpy"}
    assert data["overheads"]["Python call-backs"]["steps"] == 2
