"""Small random networks, and what ONNX Runtime's quantiser makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from eval.narrow.quantised import dynamic, quiet, static

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Network:
    """A network in f32, its nodes as texts: operator, inputs, output, attributes."""

    nodes: tuple[NodeProto, ...]
    inputs: Mapping[str, tuple[int, ...]]
    constants: Mapping[str, Array]

    def model(self) -> ModelProto:
        """Return it as an ONNX model whose output is y."""
        ports = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in self.inputs.items()
        ]
        result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        known = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        graph = helper.make_graph(self.nodes, "net", ports, [result], known)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def feeds(self, seed: int) -> dict[str, Array]:
        """Return random inputs."""
        rng = np.random.default_rng(seed)
        return {name: rng.normal(size=s).astype("f4") for name, s in self.inputs.items()}


def _weights(**shapes: tuple[int, ...]) -> dict[str, Array]:
    rng = np.random.default_rng(2)
    return {
        name: (rng.normal(size=shape) / np.sqrt(float(np.prod(shape[1:])))).astype("f4")
        for name, shape in shapes.items()
    }


def convolutions() -> Network:
    """Return a network of convolutions, depthwise ones among them, with a residual and a gate."""
    node = helper.make_node
    around: dict[str, Any] = {"pads": [1, 1, 1, 1]}
    nodes = [
        node("Conv", ["x", "w0", "b0"], ["c0"], **around),
        node("Relu", ["c0"], ["r0"]),
        node("MaxPool", ["r0"], ["p0"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p0", "w1", "b1"], ["c1"], **around),
        node("Relu", ["c1"], ["r1"]),
        node("Conv", ["r1", "w2", "b2"], ["c2"], **around),
        node("Add", ["c2", "p0"], ["a0"]),
        node("Relu", ["a0"], ["r2"]),
        node("Conv", ["r2", "wd", "bd"], ["d0"], group=16, **around),
        node("Clip", ["d0", "low", "high"], ["d1"]),
        node("Conv", ["d1", "wp", "bp"], ["e0"]),
        node("Sigmoid", ["e0"], ["e1"]),
        node("Mul", ["e0", "e1"], ["e2"]),
        node("Concat", ["e2", "r2"], ["f0"], axis=1),
        node("GlobalAveragePool", ["f0"], ["g0"]),
        node("Flatten", ["g0"], ["g1"]),
        node("Gemm", ["g1", "wg", "bg"], ["y"], transB=1),
    ]
    square = (16, 16, 3, 3)
    known = _weights(
        w0=(16, 3, 3, 3),
        w1=square,
        w2=square,
        wd=(16, 1, 3, 3),
        wp=(16, 16, 1, 1),
        wg=(10, 32),
        b0=(16,),
        b1=(16,),
        b2=(16,),
        bd=(16,),
        bp=(16,),
        bg=(10,),
    )
    known |= {"low": np.array(0, "f4"), "high": np.array(6, "f4")}
    return Network(tuple(nodes), {"x": (2, 3, 16, 16)}, known)


def attention() -> Network:
    """Return products with constants and with each other, reshaped and transposed."""
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "wq"], ["q0"]),
        node("Add", ["q0", "bq"], ["q"]),
        node("MatMul", ["x", "wk"], ["k0"]),
        node("Add", ["k0", "bk"], ["k"]),
        node("Reshape", ["q", "apart"], ["q1"]),
        node("Transpose", ["q1"], ["q2"], perm=[0, 2, 1, 3]),
        node("Reshape", ["k", "apart"], ["k1"]),
        node("Transpose", ["k1"], ["k2"], perm=[0, 2, 3, 1]),
        node("MatMul", ["q2", "k2"], ["m"]),
        node("Softmax", ["m"], ["s"], axis=-1),
        node("MatMul", ["s", "q2"], ["o"]),
        node("Transpose", ["o"], ["o1"], perm=[0, 2, 1, 3]),
        node("Reshape", ["o1", "together"], ["o2"]),
        node("MatMul", ["o2", "wo"], ["y0"]),
        node("Add", ["y0", "bo"], ["y"]),
    ]
    square, row = (64, 64), (64,)
    known = _weights(wq=square, wk=square, wo=square, bq=row, bk=row, bo=row)
    known |= {"apart": np.array([2, 8, 4, 16]), "together": np.array([2, 8, 64])}
    return Network(tuple(nodes), {"x": (2, 8, 64)}, known)


NETWORKS = {"convolutions": convolutions, "attention": attention}


def quantised(
    network: Network,
    folder: Path,
    form: str,
    activations: str = "u8",
    weights: str = "s8",
    per_channel: bool = False,
) -> ModelProto:
    """Return a network as ONNX Runtime's quantiser writes it.

    Args:
        network: the network.
        folder: where its file is written.
        form: ``qdq``, ``qop`` or ``dynamic``.
        activations, weights: their element types.
        per_channel: whether the weights of each output channel have a scale of their own.
    """
    target, scales = folder / f"{form}.onnx", "channel" if per_channel else "tensor"
    with quiet():
        if form == "dynamic":
            dynamic(weights, scales, network.model(), target, {})
        else:
            static(form, activations + weights, scales, network.model(), target, network.feeds(0))
    return onnx.load(target)


def output_step(model: ModelProto) -> float:
    """Return the scale of a quantised model's last dequantization."""
    known = {array.name: numpy_helper.to_array(array) for array in model.graph.initializer}
    last = next(node for node in model.graph.node if "y" in node.output)
    assert last.op_type == "DequantizeLinear"
    return float(known[last.input[1]])
