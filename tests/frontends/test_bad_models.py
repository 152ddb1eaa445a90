"""Whatever a model file holds, the answer is a graph or a typed error that says what is wrong."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper
from onnx.external_data_helper import set_external_data

from eval.networks.models import light_model
from tests.frontends.support import f32, model
from vtensor import load_onnx
from vtensor.errors import (
    BudgetError,
    InputError,
    ModelError,
    UnsupportedOperatorError,
    VTensorError,
)
from vtensor.frontends.onnx import Model
from vtensor.language.operators import OPERATORS

TINY = "tiny (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }"


def test_tiny_is_good() -> None:
    # The twin of every test here: what they break is all right before.
    assert list(load_onnx(model(TINY)).nodes) == ["Relu:0"]


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="does not exist"):
        load_onnx(tmp_path / "none.onnx")


def test_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is a folder"):
        load_onnx(tmp_path)


@pytest.mark.parametrize("given", [None, 3, bytearray(b"x"), [TINY]])
def test_no_model_at_all(given: Any) -> None:
    with pytest.raises(ModelError, match="is no model: give a path, bytes"):
        load_onnx(given)


def test_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "empty.onnx"
    path.touch()
    with pytest.raises(ModelError, match="is empty"):
        load_onnx(path)


def test_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    path = tmp_path / "secret.onnx"
    path.write_bytes(model(TINY).SerializeToString())
    load_onnx(path)
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(ModelError, match="cannot be read"):
        load_onnx(path)


@pytest.mark.parametrize("seed", range(20))
def test_garbage(seed: int) -> None:
    with pytest.raises(ModelError):
        load_onnx(np.random.default_rng(seed).bytes(1 + 37 * seed))


def test_cut_short() -> None:
    data = light_model("squeezenet").SerializeToString()
    rng = np.random.default_rng(7)
    for length in {0, 1, 2, 3, len(data) - 1, *rng.integers(0, len(data), 150).tolist()}:
        with pytest.raises(ModelError):
            load_onnx(data[:length])


def test_changed_bytes() -> None:
    data = light_model("zfnet512").SerializeToString()
    rng = np.random.default_rng(11)
    failed = 0
    for _ in range(150):
        damaged = bytearray(data)
        for position in rng.integers(0, len(data), 3):
            damaged[position] = rng.integers(256)
        try:
            load_onnx(bytes(damaged))
        except VTensorError:
            failed += 1
    assert failed > 75


def test_no_graph() -> None:
    proto = ModelProto(ir_version=8, opset_import=[helper.make_opsetid("", 17)])
    with pytest.raises(ModelError, match="no graph"):
        load_onnx(proto)


def test_no_opset() -> None:
    proto = model(TINY)
    proto.ClearField("opset_import")
    with pytest.raises(ModelError, match="imports no operator set"):
        load_onnx(proto)


@pytest.mark.parametrize("opset", [0, -3, 999])
def test_unknown_opset(opset: int) -> None:
    proto = model(TINY)
    proto.opset_import[0].version = opset
    with pytest.raises(ModelError, match=f"opset {opset} is not among"):
        load_onnx(proto)


def test_unknown_ir_version() -> None:
    proto = model(TINY)
    proto.ir_version = 999
    with pytest.raises(ModelError, match="IR version 999"):
        load_onnx(proto)


def test_domain_that_is_not_imported() -> None:
    proto = model(TINY)
    proto.graph.node[0].domain = "com.example"
    with pytest.raises(ModelError, match="imports no operator set"):
        load_onnx(proto)


def test_unsupported_operators_are_all_listed() -> None:
    text = """g (float[1, 2, 8] x) => (float[1, 2, 8] y) {
        [first] a = Bernoulli(x)
        [second] b = Bernoulli(a)
        [third] c = Relu(b)
        [fourth] d = com.example.Odd(c)
        [fifth] e = Unique(d)
        [sixth] f = Conv<auto_pad = "ODD">(c, w)
        y = Add(a, f)
    }"""
    proto = model(text, w=f32(2, 2, 1))
    proto.opset_import.append(helper.make_opsetid("com.example", 3))
    proto.graph.node.append(helper.make_node("Identity", ["e"], ["z"]))
    proto.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
    with pytest.raises(UnsupportedOperatorError) as caught:
        load_onnx(proto, reference=False)
    lines = [line.strip() for line in str(caught.value).split("\n")]
    assert "(opset ai.onnx 17, com.example 3)" in lines[0]
    assert "Unique : 1 x, fifth" in lines
    inside = "first/RandomUniformLike:0 (of Bernoulli), second/RandomUniformLike:0 (of Bernoulli)"
    assert f"RandomUniformLike : 2 x, {inside}" in lines
    assert "com.example::Odd : 1 x, fourth" in lines
    assert any(line.startswith("Conv 'sixth' :") for line in lines), "a refused variant is listed"
    assert not any("third" in line for line in lines)


def test_dead_nodes_do_not_count() -> None:
    text = "g (float[2] x) => (float[2] y) { z = Bernoulli(x) y = Relu(x) }"
    assert [node.op_name for node in load_onnx(model(text)).nodes.values()] == ["Relu"]


def test_cycle() -> None:
    proto = model(TINY)
    del proto.graph.node[:]
    for name, source, result in (("p", "b", "a"), ("q", "a", "b"), ("r", "b", "y")):
        proto.graph.node.append(helper.make_node("Relu", [source], [result], name=name))
    with pytest.raises(ModelError, match=r"cycle through the nodes (p, q|q, p)$"):
        load_onnx(proto)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("g (float[2] x) => (float[2] y) { y = Relu(z) }", "reads 'z', which is defined nowhere"),
        ("g (float[2] x) => (float[2] y) { z = Relu(x) }", "output 'y' is defined nowhere"),
        ("g (float[2] x) => (float[2] y) { y = Relu(x) y = Bernoulli(x) }", "'y' is defined twice"),
        ("g (float[2] x) => (float[2] y) { x = Relu(x) y = Bernoulli(x) }", "'x' is defined twice"),
        ("g (float[2] x, float[2] x) => (float[2] y) { y = Relu(x) }", "two inputs"),
        ("g (float[2] x) => () { y = Relu(x) }", "delivers no output"),
        ("g (float[2] x) => (float[2] y, float[2] y) { y = Relu(x) }", "delivered twice"),
        ("g (float[2] x) => (float[2] y) { y = Relu(x, x) }", "not as ONNX defines it"),
        ("g (float[2] x) => (float[2] y) { y = Relu <alpha = 1.0> (x) }", "alpha"),
        ("g (float[2, 3] x) => (float[4] y) { y = MatMul(x, x) }", "do not fit"),
        ("g (string[2] x) => (string[2] y) { y = Identity(x) }", "element type string"),
        ("g (seq(float[2]) x) => (seq(float[2]) y) { y = Identity(x) }", "is no tensor"),
    ],
)
def test_structure(text: str, complaint: str) -> None:
    with pytest.raises(ModelError, match=complaint):
        load_onnx(model(text))


def test_initializer_with_too_few_bytes() -> None:
    proto = model("g (float[2] x) => (float[2] y) { y = Add(x, w) }", w=f32(2))
    proto.graph.initializer[0].raw_data = b"123"
    with pytest.raises(ModelError, match="tensor 'w' cannot be read"):
        load_onnx(proto)


def test_names_that_are_no_text() -> None:
    data = model(TINY).SerializeToString().replace(b"Relu", b"Re\xfe\xff")
    with pytest.raises(ModelError, match=r"not valid UTF-8|no ONNX model"):
        load_onnx(data)


def test_shape_from_data() -> None:
    text = (
        "g (float[2, 3] x, int64[2, 1] s) => (float[a, b] y) "
        "{ t = Add(s, s) u = Squeeze(t, one) y = Reshape(x, u) }"
    )
    with pytest.raises(ModelError, match="must be known before a run"):
        load_onnx(model(text, one=np.array([1])))


def test_used_output_that_is_not_computed_is_refused() -> None:
    text = "g (float[2] x) => (float[2] y, float[2] m) { y, m = Dropout(x) }"
    with pytest.raises(UnsupportedOperatorError, match="output 1 \\('m'\\) is used"):
        load_onnx(model(text, opset=7))


def external(folder: Path, location: str, **entries: int) -> Path:
    """A model whose weight ``w`` is 24 bytes in another file."""
    proto = model("g (float[2, 3] x) => (float[2, 3] y) { y = Add(x, w) }", w=f32(2, 3))
    tensor = proto.graph.initializer[0]
    data = tensor.raw_data
    set_external_data(tensor, location, entries.get("offset"), entries.get("length"))
    tensor.ClearField("raw_data")
    (folder / "model").mkdir()
    (folder / "model" / "weights.bin").write_bytes(b"\0" * 5 + data)
    (folder / "outside.bin").write_bytes(b"\0" * 5 + data)
    path = folder / "model" / "net.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def test_external_data(tmp_path: Path) -> None:
    path = external(tmp_path, "weights.bin", offset=5, length=24)
    np.testing.assert_array_equal(load_onnx(path).constants["w"], f32(2, 3))
    with pytest.raises(ModelError, match="came from memory"):
        load_onnx(path.read_bytes())


@pytest.mark.parametrize(
    ("location", "entries", "complaint"),
    [
        ("none.bin", {}, "'none.bin' is missing"),
        ("../outside.bin", {"offset": 5}, "not inside the model's folder"),
        ("/etc/passwd", {}, "not inside the model's folder"),
        ("", {}, "not inside the model's folder"),
        ("weights.bin", {"offset": 6}, "24 bytes are needed, and 'weights.bin' has 23"),
        ("weights.bin", {"offset": -1}, "24 bytes are needed"),
        ("weights.bin", {"offset": 2**80}, "24 bytes are needed, and 'weights.bin' has 0"),
        ("weights.bin", {"offset": 5, "length": -24}, "it declares -24"),
        ("weights\0.bin", {}, "not inside the model's folder"),
        (".", {}, "not inside the model's folder"),
        ("weights.bin", {"offset": 5, "length": 20}, "it declares 20"),
    ],
)
def test_bad_external_data(
    tmp_path: Path, location: str, entries: dict[str, int], complaint: str
) -> None:
    with pytest.raises(ModelError, match=complaint):
        load_onnx(external(tmp_path, location, **entries))


SYMBOLIC = """g (float[batch, 3] x, float[batch, cols] z) => (float[batch, 3] y) {
    y = Add(x, x) w = Relu(z)
}"""


@pytest.mark.parametrize(
    ("shapes", "complaint"),
    [
        ({}, "symbolic sizes \\(batch, 3\\)"),
        ({"x": (2, 3)}, "'z' has symbolic sizes \\(batch, cols\\)"),
        ({"x": (2, 4), "z": (2, 2)}, "shape \\(2, 4\\) was given, the model has \\(batch, 3\\)"),
        ({"x": (2,), "z": (2, 2)}, "the model has \\(batch, 3\\)"),
        ({"x": (2, 3), "z": (5, 2)}, "batch is 5 here and 2 in input 'x'"),
        ({"x": (-2, 3), "z": (-2, 2)}, "-2 is no size"),
        ({"x": (2, 3), "z": (2, 1.5)}, "1.5 is no size"),
        ({"x": (2, 3), "z": (2, 1), "q": (1,)}, "no input 'q'; there are x, z"),
    ],
)
def test_bad_shapes(shapes: dict[str, tuple[int, ...]], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        load_onnx(model(SYMBOLIC), shapes=shapes)


def test_operator_that_contradicts_inference(monkeypatch: pytest.MonkeyPatch) -> None:
    # An operator decides its sizes; where ONNX's inference has others, somebody is told.
    load_onnx(model(TINY))  # fills the registry
    info = OPERATORS["Relu"]
    [spelling] = info.onnx
    wrong = replace(spelling, read=lambda node: node.reshape(node.input(0), {"Q": 6}))
    monkeypatch.setitem(OPERATORS, "Relu", replace(info, onnx=(wrong,)))
    loaded = Model(model(TINY))
    graph = loaded.graph({})
    [output] = graph.outputs.values()
    assert list(graph.values[output].dims.values()) == [6]
    [text] = loaded.differences.values()
    assert "the sizes (6,), ONNX's shape inference (2, 3)" in text


def test_messages_name_the_model(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(model("g (float[2] x) => (float[2] y) { y = Bernoulli(x) }"), path)
    with pytest.raises(UnsupportedOperatorError, match=f"model '{path}'"):
        load_onnx(path, reference=False)


def test_control_flow_is_listed_with_what_else_is_missing() -> None:
    text = (
        "tiny (float[2, 3] x) => (float[2, 3] y) {"
        " m = ReduceMax<keepdims = 0>(x) q = IsNaN(m)"
        " z = If(q)<then_branch = a() => (float[2, 3] t) { t = Neg(x) },"
        " else_branch = b() => (float[2, 3] e) { e = Relu(x) }> r = Relu(z) y = Bernoulli(r) }"
    )
    with pytest.raises(UnsupportedOperatorError, match="If 'If:2' : 'q' decides what") as caught:
        load_onnx(model(text), reference=False)
    assert "Bernoulli : 1 x" in str(caught.value)


def test_a_tensor_larger_than_any_memory() -> None:
    with pytest.raises(BudgetError, match="takes 73786976294838206464 bytes"):
        load_onnx(model(TINY.replace("2, 3", f"{2**62}, 4")))
