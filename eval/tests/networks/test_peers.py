"""The twelve networks beside public definitions of the same: what people mean by their names.

Both graphs are walked from their ends, operands in order, so that no layer's name is needed.
Keras's models get our weights and must give our answers, which no other stride, pad or order would.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import networkx as nx
import numpy as np
import pytest
from numpy.typing import NDArray

from eval.compare import TOLERANCE, difference, photograph
from eval.networks import build, parameters
from eval.networks.models import light_model
from tests.libraries.slow import slow_but
from vtensor import Graph, Session, load_onnx
from vtensor.language.graph import Node

Array = NDArray[Any]

#: By our name: Keras Applications' name, and an image size that both take.
KERAS = {
    "inception_resnet_v2": ("InceptionResNetV2", 96),
    "inception_v3": ("InceptionV3", 96),
    "nasnet_large": ("NASNetLarge", 64),
    "resnet101": ("ResNet101", 64),
    "resnet152": ("ResNet152", 64),
    "resnet50": ("ResNet50", 64),
    "vgg19": ("VGG19", 64),
    "densenet169": ("DenseNet169", 64),
    "mobilenet_v1": ("MobileNet", 64),
    "mobilenet_v2": ("MobileNetV2", 64),
}
QUICK = {"mobilenet_v1", "resnet50"}
WIDTH = {"mobilenet_v2": {"alpha": 1.4}}


def walked(edges: Iterable[tuple[str, str]], end: str) -> Iterator[str]:
    """Yield what ``end`` depends on, producers first; edges lead from consumer to producer."""
    yield from nx.dfs_postorder_nodes(nx.DiGraph(edges), end)


def nodes(graph: Graph) -> list[Node]:
    """Return our nodes in the order of a walk."""
    makers = {value: node.name for node in graph.nodes.values() for value in node.outputs}
    edges = [
        (node.name, makers[value])
        for node in graph.nodes.values()
        for value in node.inputs
        if value in makers
    ]
    [end] = graph.outputs.values()
    return [graph.nodes[name] for name in walked(edges, makers[end])]


def kernels(graph: Graph) -> list[tuple[int, ...]]:
    """Return the shapes of kernels in the order of a walk."""
    return [
        graph.constants[node.inputs[1]].shape
        for node in nodes(graph)
        if node.op_name.endswith("Conv2D")
    ]


@pytest.mark.parametrize(
    ("name", "light", "others"), [("googlenet", "inception_v1", 0), ("inception_v2",) * 2 + (1,)]
)
def test_kernels_are_those_of_the_onnx_package(name: str, light: str, others: int) -> None:
    """``others``: kernels in front that differ; a separable one is two."""
    ours, theirs = kernels(build(name)), kernels(load_onnx(light_model(light)))
    assert ours[2 * others :] == theirs[others:]
    assert bool(others) == (ours[: 2 * others] != theirs[:others])


def in_keras(graph: Graph, node: Node) -> list[Array]:
    """The weights of a node as Keras keeps them: inputs, outputs last; an image's channels too."""
    arrays = [graph.constants[name] for name in node.inputs if name in graph.constants]
    if node.op_name == "Conv2D":
        return [arrays[0].transpose(2, 3, 1, 0)]
    if node.op_name == "DepthwiseConv2D":
        return [arrays[0][:, :, 0].transpose(2, 3, 0, 1)]
    if node.op_name == "MatMul":
        flat = graph.nodes.get(node.inputs[0])
        if flat is None or flat.op_name != "Reshape":
            return [arrays[0].T]
        image = graph.values[flat.inputs[0]]
        sizes = [image.size(dim) for dim in "CHW"]
        columns = arrays[0].T.reshape(*sizes, -1).transpose(1, 2, 0, 3)
        return [columns.reshape(image.num_elements, -1)]
    return arrays if node.op_name in ("BiasAdd", "BatchNorm") else []


class Peer:
    """A model of Keras Applications."""

    def __init__(self, name: str) -> None:
        os.environ.setdefault("KERAS_BACKEND", "torch")  # unless others have imported it already
        pytest.importorskip("torch")
        keras = pytest.importorskip("keras")
        title, self.size = KERAS[name]
        make: Callable[..., Any] = getattr(keras.applications, title)
        shape = (self.size, self.size, 3)
        self.model = make(weights=None, input_shape=shape, **WIDTH.get(name, {}))

    def layers(self) -> list[Any]:
        """Return the layers with weights, in the order of a walk."""
        by_name = {layer.name: layer for layer in self.model.operations}
        edges = [
            (layer.name, tensor._keras_history.operation.name)
            for layer in by_name.values()
            for tensor in layer._inbound_nodes[0].input_tensors
        ]
        [end] = self.model.outputs
        order = walked(edges, end._keras_history.operation.name)
        return [layer for layer in map(by_name.__getitem__, order) if layer.weights]

    def take(self, graph: Graph) -> None:
        """Set our weights, in the order of a walk; none may be left over on either side."""
        weights = iter([in_keras(graph, node) for node in nodes(graph) if in_keras(graph, node)])
        for layer in self.layers():
            arrays: list[Array] = []
            while len(arrays) < len(layer.weights):
                arrays += next(weights)
            if getattr(layer, "scale", True) is False:
                arrays = without_scale(layer.epsilon, *arrays)
            shapes = [w.shape for w in layer.weights]
            assert [*map(squeezed, shapes)] == [squeezed(array.shape) for array in arrays]
            layer.set_weights([a.reshape(s) for a, s in zip(arrays, shapes, strict=True)])
        assert list(weights) == []

    def run(self, image: Array) -> Array:
        """Return its answer to an image whose channels are last."""
        answer = self.model(image, training=False)
        return np.asarray(getattr(answer, "detach", lambda: answer)().numpy())  # torch's gradients

    def unscaled(self) -> int:
        """Return the number of channels of the batch norms without a scale."""
        layers = [layer for layer in self.layers() if getattr(layer, "scale", True) is False]
        return sum(layer.beta.shape[0] for layer in layers)


def without_scale(
    epsilon: float, scale: Array, bias: Array, mean: Array, var: Array
) -> list[Array]:
    """Bias, mean and variance with which a batch norm without scale does the same."""
    return [bias, mean, (var + epsilon) / scale**2 - epsilon]


def squeezed(shape: Iterable[int]) -> tuple[int, ...]:
    """Without sizes of 1: a 1 by 1 convolution of one pixel is a matrix product."""
    return tuple(size for size in shape if size != 1)


@pytest.mark.parametrize("name", slow_but(QUICK, sorted(KERAS)))
def test_same_layers_and_answer_as_in_keras(name: str) -> None:
    peer = Peer(name)
    graph = build(name, size=peer.size)
    assert parameters(graph) == peer.model.count_params() + peer.unscaled()
    peer.take(graph)
    assert disagreement(peer, graph) <= TOLERANCE


def disagreement(peer: Peer, graph: Graph) -> float:
    """Return the difference of the answers to one image."""
    image = photograph((1, 3, peer.size, peer.size))
    with Session(graph) as session:
        [ours] = session.run(None, {"image": image})
    return difference(ours, peer.run(image.transpose(0, 2, 3, 1)))


def test_another_network_and_other_weights_are_seen() -> None:
    peer = Peer("mobilenet_v1")
    with pytest.raises(AssertionError, match="3, 3, 48"):
        peer.take(build("mobilenet_v2", size=peer.size))
    peer.take(build("mobilenet_v1", size=peer.size))
    assert disagreement(peer, build("mobilenet_v1", size=peer.size, seed=1)) > TOLERANCE
