"""Models that run in segments: lock files with a part for each segment, pins, profiles."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.frontends.support import f32, model, runtime, same_as_runtime
from tests.libraries.command import data_of, vtensor
from vtensor import Session
from vtensor.errors import InputError, LockError
from vtensor.runtime.lock.diff import differences
from vtensor.runtime.lock.lock_file import Lock

#: Rows of an image's pixels that are above a threshold, between two numeric parts.
CHOSEN = """g (float[1, 3, 8, 8] x) => (float[n, 4] y, int64[n] i)
    <int64[2] flat = {8, -1}, float least = {0.2}, int64[1] axis = {0}> {
    a = Conv<pads = [1, 1, 1, 1]>(x, w) b = Relu(a) f = Reshape(b, flat)
    t = Transpose<perm = [1, 0]>(f) m = ReduceMean<axes = [1], keepdims = 0>(t)
    c = Greater(m, least) found = NonZero(c) i = Squeeze(found, axis) s = Gather<axis = 0>(t, i)
    h = MatMul(s, w1) r = Relu(h) y = MatMul(r, w2) }"""

#: A branch and a loop, chosen by what is computed.
BRANCHED = """g (float[1, 4, n] x) => (float[b, k, l] y)
    <int64 one = {1}, bool yes = {1}, float none = {0}> {
    h = MatMul(w, x) s = ReduceSum<keepdims = 0>(h) c = Greater(s, none)
    p = If(c) < then_branch = t () => (float[1, 4, n] u) { u = Relu(h) },
        else_branch = e () => (float[1, 4, n] v) { v = Tanh(h) } >
    y = MatMul(w, p) }"""


def chosen(scale: float = 1.0) -> onnx.ModelProto:
    """Return the model ``CHOSEN`` with seeded weights."""
    weights = {"w": f32(8, 3, 3, 3), "w1": scale * f32(8, 16, seed=1), "w2": f32(16, 4, seed=2)}
    return model(CHOSEN, **weights)


def image(scale: float, seed: int = 0) -> Mapping[str, Any]:
    """Return a feed; a larger scale has more rows above the threshold, 0 has none."""
    return {"x": np.float32(scale) * f32(1, 3, 8, 8, seed=seed)}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a lock file of the model ``CHOSEN``."""
    path = tmp_path_factory.mktemp("locks") / "plan.toml"
    with Session(chosen(), threads=1, cache_dir=None) as session:
        session.run(None, image(0.3))
        session.lock().write(path)
    return path


def changed(file: Path, folder: Path, *pairs: tuple[str, str]) -> Path:
    """Return a copy of a file with other texts in place of some, which it has."""
    text = file.read_text()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    (folder / "changed.toml").write_text(text)
    return folder / "changed.toml"


def test_all_segments_follow_the_file_at_every_size(file: Path) -> None:
    proto, sizes = chosen(), set()
    with Session(proto, plan=file, threads=1) as session:
        for turn, scale in enumerate((0.3, 0.3, 0.5, 1, 2)):
            same_as_runtime(session, proto, image(scale, turn), 1e-4)
            sizes.add(session.run(["i"], image(scale, turn))[0].shape)
            assert {plan.origin.way for plan in session.plans} <= {"locked", "in memory"}
            if not turn:
                assert session.lock().text() == file.read_text()
    assert len(sizes) > 2
    assert [*Lock.read(file).segments] == ["first", "rest"]


