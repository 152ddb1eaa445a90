"""Networks in f16 and bf16 run in f32 where a type has no kernel; a run notes conversions alone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper
from onnxruntime.transformers import float16

from libdesc.registry import registry
from libdesc.schema import Speed
from optimizer.pipeline import LEVELS, simplify
from optimizer.retyping import NARROW_SIDE, WIDE_SIDE, Link, fewest
from optimizer.widen import widen
from tests.frontends.support import runtime
from tests.libraries.processes import printed
from tests.runtime.waiting import settle
from vtensor import Session
from vtensor.commands.explain import explain_dict
from vtensor.language.graph import Graph
from vtensor.report import plan_lines

Array = NDArray[Any]

KINDS = {
    "f32": (TensorProto.FLOAT, np.dtype("f4")),
    "f16": (TensorProto.FLOAT16, np.dtype("f2")),
    "bf16": (TensorProto.BFLOAT16, np.dtype(ml_dtypes.bfloat16)),
}

#: The options of a session that rounds the result of every node.
ROUNDING: Mapping[str, Any] = {"optimize": ["all", "-widen"], "libraries": ["numpy"]}

#: The distance of adjacent numbers next to 1.
STEP = {"f16": 2.0**-10, "bf16": 2.0**-7}


@pytest.fixture
def no_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let oneDNN compute in f32 alone, as on a processor that has neither f16 nor bf16."""
    code = registry().libraries["onednn"].code
    monkeypatch.setitem(code, "computes_handler", lambda dtype: dtype not in STEP)


pytestmark = pytest.mark.usefixtures("no_bf16")


class Net:
    """A model in one of the types: nodes are added in order, weights are drawn."""

    def __init__(self, dtype: str, seed: int = 0) -> None:
        self.kind, self.numpy = KINDS[dtype]
        self.draw = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def weight(self, *shape: int, scale: float = 1.0) -> str:
        """Add numbers that every type holds: their first bits are drawn."""
        name = f"w{len(self.weights)}"
        fan = max(int(np.prod(shape[1:])), 1) if len(shape) > 1 else 1
        array = (self.draw.standard_normal(shape) * scale / fan**0.5).astype(ml_dtypes.bfloat16)
        return self.constant(name, array)

    def constant(self, name: str, array: Any) -> str:
        numbers = np.asarray(array).astype(self.numpy)
        self.weights.append(
            helper.make_tensor(name, self.kind, numbers.shape, numbers.tobytes(), raw=True)
        )
        return name

    def integers(self, name: str, *numbers: int) -> str:
        self.weights.append(helper.make_tensor(name, TensorProto.INT64, [len(numbers)], numbers))
        return name

    def add(self, op: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        out = out or f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [out], name=out, **attributes))
        return out

    def model(
        self,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        types: Mapping[str, int] | None = None,
        opset: int = 17,
    ) -> ModelProto:
        def ports(rows: Mapping[str, Any]) -> list[Any]:
            kinds = {name: (types or {}).get(name, self.kind) for name in rows}
            return [helper.make_tensor_value_info(n, kinds[n], rows[n]) for n in rows]

        graph = helper.make_graph(self.nodes, "net", ports(inputs), ports(outputs), self.weights)
        opsets = [helper.make_opsetid("", opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def conv_net(dtype: str, batch: Any = 2) -> ModelProto:
    net = Net(dtype)
    x = net.add("Conv", "x", net.weight(8, 3, 3, 3), net.weight(8), strides=[2, 2], pads=[1] * 4)
    x = skip = net.add("Relu", x)
    x = net.add("Conv", x, net.weight(8, 1, 3, 3), net.weight(8), group=8, pads=[1] * 4)
    x = net.add("Clip", x, net.constant("low", 0.0), net.constant("high", 6.0))
    x = net.add("Add", net.add("Conv", x, net.weight(8, 8, 1, 1)), skip, out="sum")
    x = net.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = net.add("GlobalAveragePool", x)
    x = net.add("Flatten", x)
    net.add("Gemm", x, net.weight(8, 5), net.weight(5), out="y")
    return net.model({"x": [batch, 3, 16, 16]}, {"y": [batch, 5]})


def transformer(dtype: str, batch: Any = 2) -> ModelProto:
    net = Net(dtype)
    shape = net.integers("heads", 0, 6, 2, 8)
    back = net.integers("joined", 0, 6, 16)
    heads = []
    for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]):
        part = net.add("Add", net.add("MatMul", "x", net.weight(16, 16)), net.weight(16))
        heads.append(net.add("Transpose", net.add("Reshape", part, shape), perm=perm))
    scores = net.add("Div", net.add("MatMul", heads[0], heads[1]), net.constant("root", 2.75))
    rows = net.add("MatMul", net.add("Softmax", scores, axis=-1), heads[2])
    rows = net.add("Reshape", net.add("Transpose", rows, perm=[0, 2, 1, 3]), back)
    x = net.add("Add", net.add("MatMul", rows, net.weight(16, 16)), "x")
    x = net.add("LayerNormalization", x, net.weight(16), net.weight(16), axis=-1)
    h = net.add("MatMul", x, net.weight(16, 32))
    inner = net.add("Erf", net.add("Div", h, net.constant("root2", 2**0.5)))
    inner = net.add("Mul", h, net.add("Add", inner, net.constant("one", 1.0)))
    h = net.add("Mul", inner, net.constant("half", 0.5))
    net.add("Add", net.add("MatMul", h, net.weight(32, 16)), x, out="y")
    return net.model({"x": [batch, 6, 16]}, {"y": [batch, 6, 16]})


