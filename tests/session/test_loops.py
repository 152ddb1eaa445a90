"""Loops whose number of turns a run decides: most turns run in one native call."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.frontends.support import f32, model, runtime, same_as_runtime
from vtensor import Session
from vtensor.errors import BudgetError, InputError, SessionClosedError
from vtensor.frontends import control
from vtensor.onnxruntime import InferenceSession, RunOptions
from vtensor.onnxruntime.errors import Fail
from vtensor.runtime import segments
from vtensor.runtime.execution.repeat import Repeated, Turns
from vtensor.runtime.planning import store
from vtensor.runtime.planning.planner import Planner
from vtensor.runtime.runner import Runner

#: A number of turns that data decide, and constants.
HEAD = """<int64 zero = {0}, int64 one = {1}, bool yes = {1}, float[1] half = {0.5},
    float limit = {300}> { n = ReduceSum<keepdims = 0>(c) k = Cast<to = 7>(n)"""

#: Bodies of loops, by name: outputs, the node, and how many turns run natively at the least.
LOOPS = {
    "states": (
        "(float[4] y, int64 z)",
        """y, z = Loop(k, yes, x, zero) < body = b (int64 i, bool d, float[4] s, int64 t)
            => (bool e, float[4] u, int64 v) {
            m = Mul(s, half) u = Add(m, x) v = Add(t, i) e = Identity(d) } >""",
    ),
    "stacked": (
        "(float[4] y, float[n, 4] z, float[n, 4] w, int64[n] v)",
        """y, z, w, v = Loop(k, yes, x) < body = b (int64 i, bool d, float[4] s)
            => (bool e, float[4] u, float[4] p, float[4] q, int64 r) {
            m = Mul(s, half) u = Add(m, x) p = Identity(s) q = Identity(u) r = Add(i, one)
            e = Identity(d) } >""",
    ),
    "condition": (
        "(float[4] y, float[n, 1] z)",
        """y, z = Loop(, yes, x) < body = b (int64 i, bool d, float[4] s)
            => (bool e, float[4] u, float[1] p) {
            u = Add(s, half) p = ReduceMax<axes = [0]>(u) f = Squeeze(p) e = Less(f, n) } >""",
    ),
    "constant": (
        "(float[4] y, float z)",
        """y, z = Loop(k, yes, x, n) < body = b (int64 i, bool d, float[4] s, float t)
            => (bool e, float[4] u, float v) {
            u = Add(s, t) v = Identity(limit) e = Identity(yes) } >""",
    ),
    "exchanged": (
        "(float[4] y, float[4] z)",
        """w = Neg(x) y, z = Loop(k, yes, x, w) < body = b (int64 i, bool d, float[4] s, float[4] t)
            => (bool e, float[4] u, float[4] v) {
            h = Mul(s, half) u = Identity(t) v = Add(h, t) e = Identity(d) } >""",
    ),
    "one value twice": (
        "(float[4] y, float[4] z)",
        """w = Neg(x) y, z = Loop(k, yes, x, w) < body = b (int64 i, bool d, float[4] s, float[4] t)
            => (bool e, float[4] u, float[4] u) {
            h = Mul(s, half) u = Sub(h, t) e = Identity(d) } >""",
    ),
    "growing": (
        "(float[n] y)",
        """y = Loop(k, yes, x) < body = b (int64 i, bool d, float[a] s) => (bool e, float[b] u) {
            u = Concat<axis = 0>(s, half) e = Identity(d) } >""",
    ),
    "scanned": (
        "(float[4] y, float[4, n] z)",
        """p = Unsqueeze(x, all) q = Range(zero, k, one) f = Cast<to = 1>(q) r = Unsqueeze(f, all)
            y, z = Scan<num_scan_inputs = 2, scan_input_axes = [1, 1], scan_output_axes = [1],
            scan_input_directions = [1, 0], scan_output_directions = [1],
            body = b (float[4] s, float[1] a, float[1] c) => (float[4] u, float[4] v) {
            h = Mul(s, half) g = Add(h, a) u = Add(g, c) v = Identity(u) }>(x, r, r)""",
    ),
}

#: The loops whose turns run one by one: shapes change, or states change places.
SINGLE = {"exchanged", "one value twice", "growing"}


def looping(name: str) -> Any:
    """Return the model of a loop; c adds up to the number of its turns."""
    outputs, node = LOOPS[name]
    head = HEAD.replace("float limit", "int64[1] all = {0}, float limit")
    return model(f"g (float[1] c, float[4] x) => {outputs} {head} {node} }}")


def feed(turns: int) -> dict[str, Any]:
    return {"c": np.full(1, turns, np.float32), "x": f32(4)}


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of turns of the native calls; the first one may run three."""
    numbers = list[int]()
    repeat = Runner.repeat

    def noted(self: Runner, turns: Turns) -> Repeated | None:
        done = repeat(self, turns)
        if done is not None:
            numbers.append(done.number)
        return done

    monkeypatch.setattr(Runner, "repeat", noted)
    monkeypatch.setattr(segments, "MIN_TURNS", 3)
    monkeypatch.setattr(control, "MAX_LOOP_NODES", 30)  # else Scans are unrolled
    return numbers


@pytest.mark.parametrize("name", LOOPS)
def test_turns_are_onnx_runtimes(name: str, native: list[int]) -> None:
    proto = looping(name)
    with Session(proto, cache_dir=None) as session:
        for turns in (0, 1, 30, 8)[name == "scanned" :]:  # ONNX Runtime scans something
            native.clear()
            same_as_runtime(session, proto, feed(turns), 1e-4)
            assert not native or name not in SINGLE
            assert native or turns <= 1 or name in SINGLE


def test_turns_of_changing_shapes_are_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    proto, planned = looping("growing"), list[str]()
    plan = Planner.plan

    def noted(self: Planner, *arguments: Any) -> Any:
        made = plan(self, *arguments)
        planned.append(made[0].origin.way)
        return made

    monkeypatch.setattr(Planner, "plan", noted)
    with Session(proto, cache_dir=None) as session:
        same_as_runtime(session, proto, feed(80), 1e-6)
        assert planned.count("specialised") >= 75
        planned.clear()
        for turns in (80, 3):
            same_as_runtime(session, proto, feed(turns), 1e-6)
        assert not planned
        monkeypatch.setattr(store, "MOST_STEPS", 50)
        session.run(None, feed(81))
        [*_, body] = session._runner.parts[1:]
        assert len(body.open()) <= 50


ENDLESS = f"""g (float[1] c, float[4] x) => (float[4] y) {HEAD}
    y = Loop(, yes, x) < body = b (int64 i, bool d, float[4] s) => (bool e, float[4] u) {{
        u = Mul(s, half) m = ReduceSum<keepdims = 0>(u) e = Less(m, n) }} > }}"""


@contextmanager
def soon(act: Any) -> Iterator[None]:
    """Call ``act`` on another thread while the block runs."""
    timer = threading.Timer(0.3, act)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("threads", [1, 2])
def test_a_loop_without_end_is_interrupted(threads: int) -> None:
    with Session(model(ENDLESS), threads=threads, cache_dir=None) as session:
        session.run(None, feed(-1))
        interrupt = partial(os.kill, os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt), soon(interrupt):
            session.run(None, feed(100))
        [y] = session.run(None, feed(-1))
        np.testing.assert_allclose(y, feed(-1)["x"] / 2)


def test_a_loop_without_end_is_terminated() -> None:
    session, options = InferenceSession(model(ENDLESS).SerializeToString()), RunOptions()
    with pytest.raises(Fail, match="terminate"), soon(partial(setattr, options, "terminate", True)):
        session.run(None, feed(100), options)
    [y] = session.run(None, feed(-1), RunOptions())
    np.testing.assert_allclose(y, feed(-1)["x"] / 2)


def test_a_loop_without_end_is_over_if_its_session_is_closed() -> None:
    session = Session(model(ENDLESS), cache_dir=None)
    with pytest.raises(SessionClosedError), soon(session.close):
        session.run(None, feed(100))


def test_rows_of_turns_obey_the_budget(native: list[int]) -> None:
    with Session(looping("stacked"), max_bytes=1 << 16, cache_dir=None) as session:
        with pytest.raises(BudgetError, match=r"after .* turns"):
            session.run(None, feed(1_000_000))
        assert max(native) < (1 << 16) / 40
        assert len(session.run(None, feed(5))[1]) == 5


def test_an_error_of_a_turn_names_its_node() -> None:
    text = f"""g (float[1] c, float[4] x) => (float y) {HEAD}
        z = Mul(n, limit) y = Loop(k, yes, z) < body = b (int64 i, bool d, float s)
            => (bool e, float u) {{
            [taken] g = Gather(x, i) u = Add(g, s) e = Identity(d) }} > }}"""
    with Session(model(text), cache_dir=None) as session:
        with pytest.raises(InputError, match=r"taken.*4 elements"):
            session.run(None, feed(9))
        assert session.run(None, feed(4))


#: A sequence that turns of a loop collect, and a branch that delivers one.
COLLECTED = """g (float[4] x, int64 k, bool c) => (seq(float[n]) y, float[t] z, seq(float[n]) w)
    <bool yes = {1}, int64 one = {1}, int64[1] all = {0}> {
    empty = SequenceEmpty() y, z = Loop(k, yes, empty) < body = b
        (int64 i, bool d, seq(float[n]) s) => (bool e, seq(float[n]) u, float q) {
        n = Add(i, one) ends = Unsqueeze(n, all) r = Slice(x, all, ends) u = SequenceInsert(s, r)
        q = ReduceSum<keepdims = 0>(r) e = Identity(d) } >
    w = If(c) < then_branch = t () => (seq(float[n]) v) { v = Identity(y) },
        else_branch = f () => (seq(float[n]) v) { m = Neg(x) v = SequenceConstruct(x, m) } > }"""


@pytest.mark.parametrize("choice", [True, False])
def test_sequences_pass_through_loops_and_branches(choice: bool) -> None:
    proto, x = model(COLLECTED), f32(4)
    with Session(proto, cache_dir=None) as session:
        for turns in (1, 3):
            feeds = {"x": x, "k": np.array(turns), "c": np.array(choice)}
            ours, theirs = session.run(None, feeds), runtime(proto, feeds)
            for mine, other in zip(ours, theirs, strict=True):
                assert len(mine) == len(other)
                for one, two in zip(mine, other, strict=True):
                    np.testing.assert_allclose(one, two, 1e-6)
        with pytest.raises(InputError, match="no turn"):
            session.run(None, {"x": x, "k": np.array(0), "c": np.array(choice)})
        with pytest.raises(InputError, match="one number"):
            session.run(None, {**feeds, "k": np.array([1, 2])})
