"""Bodies that join dims which nothing outside joins: inputs keep the dims that were promised."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper
from typer.testing import CliRunner

from tests.frontends.support import Array, f32, model, runtime
from tests.libraries.processes import printed
from vtensor import Session
from vtensor.cli import app
from vtensor.errors import InputError

HEADS, WIDTH, VOCABULARY = 2, 4, 11

#: Two bodies of which one joins what is given, and the condition that decides.
BRANCHES = """If(c) <
    then_branch = a() => (float[k, 4] t) { t = Concat<axis = 0>(p, x) },
    else_branch = b() => (float[k, 4] t) { t = Identity(x) }
>"""
INPUTS = "float[s, 4] x, float[q, 4] p"

#: Models by name, and whose values decide: what a body joins, nothing outside does.
MODELS = {
    "value": f"g ({INPUTS}, bool c) => (float[k, 4] y) {{ y = {BRANCHES} }}",
    "size": f"""g ({INPUTS}) => (float[k, 4] y) {{
        h = Shape<start = 0, end = 1>(p) z = Constant<value_ints = [2]>() c = Greater(h, z)
        y = {BRANCHES} }}""",
    "nested": f"""g ({INPUTS}, bool c, bool d) => (float[k, 4] y) {{
        y = If(d) < then_branch = i() => (float[k, 4] e) {{ f = Neg(x) e = {BRANCHES} }},
            else_branch = j() => (float[k, 4] e) {{ e = Concat<axis = 0>(x, x, p) }} > }}""",
    "loop": f"""g ({INPUTS}, int64 c) => (float[n, 4] y) {{
        y = Loop(c, , x) < body = b(int64 i, bool d, float[n, 4] u) => (bool d, float[m, 4] v) {{
            v = Concat<axis = 0>(u, p) }} > }}""",
    "scan": """g (float[s, 4] x, float[s, 4] p, float[q, 4] w, bool c) => (float[k, 4] y) {
        y = If(c) < then_branch = a() => (float[k, 4] t) {
            t = Scan(x) < num_scan_inputs = 1, body = b(float[4] r) => (float[4] v) {
                o = ReduceSum<keepdims = 0>(w) m = ReduceMean<keepdims = 0>(p) n = Add(r, o)
                v = Mul(n, m) } > },
            else_branch = d() => (float[k, 4] t) { t = Concat<axis = 0>(w, p) } > }""",
    "matmul": """g (float[a, b] x, float[e, f] p, bool c) => (float[g, h] y) {
        y = If(c) < then_branch = i() => (float[g, h] t) { t = MatMul(x, p) },
            else_branch = j() => (float[g, h] t) { u = Transpose(p) t = Mul(x, u) } > }""",
    "itself": """g (float[a, b] x, float[e, f] p, bool c) => (float[a, b] y) {
        y = If(c) < then_branch = i() => (float[a, b] t) { u = Transpose(x) t = Add(x, u) },
            else_branch = j() => (float[a, b] t) { t = Add(x, p) } > }""",
    "delivered": f"""g ({INPUTS}, bool c) => (float[k, 4] y, float[q, 4] z) {{
        y = {BRANCHES} z = Relu(p) }}""",
    "convolved": """g (float[n, 3, h, w] x, float[m, 3, i, j] p, bool c) => (float[k, 2, u, v] y) {
        y = If(c) < then_branch = i() => (float[k, 2, u, v] t) {
            r = Add(x, p) t = Conv<kernel_shape = [3, 3]>(r, f) },
            else_branch = j() => (float[k, 2, u, v] t) {
            r = Concat<axis = 0>(p, x) t = Conv<kernel_shape = [3, 3]>(r, f) } > }""",
}


def feeds_of(name: str, wide: int = 0) -> list[dict[str, Array]]:
    """Feeds that take each body of a model, the sizes that are free larger by ``wide``."""
    x, p = f32(2 + wide, 4), f32(3 + wide, 4, seed=1)
    if name == "size":
        return [{"x": x, "p": p}, {"x": x, "p": f32(1, 4, seed=2)}]
    if name == "loop":
        return [{"x": x, "p": p, "c": np.array(turns)} for turns in (2, 0, 1)]
    if name == "scan":
        given = {"x": x, "p": f32(*x.shape, seed=1), "w": f32(1 + wide, 4, seed=2)}
    elif name in ("matmul", "itself"):
        size = 3 + wide
        given = {"x": f32(size, size), "p": f32(size, size, seed=1)}
    elif name == "convolved":
        size = 5 + wide
        given = {"x": f32(2, 3, size, size), "p": f32(2, 3, size, size, seed=1)}
    else:
        given = {"x": x, "p": p}
    given["d"] = np.array(True)
    conditions = [{**given, "c": np.array(value)} for value in (False, True)]
    if name == "nested":
        return [*conditions, {**given, "c": np.array(True), "d": np.array(False)}]
    return [{key: one[key] for key in one if key != "d"} for one in conditions]


def decoder(layers: int = 2) -> ModelProto:
    """A merged decoder as exporters write it: one body with the past, and one without.

    ``use_cache_branch`` chooses; each body has all layers, and delivers keys and values.
    """
    rng = np.random.default_rng(0)
    hidden = HEADS * WIDTH
    weights = [_tensor("embedding", rng.standard_normal((VOCABULARY, hidden)))]
    for layer in range(layers):
        weights += [
            _tensor(f"{part}{layer}", rng.standard_normal((hidden, hidden)) / hidden**0.5)
            for part in "qkvo"
        ]
    weights.append(onnx.numpy_helper.from_array(np.array([0, 0, HEADS, WIDTH]), "apart"))
    weights.append(onnx.numpy_helper.from_array(np.array([0, 0, hidden]), "together"))
    past = [f"past.{layer}.{part}" for layer in range(layers) for part in ("key", "value")]
    present = [f"present.{layer}.{part}" for layer in range(layers) for part in ("key", "value")]
    bodies = {
        name: _body(name, layers, name == "then_branch") for name in ("then_branch", "else_branch")
    }
    node = helper.make_node("If", ["use_cache_branch"], ["logits", *present], **bodies)
    floats, ids = TensorProto.FLOAT, TensorProto.INT64
    inputs = [helper.make_tensor_value_info("input_ids", ids, ["batch", "sequence"])]
    inputs += [
        helper.make_tensor_value_info(name, floats, ["batch", HEADS, "past_sequence", WIDTH])
        for name in past
    ]
    inputs.append(helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, [1]))
    outputs = [
        helper.make_tensor_value_info("logits", floats, ["batch", "sequence", VOCABULARY]),
        *(
            helper.make_tensor_value_info(name, floats, ["batch", HEADS, "total", WIDTH])
            for name in present
        ),
    ]
    graph = helper.make_graph([node], "merged", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _tensor(name: str, array: Array) -> TensorProto:
    return onnx.numpy_helper.from_array(array.astype(np.float32), name)


def _body(name: str, layers: int, with_past: bool) -> onnx.GraphProto:
    nodes, at = [], f"{name}/"

    def add(op_type: str, inputs: Iterable[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op_type, [*inputs], [at + output], **attributes))
        return at + output

    x = add("Gather", ["embedding", "input_ids"], "embedded")
    present = []
    for layer in range(layers):
        heads = {}
        for part in "qkv":
            one = add("MatMul", [x, f"{part}{layer}"], f"{part}{layer}")
            one = add("Reshape", [one, "apart"], f"{part}{layer}/apart")
            heads[part] = add("Transpose", [one], f"{part}{layer}/heads", perm=[0, 2, 1, 3])
        if with_past:
            for part, kind in (("k", "key"), ("v", "value")):
                pair = [f"past.{layer}.{kind}", heads[part]]
                heads[part] = add("Concat", pair, f"{part}{layer}/all", axis=2)
        present += [heads["k"], heads["v"]]
        turned = add("Transpose", [heads["k"]], f"turned{layer}", perm=[0, 1, 3, 2])
        scores = add("MatMul", [heads["q"], turned], f"scores{layer}")
        weights = add("Softmax", [scores], f"weights{layer}", axis=-1)
        seen = add("MatMul", [weights, heads["v"]], f"seen{layer}")
        seen = add("Transpose", [seen], f"seen{layer}/turned", perm=[0, 2, 1, 3])
        seen = add("Reshape", [seen, "together"], f"seen{layer}/together")
        x = add("Add", [x, add("MatMul", [seen, f"o{layer}"], f"out{layer}")], f"x{layer}")
    turned = add("Transpose", ["embedding"], "unembedding", perm=[1, 0])
    logits = add("MatMul", [x, turned], "logits")
    outputs = [
        helper.make_tensor_value_info(one, TensorProto.FLOAT, None) for one in (logits, *present)
    ]
    return helper.make_graph(nodes, name, [], outputs)


def steps_of_a_decoder(layers: int, batch: int = 1, prompt: int = 3) -> list[dict[str, Array]]:
    """Feeds of a prompt without past and of two tokens behind it."""
    rng, feeds = np.random.default_rng(1), []
    for past, new in ((0, prompt), (prompt, 1), (prompt + 1, 1)):
        given: dict[str, Array] = {"input_ids": rng.integers(0, VOCABULARY, (batch, new))}
        for layer in range(layers):
            for part in ("key", "value"):
                shape = (batch, HEADS, past, WIDTH)
                given[f"past.{layer}.{part}"] = rng.standard_normal(shape, np.float32)
        given["use_cache_branch"] = np.array([past > 0])
        feeds.append(given)
    return feeds


def agree(session: Session, proto: ModelProto, feeds: Mapping[str, Array]) -> None:
    """A session says what ONNX Runtime says."""
    ours, theirs = session.run(None, feeds), runtime(proto, feeds)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.shape == other.shape
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("backwards", [False, True], ids=["first", "last"])
@pytest.mark.parametrize(
    "options",
    [{}, {"libraries": ["numpy"]}, {"deterministic": True}, {"optimize": "none"}],
    ids=["default", "numpy", "deterministic", "none"],
)
def test_each_body_in_each_order(name: str, backwards: bool, options: dict[str, object]) -> None:
    weights: dict[str, Any] = {"f": f32(2, 3, 3, 3)} if name == "convolved" else {}
    proto = model(MODELS[name], **weights)
    with Session(proto, cache_dir=None, **options) as session:  # type: ignore[arg-type]
        for wide in (0, 2, 0, 1):
            feeds = feeds_of(name, wide)
            for given in reversed(feeds) if backwards else feeds:
                agree(session, proto, given)


@pytest.mark.parametrize("backwards", [False, True], ids=["prompt first", "past first"])
@pytest.mark.parametrize("layers", [1, 3])
def test_a_merged_decoder(layers: int, backwards: bool) -> None:
    proto = decoder(layers)
    with Session(proto) as session:
        for batch, prompt in ((1, 3), (2, 5), (1, 3)):
            steps = steps_of_a_decoder(layers, batch, prompt)
            for given in reversed(steps) if backwards else steps:
                agree(session, proto, given)


def test_a_merged_decoder_out_of_the_cache(tmp_path: Path) -> None:
    path = tmp_path / "decoder.onnx"
    onnx.save(decoder(), path)
    steps = steps_of_a_decoder(2)
    for order in (steps, steps[::-1], steps_of_a_decoder(2, 2, 4)):
        with Session(path, cache_dir=tmp_path / "cache") as session:
            for given in order:
                agree(session, decoder(), given)


ANOTHER_PROCESS = """
import sys
import numpy as np
from vtensor import Session
folder = sys.argv[1]
with Session(f"{folder}/m.onnx", cache_dir=f"{folder}/cache") as session:
    for number in sys.argv[2:]:
        feeds = dict(np.load(f"{folder}/{number}.npz"))
        np.savez(f"{folder}/out{number}.npz", *session.run(None, feeds))
