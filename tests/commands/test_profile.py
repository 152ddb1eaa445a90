"""Profiles: their sums, their report, their trace and their picture."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
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
from vtensor.runtime.tuning.profile import Group, Profile, Work, profile_of
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
        return profile_of([(session.plan, run)], 1, 3)


def text_of(profile: Profile) -> str:
    """Return the report with the three slowest steps."""
    return "\n".join(line.text for line in profile_lines(profile, 3))


def portable(profile: Profile) -> Profile:
    """Return a profile without instruction sets: ``eigen:avx2:copy`` is ``eigen:copy``."""
    steps = tuple(
        replace(step, step=replace(step.step, kernels=tuple(map(plain, step.step.kernels))))
        for step in profile.steps
    )
    calls = tuple((node, library, plain(kernel)) for node, library, kernel in profile.calls)
    return replace(profile, steps=steps, calls=calls)


def plain(kernel: str) -> str:
    return re.sub(r":\w+:", ":", kernel)


def rows(data: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield a line for each entry of JSON data and for each row of its tables."""
    for key, value in data.items():
        items = dict(enumerate(value)) if isinstance(value, list) else value
        if isinstance(items, dict) and all(isinstance(row, dict) for row in items.values()):
            yield from rows(items, f"{path}{key}/")
        else:
            yield f"{path}{key}: {json.dumps(value)}"


def test_report_is_exact(measured: Profile, golden: Golden) -> None:
    golden.check(text_of(portable(measured)))
    times = measured.times.copy()
    for run, call in enumerate((1, 2, 3)):  # each run is disturbed, but each elsewhere
        times[run, call:, 1] += 40_000
        times[run, call + 1 :, 0] += 40_000
    disturbed = text_of(replace(measured, times=times))
    assert "medians of steps add up to 66% of it; what else ran?" in disturbed


def test_data_is_exact(measured: Profile, golden: Golden) -> None:
    golden.check("\n".join(rows(portable(measured).to_dict())))


def test_trace_is_exact(measured: Profile, golden: Golden) -> None:
    """In the Trace Event Format: an event a run, and in it an event a call."""
    golden.check("\n".join(rows(portable(measured).to_trace())))


def test_time_is_that_of_the_slower_of_arithmetic_and_memory(measured: Profile) -> None:
    steps = {step.step.op: step for step in measured.steps}
    assert steps["Relu"].least_ns == 2 * 4 * 4 * 6 * 6 / 2.0
    assert steps["Conv2D"].least_ns == steps["Conv2D"].operations / 1.0
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

    profile = profile_of([(plan, run)], 1, 1)
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
    assert all(event.get("dur", 0) >= 0 for event in profile.to_trace()["traceEvents"])
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
    assert len(json.loads(trace.read_text())["traceEvents"]) == 3 + 2 * (1 + 2)
    ElementTree.fromstring(svg.read_text())
    data = data_of("profile", file, "--runs", 2, "--libraries", "numpy")
    assert data["by_library"].keys() == {"numpy"}
    assert data["overheads"]["Python call-backs"]["steps"] == 2
