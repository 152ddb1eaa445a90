"""Initializers that a model lists among its inputs: a run may give them other values."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import ModelProto, TensorProto, numpy_helper
from typer.testing import CliRunner

from vtensor import Session
from vtensor.cli import app
from vtensor.errors import InputError, LockError
from vtensor.frontends.onnx import load_onnx

X = np.array([1, 2, 3], np.float32)
K = np.array([2, 3, 4], np.float32)


def model(text: str, defaults: dict[str, Any], ir_version: int = 8) -> ModelProto:
    made: ModelProto = onnx.parser.parse_model(text)
    made.ir_version = ir_version
    for name, array in defaults.items():
        made.graph.initializer.append(numpy_helper.from_array(array, name))
    return made


def scaled(ir_version: int = 8) -> ModelProto:
    return model(
        """<ir_version: 8, opset_import: ["" : 18]>
        scaled (float[3] x, float[3] k) => (float[3] y) {
            t = Add(k, k)
            y = Mul(x, t)
        }""",
        {"k": np.ones(3, np.float32)},
        ir_version,
    )


FORMS = ("proto", "bytes", "file", "cached file")


@pytest.fixture(params=FORMS)
def given(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, Any]:
    """The same model in each form that a session takes, and a cache folder or none."""
    proto, file = scaled(), tmp_path / "scaled.onnx"
    onnx.save(proto, file)
    return {
        "proto": (proto, None),
        "bytes": (proto.SerializeToString(), None),
        "file": (file, None),
        "cached file": (file, tmp_path / "cache"),
    }[request.param]


def test_a_run_takes_the_given_value_and_else_the_default(given: tuple[Any, Any]) -> None:
    form, cache = given
    for _ in range(2):  # the second session may find plans of the first one
        with Session(form, cache_dir=cache) as session:
            for _ in range(3):
                [overridden] = session.run(None, {"x": X, "k": K})
                [default] = session.run(None, {"x": X})
                np.testing.assert_array_equal(overridden, X * K * 2)
                np.testing.assert_array_equal(default, X * 2)
            assert [port.name for port in session.inputs] == ["x"]
            assert session.overridable == ["k"]


@pytest.mark.parametrize("ir_version", [3, 4, 10])
def test_every_ir_version(ir_version: int) -> None:
    with Session(scaled(ir_version), cache_dir=None) as session:
        np.testing.assert_array_equal(session.run(None, {"x": X, "k": K})[0], X * K * 2)
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], X * 2)


def test_a_plan_for_defaults_stays_as_it_is() -> None:
    with Session(scaled(), cache_dir=None, deterministic=True) as session:
        before = session.plan
        session.run(None, {"x": X, "k": K})
        assert session.plan is not before
        assert {one.name for one in session.plan.inputs} == {"x", "k"}
        session.run(None, {"x": X})
        assert session.plan is before
        assert {one.name for one in before.inputs} == {"x"}


def test_each_set_of_names_by_itself() -> None:
    names = [f"k{at}" for at in range(5)]
    declared = ", ".join(f"float[3] {name}" for name in names)
    made = model(
        f"""<ir_version: 8, opset_import: ["" : 18]>
        many (float[3] x, {declared}) => (float[3] y) {{ y = Sum(x, {", ".join(names)}) }}""",
        {name: np.full(3, 10.0**at, np.float32) for at, name in enumerate(names)},
    )
    with Session(made, cache_dir=None) as session:
        for turn in range(2):
            for chosen in range(1 << len(names)):
                feeds = {n: K * (turn + at) for at, n in enumerate(names) if chosen >> at & 1}
                [y] = session.run(None, {"x": X, **feeds})
                wanted = X + sum(feeds.get(n, 10.0**at) for at, n in enumerate(names))
                np.testing.assert_allclose(y, wanted, rtol=1e-6)


@pytest.mark.parametrize("sizes", ["N, 4", "2, 4"])
def test_a_given_shape_decides_sizes(sizes: str) -> None:
    made = model(
        f"""<ir_version: 8, opset_import: ["" : 18]>
        shaped (float[{sizes}] x, int64[r] shape) => (float[a, b] y) {{ y = Reshape(x, shape) }}""",
        {"shape": np.array([-1, 2])},
    )
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    with Session(made, cache_dir=None) as session:
        for _ in range(2):
            for shape in ([8, -1], [-1, 4], [4, 2]):
                [y] = session.run(None, {"x": x, "shape": np.array(shape)})
                np.testing.assert_array_equal(y, x.reshape(shape))
            np.testing.assert_array_equal(session.run(None, {"x": x})[0], x.reshape(4, 2))


def test_a_given_condition_chooses_a_branch() -> None:
    made = model(
        """<ir_version: 8, opset_import: ["" : 18]>
        branches (float[3] x, bool c, float[3] k) => (float[3] y) {
            t = Add(x, k)
            y = If (c) <
                then_branch = then () => (float[3] a) { a = Neg(t) },
                else_branch = else () => (float[3] b) { b = Sqrt(t) }
            >
        }""",
        {"c": np.array(True), "k": K},
    )
    with Session(made, cache_dir=None) as session:
        for _ in range(2):
            np.testing.assert_array_equal(session.run(None, {"x": X})[0], -(X + K))
            for c in (False, True):
                feeds = {"x": X, "c": np.array(c)}
                wanted = -(X + K) if c else np.sqrt(X + K)
                np.testing.assert_allclose(session.run(None, feeds)[0], wanted, rtol=1e-6)
                wanted = -(X + X) if c else np.sqrt(X + X)
                [y] = session.run(None, {**feeds, "k": X})
                np.testing.assert_allclose(y, wanted, rtol=1e-6)


def test_a_declared_symbol_takes_other_sizes_than_the_default_has() -> None:
    made = model(
        """<ir_version: 8, opset_import: ["" : 18]>
        sized (float[3] x, float[n, 3] k) => (float[n, 3] y) { y = Mul(x, k) }""",
        {"k": np.ones((2, 3), np.float32)},
    )
    with Session(made, cache_dir=None) as session:
        assert session.run(None, {"x": X})[0].shape == (2, 3)
        for n in (1, 5, 2):
            k = np.full((n, 3), n, np.float32)
            np.testing.assert_array_equal(session.run(None, {"x": X, "k": k})[0], X * k)


def test_an_input_that_nothing_reads_and_one_that_is_delivered() -> None:
    made = model(
        """<ir_version: 8, opset_import: ["" : 18]>
        odd (float[3] x, float[3] k, float[2] unread) => (float[3] y, float[3] k) {
            y = Relu(x)
        }""",
        {"k": K, "unread": np.zeros(2, np.float32)},
    )
    with Session(made, cache_dir=None) as session:
        for feeds in ({}, {"k": X}, {"unread": np.ones(2, np.float32)}):
            y, k = session.run(["y", "k"], {"x": X, **feeds})
            np.testing.assert_array_equal(y, X)
            np.testing.assert_array_equal(k, feeds.get("k", K))


@pytest.mark.parametrize(
    "feeds",
    [
        {"k": np.ones(4, np.float32)},
        {"k": np.ones((1, 3), np.float32)},
        {"k": np.ones(3)},
        {"k": None},
        {"t": K},
        {"k": K, "other": K},
        {"K": K},
    ],
)
def test_wrong_values_are_input_errors(feeds: dict[str, Any]) -> None:
    with Session(scaled(), cache_dir=None) as session:
        with pytest.raises(InputError):
            session.run(None, {"x": X, **feeds})
        with pytest.raises(InputError):
            session.bind({"x": X, **feeds})
        with pytest.raises(InputError, match="missing: x"):
            session.run(None, {"k": K})
        np.testing.assert_array_equal(session.run(None, {"x": X, "k": K})[0], X * K * 2)


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
        k = np.repeat(K, 2)[::2]
        session.run(None, {"x": X, "k": k})
        assert session.copied == {"k"}
        assert session.profile({"x": X, "k": K}, runs=1).runs.shape == (1, 2)
        assert {one.name for one in session.plan.inputs} == {"x", "k"}


def test_runs_beside_each_other() -> None:
    faults: list[object] = []
    with Session(scaled(), cache_dir=None, streams=2, threads=2) as session:

        def work(number: int) -> None:
            for turn in range(60):
                k = K * (turn % 3)
                feeds = {"x": X, "k": k} if (number + turn) % 2 else {"x": X}
                [y] = session.run(None, feeds)
                if not np.array_equal(y, X * feeds.get("k", np.ones(3, np.float32)) * 2):
                    faults.append((number, turn))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not faults


def test_a_lock_file_is_of_the_run_that_it_was_made_of(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    with Session(scaled(), cache_dir=None) as session:
        session.run(None, {"x": X})
        session.lock().write(file)
    with Session(scaled(), plan=file, cache_dir=None) as session:
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], X * 2)
        with pytest.raises(LockError, match=r"runs without the inputs k, .*\n.*to fix: give no"):
            session.run(None, {"x": X, "k": K})
    with Session(scaled(), cache_dir=None) as session:
        session.run(None, {"x": X, "k": K})
        session.lock().write(file)
    with Session(scaled(), plan=file, cache_dir=None) as session:
        np.testing.assert_array_equal(session.run(None, {"x": X, "k": K})[0], X * K * 2)
        with pytest.raises(InputError, match="missing: k"):
            session.run(None, {"x": X})


def test_commands_take_given_values(tmp_path: Path) -> None:
    onnx.save(scaled(), tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", X)
    np.savez(tmp_path / "both.npz", x=X, k=K)

    def output(*arguments: str) -> Any:
        told = [str(tmp_path / "m.onnx"), *arguments, "--threads", "1", "--save"]
        result = CliRunner().invoke(app, ["run", *told, str(tmp_path / "out.npz")])
        assert not result.exit_code, result.output
        with np.load(tmp_path / "out.npz") as stored:
            return stored["y"]

    file = f"x={tmp_path / 'x.npy'}"
    np.testing.assert_array_equal(output("--input", file), X * 2)
    np.testing.assert_array_equal(output("--input", file, "--value", "k=2,3,4"), X * K * 2)
    np.testing.assert_array_equal(output("--input", str(tmp_path / "both.npz")), X * K * 2)
    told = ["plan", str(tmp_path / "m.onnx"), "--threads", "1", "--shape"]
    for shape, code in (("k=3", 0), ("k=4", 1), ("q=3", 1)):
        assert CliRunner().invoke(app, [*told, shape]).exit_code == code


def test_a_graph_has_those_as_inputs_that_are_named() -> None:
    assert list(load_onnx(scaled()).inputs) == ["x"]
    assert list(load_onnx(scaled(), shapes={"k": (3,)}).inputs) == ["x", "k"]
    assert list(load_onnx(scaled(), values={"k": K}).inputs) == ["x"]
    with Session(load_onnx(scaled(), values={"k": K}), cache_dir=None) as session:
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], X * K * 2)


@pytest.mark.parametrize("declared", ["type", "rank"])
def test_a_declaration_that_the_default_contradicts_counts_for_nothing(declared: str) -> None:
    made = scaled()
    kind = made.graph.input[1].type.tensor_type
    if declared == "type":
        kind.elem_type = TensorProto.INT64
    else:
        kind.ClearField("shape")
    with Session(made, cache_dir=None) as session:
        np.testing.assert_array_equal(session.run(None, {"x": X, "k": K})[0], X * K * 2)
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], X * 2)


def test_large_weights_of_a_file_may_be_overridden(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    w, other = (rng.standard_normal((256, 128)).astype(np.float32) for _ in range(2))
    made = model(
        """<ir_version: 8, opset_import: ["" : 18]>
        product (float[n, 256] x, float[256, 128] w) => (float[n, 128] y) { y = MatMul(x, w) }""",
        {"w": w},
    )
    onnx.save(made, tmp_path / "product.onnx")
    x = rng.standard_normal((4, 256)).astype(np.float32)
    for _ in range(2):
        with Session(tmp_path / "product.onnx", cache_dir=tmp_path / "cache") as session:
            for feeds, weights in (({}, w), ({"w": other}, other), ({}, w), ({"w": w}, w)):
                [y] = session.run(None, {"x": x, **feeds})
                np.testing.assert_allclose(y, x @ weights, rtol=1e-3, atol=1e-3)