def test_sizes_for_which_a_library_declines_get_a_plan_and_a_warning(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    proto, ways = chosen(), []
    with Session(proto, plan=file, threads=1) as session:
        for scale in (0, 1, 0):
            same_as_runtime(session, proto, image(scale), 1e-4)
            ways.append(session.plans[1].origin.way)
    assert ways == ["planned", "locked", "in memory"]
    assert len(caplog.records) == 1
    assert "declines" in caplog.text


@pytest.mark.parametrize(
    "options",
    [
        {"optimize": "lho"},
        {"pin": {"MatMul:9": "eigen"}, "libraries": ["onednn", "eigen"]},
        {"tune": True, "tolerance": 1e-3},
        {"output_layouts": {"y": "D8 D6", "i": "ANY"}},
    ],
    ids=lambda options: next(iter(options)),
)
def test_options_that_the_file_fixes(options: dict[str, Any], tmp_path: Path) -> None:
    proto, path = chosen(), tmp_path / "plan.toml"
    with Session(proto, threads=1, **options) as session:
        answers = session.run(None, image(0.3))
        session.lock().write(path)
        kernels = [plan.kernels() for plan in session.plans]
    with Session(proto, plan=path, threads=1, tolerance=1e-3) as again:
        repeated = again.run(None, image(0.3))
        assert [y.tobytes() for y in answers] == [y.tobytes() for y in repeated]
        assert [plan.kernels() for plan in again.plans] == kernels
        same_as_runtime(again, proto, image(1), 1e-2)


def test_a_branch_that_the_file_lacks_gets_a_plan(tmp_path: Path) -> None:
    proto, path = model(BRANCHED, w=np.abs(f32(4, 4))), tmp_path / "plan.toml"
    feeds = [{"x": sign * np.abs(f32(1, 4, 6))} for sign in (1, -1)]
    with Session(proto, threads=1) as session:
        session.run(None, feeds[0])
        session.lock().write(path)
        assert len(Lock.read(path).segments) == 3
    with Session(proto, plan=path, threads=1) as session:
        for feed, taken in zip(feeds, (True, False), strict=True):
            same_as_runtime(session, proto, feed, 1e-5)
            ways = {part.name: part.plan.origin.way for part in session._runner.parts}
            end = "then_branch" if taken else "else_branch"
            way = next(way for name, way in ways.items() if name.endswith(end))
            assert (way == "locked") is taken
        session.lock().write(path)
        with pytest.raises(LockError, match=r"input 'x' is .*; the lock file has"):
            session.run(None, {"x": f32(1, 4, 7)})
    assert len(Lock.read(path).segments) == 4


def test_other_models_are_refused(file: Path, tmp_path: Path) -> None:
    with pytest.raises(LockError, match=r"of another model.*nodes, parameters or constants differ"):
        Session(chosen(2.0), plan=file)
    whole = model("g (float[1, 3, 8, 8] x) => (float[1, 3, 8, 8] y) { y = Relu(x) }")
    with pytest.raises(LockError, match="other inputs or outputs"):
        Session(whole, plan=file)
    one = tmp_path / "one.toml"
    with Session(whole) as session:
        session.lock().write(one)
    counted = model(
        """g (float[1, 3, 8, 8] x) => (float[1, 3, 8, 8] y) {
        n = NonZero(x) s = Shape(n) z = ConstantOfShape(s) d = ReduceSum<keepdims = 0>(z)
        y = Add(x, d) }"""
    )
    with pytest.raises(LockError, match="data decide sizes in it"):
        Session(counted, plan=one)


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ([('library = "onednn"', 'library = "nowhere"')], "nowhere"),
        ([('name = "rest"', 'name = "first"')], "'first' is the name of another segment"),
        ([('name = "rest"', "")], "segment.*name: must be text, and is missing"),
        ([('name = "rest"', 'name = "rest"\nformat = 1')], "format: is no key"),
        ([("[[segment.node]]", "[[segment.nodes]]")], "nodes: is no key"),
        ([("[[segment]]", "[[segments]]"), ("[segment.", "[segments.")], "segments: is no key"),
    ],
)
def test_what_no_longer_holds_is_named(
    pairs: list[tuple[str, str]], said: str, file: Path, tmp_path: Path
) -> None:
    path = changed(file, tmp_path, *pairs)
    with pytest.raises(LockError, match=said), Session(chosen(), plan=path, threads=1) as session:
        session.run(None, image(0.3))


def test_a_fault_of_a_segment_has_its_line(file: Path, tmp_path: Path) -> None:
    lines = file.read_text().split("\n")
    place = next(at for at, line in enumerate(lines) if line == 'name = "MatMul:9"')
    path = changed(file, tmp_path, ('name = "MatMul:9"\n', 'name = "nobody"\n'))
    said = f"changed.toml:{place}: node 'nobody': no such node"
    with Session(chosen(), plan=path, threads=1) as session, pytest.raises(LockError, match=said):
        session.run(None, image(0.3))


