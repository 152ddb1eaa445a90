"""A model for other sizes: its nodes are read again, and the graph is that of a new model."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto

from tests.frontends.support import f32, model
from tests.runtime.opened import NETWORKS
from vtensor import load_onnx
from vtensor.errors import VTensorError
from vtensor.frontends.onnx import Model

#: What is inferred a second time: nodes whose outputs are known before a run.
INFER = "vtensor.frontends.expansion.infer"


def again(proto: ModelProto, first: dict[str, tuple[int, ...]]) -> Model:
    """A model that has made a graph."""
    made = Model(proto)
    made.graph(first)
    return made


@pytest.mark.parametrize("name", NETWORKS)
def test_it_is_the_graph_of_a_model_that_had_none_before(
    name: str, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = NETWORKS[name]()
    first, *others = (
        {key: array.shape for key, array in network.feeds(*sizes).items()}
        for sizes in network.sizes(2, pytestconfig.getoption("--shapes"))
    )
    graphs = [load_onnx(network.proto, shapes=shapes) for shapes in others]
    used = again(network.proto, first)
    monkeypatch.setattr(INFER, lambda *_: pytest.fail("everything is inferred again"))
    for shapes, graph in zip(others, graphs, strict=True):
        assert used.graph(shapes) == graph


def test_another_rank_is_read_anew() -> None:
    proto = model("g (float[a, b, c] x) => (float[n] y) { z = Squeeze(x) y = Relu(z) }")
    used = again(proto, {"x": (1, 4, 1)})
    for shape in ((4, 1, 1), (1, 1, 3), (1, 5, 1)):
        assert used.graph({"x": shape}) == load_onnx(proto, shapes={"x": shape})


FAULTS: dict[str, tuple[str, tuple[int, ...], tuple[int, ...]]] = {
    "do not fit": ("z = MatMul(x, w) y = Relu(z)", (2, 3), (2, 4)),
    "a window": ("c = Unsqueeze(x, one) y = MaxPool<kernel_shape = [3]>(c)", (2, 3), (2, 2)),
    "larger": ("y = Expand(x, big)", (2, 3), (2, 0)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_wrong_with_other_sizes_is_said_as_at_first(fault: str) -> None:
    body, good, bad = FAULTS[fault]
    weights = {"w": f32(3, 3), "one": np.array([1]), "big": np.array([1, 1])}
    used_ones = {name: array for name, array in weights.items() if name in body}
    proto = model(f"g (float[a, b] x) => (float[p, q] y) {{ {body} }}", 17, **used_ones)
    used = again(proto, {"x": good})
    said = []
    for one in (used, Model(proto)):
        try:
            said.append(str(one.graph({"x": bad})))
        except VTensorError as error:
            said.append(f"{type(error)}: {error}")
    assert said[0] == said[1]


def test_a_value_that_is_too_large_is_refused_as_at_first() -> None:
    proto = model(
        "g (float[a, 4] x) => (float[b] y) { z = Tile(x, r) y = Flatten(z) }", r=np.array([1, 99])
    )
    used = Model(proto, max_bytes=10_000)
    used.graph({"x": (2, 4)})
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