def lstm(dtype: str, batch: Any = 2) -> ModelProto:
    net = Net(dtype)
    bias = net.draw.integers(-8, 9, (1, 64)) / 8  # the sums of two halves are no numbers to round
    weights = net.weight(1, 32, 4), net.weight(1, 32, 8), net.constant("bias", bias)
    net.nodes.append(helper.make_node("LSTM", ["x", *weights], ["all"], "lstm", hidden_size=8))
    x = net.add("Squeeze", "all", net.integers("one", 1))
    net.add("Tanh", x, out="y")
    return net.model({"x": [5, batch, 4]}, {"y": [5, batch, 8]})


def upsampling(dtype: str, batch: Any = 2) -> ModelProto:
    net = Net(dtype)
    x = net.add("MaxPool", "x", kernel_shape=[2, 2], strides=[2, 2])
    x = net.add("ConvTranspose", x, net.weight(4, 3, 2, 2), net.weight(3), strides=[2, 2])
    x = net.add("AveragePool", x, kernel_shape=[2, 2], strides=[1, 1])
    net.add("Softmax", x, axis=1, out="y")
    return net.model({"x": [batch, 4, 8, 8]}, {"y": [batch, 3, 7, 7]})


NETWORKS: dict[str, Callable[..., ModelProto]] = {
    "conv net": conv_net,
    "transformer": transformer,
    "lstm": lstm,
    "upsampling": upsampling,
}


def input_of(model: ModelProto, dtype: str, batch: int = 2, seed: int = 5) -> dict[str, Array]:
    """Return an input whose numbers all types hold."""
    [port] = model.graph.input
    shape = [size.dim_value or batch for size in port.type.tensor_type.shape.dim]
    x = np.random.default_rng(seed).standard_normal(shape).astype(ml_dtypes.bfloat16)
    return {"x": x.astype(KINDS[dtype][1])}


def answer(model: Any, feeds: Mapping[str, Array], **options: Any) -> Array:
    with Session(model, threads=1, **options) as session:
        return np.array(session.run(None, feeds)[0])


def steps(session: Session) -> list[str]:
    """Return the kernels of a plan; one of a call-back is ``python``."""
    return [kernel for step in session.plan.steps for kernel in step.kernels]


