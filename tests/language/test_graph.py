"""Graphs: what they refuse, what they print, and networkx both ways."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import pytest

from ops import Add, Conv2D, MaxPoolIndices, Relu
from tests.frontends.support import model
from vtensor import Graph, Session, VTensor
from vtensor.errors import DimError, GraphError, InputError

X = np.random.default_rng(1).standard_normal((1, 4, 5, 5)).astype(np.float32)


def residual() -> Graph:
    """Build x -> conv -> relu -> + x, with a second output."""
    graph = Graph("residual")
    x = graph.input("x", {"N": 1, "C": 4, "H": 5, "W": 5})
    weights = np.random.default_rng(0).standard_normal((4, 4, 3, 3)).astype(np.float32)
    w = graph.constant(weights, "O I h w", "w")
    convolved = graph.add(Conv2D(pads=(1, 1, 1, 1)), x, w, name="conv")
    graph.output(graph.add(Add(), graph.add(Relu(), convolved), x, name="sum"), "y")
    graph.output(convolved, "middle")
    return graph


def test_networkx_and_back_is_the_same_network() -> None:
    graph = residual()
    again = Graph.from_networkx(graph.to_networkx())
    assert (again, str(again)) == (graph, str(graph))
    with Session(graph) as first, Session(again) as second:
        for ours, theirs in zip(first.run(None, {"x": X}), second.run(None, {"x": X}), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_an_edited_networkx_graph_is_checked_like_a_new_one() -> None:
    cyclic, resized, bare = (residual().to_networkx() for _ in range(3))
    cyclic.add_edge("sum", "conv", value="sum", position=2)
    resized.nodes["w"]["array"] = np.zeros((4, 3, 3, 3), np.float32)
    del bare.nodes["x"]["tensor"]
    rows: list[tuple[Any, type[Exception], str]] = [
        (cyclic, GraphError, "has a cycle"),
        (resized, DimError, "Conv2D 'conv'"),
        (bare, GraphError, "'tensor' is missing"),
        (nx.MultiDiGraph([("a", "b")]), GraphError, "'kind' is missing"),
    ]
    for edited, kind, fault in rows:
        with pytest.raises(kind, match=fault):
            Graph.from_networkx(edited)


@pytest.mark.parametrize(
    "change",
    [
        lambda graph, x: graph.add(Relu(), Graph("other").input("x", {"N": 1})),
        lambda graph, x: graph.add(Relu(), x, name="conv"),
        lambda graph, x: graph.input("x", {"N": 1}),
        lambda graph, x: graph.output(x, "y"),
        lambda graph, x: graph.constant(np.zeros((2, 2), np.float32), "O I h w"),
        lambda graph, x: graph.add(Conv2D(), x, x),
        lambda graph, x: graph.add(MaxPoolIndices((1, 1)), x, outputs=("a", "a")),
        lambda graph, x: graph.add(MaxPoolIndices((1, 1)), x, name="a", outputs=("", "a")),
    ],
)
def test_a_refused_change_leaves_a_graph_as_it_was(change: Callable[[Graph, VTensor], Any]) -> None:
    graph = residual()
    before = str(graph)
    with pytest.raises((GraphError, DimError)):
        change(graph, graph.values["x"])
    assert str(graph) == before


@pytest.mark.parametrize(
    "change",
    [
        lambda graph, x: graph.input("z", {"N": 1}),
        lambda graph, x: graph.constant(np.zeros(1, np.float32), "N"),
        lambda graph, x: graph.add(Relu(), x),
        lambda graph, x: graph.add(Relu(), x, name="named"),
        lambda graph, x: graph.output(x, "another"),
    ],
)
def test_a_sealed_graph_takes_nothing(change: Callable[[Graph, VTensor], Any]) -> None:
    graph = residual().seal()
    before = str(graph)
    with pytest.raises(GraphError, match="graph 'residual' is sealed; build a new one"):
        change(graph, graph.values["x"])
    assert str(graph) == before


def test_names_are_unique_and_scoped() -> None:
    graph = Graph()
    x = graph.input("x", {"N": 1})
    with graph.scope("block1"):
        names = [graph.add(Relu(), x).name for _ in range(2)]
        with graph.scope("inner"):
            names.append(graph.add(Relu(), x, name="last").name)
            names.append(graph.constant(np.zeros(1, np.float32), "N").name)
    names.append(graph.add(Relu(), x).name)
    scoped = ["block1/Relu:0", "block1/Relu:1", "block1/inner/last", "block1/inner/constant:0"]
    assert names == [*scoped, "Relu:0"]
    with pytest.raises(GraphError, match="already has 'block1/Relu:0'"):
        graph.add(Relu(), x, name="block1/Relu:0")
    with pytest.raises(KeyError), graph.scope("left"):
        raise KeyError
    assert graph.add(Relu(), x).name == "Relu:1", "a scope ends where an error leaves it"


def test_values_know_their_operators() -> None:
    conv, x = (residual().values[name] for name in ("conv", "x"))
    assert (conv.name, conv.dtype, conv.op, conv.device) == ("conv", "f32", "Conv2D", "cpu")
    assert (x.name, x.op) == ("x", "")


def test_a_graph_delivers_values_that_it_has() -> None:
    with pytest.raises(GraphError, match="no output"):
        Graph("nothing").seal()
    graph = Graph()
    x = graph.input("x", {"N": 1})
    y = graph.add(Relu(), x, name="y")
    graph.output(graph.add(Add(), y, y, name="sum"), "y")
    with Session(graph) as session:
        [output] = session.run(["y"], {"x": np.ones(1, np.float32)})
    assert output == 2, "an output's name comes before a value's"
    with pytest.raises(GraphError, match="deliver other values"):
        graph.delivering(["y"])
    with pytest.raises(GraphError, match="has no value 'z'"):
        graph.delivering(["z"])


def test_any_value_of_a_run_is_fetched_by_its_name() -> None:
    with Session(residual()) as session:
        assert session.values == ["x", "w", "conv", *session.values[3:]]
        before = session.plan
        relu, y, x, w, conv = session.run(["Relu:0", "y", "x", "w", "conv"], {"x": X})
        np.testing.assert_array_equal(relu, np.maximum(conv, 0))
        np.testing.assert_array_equal(y, relu + X)
        np.testing.assert_array_equal(x, X)
        np.testing.assert_array_equal(w, residual().constants["w"])
        [again] = session.run(["y"], {"x": X})
        np.testing.assert_array_equal(again, y)
        assert session.plan is before
        session.run(["Relu:0"], {"x": X})
        fetching = session.plan
        session.run(None, {"x": X})
        assert session.plan is before is not fetching
        assert set(fetching.graph.outputs) - set(before.graph.outputs) == {"Relu:0"}


def test_values_of_a_model_with_open_sizes_are_fetched() -> None:
    x = np.array([-1, 2], np.float32)
    with Session(model("g (float[n] x) => (float[n] y) {inner = Relu(x) y = Neg(inner)}")) as run:
        assert run.values == []
        with pytest.raises(InputError, match="no output outer; outputs are y"):
            run.run(["outer"], {"x": x})
        assert run.run(["inner"], {"x": x})[0].tolist() == [0, 2]
        assert run.values == ["x", "inner", "y"]
