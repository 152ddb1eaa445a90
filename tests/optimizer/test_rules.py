"""The rules beyond the paper's: each on the graph that its equation is about."""

from __future__ import annotations

from dataclasses import replace

import pytest

from libdesc.registry import registry
from optimizer.pipeline import optimise
from ptensor.layout import Layout
from resolver.check import check
from resolver.lowered import LoweredGraph, OpNode, TransformNode
from tests.libraries.bench import Bench
from tests.optimizer.graphs import chained, extended_of, moved, random_graph
from tests.resolver.networks import IMAGE, mix
from vtensor.language.graph import Graph


def sound(found: LoweredGraph, graph: Graph) -> list[tuple[str, str]]:
    """What is transformed and to which layout, after the independent check."""
    able = [library.name for library in registry().libraries.values() if library.transforms]
    check(found, graph, able)
    return [(t.input, str(found.values[t.output].layout)) for t in found.transforms()]


def test_a_transform_sinks_below_a_node_that_does_not_mind(bench: Bench) -> None:
    """f(T(v)) = T(f(v)): two Transforms at the inputs of a join are one behind it."""
    g = Graph("sink")
    x, z = g.input("x", IMAGE), g.input("z", IMAGE)
    a = mix(bench, "NHWC NHWC", x, graph=g, name="a")
    b = mix(bench, "NHWC NHWC", z, graph=g, name="b")
    held = mix(bench, "NCHW4c NCHW4c", x, graph=g, name="held")
    join = mix(bench, "ANY ANY ANY ANY", held, a, b, graph=g, name="join")
    g.output(mix(bench, "NHWC NCHW", join, graph=g, name="end"))
    graph = g.seal()
    resolved = extended_of(graph)
    inputs = [("x", "NHWC"), ("z", "NHWC"), ("x", "NCHW4c")]
    assert sound(resolved, graph) == [*inputs, ("a", "NCHW4c"), ("b", "NCHW4c"), ("join", "NHWC")]
    found = optimise(resolved, ["sink"])
    assert sorted(sound(found, graph)) == sorted([*inputs, ("held", "NHWC")])


def test_a_transform_rises_above_a_node_that_does_not_mind(bench: Bench) -> None:
    """T(f(v)) = f(T(v)): two different Transforms behind a node are one before it."""
    g = Graph("rise")
    small = g.input("x", {"N": 1, "C": 4, "H": 4, "W": 6})
    stem = mix(bench, "NCHW NCHW", small, graph=g, name="stem")
    first = mix(bench, "ANY ANY", stem, graph=g, name="first")
    second = mix(bench, "ANY ANY", stem, graph=g, name="second")
    for node in (first, second):
        g.output(mix(bench, "NHWC NCHW", node, graph=g, name=f"{node.name}_end"))
    graph = g.seal()
    resolved = extended_of(graph)
    assert sound(resolved, graph) == [("first", "NHWC"), ("second", "NHWC")]
    assert moved(optimise(resolved, ["rise"])) <= moved(resolved)
    assert sound(optimise(resolved, "all"), graph) == [("stem", "NHWC")]


def test_a_join_of_four_inputs_keeps_its_one_transform(bench: Bench) -> None:
    """Above it there would be four."""
    g = Graph("join")
    parts = [
        mix(bench, "NCHW NCHW", g.input(f"x{i}", IMAGE), graph=g, name=f"p{i}") for i in "abcd"
    ]
    join = mix(bench, "ANY ANY ANY ANY ANY", *parts, graph=g, name="join")
    g.output(mix(bench, "NHWC NCHW", join, graph=g, name="end"))
    graph = g.seal()
    resolved = extended_of(graph)
    for passes in (["rise"], "all"):
        assert sound(optimise(resolved, passes), graph) == [("join", "NHWC")]


@pytest.fixture
def one_transform(bench: Bench) -> Graph:
    """A graph with one Transform, from NCHW to NHWC."""
    g = Graph("one")
    x = mix(bench, "NCHW NCHW", g.input("x", IMAGE), graph=g, name="stem")
    g.output(mix(bench, "NHWC NCHW", x, graph=g, name="end"))
    return g.seal()


@pytest.mark.parametrize("between", [["NCHW4c"], ["NCHW4c", "CHWN"], ["NHWC", "NCHW"]])
def test_a_chain_is_one_transform(one_transform: Graph, between: list[str]) -> None:
    """T_BC(T_AB(v)) = T_AC(v)."""
    resolved = extended_of(one_transform)
    longer = chained(resolved, *between)
    assert len(sound(longer, one_transform)) == len(between) + 1
    assert sound(optimise(longer, ["cancel"]), one_transform) == [("stem", "NHWC")]


def test_an_inverse_pair_cancels(bench: Bench) -> None:
    """T_BA(T_AB(v)) = v."""
    g = Graph("pair")
    x = mix(bench, "NCHW NCHW", g.input("x", IMAGE), graph=g, name="stem")
    g.output(mix(bench, "NHWC|NCHW NCHW", x, graph=g, name="end"))
    graph = g.seal()
    resolved = extended_of(graph)
    assert sound(resolved, graph) == []
    end = resolved.nodes[-1]
    assert isinstance(end, OpNode)
    reason = next(iter(extended_of(random_graph(0)).transforms())).reason
    values = dict(resolved.values)
    pair = []
    for name, source, layout in (("a", "stem", "NHWC"), ("b", "a", "NCHW")):
        values[name] = replace(values["stem"], name=name, layout=Layout(layout))
        pair.append(TransformNode(f"t_{name}", source, name, "toy", reason))
    nodes = [*resolved.nodes[:-1], *pair, replace(end, inputs=("b",))]
    longer = replace(resolved, nodes=nodes, values=values)
    assert len(sound(longer, graph)) == 2
    assert sound(optimise(longer, ["cancel"]), graph) == []


def test_what_was_rounded_does_not_come_back(one_transform: Graph) -> None:
    """Narrowing, then widening: the first is not exact, so both stay; the other order goes."""
    narrow = chained(extended_of(one_transform), "NCHW:bf16")
    assert len(list(optimise(narrow, ["cancel"]).transforms())) == 2


@pytest.mark.parametrize("seed", range(40))
def test_moving_ends_and_never_costs_more(bench: Bench, seed: int) -> None:
    resolved = extended_of(random_graph(seed))
    for passes in (["sink"], ["rise"], ["sink", "rise", "sink", "rise", "share", "cancel"]):
        assert moved(optimise(resolved, passes)) <= moved(resolved)