def conversions(session: Session) -> list[str]:
    """Return the names of the steps that convert, without those of the model's own nodes."""
    return [step.op for step in session.plan.steps if "Cast" in step.op]


def wide(array: Array) -> Array:
    return np.asarray(array).astype(np.float64)


@pytest.mark.parametrize("dtype", STEP)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_answers_as_in_f32_rounded_once(name: str, dtype: str) -> None:
    model, exact = NETWORKS[name](dtype), NETWORKS[name]("f32")
    feeds = input_of(model, dtype)
    want = wide(answer(exact, input_of(exact, "f32")))
    with Session(model, threads=1) as session:
        [y] = session.run(None, feeds)
        assert y.dtype == KINDS[dtype][1]
        assert "python" not in steps(session)
        assert len(conversions(session)) <= 2
        error = np.abs(wide(y) - want)
    assert (error <= np.abs(want) * STEP[dtype] / 2 + 1e-5).all()
    rounded = np.abs(wide(answer(model, feeds, **ROUNDING)) - want)
    assert error.max() <= rounded.max() + 1e-6


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_answers_as_onnx_runtime(name: str) -> None:
    model = NETWORKS[name]("f16")
    feeds = input_of(model, "f16")
    try:
        [want] = runtime(model, feeds)
    except Exception as why:
        pytest.skip(f"ONNX Runtime lacks a kernel: {why}")
    np.testing.assert_allclose(wide(answer(model, feeds)), wide(want), rtol=2e-2, atol=1e-2)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("name", ["conv net", "transformer", "lstm"])
def test_a_converted_network_answers_as_in_f32(name: str, keep: bool) -> None:
    """If the converter keeps inputs and outputs in f32, by casts, nothing is converted."""
    exact = NETWORKS[name]("f32")
    feeds = input_of(exact, "f32")
    want = wide(answer(exact, feeds))
    half = float16.convert_float_to_float16(NETWORKS[name]("f32"), keep_io_types=keep)
    with Session(half, threads=1, cache_dir=None) as session:
        [y] = session.run(None, feeds if keep else input_of(half, "f16"))
        assert y.dtype == (np.float32 if keep else np.float16)
        assert "python" not in steps(session)
        assert len(conversions(session)) == (0 if keep else 2)
    assert (np.abs(wide(y) - want) <= np.abs(want) * STEP["f16"] / 2 + 1e-5).all()


def test_each_conversion_says_which_node_is_computed_wide() -> None:
    net = Net("f16")
    x = net.add("Sub", "x", net.weight(4))  # it has a native kernel, and rounds one number less
    x = net.add("MatMul", x, net.weight(4, 4), out="product")
    net.add("Relu", x, out="y")
    model = net.model({"x": [3, 4]}, {"y": [3, 4]})
    with Session(model, threads=1, cache_dir=None) as session:
        session.run(None, input_of(model, "f16"))
        assert " ".join(step.op for step in session.plan.steps).startswith("Sub + Cast MatMul")
        text = (
            "MatMul product is computed in f32: no library of the session has a native f16 kernel"
        )
        added = explain_dict(session.plan.graph, "net", others=False)["added"]
        assert [row["node"] for row in added] == ["sub0:f32", "y:f16"]
        assert all(row["text"].startswith(text) for row in added)
        whys = [line.text for line in plan_lines(session, "net") if line.kind == "why"]
        assert [text in why for why in whys] == [True, True]


@pytest.mark.parametrize("name", NETWORKS)
def test_a_lock_file_repeats_the_plan(name: str, tmp_path: Path) -> None:
    model, file = NETWORKS[name]("f16"), tmp_path / "plan.toml"
    feeds = input_of(model, "f16")
    with Session(model, threads=1) as session:
        [y] = session.run(None, feeds)
        session.lock().write(file)
        with Session(model, plan=file, threads=1) as again:
            assert again.run(None, feeds)[0].tobytes() == y.tobytes()
            assert steps(again) == steps(session)
            assert again.lock().text() == file.read_text()
            assert again.plan.graph.notes == session.plan.graph.notes != {}


