"""Small networks of several families, with random weights, to be converted to narrow types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, ValueInfoProto, helper, numpy_helper

Array = NDArray[Any]
Shape = Sequence[int | str]


class Drawn:
    """A model that is built node by node.

    Args:
        opset: the version of ONNX's operators.
        seed: the seed of the weights.
    """

    def __init__(self, opset: int = 17, seed: int = 0) -> None:
        self.opset, self.rng = opset, np.random.default_rng(seed)
        self.nodes = list[Any]()
        self.weights = list[TensorProto]()
        self.inputs = list[ValueInfoProto]()

    def input(self, name: str, shape: Shape, kind: int = TensorProto.FLOAT) -> str:
        """Add an input and return its name; sizes given as text are open."""
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def weight(self, *shape: int) -> str:
        """Add a weight that keeps the scale of activations, and return its name."""
        inward = max(1, int(np.prod(shape[1:])) if len(shape) > 2 else shape[0])
        return self.constant(self.rng.standard_normal(shape, np.float32) * inward**-0.5 * 1.4)

    def constant(self, values: Any, dtype: Any = None) -> str:
        """Add a constant and return its name."""
        name = f"c{len(self.weights)}"
        array = np.asarray(values, dtype)
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def add(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """Add a node and return the name of its first output."""
        name = f"{op}_{len(self.nodes)}"
        names = [name, *(f"{name}_{number}" for number in range(1, outputs))]
        self.nodes.append(helper.make_node(op, inputs, names, name=f"n_{name}", **attributes))
        return name

    def model(self, outputs: dict[str, Shape]) -> ModelProto:
        """Return the model, given its outputs with their shapes."""
        ports = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in outputs.items()
        ]
        graph = helper.make_graph(self.nodes, "drawn", self.inputs, ports, self.weights)
        imports = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=imports, ir_version=8)

    def conv(self, x: str, inward: int, out: int, size: int = 3, **options: Any) -> str:
        """Add a convolution with a bias that keeps sizes, except for its strides."""
        group = options.get("group", 1)
        pads = [size // 2] * 4
        w, b = self.weight(out, inward // group, size, size), self.weight(out)
        return self.add("Conv", x, w, b, **{"pads": pads, "kernel_shape": [size, size], **options})

    def relu6(self, x: str) -> str:
        """Add a Clip to 0 .. 6."""
        return self.add("Clip", x, self.constant(0.0, "f4"), self.constant(6.0, "f4"))

    def reshape(self, x: str, *shape: int) -> str:
        """Add a Reshape."""
        return self.add("Reshape", x, self.constant(shape, "i8"))


def mobile(opset: int = 17) -> ModelProto:
    """Return inverted residuals with depthwise convolutions, a mean and a Gemm; open batch."""
    net = Drawn(opset)
    x = net.input("x", ("N", 3, 32, 32))
    x = net.relu6(net.conv(x, 3, 16, strides=[2, 2]))
    for _ in range(2):
        y = net.relu6(net.conv(x, 16, 48, 1))
        y = net.relu6(net.conv(y, 48, 48, group=48))
        x = net.add("Add", net.conv(y, 48, 16, 1), x)
    x = net.add("Flatten", net.add("GlobalAveragePool", x))
    return net.model({net.add("Gemm", x, net.weight(16, 10), net.weight(10)): ("N", 10)})


def efficient() -> ModelProto:
    """Return Sigmoids that gate activations (Swish), and channels (squeeze and excitation)."""
    net = Drawn()
    x = net.conv(net.input("x", (1, 3, 24, 24)), 3, 16, strides=[2, 2])
    for _ in range(2):
        x = net.add("Mul", x, net.add("Sigmoid", x))
        gate = net.add("Relu", net.conv(net.add("GlobalAveragePool", x), 16, 8, 1))
        x = net.add("Mul", x, net.add("Sigmoid", net.conv(gate, 8, 16, 1)))
        x = net.conv(x, 16, 16, 3, group=4)
    x = net.reshape(net.add("AveragePool", x, kernel_shape=[3, 3], strides=[3, 3]), 1, -1)
    return net.model({net.add("Softmax", net.add("MatMul", x, net.weight(256, 12))): (1, 12)})


def detector() -> ModelProto:
    """Return branches that are split, pooled, upsampled and joined, and a head of three outputs."""
    net = Drawn()
    x = net.conv(net.input("x", (1, 3, 32, 32)), 3, 16, strides=[2, 2])
    x = net.add("LeakyRelu", x, alpha=0.1)
    first = net.add("Split", x, outputs=2, axis=1)
    second = f"{first}_1"
    for _ in range(2):
        second = net.add("Relu", net.conv(second, 8, 8))
    x = net.add("Concat", first, second, axis=1)
    low = net.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    low = net.add("Relu", net.conv(low, 16, 16))
    scales = net.constant([1, 1, 2, 2], "f4")
    up = net.add("Resize", low, "", scales, mode="nearest", nearest_mode="floor")
    head = net.conv(net.add("Concat", up, x, axis=1), 32, 18, 1)
    boxes = net.add("Transpose", net.reshape(head, 1, 18, 256), perm=[0, 2, 1])
    limits = [net.constant([at], "i8") for at in (0, 6, 2)]
    part = net.add("Slice", boxes, *limits)
    return net.model({boxes: (1, 256, 18), part: (1, 256, 6), low: (1, 16, 8, 8)})


def u_net() -> ModelProto:
    """Return a way down and up again with a shortcut and a transposed convolution."""
    net = Drawn()
    top = net.add("Relu", net.conv(net.input("x", (1, 3, 24, 24)), 3, 12))
    x = net.add(
        "Relu", net.conv(net.add("MaxPool", top, kernel_shape=[2, 2], strides=[2, 2]), 12, 20)
    )
    up = net.add("ConvTranspose", x, net.weight(20, 12, 2, 2), net.weight(12), strides=[2, 2])
    x = net.add("Relu", net.conv(net.add("Concat", top, up, axis=1), 24, 12))
    padded = net.add("Pad", x, net.constant([0, 0, 1, 1, 0, 0, 1, 1], "i8"))
    y = net.conv(padded, 12, 2, 3, pads=[0, 0, 0, 0])
    return net.model({y: (1, 2, 24, 24)})


def transformer() -> ModelProto:
    """Return two layers of attention over looked-up words; batch and length are open."""
    net = Drawn()
    words = net.input("words", ("N", "L"), TensorProto.INT64)
    x = net.add("Gather", net.weight(50, 32), words)
    for _ in range(2):
        heads = []
        for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]):
            part = net.add("Add", net.add("MatMul", x, net.weight(32, 32)), net.weight(32))
            heads.append(net.add("Transpose", net.reshape(part, 0, 0, 4, 8), perm=perm))
        scores = net.add("MatMul", heads[0], heads[1])
        scores = net.add("Div", scores, net.constant(8**0.5, "f4"))
        mixed = net.add("MatMul", net.add("Softmax", scores, axis=-1), heads[2])
        mixed = net.reshape(net.add("Transpose", mixed, perm=[0, 2, 1, 3]), 0, 0, 32)
        x = net.add("Add", x, net.add("MatMul", mixed, net.weight(32, 32)))
        x = _normalised(net, x)
        y = net.add("Add", net.add("MatMul", x, net.weight(32, 64)), net.weight(64))
        y = net.add("Mul", y, net.add("Sigmoid", y))
        x = _normalised(net, net.add("Add", x, net.add("MatMul", y, net.weight(64, 32))))
    return net.model({net.add("MatMul", x, net.weight(32, 50)): ("N", "L", 50)})


def _normalised(net: Drawn, x: str) -> str:
    ones, zeros = net.constant(np.ones(32), "f4"), net.constant(np.zeros(32), "f4")
    return net.add("LayerNormalization", x, ones, zeros)


def recogniser() -> ModelProto:
    """Return convolutions over a line of text, and an LSTM in both directions over its columns."""
    net = Drawn()
    x = net.input("x", (1, 1, 8, 40))
    for inward, out in ((1, 8), (8, 16), (16, 24)):
        x = net.add("Relu", net.conv(x, inward, out))
        x = net.add("MaxPool", x, kernel_shape=[2, 1], strides=[2, 1])
    x = net.add("Squeeze", x, net.constant([2], "i8"))
    x = net.add("Transpose", x, perm=[2, 0, 1])
    w, r, b = (net.constant(net.rng.standard_normal(s) * 0.3, "f4") for s in _CELL)
    x = net.add("LSTM", x, w, r, b, hidden_size=16, direction="bidirectional")
    x = net.reshape(net.add("Transpose", x, perm=[0, 2, 1, 3]), 0, 0, 32)
    return net.model({net.add("MatMul", x, net.weight(32, 20)): (40, 1, 20)})


_CELL = ((2, 64, 24), (2, 64, 16), (2, 128))

#: By name of a family, the function that returns its network.
FAMILIES: dict[str, Callable[[], ModelProto]] = {
    "mobile": mobile,
    "efficient": efficient,
    "detector": detector,
    "u_net": u_net,
    "transformer": transformer,
    "recogniser": recogniser,
}


def inputs_of(
    model: ModelProto, seed: int = 0, batch: int = 2, length: int = 7
) -> dict[str, Array]:
    """Return random inputs of a model by name, for sizes of the open dims N and L."""
    rng, feeds = np.random.default_rng(seed), dict[str, Array]()
    sizes = {"N": batch, "L": length}
    for port in model.graph.input:
        dims = port.type.tensor_type.shape.dim
        shape = [dim.dim_value or sizes[dim.dim_param] for dim in dims]
        if port.type.tensor_type.elem_type == TensorProto.INT64:
            feeds[port.name] = rng.integers(0, 50, shape)
        else:
            feeds[port.name] = rng.standard_normal(shape, np.float32)
    return feeds