"""


def test_another_process_and_the_other_body(tmp_path: Path) -> None:
    onnx.save(decoder(), tmp_path / "m.onnx")
    steps = steps_of_a_decoder(2)
    for number, given in enumerate(steps):
        np.savez(tmp_path / str(number), **given)  # type: ignore[arg-type]
    for order in ("0", "1 0", "2 1", "0 1 2"):
        printed("-c", ANOTHER_PROCESS, tmp_path, *order.split())
        for number in map(int, order.split()):
            with np.load(tmp_path / f"out{number}.npz") as ours:
                for mine, other in zip(
                    ours.values(), runtime(decoder(), steps[number]), strict=True
                ):
                    np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-4)


def test_layouts_of_inputs_and_outputs_have_the_promised_dims() -> None:
    proto = model(MODELS["delivered"])
    with Session(proto) as plain:
        ports = {port.name: port.dims for port in (*plain.inputs, *plain.outputs)}
    turned = {name: " ".join(reversed(ports[name])) for name in "pyz"}
    layouts = {"input_layouts": {"p": turned["p"]}, "output_layouts": {n: turned[n] for n in "yz"}}
    with Session(proto, **layouts) as session:  # type: ignore[arg-type]
        for given in feeds_of("delivered"):
            asked = {**given, "p": np.asfortranarray(given["p"])}
            agree(session, proto, asked)
            assert "p" not in session.copied
            tensors = session.run_tensors(None, asked)
            assert [tuple(one.dims) for one in tensors] == [ports["y"], ports["z"]]


def test_bound_inputs_of_a_body_that_joins() -> None:
    proto = model(MODELS["size"])
    for given in feeds_of("size"):
        with Session(proto) as session:
            binding = session.bind(given)
            for _ in range(2):
                given["x"][...] += 1
                binding.run()
                [expected] = runtime(proto, given)
                np.testing.assert_allclose(binding.outputs["y"], expected, rtol=1e-5)


def test_bound_inputs_of_a_merged_decoder() -> None:
    proto = decoder()
    [_, given, _] = steps_of_a_decoder(2)
    with Session(proto) as session:
        agree(session, proto, given)
        with pytest.raises(InputError, match="use_cache_branch"):
            session.bind(given)


@pytest.mark.parametrize("command", ["plan", "explain"])
@pytest.mark.parametrize("value", ["0", "1"])
def test_commands(command: str, value: str, tmp_path: Path) -> None:
    onnx.save(decoder(1), tmp_path / "m.onnx")
    shapes = ["input_ids=1,2", "past.0.key=1,2,3,4", "past.0.value=1,2,3,4"]
    options = [word for shape in shapes for word in ("--shape", shape)]
    options += ["--value", f"use_cache_branch={value}", "--json"]
    result = CliRunner().invoke(app, [command, str(tmp_path / "m.onnx"), *options])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)
