"""Graphs: what they refuse, what they print, and networkx both ways."""

from __future__ import annotations

from collections.abc import Callable

import networkx as nx
import numpy as np
import onnx.parser
import pytest

from ops import Add, Conv2D, MaxPoolIndices, Relu
from vtensor import Graph, Session, VTensor
from vtensor.errors import DimError, GraphError, InputError


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
        lambda: graph.add(MaxPoolIndices((1, 1)), graph.values["x"], outputs=("a", "a")),
        lambda: graph.add(MaxPoolIndices((1, 1)), graph.values["x"], name="a", outputs=("", "a")),
    ):
        with pytest.raises((GraphError, DimError)):
            wrong()
        assert str(graph) == before
    graph.seal()
    with pytest.raises(GraphError, match="sealed"):
        graph.input("z", {"N": 1})
    with pytest.raises(GraphError, match="no output"):
        Graph("nothing").seal()


def test_equality_goes_through_networkx() -> None:
    graph = residual()
    assert Graph.from_networkx(graph.to_networkx()) == graph


def test_names_are_unique_and_scoped() -> None:
    graph = Graph()
    x = graph.input("x", {"N": 1})
    with graph.scope("block1"):
        names = [graph.add(Relu(), x).name for _ in range(2)]
        with graph.scope("inner"):
            names.append(graph.add(Relu(), x, name="last").name)
            names.append(graph.constant(np.zeros(1, np.float32), "N").name)
    names.append(graph.add(Relu(), x).name)
    assert names == [
        *("block1/Relu:0", "block1/Relu:1", "block1/inner/last", "block1/inner/constant:0"),
        "Relu:0",
    ]
    with pytest.raises(GraphError, match="already has 'block1/Relu:0'"):
        graph.add(Relu(), x, name="block1/Relu:0")
    with pytest.raises(KeyError), graph.scope("left"):
        raise KeyError
    assert graph.add(Relu(), x).name == "Relu:1", "a scope ends where an error leaves it"


def test_values_say_where_they_come_from() -> None:
    graph = residual()
    made, given = graph.values["conv"], graph.values["x"]
    assert (made.name, made.dtype, made.op, made.device) == ("conv", "f32", "Conv2D", "cpu")
    assert (given.name, given.op) == ("x", "")


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
def test_a_sealed_graph_takes_nothing(change: Callable[[Graph, VTensor], object]) -> None:
    graph = residual().seal()
    before = str(graph)
    with pytest.raises(GraphError, match="graph 'residual' is sealed; build a new one"):
        change(graph, graph.values["x"])
    assert str(graph) == before


class TestFetching:
    """Any value of a run, by its name."""

    X = np.random.default_rng(1).standard_normal((1, 4, 5, 5)).astype(np.float32)

    def test_of_a_graph(self) -> None:
        with Session(residual()) as session:
            assert session.values == ["x", "w", "conv", *session.values[3:]]
            names = ["Relu:0", "y", "x", "w", "conv"]
            relu, y, x, w, conv = session.run(names, {"x": self.X})
            np.testing.assert_array_equal(relu, np.maximum(conv, 0))
            np.testing.assert_array_equal(y, relu + self.X)
            np.testing.assert_array_equal(x, self.X)
            np.testing.assert_array_equal(w, residual().constants["w"])
            [again] = session.run(["y"], {"x": self.X})
            np.testing.assert_array_equal(again, y)

    def test_only_a_plan_that_was_asked_for_delivers_it(self) -> None:
        with Session(residual()) as session:
            before = session.plan
            session.run(["Relu:0"], {"x": self.X})
            asked = session.plan
            session.run(None, {"x": self.X})
            assert session.plan is before is not asked
            assert set(asked.graph.outputs) - set(before.graph.outputs) == {"Relu:0"}

    def test_of_a_model_with_symbolic_sizes(self) -> None:
        model = onnx.parser.parse_model("""
            <ir_version: 8, opset_import: ["" : 17]>
            tiny (float[n] x) => (float[n] y) { inner = Relu(x)  y = Neg(inner) }
        """)
        x = np.array([-1, 2], np.float32)
        with Session(model) as session:
            assert session.values == []
            with pytest.raises(InputError, match="no output outer; outputs are y"):
                session.run(["outer"], {"x": x})
            [inner] = session.run(["inner"], {"x": x})
            assert inner.tolist() == [0, 2]
            assert session.values == ["x", "inner", "y"]

    def test_an_output_has_its_name_first(self) -> None:
        graph = Graph()
        x = graph.input("x", {"N": 1})
        y = graph.add(Relu(), x, name="y")
        graph.output(graph.add(Add(), y, y, name="sum"), "y")
        with Session(graph) as session:
            assert session.run(["y"], {"x": np.ones(1, np.float32)})[0] == 2
        with pytest.raises(GraphError, match="deliver other values"):
            graph.delivering(["y"])
        with pytest.raises(GraphError, match="has no value 'z'"):
            graph.delivering(["z"])
