"""Graphs: what they refuse, what they print, and networkx both ways."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from ops import Add, Conv2D, Relu
from vtensor import Graph, Session
from vtensor.errors import DimError, GraphError


def residual() -> Graph:
    """x -> conv -> relu -> + x, with a second output."""
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
    assert str(again) == str(graph)
    x = np.random.default_rng(1).standard_normal((1, 4, 5, 5)).astype(np.float32)
    with Session(graph) as first, Session(again) as second:
        for ours, theirs in zip(first.run(None, {"x": x}), second.run(None, {"x": x}), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_an_edited_networkx_graph_is_checked_like_a_new_one() -> None:
    edited = residual().to_networkx()
    edited.add_edge("sum", "conv", value="sum", position=2)
    with pytest.raises(GraphError, match="has a cycle"):
        Graph.from_networkx(edited)
    edited = residual().to_networkx()
    edited.nodes["w"]["array"] = np.zeros((4, 3, 3, 3), np.float32)
    with pytest.raises(DimError, match="Conv2D 'conv'"):
        Graph.from_networkx(edited)
    edited = residual().to_networkx()
    del edited.nodes["x"]["tensor"]
    with pytest.raises(GraphError, match="'tensor' is missing"):
        Graph.from_networkx(edited)
    with pytest.raises(GraphError, match="'kind' is missing"):
        Graph.from_networkx(nx.MultiDiGraph([("a", "b")]))


def test_what_was_built_stays_built() -> None:
    graph = residual()
    before = str(graph)
    other = Graph("other").input("x", {"N": 1})
    for wrong in (
        lambda: graph.add(Relu(), other),
        lambda: graph.add(Relu(), graph.values["x"], name="conv"),
        lambda: graph.input("x", {"N": 1}),
        lambda: graph.output(graph.values["x"], "y"),
        lambda: graph.constant(np.zeros((2, 2), np.float32), "O I h w"),
        lambda: graph.add(Conv2D(), graph.values["x"], graph.values["x"]),
    ):
        with pytest.raises((GraphError, DimError)):
            wrong()
        assert str(graph) == before
    graph.seal()
    with pytest.raises(GraphError, match="sealed"):
        graph.input("z", {"N": 1})
    with pytest.raises(GraphError, match="no output"):
        Graph("nothing").seal()
