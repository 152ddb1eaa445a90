"""Whatever a model file holds, the answer is a graph or a typed error that says what is wrong."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper, numpy_helper
from onnx.external_data_helper import set_external_data

from eval.networks.models import light_model
from tests.frontends.support import Array, f32, model, run_once
from vtensor import load_onnx
from vtensor.errors import (
    BudgetError,
    InputError,
    ModelError,
    UnsupportedOperatorError,
    VTensorError,
)
from vtensor.frontends.inference_limits import FLAGS

TINY = "tiny (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }"


def test_tiny_is_good() -> None:
    # The twin of every test here: what they break is all right before.
    assert list(load_onnx(model(TINY)).nodes) == ["Relu:0"]


def changed(change: Callable[[ModelProto], object]) -> ModelProto:
    """Build the model, once changed."""
    proto = model(TINY)
    change(proto)
    return proto


def with_opset(version: int) -> ModelProto:
    return changed(lambda proto: setattr(proto.opset_import[0], "version", version))


def empty(folder: Path) -> Path:
    (folder / "empty.onnx").touch()
    return folder / "empty.onnx"


NONE = "is no model: give a path, bytes"
#: What is no model, by a folder, and what is said of it.
SOURCES: list[tuple[Callable[[Path], Any], str | None]] = [
    *((lambda _, source=source: source, NONE) for source in (None, 3, bytearray(b"x"), [TINY])),
    (lambda folder: folder / "none.onnx", "does not exist"),
    (lambda folder: folder, "is a folder"),
    (empty, "is empty"),
    (lambda _: changed(lambda proto: proto.ClearField("graph")), "no graph"),
    (lambda _: changed(lambda proto: proto.ClearField("opset_import")), "imports no operator set"),
    (lambda _: with_opset(0), "opset 0 is not among"),
    (lambda _: with_opset(-3), "opset -3 is not among"),
    (lambda _: with_opset(999), "opset 999 is not among"),
    (lambda _: changed(lambda proto: setattr(proto, "ir_version", 999)), "IR version 999"),
    (
        lambda _: changed(lambda proto: setattr(proto.graph.node[0], "domain", "com.example")),
        "imports no operator set",
    ),
    (
        lambda _: model(TINY).SerializeToString().replace(b"Relu", b"Re\xfe\xff"),
        r"not valid UTF-8|no ONNX model",
    ),
    *(
        (lambda _, seed=seed: np.random.default_rng(seed).bytes(1 + 37 * seed), None)
        for seed in range(20)
    ),
]


@pytest.mark.parametrize(("source", "complaint"), SOURCES)
def test_what_is_no_model(
    source: Callable[[Path], Any], complaint: str | None, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=complaint):
        load_onnx(source(tmp_path))


def test_unreadable_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied", str(path))

    path = tmp_path / "secret.onnx"
    path.write_bytes(model(TINY).SerializeToString())
    load_onnx(path)
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(ModelError, match="cannot be read"):
        load_onnx(path)


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


def test_unsupported_operators_are_all_listed() -> None:
    text = """g (float[1, 2, 8] x) => (float[1, 2, 8] y, float[] z) {
        [first] a = Bernoulli(x)
        [second] b = Bernoulli(a)
        [third] c = Relu(b)
        [fourth] d = com.example.Odd(c)
        [fifth] e = Multinomial(d)
        [sixth] f = Conv<auto_pad = "ODD">(c, w)
        y = Add(a, f) z = Identity(e)
    }"""
    proto = model(text, w=f32(2, 2, 1))
    proto.opset_import.append(helper.make_opsetid("com.example", 3))
    with pytest.raises(UnsupportedOperatorError) as caught:
        load_onnx(proto, reference=False)
    lines = [line.strip() for line in str(caught.value).split("\n")]
    assert "(opset ai.onnx 17, com.example 3)" in lines[0]
    assert "Multinomial : 1 x, fifth" in lines
    inside = "first/RandomUniformLike:0 (of Bernoulli), second/RandomUniformLike:0 (of Bernoulli)"
    assert f"RandomUniformLike : 2 x, {inside}" in lines
    assert "com.example::Odd : 1 x, fourth" in lines
    assert any(line.startswith("Conv 'sixth' :") for line in lines), "a refused variant is listed"
    assert not any("third" in line for line in lines)


STRUCTURE = [
    ("(float[2] x) => (float[2] y) { y = Relu(z) }", "reads 'z', which is defined nowhere"),
    ("(float[2] x) => (float[2] y) { z = Relu(x) }", "output 'y' is defined nowhere"),
    ("(float[2] x) => (float[2] y) { y = Relu(x) y = Bernoulli(x) }", "'y' is defined twice"),
    ("(float[2] x) => (float[2] y) { x = Relu(x) y = Bernoulli(x) }", "'x' is defined twice"),
    ("(float[2] x, float[2] x) => (float[2] y) { y = Relu(x) }", "two inputs"),
    ("(float[2] x) => () { y = Relu(x) }", "delivers no output"),
    ("(float[2] x) => (float[2] y, float[2] y) { y = Relu(x) }", "delivered twice"),
    ("(float[2] x) => (float[2] y) { y = Relu(x, x) }", "not as ONNX defines it"),
    ("(float[2] x) => (float[2] y) { y = Relu<alpha = 1.0>(x) }", "alpha"),
    ("(float[2] x) => (float[2] y) { y = Cast<to = 1, saturate = 0>(x) }", "from opset 19 on"),
    ("(float[2, 3] x) => (float[4] y) { y = MatMul(x, x) }", "do not fit"),
    ("(string[2] x) => (string[2] y) { y = Identity(x) }", "it has texts, sequences"),
    ("(seq(float[2]) x) => (seq(float[2]) y) { y = Identity(x) }", "it has texts, sequences"),
    (
        "(float[2, 3] x) => (float[2, 3] y) { [p] a = Relu(b) [q] b = Relu(a) [r] y = Relu(b) }",
        r"cycle through the nodes (p, q|q, p)$",
    ),
    (
        "(float[2, 3] x, int64[2, 1] s) => (float[a, b] y) <int64[1] one = {1}> {"
        " t = Add(s, s) u = Squeeze(t, one) y = Reshape(x, u) }",
        "must be known before a run",
    ),
    ("(float[2] x) => (float[2] y) <float[3] w = {1, 2}> { y = Add(x, w) }", "'w' cannot be read"),
]


@pytest.mark.parametrize(("text", "complaint"), STRUCTURE)
def test_structure(text: str, complaint: str) -> None:
    with pytest.raises(ModelError, match=complaint):
        load_onnx(model(f"g {text}"))


CONTROL = """g (float[2, 3] x) => (float[2, 3] y) { m = ReduceMax<keepdims = 0>(x) q = IsNaN(m)
    z = If(q) < then_branch = a() => (float[2, 3] t) { t = Neg(x) },
                else_branch = b() => (float[2, 3] e) { e = Relu(x) } >
    r = Relu(z) y = Bernoulli(r) }"""
DROPOUT = "g (float[2] x) => (float[2] y, float[2] m) { y, m = Dropout(x) }"


def test_what_is_not_supported_is_said_of_the_model(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    for text, opset, complaints in (
        (CONTROL, 17, ["If 'If:2' : 'q' decides what", "Bernoulli : 1 x", f"model '{path}'"]),
        (DROPOUT, 7, ["output 1 ('m') is used"]),
    ):
        onnx.save(model(text, opset), path)
        with pytest.raises(UnsupportedOperatorError) as caught:
            load_onnx(path, reference=False)
        assert all(complaint in str(caught.value) for complaint in complaints)
    dead = "g (float[2] x) => (float[2] y) { z = Bernoulli(x) y = Relu(x) }"
    assert [node.op_name for node in load_onnx(model(dead)).nodes.values()] == ["Relu"]
    with pytest.raises(BudgetError, match="takes 73786976294838206464 bytes"):
        load_onnx(model(TINY.replace("2, 3", f"{2**62}, 4")))


def external(folder: Path, location: str, **entries: int) -> Path:
    """Write a model whose weight ``w`` is 24 bytes in another file; return its path."""
    proto = model("g (float[2, 3] x) => (float[2, 3] y) { y = Add(x, w) }", w=f32(2, 3))
    tensor = proto.graph.initializer[0]
    (folder / "weights.bin").write_bytes(b"\0" * 5 + tensor.raw_data)
    set_external_data(tensor, location, entries.get("offset"), entries.get("length"))
    tensor.ClearField("raw_data")
    (folder / "net.onnx").write_bytes(proto.SerializeToString())
    return folder / "net.onnx"


def test_external_data(tmp_path: Path) -> None:
    path = external(tmp_path, "weights.bin", offset=5, length=24)
    np.testing.assert_array_equal(load_onnx(path).constants["w"], f32(2, 3))
    with pytest.raises(ModelError, match="came from memory"):
        load_onnx(path.read_bytes())


@pytest.mark.parametrize(
    ("location", "entries", "complaint"),
    [
        ("none.bin", {}, "'none.bin' is missing"),
        ("weights.bin", {"offset": 6}, "24 bytes are needed, and 'weights.bin' has 23"),
        ("weights.bin", {"offset": -1}, "24 bytes are needed"),
        ("weights.bin", {"offset": 2**80}, "24 bytes are needed, and 'weights.bin' has 0"),
        ("weights.bin", {"offset": 5, "length": -24}, "it declares -24"),
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


X, Y = np.array([5.0, -5.0, 5.5], np.float32), np.array([3.0, 3.0, -3.0], np.float32)


def one_node(op_type: str, *inputs: Array, folded: bool = False, **attributes: Any) -> Array:
    """Run a model of one node, its inputs fed or constants; return its output."""
    feeds = {f"x{place}": x for place, x in enumerate(inputs)}
    tensors = [numpy_helper.from_array(x, name) for name, x in feeds.items()]
    infos = [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in tensors]
    node = helper.make_node(op_type, [*feeds], ["y"], "node", **attributes)
    output = helper.make_tensor_value_info("y", tensors[0].data_type, None)
    constants = tensors if folded else []
    graph = helper.make_graph([node], "flags", [] if folded else infos, [output], constants)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    [y] = run_once(proto, {} if folded else feeds, threads=1, cache_dir=None)
    return y


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_mod_of_floats_needs_fmod(dtype: str, folded: bool) -> None:
    x, y = X.astype(dtype), Y.astype(dtype)
    for attributes in ({}, {"fmod": 0}):
        with pytest.raises(ModelError, match=r"Mod 'node': .* to fix: set fmod=1"):
            one_node("Mod", x, y, folded=folded, **attributes)
    assert one_node("Mod", x, y, folded=folded, fmod=1).tolist() == [2.0, -2.0, 2.5]
    assert one_node("Mod", x.astype(int), y.astype(int), folded=folded).tolist() == [2, 1, -1]


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("value", [2, 3, -1, 1 << 40])
def test_a_flag_is_0_or_1(value: int, folded: bool) -> None:
    cases: list[tuple[str, tuple[Array, ...], str]] = [
        ("Mod", (X, Y), "fmod"),
        ("ReduceMax", (X,), "keepdims"),
        ("Gemm", (X.reshape(3, 1), Y.reshape(1, 3)), "transA"),
        ("CumSum", (X, np.array(0)), "reverse"),
        ("Trilu", (X.reshape(3, 1),), "upper"),
        ("ArgMax", (X,), "select_last_index"),
        ("Reshape", (X, np.array([3, 1])), "allowzero"),
        ("AveragePool", (X.reshape(1, 1, 3),), "ceil_mode"),
    ]
    for op_type, inputs, name in cases:
        assert name in FLAGS
        more = {"kernel_shape": [2]} if op_type == "AveragePool" else {}
        text = f"{op_type} 'node': {name} is {value}; to fix: make it 0 or 1"
        with pytest.raises(ModelError, match=text):
            one_node(op_type, *inputs, folded=folded, **{name: value}, **more)
