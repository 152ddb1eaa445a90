"""What is changed: real networks in small form, the suite's cases, small graphs made at random."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.random import Generator
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from eval.networks.models import light_model, light_names
from tests.onnx_suite.cases import Case, load
from vtensor import load_onnx
from vtensor.frontends.export import export

#: Nodes and side of the picture that a real network is cut down to.
NODES, SIDE = 12, 32

#: A larger case has little in it but numbers.
LARGEST_BYTES = 1 << 16

#: Kernels of the size of a larger picture take longer than an attempt may.
LARGEST_INPUT = 1 << 18

_UNARY = ("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Softmax", "Flatten", "GlobalAveragePool")
_BINARY = ("Add", "Mul", "Sub", "Max", "Div")


def corpus(suite: bool = True) -> list[bytes]:
    """Models that are right, in a fixed order; without ``suite`` in a second, not in ten.

    Those that ``export`` has written carry a graph's text, which can be changed as well.
    """
    models = [beginning(light_model(name)) for name in light_names()]
    models += [chain(np.random.default_rng(seed)) for seed in range(60)]
    models += [export(load_onnx(chain(np.random.default_rng(seed)))) for seed in range(6)]
    if suite:
        models += [with_values(case) for case in load().values()]
    written = [model.SerializeToString() for model in models if _elements(model) <= LARGEST_INPUT]
    return [model for model in written if len(model) <= LARGEST_BYTES]


def _elements(model: ModelProto) -> int:
    """The number of elements of a model's largest input."""
    shapes = [value.type.tensor_type.shape.dim for value in model.graph.input]
    return max((prod(dim.dim_value for dim in shape) for shape in shapes), default=0)


def with_values(case: Case) -> ModelProto:
    """A case's model with the case's own integers in it: shapes, axes, indices can be changed."""
    result = ModelProto()
    result.CopyFrom(case.model)
    feeds, _ = next(iter(case.data), ({}, []))
    for name, array in feeds.items():
        if isinstance(array, np.ndarray) and array.dtype == np.int64 and result.ir_version > 3:
            kept = [value for value in result.graph.input if value.name != name]
            result.graph.ClearField("input")
            result.graph.input.extend(kept)
            result.graph.initializer.append(numpy_helper.from_array(array, name))
    return result


def beginning(model: ModelProto) -> ModelProto:
    """The first nodes of a network, on a small picture."""
    result = ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    fills = [node for node in model.graph.node if node.op_type == "ConstantOfShape"]
    others = [node for node in model.graph.node if node.op_type != "ConstantOfShape"][:NODES]
    read = {name for node in (*fills, *others) for name in node.input}
    weights = [tensor for tensor in model.graph.initializer if tensor.name in read]
    for field in ("node", "initializer", "value_info", "output"):
        graph.ClearField(field)
    graph.node.extend([fill for fill in fills if fill.output[0] in read] + others)
    graph.initializer.extend(weights)
    for dim in (dim for value in graph.input for dim in value.type.tensor_type.shape.dim):
        if dim.dim_value > 200:
            dim.dim_value = SIDE
    last = others[-1].output[0]
    graph.output.append(helper.make_tensor_value_info(last, TensorProto.FLOAT, None))
    return result


def chain(rng: Generator) -> ModelProto:
    """A few operators one behind another on a small picture."""
    value, nodes = "x", []
    weights = [numpy_helper.from_array(rng.standard_normal((4, 4, 3, 3)).astype(np.float32), "w")]
    weights.append(numpy_helper.from_array(np.array([1, -1], np.int64), "shape"))
    for index in range(int(rng.integers(2, 7))):
        result = f"v{index}"
        made = _node(rng, value, index)
        made.output.append(result)
        nodes.append(made)
        value = result
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 4, 6, 6))
    y = helper.make_tensor_value_info(value, TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "chain", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def _node(rng: Generator, value: str, index: int) -> NodeProto:
    """One operator; which of them fit behind which is for the loader to say."""
    pick = _choice(rng, (*_UNARY, *_BINARY, "Conv", "MaxPool", "Reshape", "Transpose", "Concat"))
    if pick == "Conv":
        return helper.make_node(pick, [value, "w"], [], pads=[1, 1, 1, 1], group=1)
    if pick == "MaxPool":
        return helper.make_node(pick, [value], [], kernel_shape=[2, 2], strides=[1, 1])
    if pick == "Reshape":
        return helper.make_node(pick, [value, "shape"], [])
    if pick == "Concat":
        return helper.make_node(pick, [value, value], [], axis=0)
    if pick == "Transpose":
        return helper.make_node(pick, [value], [])
    return helper.make_node(pick, [value] * (1 + (pick in _BINARY)), [], name=f"n{index}")


def _choice(rng: Generator, names: Sequence[str]) -> str:
    return names[int(rng.integers(len(names)))]
