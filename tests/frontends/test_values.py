"""Values that runs give: of inputs that decide shapes, and of initializers that are inputs, too."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto

from tests.frontends.support import Array, f32, model, run_once, same_as_runtime
from tests.libraries.command import vtensor
from vtensor import Session, load_onnx
from vtensor.errors import (
    BudgetError,
    InputError,
    LockError,
    ModelError,
    UnsupportedOperatorError,
    ValuesNeededError,
    VTensorError,
)
from vtensor.runtime.planning.store import MOST_PLANS

RESHAPE = model("g (float[2, 3, 4] x, int64[2] s) => (float[a, b] y) { y = Reshape(x, s) }")
COMPUTED = model(
    """g (float[n, 3, 4] x, int64[1] s) => (float[a, b] y) <int64[1] rest = {-1}> {
    t = Concat<axis = 0>(s, rest) y = Reshape(x, t) }"""
)
COUNTED = model(
    """g (int64 n, float[4] x) => (int64[a] y, float[4] z) <int64 zero = {0}, int64 one = {1}> {
    y = Range(zero, n, one) z = Relu(x) }"""
)
FILLED = model("g (int64[2] s) => (float[a, b] y) { y = ConstantOfShape(s) }")
RANKS = model("g (float[2, 4] x, int64[k] s) => (float[r, q] y) { y = Reshape(x, s) }")
LONG = model("g (float[2] x, int64[n] s) => (float[a, b] y) { y = Reshape(x, s) }")
SHAPES = ((6, 4), (4, 6), (-1, 3), (0, -1))


def shaped(*shape: int, x: Sequence[int] = (2, 3, 4)) -> dict[str, Any]:
    """Return an array, and the shape that it is to have."""
    return {"x": f32(*x), "s": np.array(shape)}


@pytest.mark.parametrize("libraries", [None, ["numpy"]])
@pytest.mark.parametrize(
    ("proto", "runs"),
    [
        (RESHAPE, [shaped(*shape) for shape in SHAPES]),
        (COMPUTED, [shaped(2, x=(1, 3, 4)), shaped(6), shaped(12)]),
        (COUNTED, [{"n": np.array(count), "x": f32(4)} for count in (3, 5, 0)]),
        (FILLED, [{"s": np.array([2, 3])}]),
    ],
    ids=["shape", "computed shape", "count", "filled shape"],
)
def test_a_value_decides_sizes(
    proto: ModelProto, runs: list[dict[str, Any]], libraries: list[str] | None
) -> None:
    with Session(proto, libraries=libraries) as session:
        assert {port.name for port in session.inputs} == {*runs[0]}
        for feeds in runs:
            same_as_runtime(session, proto, feeds, 0)


def test_values_are_part_of_a_plans_key_and_plans_are_bounded() -> None:
    plans = []
    with Session(RESHAPE) as session:
        for shape in (*SHAPES, *SHAPES):
            session.run(None, shaped(*shape))
            plans.append(session.plan)
        assert plans[:4] == plans[4:]
        assert len(set(map(id, plans))) == len(SHAPES)
        for rows in range(1, 2 * MOST_PLANS + 1):
            if 24 % rows == 0:
                session.run(None, shaped(rows, -1))
        assert len(session._runner.open()) <= MOST_PLANS


def test_the_value_is_read_before_the_run_so_the_array_may_change() -> None:
    feeds = shaped(6, 4)
    with Session(RESHAPE) as session:
        session.run(None, feeds)
        feeds["s"][:] = (4, 6)
        assert session.run(None, feeds)[0].shape == (4, 6)


@pytest.mark.parametrize(
    ("proto", "bad", "error", "complaint", "good"),
    [
        *(
            (RESHAPE, shaped(*shape), VTensorError, None, shaped(6, 4))
            for shape in ((5, 5), (-1, -1), (-3, 8), (2**40, 2**40))
        ),
        *(
            (
                RANKS,
                shaped(*shape, x=(2, 4)),
                ModelError,
                f"has {len(shape)}",
                shaped(4, 2, x=(2, 4)),
            )
            for shape in ((8,), (2, 2, 2))
        ),
        (FILLED, {"s": np.array([2**30, 2**10])}, BudgetError, "takes 4398046511104 bytes", None),
        (FILLED, {"s": np.array([-2, 3])}, VTensorError, None, None),
        (LONG, shaped(*[1] * 5000, x=(2,)), InputError, "1024 are the most", shaped(2, 1, x=(2,))),
    ],
)
def test_a_value_that_does_not_fit_is_a_typed_error(
    proto: ModelProto, bad: Any, error: type[VTensorError], complaint: str | None, good: Any
) -> None:
    if proto is RANKS:
        complaint = f"'y' is declared with 2 dims, and {complaint}"
    with Session(proto) as session:
        if proto is LONG:  # a first run says that values of so many are data
            session.run(None, good)
        with pytest.raises(error, match=complaint):
            session.run(None, bad)
        same_as_runtime(session, proto, good or {"s": np.array([2, 3])}, 0)


@pytest.mark.parametrize(
    "after",
    [
        "y = Relu(r)",
        "y = Softmax(r)",
        "y = MaxPool<kernel_shape = [2, 2]>(r)",
        "y = ReduceMean<axes = [1]>(r)",
        "y = Conv<kernel_shape = [2, 2]>(r, k)",
        "c = Concat<axis = 1>(r, r) y = GlobalAveragePool(c)",
        "t = Transpose<perm = [0, 2, 3, 1]>(r) y = Add(t, t)",
        "y = MatMul(r, w)",
        "f = Flatten(r) y = Gemm(f, m)",
        "q = Squeeze(r, zero) y = Unsqueeze(q, zero)",
    ],
)
def test_operators_behind_a_value_whose_rank_is_not_known_yet(after: str) -> None:
    text = f"g (float[16] x, int64[n] s) => (float[] y) {{ r = Reshape(x, s) {after} }}"
    weights = {"w": f32(1, 1, 4, 2), "k": f32(3, 1, 2, 2), "m": f32(16, 3), "zero": np.array([0])}
    text = text.replace("[]", "[a, b]" if "Gemm" in after else "[a, b, c, d]")
    proto = model(text, **weights)
    with Session(proto) as session:
        same_as_runtime(session, proto, shaped(1, 1, 4, 4, x=(16,)), 1e-5, 1e-6)


def test_load_onnx_asks_for_values_and_takes_them() -> None:
    with pytest.raises(ValuesNeededError, match="'s'") as caught:
        load_onnx(RESHAPE)
    assert caught.value.names == ("s",)
    graph = load_onnx(RESHAPE, values={"s": np.array([6, 4])})
    assert list(graph.inputs) == ["x"]
    with pytest.raises(InputError, match="no input 'size'"):
        load_onnx(RESHAPE, values={"size": np.array([6, 4])})
    with pytest.raises(InputError, match="element type f32"):
        load_onnx(RESHAPE, values={"s": np.ones(2, np.float32)})


@pytest.mark.parametrize(
    "text",
    [
        "(float[2] x) => (float[a, b] y) { s = Cast<to = 7>(x) y = Reshape(x, s) }",
        "(int64[2, 1] x) => (int64[a, b] y) <int64[1] zero = {0}> {"
        " s = Flatten<axis = 0>(x) z = Squeeze(s, zero) y = Reshape(x, z) }",
    ],
    ids=["from floats", "from a matrix"],
)
def test_shapes_that_are_computed_from_data(text: str) -> None:
    proto = model(f"g {text}")
    x = np.array([1, 2], np.float32 if "float[2] x" in text else np.int64)
    with Session(proto) as session:
        for numbers in (x, x[::-1].copy()):
            feed = numbers if x.dtype == np.float32 else numbers.reshape(2, 1)
            same_as_runtime(session, proto, {"x": feed})


def test_a_shape_that_is_too_long_is_an_error() -> None:
    with pytest.raises(UnsupportedOperatorError):
        Session(model("g (int64[4096] x) => (int64[a, b] y) { y = Reshape(x, x) }"))


def test_an_operator_that_is_missing_is_said_at_once() -> None:
    text = "g (float[2] x, int64[1] s) => (float[a] y) { z = Bernoulli(x) y = Reshape(z, s) }"
    with pytest.raises(VTensorError, match="Bernoulli"):
        Session(model(text), reference=False)


X = np.array([1, 2, 3], np.float32)
K = np.array([2, 3, 4], np.float32)
SCALED = """scaled (float[3] x, float[3] k = {1, 1, 1}) => (float[3] y) {
    t = Add(k, k) y = Mul(x, t) }"""


def scaled(ir_version: int = 8) -> ModelProto:
    proto = model(SCALED, 18)
    proto.ir_version = ir_version
    return proto


def run_on_x(session: Session, **feeds: Any) -> Array:
    """Run on ``X`` and further inputs; return the only output."""
    [y] = session.run(None, {"x": X, **feeds})
    return y


def check_both_ways(session: Session) -> None:
    """Run with a value for ``k`` and with its default."""
    np.testing.assert_array_equal(run_on_x(session, k=K), X * K * 2)
    np.testing.assert_array_equal(run_on_x(session), X * 2)


@pytest.mark.parametrize("form", ["proto", "bytes", "file", "cached file"])
def test_a_run_takes_the_given_value_and_else_the_default(form: str, tmp_path: Path) -> None:
    proto, file = scaled(), tmp_path / "scaled.onnx"
    onnx.save(proto, file)
    source = {"proto": proto, "bytes": proto.SerializeToString()}.get(form, file)
    for _ in range(2):  # the second session may find plans of the first one
        cache = tmp_path / "cache" if "cached" in form else None
        with Session(source, cache_dir=cache) as session:
            for _ in range(3):
                check_both_ways(session)
            assert [port.name for port in session.inputs] == ["x"]
            assert session.overridable == ["k"]


def test_a_plan_for_defaults_stays_as_it_is() -> None:
    with Session(scaled(), cache_dir=None, deterministic=True) as session:
        before = session.plan
        run_on_x(session, k=K)
        assert session.plan is not before
        assert {port.name for port in session.plan.inputs} == {"x", "k"}
        run_on_x(session)
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
                np.testing.assert_allclose(run_on_x(session, **feeds), expected, rtol=1e-6)


@pytest.mark.parametrize("sizes", ["N, 4", "2, 4"])
def test_a_given_shape_decides_sizes(sizes: str) -> None:
    text = f"""shaped (float[{sizes}] x, int64[r] shape) => (float[a, b] y) {{
        y = Reshape(x, shape) }}"""
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    with Session(model(text, 18, shape=np.array([-1, 2])), cache_dir=None) as session:
        for _ in range(2):
            for shape in ([8, -1], [-1, 4], [4, 2]):
                y = run_on_x(session, x=x, shape=np.array(shape))
                np.testing.assert_array_equal(y, x.reshape(shape))
            np.testing.assert_array_equal(run_on_x(session, x=x), x.reshape(4, 2))


def test_a_given_condition_chooses_a_branch() -> None:
    proto = model(
        """branches (float[3] x, bool c = {1}, float[3] k = {2, 3, 4}) => (float[3] y) {
            t = Add(x, k) y = If(c) < then_branch = then() => (float[3] a) { a = Neg(t) },
                                      else_branch = else() => (float[3] b) { b = Sqrt(t) } > }""",
        18,
    )
    with Session(proto, cache_dir=None) as session:
        for _ in range(2):
            np.testing.assert_array_equal(run_on_x(session), -(X + K))
            for c in (np.array(False), np.array(True)):
                for feeds in ({}, {"k": X}):
                    t = X + feeds.get("k", K)
                    y = run_on_x(session, c=c, **feeds)
                    np.testing.assert_allclose(y, -t if c else np.sqrt(t), rtol=1e-6)


def test_a_declared_symbol_takes_other_sizes_than_the_default_has() -> None:
    text = "sized (float[3] x, float[n, 3] k) => (float[n, 3] y) { y = Mul(x, k) }"
    with Session(model(text, 18, k=np.ones((2, 3), np.float32)), cache_dir=None) as session:
        assert run_on_x(session).shape == (2, 3)
        for n in (1, 5, 2):
            k = np.full((n, 3), n, np.float32)
            np.testing.assert_array_equal(run_on_x(session, k=k), X * k)


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
        for run in (run_on_x, lambda session, **feeds: session.bind({"x": X, **feeds})):
            with pytest.raises(InputError):
                run(session, **feeds)
        with pytest.raises(InputError, match="missing: x"):
            session.run(None, {"k": K})
        check_both_ways(session)


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
        run_on_x(session, k=np.repeat(K, 2)[::2])
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
                np.testing.assert_array_equal(run_on_x(session, **feeds), expected)

        assert [*pool.map(work, range(4))] == [None] * 4


def test_a_lock_file_is_of_the_run_that_it_was_made_of(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"

    def lock(**feeds: Array) -> Session:
        with Session(scaled(), cache_dir=None) as session:
            run_on_x(session, **feeds)
            session.lock().write(file)
        return Session(scaled(), plan=file, cache_dir=None)

    with lock() as session:
        np.testing.assert_array_equal(run_on_x(session), X * 2)
        with pytest.raises(LockError, match=r"runs without the inputs k, .*\n.*to fix: give no"):
            run_on_x(session, k=K)
    with lock(k=K) as session:
        np.testing.assert_array_equal(run_on_x(session, k=K), X * K * 2)
        with pytest.raises(InputError, match="missing: k"):
            run_on_x(session)


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
        check_both_ways(session)


def test_large_weights_of_a_file_may_be_overridden(tmp_path: Path) -> None:
    w, other, x = f32(256, 128), f32(256, 128, seed=1), f32(4, 256)
    text = "p (float[n, 256] x, float[256, 128] w) => (float[n, 128] y) { y = MatMul(x, w) }"
    onnx.save(model(text, 18, w=w), tmp_path / "product.onnx")
    for _ in range(2):
        with Session(tmp_path / "product.onnx", cache_dir=tmp_path / "cache") as session:
            for feeds, weights in (({}, w), ({"w": other}, other), ({}, w), ({"w": w}, w)):
                y = run_on_x(session, x=x, **feeds)
                np.testing.assert_allclose(y, x @ weights, rtol=1e-3, atol=1e-3)
