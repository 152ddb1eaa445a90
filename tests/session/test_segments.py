"""Models that run in segments: nodes have to know values that a run computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

from tests.frontends.support import f32, model, same_as_runtime
from vtensor import Session
from vtensor.cli import app
from vtensor.errors import BudgetError, DimError, InputError, SegmentsNeededError, VTensorError
from vtensor.frontends.onnx import load_onnx

CONSTANTS = "<int64 zero = {0}, int64 one = {1}, int64[1] axis = {0}, float[1] unit = {1}>"

#: A count that data decide, and what counts up to it.
COUNTED = "s = ReduceSum<keepdims = 0>(x) c = Cast<to = 7>(s) r = Range(zero, c, one)"

#: Nodes that find as much as data decide: the model, and what it is fed.
FOUND = {
    "nonzero": (
        """(float[n, m] x) => (float[k, d] y) { l = Floor(x) i = NonZero(l) t = Transpose(i)
            g = GatherND(x, t) y = Unsqueeze(g, axis) }""",
        [{"x": f32(3, 4)}, {"x": f32(5, 2, seed=1)}, {"x": np.zeros((2, 2), np.float32)}],
    ),
    "unique": (
        """(float[n] x) => (float[k] y, int64[k] i, int64[n] v, int64[k] c) {
            l = Floor(x) y, i, v, c = Unique(l) }""",
        [{"x": f32(30)}, {"x": f32(7)}],
    ),
    "unsorted rows": (
        """(float[n, 2] x) => (float[k, 2] y, int64[k] c) {
            l = Floor(x) y, , , c = Unique<axis = 0, sorted = 0>(l) }""",
        [{"x": f32(30, 2)}, {"x": f32(7, 2)}],
    ),
    "compress": (
        """(float[n, m] x, float[k] s) => (float[n, d] y, float[e] z) { c = Less(s, unit)
            y = Compress<axis = -1>(x, c) z = Compress(x, c) }""",
        [{"x": f32(2, 4), "s": np.array([0, 2, 0], np.float32)}, {"x": f32(3, 3), "s": f32(3)}],
    ),
    "boxes": (
        """(float[1, n, 4] x, float[1, c, n] s) => (int64[k, 3] y, float[k, 4] z)
            <int64[1] most = {5}, float[1] overlap = {0.3}, float[1] least = {0.2},
            int64[1] two = {2}, int64[1] three = {3}, int64[1] at = {1}, int64[1] all = {-1},
            int64[1] axis = {0}> {
            y = NonMaxSuppression(x, s, most, overlap, least) p = Slice(y, two, three, at)
            q = Reshape(p, all) b = Squeeze(x, axis) z = Gather(b, q) }""",
        [{"x": np.abs(f32(1, 50, 4)), "s": np.abs(f32(1, c, 50))} for c in (3, 2)],
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_data_decide_is_onnx_runtimes(name: str) -> None:
    text, feeds = FOUND[name]
    text = text if "axis = {0}" in text else text.replace("{", f"{CONSTANTS} {{", 1)
    proto = model(f"g {text}")
    with Session(proto) as session:
        for feed in feeds:
            same_as_runtime(session, proto, feed)


SPEECH = """g (float[1, t, 8] h) => (float[1, l, 8] y, float[1, l] mask)
    <int64[1] two = {2}, int64 one = {1}, int64[1] at = {1}, int64[1] axis = {0}, float least = {1},
    int64 zero = {0}> {
    total = ReduceSum<keepdims = 0>(h, two) up = Ceil(total) spans = Clip(up, least)
    ends = CumSum(spans, one) length = ReduceSum<keepdims = 0>(spans, at)
    number = Cast<to = 7>(length) longest = ReduceMax<keepdims = 0>(number)
    r = Range(zero, longest, one) f = Cast<to = 1>(r) row = Unsqueeze(f, axis)
    times = Unsqueeze(row, axis) column = Unsqueeze(ends, two) before = Less(times, column)
    path = Cast<to = 1>(before) whole = Unsqueeze(length, at) inside = Less(row, whole)
    mask = Cast<to = 1>(inside) turned = Transpose<perm = [0, 2, 1]>(path)
    m = MatMul(turned, h) q = MatMul(m, w) y = Tanh(q) }"""


def test_a_length_that_data_decide_needs_no_new_plan() -> None:
    proto = model(SPEECH, w=f32(8, 8))
    new = 0
    with Session(proto, cache_dir=None) as session:
        for turn in range(12):
            same_as_runtime(session, proto, {"h": np.abs(f32(1, 4 + turn, 8, seed=turn))}, 1e-4)
            assert len(session.plans) == 2
            ways = [plan.origin.way for plan in session.plans]
            new += turn > 0 and not {*ways} <= {"specialised", "in memory"}
    assert not new


@pytest.mark.usefixtures("caching")
def test_plans_of_segments_come_from_the_cache(tmp_path: Path) -> None:
    proto = model(SPEECH, w=f32(8, 8))
    for cached in (False, True):
        with Session(proto, cache_dir=tmp_path) as session:
            for turn in range(3):
                same_as_runtime(session, proto, {"h": np.abs(f32(1, 4 + turn, 8))}, 1e-4)
                assert [plan.origin.cached for plan in session.plans] == [cached] * 2


@pytest.mark.usefixtures("caching")
def test_plans_of_bodies_come_from_the_cache(tmp_path: Path) -> None:
    text = f"""g (float[4] x) => (float[4] y) {CONSTANTS[:-1]}, bool yes = {{1}}> {{
        s = ReduceSum<keepdims = 0>(x) c = Cast<to = 7>(s)
        y = Loop(c, yes, x) < body = b(int64 i, bool d, float[4] s) => (bool e, float[4] t) {{
            t = Exp(s) e = Identity(d) }} > }}"""
    for cached in (False, True):
        with Session(model(text), cache_dir=tmp_path) as session:
            same_as_runtime(session, model(text), {"x": np.full(4, 0.3, np.float32)})
            assert [plan.origin.cached for plan in session.plans] == [cached] * 2


@pytest.mark.usefixtures("caching")
@pytest.mark.parametrize("nested", [False, True])
def test_graphs_that_differ_in_numbers_alone_have_plans_of_their_own(
    nested: bool, tmp_path: Path
) -> None:
    def branch(number: int) -> str:
        w = f"w = Constant<value = float[2] {{{number}, 2}}>()"
        if not nested:
            return f"() => (float[2] o) {{ {w} o = Mul(x, w) }}"
        return f"""() => (float[2] o) {{ {w} o = If(c) <
            then_branch = a () => (float[2] p) {{ p = Mul(x, w) }},
            else_branch = b () => (float[2] p) {{ p = Add(x, w) }} > }}"""

    proto = model(
        f"""g (float[2] x, float[1] y, float[1] v) => (float[2] z) {{
        s = ReduceSum<keepdims = 0>(y) d = Cast<to = 9>(s)
        u = ReduceSum<keepdims = 0>(v) c = Cast<to = 9>(u)
        z = If(d) < then_branch = t {branch(3)}, else_branch = e {branch(5)} > }}"""
    )
    for first in (0, 1):
        with Session(proto, cache_dir=tmp_path) as session:
            for turn in (first, 1 - first):
                feeds = {
                    "x": f32(2),
                    "y": np.full(1, turn, np.float32),
                    "v": np.ones(1, np.float32),
                }
                same_as_runtime(session, proto, feeds)


def test_the_first_segment_of_known_sizes_is_planned_by_the_session() -> None:
    text = f"g (float[4] x) => (float[k] y) {CONSTANTS} {{ {COUNTED} y = Cast<to = 1>(r) }}"
    with Session(model(text), cache_dir=None) as session:
        assert len(session.plans) == 1
        same_as_runtime(session, model(text), {"x": np.ones(4, np.float32)})
        assert len(session.plans) == 2


#: Sizes that are wrong for some data: nodes, the sum of x, and the error.
WRONG = {
    "huge": (f"{COUNTED} y = Cast<to = 1>(r)", 1e12, BudgetError),
    "negative": ("s = ReduceSum(x) c = Cast<to = 7>(s) y = Expand(unit, c)", -5, VTensorError),
    "other elements": ("s = ReduceSum(x) c = Cast<to = 7>(s) y = Reshape(x, c)", 3, DimError),
    "endless": (
        """y = Loop(, yes, x) < body = b(int64 i, bool d, float[4] s)
        => (bool e, float[4] t, float[4] u) { u = Exp(s) t = Identity(s)
            m = ReduceSum<keepdims = 0>(s) e = Less(m, big) } >""",
        1,
        BudgetError,
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_sizes_are_typed_errors_and_the_session_goes_on(name: str) -> None:
    nodes, total, error = WRONG[name]
    nodes = nodes.replace("y = Loop", "z, y = Loop")
    rank = "a, b" if "Loop" in nodes else "a"
    text = f"""g (float[4] x) => (float[{rank}] y) {CONSTANTS[:-1]}, bool yes = {{1}},
        float big = {{100}}> {{ {nodes} }}"""
    fine = 200 if name == "endless" else 4
    with Session(model(text), max_bytes=1 << 18, cache_dir=None) as session:
        with pytest.raises(error):
            session.run(None, {"x": np.full(4, total / 4, np.float32)})
        [y] = session.run(None, {"x": np.full(4, fine / 4, np.float32)})
        assert len(y) == (1 if name == "endless" else 4)


def test_outputs_of_all_segments() -> None:
    text = f"""g (float[n] x) => (float[n] e, float[k] y, float[n] x2) {CONSTANTS} {{
        e = Exp(x) {COUNTED} y = Cast<to = 1>(r) x2 = Identity(x) }}"""
    x = np.array([1, 2], np.float32)
    with Session(model(text)) as session:
        e, y, same = session.run(None, {"x": x})
        np.testing.assert_allclose(e, np.exp(x), 1e-6)
        np.testing.assert_array_equal(y, [0, 1, 2])
        np.testing.assert_array_equal(same, x)
        out = np.zeros(3, np.float32)
        [first, c] = session.run(["y", "c"], {"x": x}, out={"y": out})
        assert first is out
        assert c == 3
        np.testing.assert_array_equal(out, y)
        with pytest.raises(InputError, match="out 'y'"):
            session.run(["y"], {"x": x}, out={"y": np.zeros(4, np.float32)})
        with pytest.raises(InputError, match="unknown: z"):
            session.run(None, {"x": x, "z": x})


def test_what_takes_one_plan_alone_says_so() -> None:
    text = f"g (float[n] x) => (float[k] y) {CONSTANTS} {{ {COUNTED} y = Cast<to = 1>(r) }}"
    with pytest.raises(SegmentsNeededError, match="run it in a Session"):
        load_onnx(model(text), shapes={"x": (2,)})
    feeds = {"x": np.array([1, 2], np.float32)}
    with Session(model(text)) as session:
        for use in (lambda: session.bind(feeds), lambda: session.frontier(inputs=feeds)):
            session.run(None, feeds)
            with pytest.raises(InputError, match="in segments"):
                use()


def test_commands_show_each_segment(tmp_path: Path) -> None:
    text = f"""g (float[n] x) => (float[k] y) {CONSTANTS} {{
        {COUNTED} f = Cast<to = 1>(r) y = Add(f, s) }}"""
    onnx.save(model(text), file := tmp_path / "counted.onnx")
    for command in ("plan", "explain"):
        result = CliRunner().invoke(app, [command, str(file), "--shape", "x=3"])
        assert not result.exit_code, result.output
    assert "segment 2 of 2" in CliRunner().invoke(app, ["plan", str(file), "--shape", "x=3"]).output
