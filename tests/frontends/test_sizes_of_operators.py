"""Operators decide sizes; ONNX's shape inference and declared inner values are hints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper
from typer.testing import CliRunner

from tests.frontends.support import Array, f32, model, runtime
from vtensor import Session, load_onnx
from vtensor.cli import app
from vtensor.errors import InputError, ModelError
from vtensor.frontends.onnx import Model

#: Nodes of which ONNX's inference has wrong sizes: attributes, and the sizes of the output.
TRANSPOSED: list[tuple[dict[str, Any], tuple[int, ...]]] = [
    ({"strides": [2, 2], "auto_pad": "SAME_UPPER", "output_padding": [1, 1]}, (1, 1, 6, 6)),
    ({"strides": [2, 2], "auto_pad": "SAME_LOWER", "output_padding": [1, 0]}, (1, 1, 6, 6)),
    ({"strides": [3, 1], "auto_pad": "SAME_UPPER", "output_padding": [2, 0]}, (1, 1, 9, 3)),
    ({"strides": [1, 1], "output_shape": [2, 3]}, (1, 1, 2, 3)),
]
OPEN = ["n", "c", "h", "w"]


def transposed(
    attributes: dict[str, Any], sizes: list[Any], tail: int = 0, folded: bool = False
) -> ModelProto:
    """A transposed convolution, and a sum behind it with what has its true sizes."""
    nodes = [helper.make_node("ConvTranspose", ["x", "w"], ["t"], name="up", **attributes)]
    weights = {"w": f32(1, 1, 3, 3, seed=1)}
    if tail:
        nodes.append(helper.make_node("Add", ["t", "b"], ["y"]))
        made = next(made for one, made in TRANSPOSED if one == attributes)
        weights["b"] = f32(*made, seed=2)
    else:
        nodes.append(helper.make_node("Relu", ["t"], ["y"]))
    floats = TensorProto.FLOAT
    inputs = [] if folded else [helper.make_tensor_value_info("x", floats, sizes)]
    if folded:
        weights["x"] = f32(1, 1, 3, 3)
    given = [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()]
    outputs = [helper.make_tensor_value_info("y", floats, None)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, given)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8)


def as_runtime(session: Session, proto: ModelProto, feeds: dict[str, Array]) -> tuple[int, ...]:
    """Compare a session with ONNX Runtime, and return the shape of its output."""
    [ours], [theirs] = session.run(None, feeds), runtime(proto, feeds)
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    return tuple(ours.shape)


@pytest.mark.parametrize(("attributes", "made"), TRANSPOSED)
@pytest.mark.parametrize("tail", [0, 1], ids=["alone", "added"])
@pytest.mark.parametrize("sizes", [[1, 1, 3, 3], ["n", 1, 3, 3], [1, 1, "h", 3], OPEN], ids=str)
def test_a_transposed_convolution(
    attributes: dict[str, Any], made: tuple[int, ...], tail: int, sizes: list[Any], tmp_path: Path
) -> None:
    onnx.save(transposed(attributes, sizes, tail), tmp_path / "m.onnx")
    proto = transposed(attributes, OPEN, tail)  # ONNX Runtime refuses some of the others
    for _ in range(2):  # the second out of the cache
        with Session(tmp_path / "m.onnx", cache_dir=tmp_path / "cache") as session:
            x = f32(1, 1, 3, 3)
            assert as_runtime(session, proto, {"x": x}) == made
            out = np.empty(made, np.float32)
            session.run(None, {"x": x}, out={"y": out})
            np.testing.assert_array_equal(out, session.run(None, {"x": x})[0])
            with pytest.raises(InputError):  # it is raised once the model is read, too
                session.run(None, {"x": f32(1, 3, 3)})
            [port] = session.outputs
            assert all(s in (None, have) for s, have in zip(port.shape, made, strict=False))


@pytest.mark.parametrize(("attributes", "made"), TRANSPOSED)
def test_the_same_of_constants(attributes: dict[str, Any], made: tuple[int, ...]) -> None:
    proto = transposed(attributes, [], folded=True)
    with Session(proto) as session:
        assert as_runtime(session, proto, {}) == made


def test_open_sizes_in_turn() -> None:
    proto = transposed(TRANSPOSED[0][0], ["n", 1, "h", "w"])
    with Session(proto) as session:
        for sizes in ((1, 1, 3, 3), (2, 1, 5, 4), (1, 1, 3, 3), (2, 1, 6, 6)):
            shape = as_runtime(session, proto, {"x": f32(*sizes)})
            assert shape == (sizes[0], 1, 2 * sizes[2], 2 * sizes[3])


@pytest.mark.parametrize("tail", [0, 1], ids=["alone", "added"])
def test_explain_warns(tail: int, tmp_path: Path) -> None:
    path = str(tmp_path / "m.onnx")
    onnx.save(transposed(TRANSPOSED[0][0], [1, 1, 3, 3], tail), path)
    text = "ConvTranspose 'up' gives 't' the sizes (1, 1, 6, 6), ONNX's shape inference"
    plain = CliRunner().invoke(app, ["explain", path])
    assert plain.exit_code == 0
    assert f"warning: {text}" in plain.stdout
    data = json.loads(CliRunner().invoke(app, ["explain", path, "--json"]).stdout)
    assert data["warnings"][0].startswith(text)


def test_no_warnings_where_both_agree(tmp_path: Path) -> None:
    path = str(tmp_path / "m.onnx")
    onnx.save(model("g (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }"), path)
    assert json.loads(CliRunner().invoke(app, ["explain", path, "--json"]).stdout)["warnings"] == []
    assert "warning" not in CliRunner().invoke(app, ["explain", path]).stdout


@pytest.mark.parametrize(
    ("text", "shapes", "made"),
    [
        (
            "g (float[1, 2, 3] x, float[4, 3, 2] z) => (float[n, i, k] y) { "
            'y = Einsum<equation = "bij,bjk->bik">(x, z) }',
            {"x": (1, 2, 3), "z": (4, 3, 2)},
            (4, 2, 2),
        ),
        (
            "g (float[7, 5] x) => (float[n, i] a, float[n, j] b, float[n, k] y, float[n, m] c) { "
            "a, b, y, c = Split<axis = 1, num_outputs = 4>(x) }",
            {"x": (7, 5)},
            (7, 1),
        ),
    ],
    ids=["Einsum", "Split"],
)
def test_other_operators(
    text: str, shapes: dict[str, tuple[int, ...]], made: tuple[int, ...]
) -> None:
    loaded = Model(model(text, 18))
    graph = loaded.graph({})
    assert tuple(graph.values[graph.outputs["y"]].dims.values()) == made
    feeds = {name: f32(*shape) for name, shape in shapes.items()}
    with Session(model(text, 18)) as session:
        [y] = session.run(["y"], feeds)
    assert y.shape == made


def test_declared_inner_values_are_hints() -> None:
    proto = model("g (float[n, 1, 3] x) => (float[a, b] y) { t = Squeeze(x) y = Relu(t) }")
    proto.graph.value_info.append(helper.make_tensor_value_info("t", TensorProto.FLOAT, [7, 7, 7]))
    with Session(proto) as session:
        for size in (2, 5):
            assert as_runtime(session, proto, {"x": f32(size, 1, 3)}) == (size, 3)


@pytest.mark.parametrize("sizes", ["2, 3", "n, 3"])
def test_what_no_operator_takes_is_refused_while_loading(sizes: str) -> None:
    text = f"g (float[{sizes}] x, float[n, 4] z) => (float[a, b] y) {{ y = Add(x, z) }}"
    with pytest.raises(ModelError, match=r"Add 'Add:0': its inputs do not fit"):
        Session(model(text))
    with pytest.raises(ModelError, match=r"Add 'Add:0': its inputs do not fit"):
        load_onnx(model(text), shapes={"x": (2, 3), "z": (2, 4)})
