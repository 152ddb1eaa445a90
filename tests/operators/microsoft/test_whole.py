"""Whole networks that ONNX Runtime's optimisers have rewritten into operators of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from tests.frontends.support import runtime
from tests.operators.harness import Array
from tests.operators.microsoft import test_attention, test_caches, test_fused
from tests.operators.microsoft.nodes import DOMAIN
from vtensor import Session
from vtensor.language.operators import OPERATORS

HEADS, HIDDEN, WORDS = 4, 64, 50
EXTENDED = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED


class Layers:
    """Nodes of a network as exporters write them, with random weights."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)
        self.nodes: list[Any] = []
        self.constants: list[TensorProto] = []

    def add(self, op_type: str, *inputs: str | Array, **attributes: Any) -> str:
        """Add a node and return the name of its output; arrays become constants."""
        names = []
        for value in inputs:
            if not isinstance(value, str):
                self.constants.append(numpy_helper.from_array(value, f"c{len(self.constants)}"))
                value = self.constants[-1].name
            names.append(value)
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, names, [name], f"n{name}", **attributes))
        return name

    def weights(self, *shape: int) -> Array:
        """Return weights of this shape."""
        drawn: Array = (self.random.normal(size=shape) / np.sqrt(shape[0])).astype("f4")
        return drawn

    def linear(self, x: str, width: int, columns: int) -> str:
        """Add a product with weights, and a bias."""
        product = self.add("MatMul", x, self.weights(width, columns))
        return self.add("Add", product, self.weights(columns))

    def normalized(self, x: str) -> str:
        """Add a normalization over the last dim."""
        by = self.weights(HIDDEN), self.weights(HIDDEN)
        return self.add("LayerNormalization", x, *by, axis=-1, epsilon=1e-5)


