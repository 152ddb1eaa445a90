"""Well-known networks with seeded weights, in which errors show.

The ``onnx`` package has well-known networks without their weights: each is a constant 0.02. Such
weights hide errors, as all channels are alike, so ``seeded`` draws others, each from its own name
and a seed.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

Array = NDArray[np.float32]
Generator = np.random.Generator
Draw = Callable[[Generator, tuple[int, ...]], Array]

#: The scale of a batch norm at the end of a residual branch. It is below 1, so that the sum of
#: sixteen such branches stays small.
RESIDUAL_SCALE = 0.35


def _folder() -> Path:
    return Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def light_names() -> list[str]:
    """Return the names of the networks in the ``onnx`` package.

    >>> "resnet50" in light_names()
    True
    """
    return sorted(path.stem.removeprefix("light_") for path in _folder().glob("light_*.onnx"))


def light_model(name: str) -> ModelProto:
    """Return a network of the ``onnx`` package, without real weights.

    Raises:
        ValueError: there is no such network; the message lists all.
    """
    path = _folder() / f"light_{name}.onnx"
    if not path.is_file():
        raise ValueError(f"no network {name!r}; there are {', '.join(light_names())}")
    return onnx.load(path)


def seeded(model: ModelProto, seed: int) -> ModelProto:
    """Return a copy of a model with random weights, the same ones for the same seed.

    Kernels and matrices are He-scaled, biases small; batch norms get statistics that differ from
    channel to channel. Activations stay finite and of the order of 1 through ResNet-50's residual
    chain.

    Args:
        model: a model whose weights are initializers or made by ConstantOfShape; it is not changed.
        seed: any integer.
    """
    result = _without_weights(model)
    shapes = _weight_shapes(model)
    for name, draw in _draws(model):
        if name in shapes:
            rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
            result.graph.initializer.append(
                numpy_helper.from_array(draw(rng, shapes.pop(name)), name)
            )
    if shapes:
        raise ValueError(f"no rule draws the weights {', '.join(shapes)}")
    return result


def before_softmax(model: ModelProto) -> ModelProto:
    """Return a copy of a model without the Softmax at its end, whose input becomes the output.

    A Softmax makes different inputs similar, so comparisons of its outputs would hide errors.

    Raises:
        ValueError: the model does not end in a Softmax.
    """
    result = ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    last = graph.node[-1]
    if last.op_type != "Softmax" or [o.name for o in graph.output] != list(last.output):
        raise ValueError(f"the model ends in {last.op_type}, not in a Softmax")
    graph.output[0].name = last.input[0]
    del graph.node[-1]
    return result


def with_batch(model: ModelProto, batch: int) -> ModelProto:
    """Return a copy of a model for another batch size.

    The first dims of inputs and outputs, and the shapes of Reshapes, get this size. The Reshape of
    a weight keeps its shape. Declared sizes of values between nodes are left out.

    Args:
        model: a model for batch size 1, from ``seeded``; it is not changed.
        batch: the new batch size.
    """
    result = ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    graph.ClearField("value_info")
    initializers = {tensor.name: tensor for tensor in graph.initializer}
    for value in (*graph.input, *graph.output):
        if value.name not in initializers:
            value.type.tensor_type.shape.dim[0].dim_value = batch
    shapes = {
        n.input[1] for n in graph.node if n.op_type == "Reshape" and n.input[0] not in initializers
    }
    for name in shapes & initializers.keys():
        sizes = numpy_helper.to_array(initializers[name]).copy()
        if sizes[0] == 1:
            sizes[0] = batch
            initializers[name].CopyFrom(numpy_helper.from_array(sizes, name))
    return result


def with_side(model: ModelProto, side: int) -> ModelProto:
    """Return a copy of a model for pictures of another size.

    Only the sizes of the input are changed. Declared sizes of values between nodes are left out.

    Args:
        model: a model from ``seeded`` that averages over the whole image before its classifier; it
            is not changed.
        side: height and width of a picture, in pixels.
    """
    result = ModelProto()
    result.CopyFrom(model)
    result.graph.ClearField("value_info")
    [picture] = result.graph.input
    for size in picture.type.tensor_type.shape.dim[2:]:
        size.dim_value = side
    return result


def _weight_shapes(model: ModelProto) -> dict[str, tuple[int, ...]]:
    """Return the shape of every float weight by name, in the order of the file."""
    initializers = {tensor.name: tensor for tensor in model.graph.initializer}
    used = {name for node in model.graph.node for name in node.input}
    shapes = {
        tensor.name: tuple(tensor.dims)
        for tensor in initializers.values()
        if tensor.data_type == TensorProto.FLOAT and tensor.name in used
    }
    for node in _fills(model):
        sizes = numpy_helper.to_array(initializers[node.input[0]])
        shapes[node.output[0]] = tuple(int(size) for size in sizes)
    return shapes


def _fills(model: ModelProto) -> Iterator[NodeProto]:
    return (node for node in model.graph.node if node.op_type == "ConstantOfShape")


def _without_weights(model: ModelProto) -> ModelProto:
    """Return a copy of a model without its float weights and the nodes that make weights.

    Initializers that remain are no longer listed among the model's inputs.
    """
    shapes = _weight_shapes(model)
    makers = {node.input[0] for node in _fills(model)}
    result = ModelProto()
    result.CopyFrom(model)
    result.ir_version = 8  # from version 4 on an initializer need not be an input
    graph = result.graph
    nodes = [node for node in model.graph.node if node.op_type != "ConstantOfShape"]
    kept = [t for t in model.graph.initializer if t.name not in shapes and t.name not in makers]
    initializers = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in initializers]
    for field in ("node", "initializer", "input"):
        graph.ClearField(field)
    graph.node.extend(nodes)
    graph.initializer.extend(kept)
    graph.input.extend(inputs)
    return result


def _draws(model: ModelProto) -> Iterator[tuple[str, Draw]]:
    """Yield (name, function that draws its values) of each weight.

    The function depends on the node that reads the weight, and on the weight's index among the
    node's inputs.
    """
    summed = {
        name for node in model.graph.node if node.op_type in ("Sum", "Add") for name in node.input
    }
    views: dict[str, str] = {}  # a weight by the name of its reshaped value
    for node in model.graph.node:
        if node.op_type in ("Unsqueeze", "Reshape"):
            views[node.output[0]] = node.input[0]
    for node in model.graph.node:
        draws = _rules(node, residual=node.output[0] in summed)
        for index, draw in draws.items():
            if index < len(node.input):
                yield views.get(node.input[index], node.input[index]), draw


def _rules(node: NodeProto, residual: bool) -> dict[int, Draw]:
    """Return the functions that draw the weights of a node, by their index among its inputs.

    Args:
        node: the node.
        residual: True if the node's output is added to another value.
    """
    if node.op_type == "Conv":
        return {1: _he, 2: _around(0.0, 0.1)}
    if node.op_type == "Gemm":
        transposed = any(a.name == "transB" and a.i for a in node.attribute)
        return {1: _he if transposed else _he_columns, 2: _around(0.0, 0.1)}
    if node.op_type == "BatchNormalization":
        scale = RESIDUAL_SCALE if residual else 1.0
        mean = _around(0.0, 0.2)
        return {1: _around(scale, 0.1 * scale), 2: _around(0.0, 0.1), 3: mean, 4: _variance}
    if node.op_type == "Mul":
        return {1: _around(1.0, 0.1)}
    return {1: _around(0.0, 0.1)} if node.op_type == "Add" else {}


def _he(rng: Generator, shape: tuple[int, ...]) -> Array:
    """Return normal weights of variance 2 / fan-in, the number of inputs of an output.

    The first dim is that of the outputs.
    """
    weights = rng.standard_normal(shape, np.float32)
    weights *= np.float32(np.sqrt(2 / np.prod(shape[1:])))
    return weights


def _he_columns(rng: Generator, shape: tuple[int, ...]) -> Array:
    """Return normal weights of variance 2 / fan-in, the number of inputs of an output.

    The last dim is that of the outputs.
    """
    weights = rng.standard_normal(shape, np.float32)
    weights *= np.float32(np.sqrt(2 / np.prod(shape[:-1])))
    return weights


def _around(center: float, spread: float) -> Draw:
    def draw(rng: Generator, shape: tuple[int, ...]) -> Array:
        return np.asarray(center + spread * rng.standard_normal(shape), np.float32)

    return draw


def _variance(rng: Generator, shape: tuple[int, ...]) -> Array:
    return rng.uniform(0.5, 1.5, shape).astype(np.float32)