def test_likely_sizes_are_prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one image the two parts are contiguous in memory, of several they are not."""
    # libraries of other tests of this process would keep plans out of the cache
    monkeypatch.setattr("vtensor.runtime.cache.plans.no_plugins", lambda: True)
    net = Net("f16")
    parts = [
        net.add("MaxPool", "x", kernel_shape=[k, k], pads=[0, 0, k - 1, k - 1]) for k in (2, 3)
    ]
    net.add("Concat", *parts, axis=1, out="y")
    model = net.model({"x": ["N", 16, 4, 4]}, {"y": ["N", 32, 4, 4]})
    with Session(model, threads=1, cache_dir=tmp_path) as session:
        store = session._runner.plans
        assert store is not None
        while not store.prepared:
            session.run(None, input_of(model, "f16", 1))
        settle(session)
    feeds = input_of(model, "f16", 2)
    with Session(model, threads=1, cache_dir=tmp_path) as later:
        [y] = later.run(None, feeds)
        assert (later.plan.origin.way, later.plan.origin.cached) == ("specialised", True)
        assert "python" not in steps(later)
    np.testing.assert_array_equal(y, answer(model, feeds, **ROUNDING))


@pytest.mark.parametrize("name", NETWORKS)
def test_without_the_pass_a_network_runs_python(name: str) -> None:
    """The twin; without oneDNN, which computes in f16 on some processors."""
    model, passes = NETWORKS[name]("f16"), ["all", "-widen"]
    with Session(model, threads=1, optimize=passes, libraries=["eigen"]) as session:
        session.run(None, input_of(model, "f16"))
        assert "python" in steps(session)


@pytest.mark.parametrize("level", ["none", "lho", "ewo"])
def test_levels_of_the_paper_change_no_type(level: str) -> None:
    assert "widen" not in LEVELS[level]
    model = conv_net("f16")
    with Session(model, threads=1, optimize=level) as session:
        session.run(None, input_of(model, "f16"))
        assert not conversions(session)


def graph_of(model: ModelProto) -> Graph:
    from vtensor.frontends.onnx import load_onnx

    return load_onnx(model)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_graph_in_f32_is_the_same_object(name: str) -> None:
    graph = graph_of(NETWORKS[name]("f32"))
    assert widen(graph) is graph


def test_a_graph_with_kernels_for_all_nodes_is_the_same_object() -> None:
    net = Net("f16")
    net.add("Tanh", net.add("Add", "x", net.weight(4)), out="y")
    graph = graph_of(net.model({"x": [3, 4]}, {"y": [3, 4]}))
    assert widen(graph) is graph


@pytest.mark.parametrize(("products", "wide"), [(0.1, True), (10.0, False)])
def test_a_node_with_a_slow_kernel_is_computed_wide(
    products: float, wide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Conversions count: a product that saves less than they cost stays narrow."""
    code = registry().libraries["onednn"].code
    monkeypatch.setitem(code, "computes_handler", lambda _: True)
    monkeypatch.setitem(code, "speeds_handler", lambda: {"f16": Speed("", products, 0.5)})
    net = Net("f16")
    x = net.add("MatMul", "x", net.weight(512, 512), out="large")
    x = net.add("MatMul", net.add("Relu", x), net.weight(512, 512), out="larger")
    x = net.add("MatMul", net.add("MaxPool", x, kernel_shape=[1]), net.weight(512, 1), out="y")
    graph = graph_of(net.model({"x": [1, 64, 512]}, {"y": [1, 64, 1]}))
    made = widen(graph)
    types = {node.name: made.values[node.outputs[0]].dtype for node in made.nodes.values()}
    assert (made is graph) is not wide
    assert {types["large"], types["relu1"], types["larger"]} == {"f32" if wide else "f16"}
    if wide:
        assert next(iter(made.notes.values())).startswith(
            "MatMul large is computed in f32: by declared speeds it takes "
        )
        tiny = graph_of(net_of_one_product().model({"x": [3, 4]}, {"y": [3, 4]}))
        assert widen(tiny) is tiny