def test_lock_and_diff_on_the_command_line(tmp_path: Path) -> None:
    model_file, path = tmp_path / "m.onnx", tmp_path / "plan.toml"
    onnx.save(chosen(), model_file)
    row = data_of("lock", str(model_file), "-o", str(path), "--threads", "1", "--json")
    with Session(model_file, plan=path, threads=1) as session:
        same_as_runtime(session, chosen(), image(1), 1e-4)
        assert row["nodes"] == sum(len(plan.graph.operators) for plan in session.plans)
    assert data_of("diff", str(path), str(model_file), "--json", "--no-costs")["equal"]
    other = changed(path, tmp_path, ('library = "onednn"', 'library = "eigen"'))
    rows = differences(Lock.read(path), Lock.read(other))
    assert {row.name.partition(": ")[0] for row in rows} == {"first", "rest"}


def test_pins_name_nodes_of_any_segment() -> None:
    for node in ("Conv:0", "MatMul:9", "MatMul:11"):
        with Session(chosen(), pin={node: "numpy"}) as session:
            same_as_runtime(session, chosen(), image(1), 1e-4)
            [library] = [
                step.library
                for plan in session.plans
                for step in plan.steps
                if step.node.name == node
            ]
            assert library == "numpy"
    with pytest.raises(InputError, match="pin 'nobody': neither an operator nor a node"):
        Session(chosen(), pin={"nobody": "numpy"})


def test_a_profile_has_the_steps_of_all_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vtensor.runtime.tuning.profile.peaks_of", lambda _: None)
    loop = """g (float[4] x) => (float[4] y) <bool yes = {1}> {
        s = ReduceSum<keepdims = 0>(x) c = Cast<to = 7>(s)
        y = Loop(c, yes, x) < body = b(int64 i, bool d, float[4] s) => (bool e, float[4] t) {
            t = Exp(s) e = Identity(d) } > }"""
    feeds = {"x": np.full(4, 0.5, np.float32)}
    for proto, feed in ((chosen(), image(1)), (model(loop), feeds)):
        with Session(proto) as session:
            profile = session.profile(feed, runs=2)
            steps = [
                step.node.name for plan in session.plans for step in plan.steps if step.kernels
            ]
            assert [step.step.node.name for step in profile.steps] == steps
            assert (profile.times[..., 1] >= profile.times[..., 0]).all()
            assert (profile.times[:, 1:, 0] >= profile.times[:, :-1, 1]).all()
            same_as_runtime(session, proto, feed, 1e-4)


def test_pictures_have_all_segments_and_bf16_may_find_other_sizes(tmp_path: Path) -> None:
    file, page = tmp_path / "m.onnx", tmp_path / "page.html"
    onnx.save(chosen(), file)
    assert vtensor("plan", str(file), "--html", str(page)).exit_code == 0
    assert "segment 2 of 2" in page.read_text()
    assert len(data_of("plan", str(file), "--precision", "bf16", "--json")["segments"]) == 2


def test_tuning_adds_noise_to_a_single_number() -> None:
    text = """g (float[1, 3, 8, 8] x) => (float[n] y) <int64 none = {0}, int64 one = {1}> {
        a = Conv<pads = [1, 1, 1, 1]>(x, w) b = Relu(a)
        m = ReduceMean<axes = [0, 1, 2, 3], keepdims = 0>(b) p = Mul(m, m) q = Add(p, m)
        c = Cast<to = 7>(q) d = Add(c, one) r = Range(none, d, one) y = Cast<to = 1>(r) }"""
    proto = model(text, w=f32(8, 3, 3, 3))
    with Session(proto, tune=True, tolerance=1e-3) as session:
        same_as_runtime(session, proto, image(3), 1e-2)


def test_values_inside_of_every_segment_are_delivered() -> None:
    proto, feed = chosen(), image(0.3)
    inside = ["b", "h", "y", "s", "m"]
    wanted = onnx.ModelProto.FromString(proto.SerializeToString())
    wanted.graph.output.extend(onnx.ValueInfoProto(name=name) for name in inside if name != "y")
    names = [value.name for value in wanted.graph.output]
    with Session(proto) as session:
        answers = session.run(inside, feed)
        theirs = dict(zip(names, runtime(wanted, feed), strict=True))
        for name, array in zip(inside, answers, strict=True):
            np.testing.assert_allclose(array, theirs[name], 1e-4, 1e-5)
        assert {*session.values} >= {"x", *inside}
        with pytest.raises(InputError, match="no output nobody; outputs are y, i"):
            session.run(["y", "nobody"], feed)
        same_as_runtime(session, proto, feed, 1e-4)
