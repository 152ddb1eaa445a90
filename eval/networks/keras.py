"""Networks as tf2onnx writes Keras's: the input has channels last, and Transposes surround the
operators that need channels first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

TO_CHANNELS_FIRST, TO_CHANNELS_LAST = [0, 3, 1, 2], [0, 2, 3, 1]


class Export:
    """The nodes and weights of an ONNX graph, in the order in which they are added."""

    def __init__(self, seed: int) -> None:
        self.nodes: list[NodeProto] = []
        self.weights: list[TensorProto] = []
        self._rng = np.random.default_rng(seed)

    def weight(self, name: str, *shape: int, positive: bool = False) -> str:
        """Add a seeded weight, and return its name.

        Its values are scaled so that activations keep their size.

        Args:
            name: the weight's name.
            shape: its sizes.
            positive: True makes all values at least 0.5.
        """
        fan_in = np.prod(shape[1:]) if len(shape) == 4 else shape[0]
        drawn = self._rng.standard_normal(shape, np.float32) * np.sqrt(2 / fan_in)
        return self.constant(name, np.abs(drawn) + 0.5 if positive else drawn)

    def constant(self, name: str, array: NDArray[np.generic]) -> str:
        """Add an initializer, in f32 if it has floats, and return its name."""
        kept = array.astype(np.float32) if array.dtype.kind == "f" else array
        self.weights.append(numpy_helper.from_array(kept, name))
        return name

    def add(self, op: str, name: str, *inputs: str, **attributes: Any) -> str:
        """Add a node of the type ``op`` with one output, and return the output's name."""
        output = f"{name}:0"
        self.nodes.append(helper.make_node(op, list(inputs), [output], name, **attributes))
        return output

    def block(self, name: str, x: str, channels: tuple[int, int], stride: int, last: bool) -> str:
        """Add Conv, BatchNormalization and Relu, and return the output's name.

        Args:
            name: the prefix of the nodes' names.
            x: the name of the input, with channels first.
            channels: the numbers of channels of the input and of the output.
            stride: the stride of the convolution.
            last: True adds a Transpose to channels last at the end.
        """
        kernel = self.weight(f"{name}/kernel", channels[1], channels[0], 3, 3)
        x = self.add(
            *("Conv", f"{name}/Conv2D", x, kernel),
            kernel_shape=[3, 3],
            strides=[stride, stride],
            auto_pad="SAME_UPPER",
        )
        kinds = ("gamma", "beta", "moving_mean", "moving_variance")
        norm = [
            self.weight(f"{name}/bn/{kind}", channels[1], positive=kind in kinds[::3])
            for kind in kinds
        ]
        x = self.add("BatchNormalization", f"{name}/bn/FusedBatchNormV3", x, *norm)
        x = self.add("Relu", f"{name}/Relu", x)
        if last:
            x = self.add("Transpose", f"{name}/Relu__to_last", x, perm=TO_CHANNELS_LAST)
        return x


def keras_export(
    side: int = 224, batch: int | str = 1, *, mean: bool = True, width: int = 32, seed: int = 0
) -> ModelProto:
    """Return a small classifier: four blocks, the second with a trailing Transpose, mean, Dense.

    Args:
        side: height and width of the picture, in pixels; the input is batch x side x side x 3.
        batch: the number of pictures, or the name of an open size.
        mean: write the average as a ReduceMean over channels-last H and W, after a Transpose; if
            false, as a GlobalAveragePool and a Squeeze.
        width: the number of channels of the first block.
        seed: the seed of the weights.
    """
    export = Export(seed)
    x = export.add("Transpose", "model/conv1/Conv2D__6", "input_1", perm=TO_CHANNELS_FIRST)
    x = export.block("model/conv1", x, (3, width), 2, last=False)
    x = export.block("model/conv2", x, (width, 2 * width), 2, last=True)
    x = export.add("Transpose", "model/conv3/Conv2D__7", x, perm=TO_CHANNELS_FIRST)
    x = export.block("model/conv3", x, (2 * width, 2 * width), 1, last=False)
    x = export.block("model/conv4", x, (2 * width, 4 * width), 2, last=mean)
    if mean:
        x = export.add("ReduceMean", "model/avg_pool/Mean", x, axes=[1, 2], keepdims=0)
    else:
        x = export.add("GlobalAveragePool", "model/avg_pool/Mean", x)
        axes = export.constant("const_axes__8", np.array([2, 3]))
        x = export.add("Squeeze", "model/avg_pool/Mean_Squeeze__9", x, axes)
    x = export.add("MatMul", "model/predictions/MatMul", x, export.weight("kernel", 4 * width, 10))
    x = export.add("Add", "model/predictions/BiasAdd", x, export.weight("bias", 10))
    x = export.add("Softmax", "model/predictions/Softmax", x, axis=-1)
    graph = helper.make_graph(
        export.nodes,
        "keras",
        [helper.make_tensor_value_info("input_1", TensorProto.FLOAT, [batch, side, side, 3])],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, [batch, 10])],
        export.weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)