def test_types_do_not_depend_on_the_first_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open sizes count as typical ones: plans for all sizes are made of one graph."""
    code = registry().libraries["onednn"].code
    monkeypatch.setitem(code, "computes_handler", lambda _: True)
    monkeypatch.setitem(code, "speeds_handler", lambda: {"f16": Speed("", 6.0, 0.5)})
    net = Net("f16")
    axis, x = net.integers("axis", 1), "x"
    for _ in range(2):
        x = net.add("MatMul", net.add("CumSum", x, axis), net.weight(256, 256))
    net.add("CumSum", x, axis, out="y")

    def types(rows: Any, first: int) -> dict[str, str]:
        model = net.model({"x": [rows, 256]}, {"y": [rows, 256]})
        with Session(model, threads=1, cache_dir=False, deterministic=True) as session:
            session.run(None, {"x": np.zeros((first, 256), np.float16)})
            values = session.plan.graph.values
            operators = session.plan.graph.operators
        return {name: values[name].dtype for node in operators for name in node.outputs}

    assert types("n", 1) == types("n", 1024)
    assert types(1, 1) != types(1024, 1024)


def net_of_one_product() -> Net:
    net = Net("f16")
    net.add("MatMul", "x", net.weight(4, 4), out="y")
    return net


def test_explain_says_that_a_kernel_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    code = registry().libraries["onednn"].code
    monkeypatch.setitem(code, "computes_handler", lambda _: True)
    monkeypatch.setitem(code, "speeds_handler", lambda: {"f16": Speed("", 0.01, 0.5)})
    net = Net("f16")
    net.add("MatMul", "x", net.weight(256, 256), out="y")
    model = net.model({"x": [64, 256]}, {"y": [64, 256]})
    with Session(model, threads=1, cache_dir=None) as session:
        session.run(None, input_of(model, "f16"))
        [first, *_] = explain_dict(session.plan.graph, "net", others=False)["added"]
    assert re.match(
        r"MatMul y is computed in f32: by declared speeds it takes \S+ us in f16, \S+ in f32",
        first["text"],
    )


@st.composite
def cuts(draw: st.DrawFn) -> tuple[list[Link], dict[str, int]]:
    """Return links between a few nodes and the two sides, and what each node gains."""
    names = [f"n{place}" for place in range(draw(st.integers(1, 5)))]
    ends, weights = st.sampled_from([WIDE_SIDE, NARROW_SIDE, *names]), st.integers(1, 9)
    link = st.tuples(ends, st.lists(ends, min_size=1, max_size=3), weights)
    rows = draw(st.lists(link, max_size=8))
    links = [Link(f"v{place}", *row) for place, row in enumerate(rows)]
    return links, {name: draw(st.integers(-9, 9)) for name in names}


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(cuts())
def test_the_cut_is_least_by_brute_force(drawn: tuple[list[Link], dict[str, int]]) -> None:
    links, gains = drawn

    def cost(chosen: set[str]) -> int:
        lost = sum(max(0, -gain if name in chosen else gain) for name, gain in gains.items())
        return lost + sum(link.cost(chosen) for link in links)

    subsets = (set(some) for n in range(len(gains) + 1) for some in combinations(gains, n))
    every = [{WIDE_SIDE, *some} for some in subsets]
    found = fewest(links, gains, WIDE_SIDE, NARROW_SIDE)
    least = min(map(cost, every))
    assert cost(found) == least
    assert len(found) == min(len(chosen) for chosen in every if cost(chosen) == least)


def test_fusion_sees_f32() -> None:
    """A Gelu whose root of 2 is rounded to f16 is a Gelu, and an attention is one."""
    simple = simplify(graph_of(transformer("f16")))
    assert simple.passes[0] == "widen"
    assert simple.rewritten == simplify(graph_of(transformer("f32"))).rewritten != {}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_processor_with_bf16_runs_no_python(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a rule makes an operator that has no kernel in bf16, such as an attention."""
    code = registry().libraries["onednn"].code
    monkeypatch.setitem(code, "computes_handler", lambda dtype: dtype != "f16")
    graph = graph_of(NETWORKS[name]("bf16"))
    assert (widen(graph) is graph) == (name != "lstm")
    made = [n for n in simplify(graph).nodes.values() if n.op_name == "Attention"]
    assert not made


