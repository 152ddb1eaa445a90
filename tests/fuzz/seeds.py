"""What is changed: real networks in small form, the suite's cases, small graphs made at random."""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.random import Generator
from onnx import ModelProto, TensorProto, helper, numpy_helper

from eval.networks.models import light_model, light_names
from tests.frontends.support import f32, model
from tests.fuzz.mutate import pick
from tests.onnx_suite.cases import Case, load
from vtensor import load_onnx
from vtensor.frontends.export import export

#: Nodes and side of the picture that a real network is cut down to.
NODES, SIDE = 12, 32

#: Bytes of the largest case: larger ones have little in them but numbers.
LARGEST_BYTES = 1 << 16

#: Elements of the largest input: kernels of a larger picture take longer than an attempt may.
LARGEST_INPUT = 1 << 18

#: Nodes of a chain, where ``#`` is the value before.
UNARY = ("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Softmax", "Flatten", "GlobalAveragePool")
BINARY = ("Add", "Mul", "Sub", "Max", "Div")
LINKS = (
    *(f"{op}(#)" for op in (*UNARY, "Transpose")),
    *(f"{op}(#, #)" for op in BINARY),
    "Conv<pads = [1, 1, 1, 1], group = 1>(#, w)",
    "MaxPool<kernel_shape = [2, 2], strides = [1, 1]>(#)",
    "Reshape(#, shape)",
    "Concat<axis = 0>(#, #)",
)


def corpus(suite: bool = True) -> list[bytes]:
    """Return models that are right, in a fixed order; without ``suite`` in a second, not in ten.

    Those that ``export`` has written carry a graph's text, which can be changed as well.
    """
    models = [beginning(light_model(name)) for name in light_names()]
    models += [chain(np.random.default_rng(seed)) for seed in range(60)]
    models += [export(load_onnx(chain(np.random.default_rng(seed)))) for seed in range(6)]
    if suite:
        models += [with_values(case) for case in load().values()]
    written = [proto.SerializeToString() for proto in models if _elements(proto) <= LARGEST_INPUT]
    return [data for data in written if len(data) <= LARGEST_BYTES]


def _elements(proto: ModelProto) -> int:
    """Return the number of elements of a model's largest input."""
    shapes = [value.type.tensor_type.shape.dim for value in proto.graph.input]
    return max((prod(dim.dim_value for dim in shape) for shape in shapes), default=0)


def with_values(case: Case) -> ModelProto:
    """Return a case's model with its own integers in it: shapes, axes, indices can be changed."""
    result = ModelProto()
    result.CopyFrom(case.model)
    feeds, _ = next(iter(case.data), ({}, []))
    for name, array in feeds.items():
        if isinstance(array, np.ndarray) and array.dtype == np.int64 and result.ir_version > 3:
            others = [value for value in result.graph.input if value.name != name]
            result.graph.ClearField("input")
            result.graph.input.extend(others)
            result.graph.initializer.append(numpy_helper.from_array(array, name))
    return result


def beginning(proto: ModelProto) -> ModelProto:
    """Return the first nodes of a network, on a small picture."""
    result = ModelProto()
    result.CopyFrom(proto)
    graph = result.graph
    fills = [node for node in proto.graph.node if node.op_type == "ConstantOfShape"]
    others = [node for node in proto.graph.node if node.op_type != "ConstantOfShape"][:NODES]
    read = {name for node in (*fills, *others) for name in node.input}
    weights = [tensor for tensor in proto.graph.initializer if tensor.name in read]
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
    """Draw a few operators one after another on a small picture; some may not fit."""
    nodes, value = "", "x"
    for index in range(int(rng.integers(2, 7))):
        nodes += f" [n{index}] v{index} = {pick(rng, LINKS).replace('#', value)}"
        value = f"v{index}"
    text = f"chain (float[1, 4, 6, 6] x) => (float[] {value}) {{ {nodes} }}"
    return model(text, w=f32(4, 4, 3, 3), shape=np.array([1, -1]))
