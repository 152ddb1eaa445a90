"""Layout hoisting: the paper's rule and those beyond it, each on the graph that it is about."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from optimizer.pipeline import optimise
from ptensor.layout import Layout
from resolver.lowered import LoweredGraph, OpNode, TransformNode
from tests.libraries.bench import Bench
from tests.libraries.golden import Golden
from tests.optimizer.graphs import chained, extended_of, moved, random_graph
from tests.resolver.networks import checked, declare_convolution, inception, mixes
from vtensor.language.graph import Graph


def hoisted(graph: Graph) -> LoweredGraph:
    """The graph after LHO alone, checked."""
    return checked(optimise(extended_of(graph), "lho"), graph)


def sources(extended: LoweredGraph) -> Counter[str]:
    """How many Transforms each value has."""
    return Counter(node.input for node in extended.transforms())


def fork(*asked: str, outputs: str = "") -> Graph:
    """A node, and after it one for each text, which is the layout that it wants."""
    rows = (f"n{index}: stem {text} NCHW" for index, text in enumerate(asked))
    return mixes("stem: x NCHW NCHW", *rows, outputs=outputs)


def test_fig_4b(bench: Bench, golden: Golden) -> None:
    """Three Transforms after a Concat become one directly after it, with all three reasons."""
    declare_convolution()
    found = hoisted(inception(bench))
    [first, *_] = found.transforms()
    assert [reason.consumer for reason in first.reasons] == ["conv1", "conv2", "conv3"]
    places = [node.name for node in found.nodes]
    assert places.index(first.name) == places.index("concat") + 1
    golden.check(str(found))


@pytest.mark.parametrize(
    ("asked", "outputs", "left"),
    [
        ("NHWC NHWC NHWC", "", 1),  # a branch of equal Transforms
        ("NHWC NHWC NCHW", "", 2),  # (1) one successor is no Transform
        ("NHWC NHWC NCHW4c", "", 3),  # (3) another layout is required
        ("NHWC", "", 1),  # no branch
        ("NHWC NHWC", "stem", 2),  # an output is a successor too
        ("NHWC HNWC HWNC", "", 1),  # layouts that are the same where N is 1
    ],
)
def test_equal_transforms_of_all_successors_are_hoisted(
    bench: Bench, asked: str, outputs: str, left: int
) -> None:
    assert sources(hoisted(fork(*asked.split(), outputs=outputs))) == {"stem": left}


def test_an_input_is_a_branch_node_too(bench: Bench) -> None:
    found = hoisted(mixes("a: x NHWC NCHW", "b: x NHWC NCHW"))
    assert sources(found) == {"x": 1}
    assert found.nodes[0].name == "transform:0"


def test_share_takes_what_hoisting_leaves(bench: Bench) -> None:
    """Equal Transforms, whatever else uses the value."""
    resolved = extended_of(fork("NHWC", "NHWC", "NCHW", "NCHW4c", "NCHW4c"))
    assert sources(resolved) == {"stem": 4}
    assert sources(optimise(resolved, ["share"])) == {"stem": 2}
    assert moved(optimise(resolved, ["share"])) < moved(resolved)


# The rules beyond the paper's


def sound(found: LoweredGraph, graph: Graph) -> list[tuple[str, str]]:
    """What is transformed and to which layout, after the independent check."""
    checked(found, graph)
    return [(t.input, str(found.values[t.output].layout)) for t in found.transforms()]


def test_a_transform_sinks_below_a_node_that_takes_any_layout(bench: Bench) -> None:
    """f(T(v)) = T(f(v)): two Transforms at the inputs of a join are one after it."""
    nodes = ("a: x NHWC NHWC", "b: z NHWC NHWC", "held: x NCHW4c NCHW4c")
    graph = mixes(*nodes, "join: held a b ANY ANY ANY ANY", "end: join NHWC NCHW")
    resolved = extended_of(graph)
    inputs = [("x", "NHWC"), ("z", "NHWC"), ("x", "NCHW4c")]
    assert sound(resolved, graph) == [*inputs, ("a", "NCHW4c"), ("b", "NCHW4c"), ("join", "NHWC")]
    found = optimise(resolved, ["sink"])
    assert sorted(sound(found, graph)) == sorted([*inputs, ("held", "NHWC")])


def test_a_transform_rises_above_a_node_that_takes_any_layout(bench: Bench) -> None:
    """T(f(v)) = f(T(v)): two different Transforms after a node are one before it."""
    nodes = ("stem: x NCHW NCHW", "first: stem ANY ANY", "second: stem ANY ANY")
    ends = ("first_end: first NHWC NCHW", "second_end: second NHWC NCHW")
    graph = mixes(*nodes, *ends, x={"N": 1, "C": 4, "H": 4, "W": 6})
    resolved = extended_of(graph)
    assert sound(resolved, graph) == [("first", "NHWC"), ("second", "NHWC")]
    assert moved(optimise(resolved, ["rise"])) <= moved(resolved)
    assert sound(optimise(resolved, "all"), graph) == [("stem", "NHWC")]


def test_a_join_of_four_inputs_keeps_its_one_transform(bench: Bench) -> None:
    """Above it there would be four."""
    nodes = (f"p{i}: x{i} NCHW NCHW" for i in "abcd")
    graph = mixes(*nodes, "join: pa pb pc pd ANY ANY ANY ANY ANY", "end: join NHWC NCHW")
    resolved = extended_of(graph)
    for passes in (["rise"], "all"):
        assert sound(optimise(resolved, passes), graph) == [("join", "NHWC")]


#: A graph with one Transform, from NCHW to NHWC.
ONE = ("stem: x NCHW NCHW", "end: stem NHWC NCHW")


@pytest.mark.parametrize("between", [["NCHW4c"], ["NCHW4c", "CHWN"], ["NHWC", "NCHW"]])
def test_a_chain_is_one_transform(bench: Bench, between: list[str]) -> None:
    """T_BC(T_AB(v)) = T_AC(v)."""
    graph = mixes(*ONE)
    longer = chained(extended_of(graph), *between)
    assert len(sound(longer, graph)) == len(between) + 1
    assert sound(optimise(longer, ["cancel"]), graph) == [("stem", "NHWC")]


def test_an_inverse_pair_cancels(bench: Bench) -> None:
    """T_BA(T_AB(v)) = v."""
    graph = mixes("stem: x NCHW NCHW", "end: stem NHWC|NCHW NCHW")
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


def test_what_was_rounded_does_not_come_back(bench: Bench) -> None:
    """Narrowing, then widening: the first is not exact, so both stay."""
    narrow = chained(extended_of(mixes(*ONE)), "NCHW:bf16")
    assert len(list(optimise(narrow, ["cancel"]).transforms())) == 2


@pytest.mark.parametrize("seed", range(40))
def test_moving_ends_and_never_costs_more(bench: Bench, seed: int) -> None:
    resolved = extended_of(random_graph(seed))
    for passes in (["sink"], ["rise"], ["sink", "rise", "sink", "rise", "share", "cancel"]):
        assert moved(optimise(resolved, passes)) <= moved(resolved)