def casts_inside(dtype: str) -> ModelProto:
    """A product in the narrow type, a Softmax in f32, and another product."""
    net = Net(dtype)
    x = net.add("MatMul", "x", net.weight(8, 8))
    x = net.add("Softmax", net.add("Cast", x, to=TensorProto.FLOAT), axis=-1)
    x = net.add("Cast", x, to=net.kind)
    net.add("MatMul", x, net.weight(8, 8), out="y")
    return net.model({"x": [4, 8]}, {"y": [4, 8]})


@pytest.mark.parametrize("dtype", STEP)
def test_casts_between_f32_and_the_narrow_type_vanish(dtype: str) -> None:
    model, exact = casts_inside(dtype), casts_inside("f32")
    with Session(model, threads=1) as session:
        [y] = session.run(None, input_of(model, dtype))
        assert "python" not in steps(session)
        assert len(conversions(session)) == 2
    want = wide(answer(exact, input_of(exact, "f32")))
    assert (np.abs(wide(y) - want) <= np.abs(want) * STEP[dtype] / 2 + 1e-5).all()


def test_a_model_with_inputs_and_outputs_in_f32_converts_nothing() -> None:
    """Only its weights are in f16, as tools write it."""
    net = Net("f16")
    x = net.add("Cast", "x", to=TensorProto.FLOAT16)
    x = net.add("Relu", net.add("MatMul", x, net.weight(8, 8)))
    net.add("Cast", net.add("MatMul", x, net.weight(8, 8)), to=TensorProto.FLOAT, out="y")
    types = {"x": TensorProto.FLOAT, "y": TensorProto.FLOAT}
    model = net.model({"x": [4, 8]}, {"y": [4, 8]}, types)
    with Session(model, threads=1) as session:
        [y] = session.run(None, {"x": np.ones((4, 8), np.float32)})
        assert y.dtype == np.float32
        assert not conversions(session)


def test_the_table_of_an_embedding_stays_narrow() -> None:
    """What is read of it is converted: the table in f32 would take twice the memory."""
    net = Net("f16")
    x = net.add("Gather", net.weight(100, 8), "x")
    net.add("MatMul", x, net.weight(8, 8), out="y")
    model = net.model({"x": [3]}, {"y": [3, 8]}, {"x": TensorProto.INT64})
    simple = simplify(graph_of(model))
    [gather, cast, *_] = simple.nodes.values()
    assert (gather.op_name, cast.op_name) == ("Gather", "Cast")
    assert simple.values[gather.inputs[0]].dtype == "f16"
    assert answer(model, {"x": np.array([1, 99, 1])}).shape == (3, 8)


def test_moves_between_wide_nodes_convert_nothing() -> None:
    net = Net("f16")
    x = net.add("MatMul", "x", net.weight(8, 8))
    x = net.add("Transpose", net.add("Reshape", x, net.integers("s", 2, 2, 8)), perm=[1, 0, 2])
    x = net.add("Concat", x, x, axis=2)
    net.add("MatMul", x, net.weight(16, 8), out="y")
    model = net.model({"x": [4, 8]}, {"y": [2, 2, 8]})
    with Session(model, threads=1) as session:
        session.run(None, input_of(model, "f16"))
        assert len(conversions(session)) == 2