def encoder() -> ModelProto:
    """Return an encoder of text with one layer of attention, for any batch and length."""
    net = Layers()
    length = net.add("Gather", net.add("Shape", "words"), np.array(1), axis=0)
    begin, axis = np.zeros(1, "i8"), np.ones(1, "i8")
    end = net.add("Unsqueeze", length, begin)
    places = net.add("Slice", np.arange(32)[np.newaxis], begin, end, axis)
    x = net.add("Gather", net.weights(WORDS, HIDDEN), "words")
    x = net.add("Add", x, net.add("Gather", net.weights(2, HIDDEN), "segments"))
    x = net.add("Add", x, net.add("Gather", net.weights(32, HIDDEN), places))
    x = net.normalized(x)
    mask = net.add("Unsqueeze", net.add("Unsqueeze", "mask", np.array([1])), np.array([2]))
    mask = net.add("Sub", np.array(1, "f4"), net.add("Cast", mask, to=TensorProto.FLOAT))
    mask = net.add("Mul", mask, np.array(-10000, "f4"))
    shape = np.array([0, 0, HEADS, HIDDEN // HEADS])
    q, k, v = (
        net.add("Transpose", net.add("Reshape", net.linear(x, HIDDEN, HIDDEN), shape), perm=perm)
        for perm in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3))
    )
    scores = net.add("Div", net.add("MatMul", q, k), np.array(4, "f4"))
    weights = net.add("Softmax", net.add("Add", scores, mask), axis=-1)
    y = net.add("Transpose", net.add("MatMul", weights, v), perm=(0, 2, 1, 3))
    y = net.linear(net.add("Reshape", y, np.array([0, 0, HIDDEN])), HIDDEN, HIDDEN)
    x = net.normalized(net.add("Add", y, x))
    f = net.linear(x, HIDDEN, 128)
    gate = net.add("Erf", net.add("Div", f, np.array(np.sqrt(2), "f4")))
    gate = net.add("Add", gate, np.array(1, "f4"))
    f = net.add("Mul", net.add("Mul", f, gate), np.array(0.5, "f4"))
    x = net.normalized(net.add("Add", net.linear(f, 128, HIDDEN), x))
    net.nodes.append(helper.make_node("Identity", [x], ["y"]))
    ports = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "length"])
        for name in ("words", "mask", "segments")
    ]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "length", HIDDEN])
    graph = helper.make_graph(net.nodes, "encoder", ports, [result], net.constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def transformed(model: ModelProto, folder: Path) -> ModelProto:
    """Return what ONNX Runtime's optimiser of transformers makes of a model."""
    from onnxruntime.transformers import optimizer

    onnx.save(model, folder / "plain.onnx")
    done = optimizer.optimize_model(
        str(folder / "plain.onnx"), "bert", HEADS, HIDDEN, opt_level=0, only_onnxruntime=False
    )
    done.save_model_to_file(str(folder / "done.onnx"))
    return onnx.load(folder / "done.onnx")


def extended(model: ModelProto, folder: Path) -> ModelProto:
    """Return what ONNX Runtime's own optimisation makes of a model."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = EXTENDED
    options.optimized_model_filepath = str(folder / "done.onnx")
    onnxruntime.InferenceSession(model.SerializeToString(), options)
    return onnx.load(folder / "done.onnx")


@pytest.mark.parametrize(
    ("optimised", "made"),
    [
        (transformed, {"Attention", "EmbedLayerNormalization", "SkipLayerNormalization"}),
        (extended, {"FusedMatMul", "BiasGelu"}),
    ],
)
def test_an_optimised_encoder_gives_what_it_gave(
    optimised: Any, made: set[str], tmp_path: Path
) -> None:
    plain = encoder()
    model = optimised(plain, tmp_path)
    assert made <= {node.op_type for node in model.graph.node if node.domain == DOMAIN}
    types = {
        port.name: helper.tensor_dtype_to_np_dtype(port.type.tensor_type.elem_type)
        for port in model.graph.input
    }
    random = np.random.default_rng(1)
    origins = []
    with Session(model, threads=1) as session:
        for batch, length in ((2, 20), (2, 24), (2, 28)):
            words = random.integers(0, WORDS, (batch, length))
            mask = (np.arange(length) < random.integers(3, length + 1, (batch, 1))).astype("i8")
            feeds = {"words": words, "mask": mask, "segments": words % 2}
            [y] = session.run(None, {name: feeds[name].astype(types[name]) for name in types})
            assert np.abs(y - runtime(plain, feeds)[0]).max() < 1e-5
            assert not [step.op for step in session.plan.steps if step.python]
            origins.append(session.plan.origin.way)
    assert origins[1:] == ["specialised"] * 2


def test_a_decoder_step_is_specialised_for_each_length_of_the_past() -> None:
    own: dict[str, Any] = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1}
    nodes = [
        helper.make_node("Shape", ["mask"], ["shape"]),
        helper.make_node("Gather", ["shape", "one"], ["long"], axis=0),
        helper.make_node("Cast", ["long"], ["total"], to=TensorProto.INT32),
        helper.make_node("ReduceSum", ["mask", "axis"], ["count"], keepdims=0),
        helper.make_node("Sub", ["count", "one"], ["longest"]),
        helper.make_node("Cast", ["longest"], ["last"], to=TensorProto.INT32),
        helper.make_node(
            "GroupQueryAttention",
            ["x", "", "", "pk", "pv", "last", "total", "cos", "sin"],
            ["y", "k", "v"],
            domain=DOMAIN,
            **own,
        ),
    ]
    tables = {"one": np.array(1), "axis": np.array([1])}
    tables |= {"cos": test_fused.some(40, 8), "sin": test_fused.some(40, 8, seed=1)}
    kinds: dict[str, list[str | int]] = {
        "x": ["B", "S", 128],
        "pk": ["B", 2, "P", 16],
        "pv": ["B", 2, "P", 16],
    }
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in kinds.items()]
    ports.append(helper.make_tensor_value_info("mask", TensorProto.INT64, ["B", "T"]))
    ends: dict[str, list[str | int]] = {
        "y": ["B", "S", 64],
        "k": ["B", 2, "T", 16],
        "v": ["B", 2, "T", 16],
    }
    graph = helper.make_graph(
        nodes,
        "decoder",
        ports,
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in ends.items()],
        [numpy_helper.from_array(array, name) for name, array in tables.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    k = v = np.zeros((2, 2, 0, 16), "f4")
    origins = []
    with Session(model, threads=1) as session:
        for seed, size in enumerate((5, 1, 1, 1)):
            x = test_fused.some(2, size, 128, seed=seed)
            mask = np.ones((2, k.shape[2] + size), "i8")
            feeds = {"x": x, "mask": mask, "pk": k, "pv": v}
            outputs = session.run(None, feeds)
            for output, expected in zip(outputs, runtime(model, feeds), strict=True):
                np.testing.assert_allclose(output, expected, rtol=0, atol=1e-5)
            _, k, v = outputs
            origins.append(session.plan.origin.way)
    assert origins[2:] == ["specialised"] * 2


def test_every_operator_is_compared() -> None:
    rows = [*test_fused.NODES, *test_attention.NODES, *test_attention.GROUPED, *test_caches.NODES]
    visited = {f"{row.domain}::{row.op_type}".removeprefix("::") for row in rows}
    files = ("activations", "attention", "convolution", "matmul", "normalizations", "pooling")
    spelled = {
        spelling.op_type
        for info in OPERATORS.values()
        for spelling in info.onnx
        if spelling.op_type.startswith(f"{DOMAIN}::") and Path(info.file).stem in files
    }
    by_numpy = ("BiasSplitGelu", "FusedMatMulActivation", "NhwcConv", "NhwcFusedConv")
    assert spelled - visited == {f"{DOMAIN}::{name}" for name in by_numpy}
