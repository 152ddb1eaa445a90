"""Operators decide sizes; ONNX's shape inference and declared inner values are hints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper

from tests.frontends.support import agree, f32, model, same_as_runtime
from tests.libraries.command import data_of, vtensor
from vtensor import Session, load_onnx
from vtensor.errors import InputError, ModelError, SegmentsNeededError
from vtensor.frontends.onnx import Model

#: Nodes of which ONNX's inference has wrong sizes: attributes, and the sizes of the output.
TRANSPOSED: list[tuple[str, tuple[int, ...]]] = [
    ('strides = [2, 2], auto_pad = "SAME_UPPER", output_padding = [1, 1]', (1, 1, 6, 6)),
    ('strides = [2, 2], auto_pad = "SAME_LOWER", output_padding = [1, 0]', (1, 1, 6, 6)),
    ('strides = [3, 1], auto_pad = "SAME_UPPER", output_padding = [2, 0]', (1, 1, 9, 3)),
    ("strides = [1, 1], output_shape = [2, 3]", (1, 1, 2, 3)),
]
SYMBOLS = "n, c, h, w"
X = {"x": f32(1, 1, 3, 3)}


def transposed(attributes: str, sizes: str, tail: tuple[int, ...] = ()) -> ModelProto:
    """Build a transposed convolution, and a sum after it with what has its true sizes."""
    end = "y = Add(t, b)" if tail else "y = Relu(t)"
    weights: dict[str, Any] = {"w": f32(1, 1, 3, 3, seed=1)}
    if tail:
        weights["b"] = f32(*tail, seed=2)
    x = f"float[{sizes}] x" if sizes else ""
    if not sizes:
        weights |= X
    text = f"g ({x}) => (float[] y) {{ [up] t = ConvTranspose<{attributes}>(x, w) {end} }}"
    return model(text, 11, **weights)


@pytest.mark.parametrize(("attributes", "shape"), TRANSPOSED)
@pytest.mark.parametrize("tail", [False, True], ids=["alone", "added"])
@pytest.mark.parametrize("sizes", ["1, 1, 3, 3", "n, 1, 3, 3", "1, 1, h, 3", SYMBOLS])
def test_a_transposed_convolution(
    attributes: str, shape: tuple[int, ...], tail: bool, sizes: str, tmp_path: Path
) -> None:
    added = shape if tail else ()
    onnx.save(transposed(attributes, sizes, added), tmp_path / "m.onnx")
    proto = transposed(attributes, SYMBOLS, added)  # ONNX Runtime refuses some of the others
    for _ in range(2):  # the second out of the cache
        with Session(tmp_path / "m.onnx", cache_dir=tmp_path / "cache") as session:
            [y] = same_as_runtime(session, proto, X, 1e-4)
            assert y.shape == shape
            out = np.empty(shape, np.float32)
            session.run(None, X, out={"y": out})
            np.testing.assert_array_equal(out, session.run(None, X)[0])
            with pytest.raises(InputError):  # it is raised once the model is read, too
                session.run(None, {"x": f32(1, 3, 3)})
            [port] = session.outputs
            assert all(s in (None, have) for s, have in zip(port.shape, shape, strict=False))


@pytest.mark.parametrize(("attributes", "shape"), TRANSPOSED)
def test_the_same_of_constants(attributes: str, shape: tuple[int, ...]) -> None:
    proto = transposed(attributes, "")
    with Session(proto) as session:
        assert same_as_runtime(session, proto, {}, 1e-4)[0].shape == shape


def test_open_sizes_in_turn() -> None:
    proto = transposed(TRANSPOSED[0][0], "n, 1, h, w")
    with Session(proto) as session:
        for sizes in ((1, 1, 3, 3), (2, 1, 5, 4), (1, 1, 3, 3), (2, 1, 6, 6)):
            [y] = same_as_runtime(session, proto, {"x": f32(*sizes)}, 1e-4)
            assert y.shape == (sizes[0], 1, 2 * sizes[2], 2 * sizes[3])


@pytest.mark.parametrize("tail", [(), (1, 1, 6, 6)], ids=["alone", "added"])
def test_explain_warns(tail: tuple[int, ...], tmp_path: Path) -> None:
    onnx.save(transposed(TRANSPOSED[0][0], "1, 1, 3, 3", tail), tmp_path / "m.onnx")
    text = "ConvTranspose 'up' gives 't' the sizes (1, 1, 6, 6), ONNX's shape inference"
    plain = vtensor("explain", tmp_path / "m.onnx")
    assert plain.exit_code == 0
    assert f"warning: {text}" in plain.stdout
    assert data_of("explain", tmp_path / "m.onnx")["warnings"][0].startswith(text)


def test_no_warnings_where_both_agree(tmp_path: Path) -> None:
    onnx.save(model("g (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }"), tmp_path / "m.onnx")
    assert data_of("explain", tmp_path / "m.onnx")["warnings"] == []
    assert "warning" not in vtensor("explain", tmp_path / "m.onnx").stdout


EINSUM = """g (float[1, 2, 3] x, float[4, 3, 2] z) => (float[n, i, k] y) {
    y = Einsum<equation = "bij,bjk->bik">(x, z) }"""
SPLIT = """g (float[7, 5] x) => (float[n, i] a, float[n, j] b, float[n, k] y, float[n, m] c) {
    a, b, y, c = Split<axis = 1, num_outputs = 4>(x) }"""


@pytest.mark.parametrize(
    ("text", "feeds", "shape"),
    [
        (EINSUM, {"x": f32(1, 2, 3), "z": f32(4, 3, 2)}, (4, 2, 2)),
        (SPLIT, {"x": f32(7, 5)}, (7, 1)),
    ],
    ids=["Einsum", "Split"],
)
def test_other_operators(text: str, feeds: dict[str, Any], shape: tuple[int, ...]) -> None:
    graph = Model(model(text, 18)).graph({})
    assert tuple(graph.values[graph.outputs["y"]].dims.values()) == shape
    with Session(model(text, 18)) as session:
        assert session.run(["y"], feeds)[0].shape == shape


def test_declared_inner_values_are_hints() -> None:
    proto = model("g (float[n, 1, 3] x) => (float[a, b] y) { t = Squeeze(x) y = Relu(t) }")
    proto.graph.value_info.append(helper.make_tensor_value_info("t", TensorProto.FLOAT, [7, 7, 7]))
    with Session(proto) as session:
        for size in (2, 5):
            [y] = same_as_runtime(session, proto, {"x": f32(size, 1, 3)}, 1e-4)
            assert y.shape == (size, 3)


@pytest.mark.parametrize("sizes", ["2, 3", "n, 3"])
def test_what_no_operator_takes_is_refused_while_loading(sizes: str) -> None:
    text = f"g (float[{sizes}] x, float[n, 4] z) => (float[a, b] y) {{ y = Add(x, z) }}"
    with pytest.raises(ModelError, match=r"Add 'Add:0': its inputs do not fit"):
        Session(model(text))
    with pytest.raises(ModelError, match=r"Add 'Add:0': its inputs do not fit"):
        load_onnx(model(text), shapes={"x": (2, 3), "z": (2, 4)})


PLACES = {"i": np.array([[1, 2], [0, 1]]), "depth": np.array(3, np.float32)}
WINDOW = "MaxPool<kernel_shape = [3, 2], strides = [2, 5], ceil_mode = 1>(x)"


@pytest.mark.parametrize(
    ("node", "opset", "shape", "known"),
    [
        ("Slice<axes = [-1], starts = [1], ends = [3]>(x)", 9, (2, 5), {}),
        ("Squeeze<axes = [-2]>(x)", 9, (2, 1, 5), {}),
        ("GatherND(x, i)", 12, (2, 5), {"i": np.array([1, 0])}),  # a scalar
        ("OneHot(i, depth, x)", 11, (2,), PLACES),  # a depth that is no integer
        (WINDOW, 12, (1, 2, 9, 8), {}),  # a window in the pads
    ],
)
def test_what_comes_after_sizes_that_inference_lacks_is_read_too(
    node: str, opset: int, shape: tuple[int, ...], known: dict[str, Any]
) -> None:
    sizes = ", ".join(map(str, shape))
    proto = model(f"m (float[{sizes}] x) => (z) {{ y = {node} z = Relu(y) }}", opset=opset, **known)
    agree(proto, {"x": f32(*shape)})


@pytest.mark.parametrize(
    "node",
    [
        "MeanVarianceNormalization<axes = [0, 2]>(x)",
        "GroupNormalization<num_groups = 2>(x, w, w)",
    ],
)
def test_ranks_behind_functions_of_symbolic_sizes(node: str) -> None:
    """Here no operator can be asked; the function that defines it says how many dims there are."""
    text = f"m (float[N, 4, 3] x) => (z) {{ y = {node} z = Relu(y) }}"
    with Session(model(text, opset=21, w=f32(4))) as session:
        assert len(session.outputs[0].shape) == 3


def test_a_size_that_is_data_stays_open() -> None:
    """The twin: only a run knows it, so a Session makes plans while it runs."""
    proto = model("m (float[4] x) => (z) { y = NonZero(x) z = Neg(y) }")
    with pytest.raises(SegmentsNeededError, match="only a run knows the sizes of its outputs"):
        load_onnx(proto)
    with Session(proto) as session:
        assert session.outputs[0].shape == (1, None)
        for found in (2, 0, 4):
            x = (np.arange(4) < found).astype(np.float32)
            [z] = same_as_runtime(session, proto, {"x": x})
            assert z.shape == (1, found)
