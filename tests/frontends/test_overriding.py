"""Initializers that a model lists among its inputs: a run may give them other values."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto

from tests.frontends.support import Array, f32, model, run_once
from tests.libraries.command import vtensor
from vtensor import Session
from vtensor.errors import InputError, LockError
from vtensor.frontends.onnx import load_onnx

X = np.array([1, 2, 3], np.float32)
K = np.array([2, 3, 4], np.float32)
SCALED = """scaled (float[3] x, float[3] k = {1, 1, 1}) => (float[3] y) {
    t = Add(k, k) y = Mul(x, t) }"""


def scaled(ir_version: int = 8) -> ModelProto:
    proto = model(SCALED, 18)
    proto.ir_version = ir_version
    return proto


def answers(session: Session, **feeds: Any) -> Array:
    """Run on ``X`` and further inputs; return the only output."""
    [y] = session.run(None, {"x": X, **feeds})
    return y


def both_ways(session: Session) -> None:
    """Run with a value for ``k`` and with its default."""
    np.testing.assert_array_equal(answers(session, k=K), X * K * 2)
    np.testing.assert_array_equal(answers(session), X * 2)


@pytest.mark.parametrize("form", ["proto", "bytes", "file", "cached file"])
def test_a_run_takes_the_given_value_and_else_the_default(form: str, tmp_path: Path) -> None:
    proto, file = scaled(), tmp_path / "scaled.onnx"
    onnx.save(proto, file)
    source = {"proto": proto, "bytes": proto.SerializeToString()}.get(form, file)
    for _ in range(2):  # the second session may find plans of the first one
        cache = tmp_path / "cache" if "cached" in form else None
        with Session(source, cache_dir=cache) as session:
            for _ in range(3):
                both_ways(session)
            assert [port.name for port in session.inputs] == ["x"]
            assert session.overridable == ["k"]


def test_a_plan_for_defaults_stays_as_it_is() -> None:
    with Session(scaled(), cache_dir=None, deterministic=True) as session:
        before = session.plan
        answers(session, k=K)
        assert session.plan is not before
        assert {port.name for port in session.plan.inputs} == {"x", "k"}
        answers(session)
        assert session.plan is before
        assert {port.name for port in before.inputs} == {"x"}


def test_each_set_of_names_by_itself() -> None:
    names = [f"k{at}" for at in range(5)]
    declared = ", ".join(f"float[3] {name}" for name in names)
    text = f"many (float[3] x, {declared}) => (float[3] y) {{ y = Sum(x, {', '.join(names)}) }}"
    defaults = {name: np.full(3, 10.0**at, np.float32) for at, name in enumerate(names)}
    with Session(model(text, 18, **defaults), cache_dir=None) as session:
        for turn in range(2):
            for chosen in range(1 << len(names)):
                feeds = {n: K * (turn + at) for at, n in enumerate(names) if chosen >> at & 1}
                expected = X + sum((defaults | feeds).values())
                np.testing.assert_allclose(answers(session, **feeds), expected, rtol=1e-6)


@pytest.mark.parametrize("sizes", ["N, 4", "2, 4"])
def test_a_given_shape_decides_sizes(sizes: str) -> None:
    text = f"""shaped (float[{sizes}] x, int64[r] shape) => (float[a, b] y) {{
        y = Reshape(x, shape) }}"""
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    with Session(model(text, 18, shape=np.array([-1, 2])), cache_dir=None) as session:
        for _ in range(2):
            for shape in ([8, -1], [-1, 4], [4, 2]):
                y = answers(session, x=x, shape=np.array(shape))
                np.testing.assert_array_equal(y, x.reshape(shape))
            np.testing.assert_array_equal(answers(session, x=x), x.reshape(4, 2))


def test_a_given_condition_chooses_a_branch() -> None:
    proto = model(
        """branches (float[3] x, bool c = {1}, float[3] k = {2, 3, 4}) => (float[3] y) {
            t = Add(x, k) y = If(c) < then_branch = then() => (float[3] a) { a = Neg(t) },
                                      else_branch = else() => (float[3] b) { b = Sqrt(t) } > }""",
        18,
    )
    with Session(proto, cache_dir=None) as session:
        for _ in range(2):
            np.testing.assert_array_equal(answers(session), -(X + K))
            for c in (np.array(False), np.array(True)):
                for feeds in ({}, {"k": X}):
                    t = X + feeds.get("k", K)
                    y = answers(session, c=c, **feeds)
                    np.testing.assert_allclose(y, -t if c else np.sqrt(t), rtol=1e-6)


def test_a_declared_symbol_takes_other_sizes_than_the_default_has() -> None:
    text = "sized (float[3] x, float[n, 3] k) => (float[n, 3] y) { y = Mul(x, k) }"
    with Session(model(text, 18, k=np.ones((2, 3), np.float32)), cache_dir=None) as session:
        assert answers(session).shape == (2, 3)
        for n in (1, 5, 2):
            k = np.full((n, 3), n, np.float32)
            np.testing.assert_array_equal(answers(session, k=k), X * k)


def test_an_input_that_nothing_reads_and_one_that_is_delivered() -> None:
    text = """odd (float[3] x, float[3] k = {2, 3, 4}, float[2] unread = {0, 0})
        => (float[3] y, float[3] k) { y = Relu(x) }"""
    with Session(model(text, 18), cache_dir=None) as session:
        for feeds in ({}, {"k": X}, {"unread": np.ones(2, np.float32)}):
            y, k = session.run(["y", "k"], {"x": X, **feeds})
            np.testing.assert_array_equal(y, X)
            np.testing.assert_array_equal(k, feeds.get("k", K))


WRONG: list[dict[str, Any]] = [
    {"k": np.ones(4, np.float32)},
    {"k": np.ones((1, 3), np.float32)},
    {"k": np.ones(3)},
    {"k": None},
    {"t": K},
    {"k": K, "other": K},
    {"K": K},
]


@pytest.mark.parametrize("feeds", WRONG)
def test_wrong_values_are_input_errors(feeds: dict[str, Any]) -> None:
    with Session(scaled(), cache_dir=None) as session:
        for run in (answers, lambda session, **feeds: session.bind({"x": X, **feeds})):
            with pytest.raises(InputError):
                run(session, **feeds)
        with pytest.raises(InputError, match="missing: x"):
            session.run(None, {"k": K})
        both_ways(session)


def test_out_bind_tensors_profile_and_copies() -> None:
    with Session(scaled(), cache_dir=None) as session:
        y = np.empty(3, np.float32)
        session.run(None, {"x": X, "k": K}, out={"y": y})
        np.testing.assert_array_equal(y, X * K * 2)
        [tensor] = session.run_tensors(None, {"x": X, "k": K})
        np.testing.assert_array_equal(tensor.numpy(), X * K * 2)
        k = K.copy()
        binding, plain = session.bind({"x": X, "k": k}, {"y": y}), session.bind({"x": X})
        for factor in (1, 5):
            k[:] = K * factor
            binding.run()
            plain.run()
            np.testing.assert_array_equal(y, X * K * 2 * factor)
            np.testing.assert_array_equal(plain.outputs["y"], X * 2)
        answers(session, k=np.repeat(K, 2)[::2])
        assert session.copied == {"k"}
        assert session.profile({"x": X, "k": K}, runs=1).runs.shape == (1, 2)
        assert {port.name for port in session.plan.inputs} == {"x", "k"}


def test_concurrent_runs_have_their_own_values() -> None:
    with (
        Session(scaled(), cache_dir=None, streams=2, threads=2) as session,
        ThreadPoolExecutor(4) as pool,
    ):

        def work(number: int) -> None:
            for turn in range(60):
                feeds = {"k": K * (turn % 3)} if (number + turn) % 2 else {}
                expected = X * feeds.get("k", np.ones(3, np.float32)) * 2
                np.testing.assert_array_equal(answers(session, **feeds), expected)

        assert [*pool.map(work, range(4))] == [None] * 4


def test_a_lock_file_is_of_the_run_that_it_was_made_of(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"

    def lock(**feeds: Array) -> Session:
        with Session(scaled(), cache_dir=None) as session:
            answers(session, **feeds)
            session.lock().write(file)
        return Session(scaled(), plan=file, cache_dir=None)

    with lock() as session:
        np.testing.assert_array_equal(answers(session), X * 2)
        with pytest.raises(LockError, match=r"runs without the inputs k, .*\n.*to fix: give no"):
            answers(session, k=K)
    with lock(k=K) as session:
        np.testing.assert_array_equal(answers(session, k=K), X * K * 2)
        with pytest.raises(InputError, match="missing: k"):
            answers(session)


def test_commands_take_given_values(tmp_path: Path) -> None:
    net, out, both = tmp_path / "m.onnx", tmp_path / "out.npz", tmp_path / "both.npz"
    onnx.save(scaled(), net)
    np.save(tmp_path / "x.npy", X)
    np.savez(both, x=X, k=K)
    only = ["--input", f"x={tmp_path / 'x.npy'}"]
    for arguments, k in ((only, 1), ([*only, "--value", "k=2,3,4"], K), (["--input", both], K)):
        ran = vtensor("run", net, *arguments, "--threads", 1, "--save", out)
        assert not ran.exit_code, ran.output
        with np.load(out) as outputs:
            np.testing.assert_array_equal(outputs["y"], X * k * 2)
    for shape, code in (("k=3", 0), ("k=4", 1), ("q=3", 1)):
        assert vtensor("plan", net, "--threads", 1, "--shape", shape).exit_code == code


def test_a_graph_has_those_as_inputs_that_are_named() -> None:
    assert list(load_onnx(scaled()).inputs) == ["x"]
    assert list(load_onnx(scaled(), shapes={"k": (3,)}).inputs) == ["x", "k"]
    graph = load_onnx(scaled(), values={"k": K})
    assert list(graph.inputs) == ["x"]
    np.testing.assert_array_equal(run_once(graph, {"x": X}, cache_dir=None)[0], X * K * 2)


@pytest.mark.parametrize("what", ["type", "rank", 3, 4, 10])
def test_every_ir_version_and_declarations_that_the_default_contradicts(what: str | int) -> None:
    proto = scaled() if isinstance(what, str) else scaled(what)
    kind = proto.graph.input[1].type.tensor_type
    if what == "type":
        kind.elem_type = TensorProto.INT64
    elif what == "rank":
        kind.ClearField("shape")
    with Session(proto, cache_dir=None) as session:
        both_ways(session)


def test_large_weights_of_a_file_may_be_overridden(tmp_path: Path) -> None:
    w, other, x = f32(256, 128), f32(256, 128, seed=1), f32(4, 256)
    text = "p (float[n, 256] x, float[256, 128] w) => (float[n, 128] y) { y = MatMul(x, w) }"
    onnx.save(model(text, 18, w=w), tmp_path / "product.onnx")
    for _ in range(2):
        with Session(tmp_path / "product.onnx", cache_dir=tmp_path / "cache") as session:
            for feeds, weights in (({}, w), ({"w": other}, other), ({}, w), ({"w": w}, w)):
                y = answers(session, x=x, **feeds)
                np.testing.assert_allclose(y, x @ weights, rtol=1e-3, atol=1e-3)
