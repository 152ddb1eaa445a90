"""A model for other sizes: its nodes are read again, and the graph is that of a new model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto

from tests.frontends.support import f32, model
from tests.runtime.opened import NETWORKS
from vtensor import Graph, load_onnx
from vtensor.errors import VTensorError
from vtensor.frontends.builder import NamedNetwork
from vtensor.frontends.onnx import Model

#: What is inferred a second time: nodes whose outputs are known before a run.
INFER = "vtensor.frontends.expansion.infer"


@pytest.fixture
def inferring(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Graph]:
    """Load the graph of a model, where everything is inferred for its sizes."""

    def load(proto: ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> Graph:
        with monkeypatch.context() as patch:
            patch.setattr(NamedNetwork, "foresees", lambda *_: False)
            return load_onnx(proto, shapes=shapes)

    return load


def again(proto: ModelProto, first: dict[str, tuple[int, ...]], **options: Any) -> Model:
    """Return a model that has made a graph."""
    used = Model(proto, **options)
    used.graph(first)
    return used


@pytest.mark.parametrize("name", NETWORKS)
def test_it_is_the_graph_of_a_model_that_had_none_before(
    name: str,
    pytestconfig: pytest.Config,
    monkeypatch: pytest.MonkeyPatch,
    inferring: Callable[..., Graph],
) -> None:
    network = NETWORKS[name]()
    every = [
        {key: array.shape for key, array in network.feeds(*sizes).items()}
        for sizes in network.sizes(2, pytestconfig.getoption("--shapes"))
    ]
    graphs = [inferring(network.proto, shapes) for shapes in every]
    used = again(network.proto, every[0])
    monkeypatch.setattr(INFER, lambda *_: pytest.fail("everything is inferred again"))
    for shapes, graph in zip(every, graphs, strict=True):
        assert used.graph(shapes) == graph


@pytest.mark.parametrize(
    ("inputs", "body", "shapes"),
    [
        ("a, b", "z = Concat<axis = 1>(x, x) y = Relu(z)", [(2, 2), (4, 2), (1, 6), (2, 1)]),
        ("a, b", "z = Transpose(x) y = MatMul(z, x)", [(2, 2), (4, 2), (1, 6), (2, 1)]),
        (
            *("a, b", "s = Shape(x) z = Reshape(x, r) c = Cast<to = 1>(s) y = Mul(z, c)"),
            [(2, 2), (4, 2), (1, 6), (2, 1)],
        ),
        ("a, b, c", "z = Squeeze(x) y = Relu(z)", [(1, 4, 1), (4, 1, 1), (1, 1, 3), (1, 5, 1)]),
    ],
)
def test_equal_sizes_sizes_of_one_and_other_ranks(
    inputs: str, body: str, shapes: list[tuple[int, ...]], inferring: Callable[..., Graph]
) -> None:
    output = "float[n] y" if "Squeeze" in body else "float[p, q] y"
    text = f"g (float[{inputs}] x) => ({output}) <int64[2] r = {{-1, 2}}> {{ {body} }}"
    for first in shapes:
        used = again(model(text), {"x": first})
        for shape in shapes:
            assert used.graph({"x": shape}) == inferring(model(text), {"x": shape})


@pytest.mark.parametrize(
    ("body", "bad"),
    [
        ("z = MatMul(x, w) y = Relu(z)", (2, 4)),
        ("c = Unsqueeze(x, one) y = MaxPool<kernel_shape = [3]>(c)", (2, 2)),
        ("y = Expand(x, big)", (2, 0)),
    ],
    ids=["do not fit", "a window", "larger"],
)
def test_what_is_wrong_with_other_sizes_is_said_as_at_first(
    body: str, bad: tuple[int, ...]
) -> None:
    header = "<int64[1] one = {1}, int64[2] big = {1, 1}>"
    proto = model(f"g (float[a, b] x) => (float[p, q] y) {header} {{ {body} }}", w=f32(3, 3))
    messages = []
    for source in (again(proto, {"x": (2, 3)}), Model(proto)):
        try:
            messages.append(str(source.graph({"x": bad})))
        except VTensorError as error:
            messages.append(f"{type(error)}: {error}")
    assert messages[0] == messages[1]


def test_a_value_that_is_too_large_is_refused_as_at_first() -> None:
    text = "g (float[a, 4] x) => (float[b] y) { z = Tile(x, r) y = Flatten(z) }"
    used = again(model(text, r=np.array([1, 99])), {"x": (2, 4)}, max_bytes=10_000)
    with pytest.raises(VTensorError, match="the budget is 10000"):
        used.graph({"x": (20, 4)})


def test_values_that_are_given_are_kept_apart_from_sizes() -> None:
    proto = model(
        "g (float[a, b] x, int64[2] to) => (float[c, d] y) { r = Relu(x) y = Expand(r, to) }"
    )
    used = Model(proto)
    for rows in (2, 5, 3):
        shapes, values = {"x": (1, 4)}, {"to": np.array([rows, 4])}
        assert used.graph(shapes, values) == load_onnx(proto, shapes=shapes, values=values)