def test_a_move_next_to_an_input_and_an_output_stays_narrow() -> None:
    """A cache of keys: only what is new is narrowed, and only what is read is widened."""
    net = Net("f16")
    new = net.add("MatMul", "x", net.weight(8, 8))
    net.add("Concat", "past", new, axis=0, out="present")
    net.add("MatMul", "present", net.weight(8, 4), out="y")
    model = net.model({"x": [1, 8], "past": [9, 8]}, {"present": [10, 8], "y": [10, 4]})
    simple = simplify(graph_of(model))
    [concat] = [node for node in simple.nodes.values() if node.op_name == "Concat"]
    assert {simple.values[name].dtype for name in (*concat.inputs, *concat.outputs)} == {"f16"}


def test_a_number_beyond_the_range_may_come_back() -> None:
    """It is infinite only where it is delivered."""
    net = Net("f16")
    x = net.add("MatMul", "x", net.constant("large", np.full((2, 2), 30000.0)), out="inner")
    net.add("MatMul", x, net.constant("small", np.full((2, 2), 2.0**-12)), out="y")
    model = net.model({"x": [1, 2]}, {"y": [1, 2]})
    feeds = {"x": np.full((1, 2), 4.0, np.float16)}
    assert answer(model, feeds).tolist() == [[117.1875, 117.1875]]
    with Session(model, threads=1) as session:
        y, inner = session.run(["y", "inner"], feeds)
        assert inner.dtype == np.float16
        assert np.isinf(inner).all()
        assert y.tolist() == [[117.1875, 117.1875]]


OVERFLOWING = """
import sys
import numpy as np
from tests.optimizer.test_widen import STEP, Net, Session, steps
net = Net("f16")
x = net.add("MatMul", "x", net.constant("large", np.full((2, 2), 30000.0)))
net.add("MatMul", x, net.constant("small", np.full((2, 2), 2.0**-12)), out="y")
model = net.model({"x": ["N", 2]}, {"y": ["N", 2]})
def answers(numbers, file=None, **options):
    with Session(model, threads=1, **options) as session:
        feeds = {"x": np.repeat(np.array(numbers, np.float16)[:, None], 2, 1)}
        y = session.run(None, feeds)[0].tolist()
        if file:
            session.lock().write(file)
        return y, steps(session)
plain, kernels = answers([0.5], sys.argv[2], cache_dir=sys.argv[1])
print(plain == [[14.6484375] * 2], any("fp16" in kernel for kernel in kernels))
large = [[117.1875] * 2] * 3
for options in ({"cache_dir": sys.argv[1]}, {"cache_dir": None}):
    print(answers([4, 4, 4], **options)[0] == large)
print(answers([4], plan=sys.argv[2])[0] == large[:1])
print(answers([4], cache_dir=None, finite=True)[0] == [[np.inf] * 2])
"""


def test_numbers_beyond_the_range_do_not_cross_native_nodes(tmp_path: Path) -> None:
    """A run whose outputs are not finite is repeated in f32, from a plan of any origin."""
    lines = printed("-c", OVERFLOWING, tmp_path / "cache", tmp_path / "plan.toml").split()
    if lines[1] == "False":
        pytest.skip("oneDNN has no kernels in f16 on this processor")
    assert lines == ["True"] * 6


