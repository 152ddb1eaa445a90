"""What ``str(graph)`` prints reads back, whatever the names are; and what it refuses, by line."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from ops import Clip, Pad, Relu, Softmax
from tests.export.graphs import graphs
from tests.export.support import graph_of
from tests.frontends.support import run_once
from tests.operators.tables.cases import CASES, Case
from tests.property.strategies import laws
from vtensor import Graph
from vtensor.errors import GraphError

TEXT = """graph net
input x : f32 N=2 C=3
constant w : f32 C=3
constant half : f32 = 0.5
sum, "a b" = TopK(axis='C', k=1) x : f32 N=2 C=1, s64 N=2 C=1 @ top
scaled = Mul() sum, half : f32 N=2 C=1
output scaled as y
output "a b\""""
W = np.array([1, 2, np.nan], np.float32)


@laws(100)
@given(graphs())
def test_random_graphs_read_back(graph: Graph) -> None:
    assert Graph.parse(str(graph), graph.constants) == graph


@pytest.mark.parametrize("case", [c for row in CASES.values() for c in row[:3]], ids=str)
def test_every_operators_parameters_read_back(case: Case) -> None:
    graph, _ = graph_of(case)
    again = Graph.parse(str(graph), graph.constants)
    assert again == graph
    assert [node.op for node in again.nodes.values()] == [case.op]


def test_the_text_is_what_is_read() -> None:
    graph = Graph.parse(TEXT, {"w": W})
    assert str(graph) == TEXT
    assert graph.nodes["top"].outputs == ("sum", "a b")
    assert graph.constants["half"] == np.float32(0.5)


def test_equality_is_of_bytes_too() -> None:
    graph, same, other = (Graph.parse(TEXT, {"w": w}) for w in (W, W.copy(), W + 1))
    assert graph == same.seal()
    assert graph != other
    assert graph != Graph.parse(TEXT.replace("graph net", "graph other"), {"w": W})
    assert graph != TEXT


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("graph net", "net", r"line 1: 'net' does not begin a graph"),
        ("input x", "imput x", "line 2: this is no input, constant, output or node"),
        ("N=2 C=3", "N=2 N=3", "line 2: a dim is there twice"),
        ("f32 N=2 C=3", "f33 N=2 C=3", "line 2: unknown element type 'f33'"),
        ("w : f32 C=3", "w : f32 C=4", r"line 3: constants\['w'\] is f32 of shape \(3,\)"),
        ("constant w", "constant v", "line 3: the values of 'v' are not given"),
        ("= 0.5", "= None()", "line 4: None.* is no literal"),
        ("TopK(", "TopQ(", "line 5: no operator 'TopQ' is registered"),
        ("k=1)", "k=9)", "line 5: TopK 'top': k=9 elements along C, which has 3"),
        ("k=1)", "q=1)", "line 5: .*unexpected keyword argument 'q'"),
        ("k=1)", "k=(1)", "line 5: a parenthesis is not closed"),
        ("k=1)", "k=x.y)", "line 5: x.y is no literal"),
        ("k=1)", "**k)", "line 5: .*unexpected keyword argument 'None'"),
        ("k=1)", "=1)", "line 5: invalid syntax"),
        ("k=1)", "k=3 * {})", "line 5: {} is no literal"),
        ("k=1)", "k='a' * 3)", "line 5: str \\* int: only numbers multiply"),
        ("k=1)", "k=3 * (1,))", "line 5: int \\* tuple: only numbers multiply"),
        ("k=1)", "k=N * 'a')", "line 5: OpenSize \\* str: only numbers multiply"),
        ("k=1)", "k=N * 0.5)", "line 5: OpenSize \\* float: only numbers multiply"),
        ("k=1)", f"k={2**40} * {2**40})", "line 5: a product is larger than 9223372036854775807"),
        ("k=1)", f"k={'-' * 99_999}1)", "line 5: "),
        ("k=1)", f"k={'9' * 9_999})", "line 5: "),
        ("s64 N=2", "s32 N=2", "line 5: the operator returns f32 N=2 C=1, s64 N=2 C=1, and the"),
        ("sum, half", "sum, third", "line 6: value 'third' is used before a line makes it"),
        ("Mul() sum, half :", "Mul() sum half :", "line 6: after the operator"),
        ("output scaled", "output x y", "line 7: this is no input"),
        ('output "a b"', "output scaled as y", "line 8: graph 'net' already has an output 'y'"),
    ],
)
def test_what_cannot_be_read_is_named_by_its_line(old: str, new: str, message: str) -> None:
    assert old in TEXT
    with pytest.raises(GraphError, match=message):
        Graph.parse(TEXT.replace(old, new, 1), {"w": W})


def test_parameters_that_look_like_the_text() -> None:
    graph = Graph("odd")
    x = graph.input("x", {"N": 1})
    clipped = graph.add(Clip(high=np.inf, low=-np.inf), graph.add(Relu(), x, name="a) b : f32"))
    framed = graph.add(Pad(("N",), (1, 0), value=np.float64("nan")), clipped)
    graph.output(graph.add(Softmax(("N",)), framed))
    assert Graph.parse(str(graph)) == graph


def test_a_zero_keeps_its_sign() -> None:
    zeros = []
    for value in (0.0, -0.0):
        zeros.append(graph := Graph("zero"))
        x = graph.input("x", {"N": 1})
        graph.output(graph.add(Pad(("N",), (1, 0), value=value), x), "y")
        again = Graph.parse(str(graph))
        assert again == graph
        [y] = run_once(again, {"x": np.ones(1, np.float32)})
        assert np.signbit(y[0]) == np.signbit(value)
    assert zeros[0] != zeros[1]