@pytest.mark.parametrize("name", NETWORKS)
def test_inner_values_have_their_types(name: str) -> None:
    model = NETWORKS[name]("f16")
    feeds = input_of(model, "f16")
    inner = [node.output[0] for node in model.graph.node]
    with Session(model, threads=1) as session:
        values = session.run(inner, feeds)
        assert "python" not in steps(session)
    with Session(model, threads=1, **ROUNDING) as session:
        rounded = session.run(inner, feeds)
    for value, other in zip(values, rounded, strict=True):
        assert (value.dtype, value.shape) == (np.float16, other.shape)
        np.testing.assert_allclose(wide(value), wide(other), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("name", NETWORKS)
def test_another_batch_needs_no_other_plan(name: str) -> None:
    model, exact = NETWORKS[name]("f16", "N"), NETWORKS[name]("f32", "N")
    with Session(model, threads=1, cache_dir=False) as session, Session(exact) as other:
        for batch in (3, 5, 6):
            [y] = session.run(None, input_of(model, "f16", batch))
            [want] = other.run(None, input_of(exact, "f32", batch))
            assert (np.abs(wide(y) - want) <= np.abs(want) * STEP["f16"] / 2 + 1e-5).all()
            assert "python" not in steps(session)
            assert batch < 6 or session.plan.origin.way == other.plan.origin.way


SECOND = """
import sys, json
import numpy as np
from vtensor import Session
with Session(sys.argv[1], threads=1, cache_dir=sys.argv[2]) as session:
    y = session.run(None, {"x": np.load(sys.argv[3])})[0]
    kernels = [kernel for step in session.plan.steps for kernel in step.kernels]
    print(json.dumps([session.plan.origin.cached, "python" in kernels, y.tobytes().hex()]))
"""


@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("name", ["conv net", "transformer", "lstm"])
def test_a_later_process_reads_the_plan(name: str, outside: bool, tmp_path: Path) -> None:
    """Also if the weights are in another file, large enough that the entry names them."""
    model = NETWORKS[name]("f16")
    path, cache = tmp_path / "net.onnx", tmp_path / "cache"
    onnx.save(model, path, save_as_external_data=outside, location="net.data", size_threshold=0)
    np.save(tmp_path / "x.npy", input_of(model, "f16")["x"])
    rows = [json.loads(printed("-c", SECOND, path, cache, tmp_path / "x.npy")) for _ in range(2)]
    assert [row[0] for row in rows] == [False, True]
    assert not rows[0][1]
    assert not rows[1][1]
    assert rows[0][2] == rows[1][2]


def test_large_weights_are_widened_from_their_file(tmp_path: Path) -> None:
    net = Net("f16")
    net.add("Relu", net.add("MatMul", "x", net.weight(512, 300)), out="y")
    model, path = net.model({"x": [4, 512]}, {"y": [4, 300]}), tmp_path / "net.onnx"
    feeds = input_of(model, "f16")
    want = answer(model, feeds)
    onnx.save(model, path, save_as_external_data=True, location="net.data", size_threshold=0)
    np.save(tmp_path / "x.npy", feeds["x"])
    for cached in (False, True):
        out = printed("-c", SECOND, path, tmp_path / "cache", tmp_path / "x.npy")
        assert json.loads(out) == [cached, False, want.tobytes().hex()]


CAPPED = """
import sys
from vtensor import limit_isa
limit_isa(sys.argv[1])
from libdesc.registry import ready
from tests.optimizer.test_widen import Session, conv_net, input_of, steps
with Session(conv_net("bf16"), threads=1, cache_dir=False) as session:
    session.run(None, input_of(conv_net("bf16"), "bf16"))
    onednn = ready().libraries["onednn"]
    print("python" in steps(session), onednn.computes("bf16"), onednn.computes("f32"))
"""


@pytest.mark.parametrize("cap", ["sse41", "avx2"])
def test_a_processor_without_bf16_is_asked(cap: str) -> None:
    assert printed("-c", CAPPED, cap).split() == ["False", "False", "True"]


def test_a_pinned_node_keeps_its_library() -> None:
    model = casts_inside("f16")
    pins = {node.name: "numpy" for node in model.graph.node if node.op_type == "Cast"}
    with Session(model, threads=1, pin=pins) as session:
        session.run(None, input_of(model, "f16"))
        assert steps(session).count("python") >= 2
