"""Transforms that move, merge or go: LHO, the rules beyond it, and readers of pieces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from libdesc.eigen.memory import nested
from libdesc.preferences import EVERY
from ops import Add, Conv2D, Mean, Mul, Relu, Rename, Reshape, Softmax
from optimizer.absorb import _Removal, absorb
from optimizer.pipeline import optimise, pass_names, simplify
from optimizer.settings import Settings
from ptensor.evaluation import Variant
from ptensor.layout import Layout
from resolver.evaluate import resolve
from resolver.extend import extend
from resolver.lowered import LoweredGraph, OpNode, TransformNode
from tests.libraries.bench import Bench
from tests.libraries.golden import Golden
from tests.optimizer.graphs import chained, compared, extended_of, moved, random_graph
from tests.resolver.networks import checked, declare_convolution, inception, mixes
from vtensor.language.graph import Graph
from vtensor.language.tensor import VTensor


def hoisted(graph: Graph) -> LoweredGraph:
    return checked(optimise(extended_of(graph), "lho"), graph)


def sources(extended: LoweredGraph) -> Counter[str]:
    return Counter(node.input for node in extended.transforms())


def fork(*asked: str, outputs: str = "") -> Graph:
    """A node, and after it one for each text, which is the layout that it wants."""
    rows = (f"n{index}: stem {text} NCHW" for index, text in enumerate(asked))
    return mixes("stem: x NCHW NCHW", *rows, outputs=outputs)


def test_fig_4b(bench: Bench, golden: Golden) -> None:
    """Three Transforms after a Concat become one directly after it, with all three reasons."""
    declare_convolution()
    plan = hoisted(inception(bench))
    [first, *_] = plan.transforms()
    assert [reason.consumer for reason in first.reasons] == ["conv1", "conv2", "conv3"]
    places = [node.name for node in plan.nodes]
    assert places.index(first.name) == places.index("concat") + 1
    golden.check(str(plan))


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
def test_equal_transforms_are_hoisted(bench: Bench, asked: str, outputs: str, left: int) -> None:
    assert sources(hoisted(fork(*asked.split(), outputs=outputs))) == {"stem": left}


def test_an_input_is_a_branch_node_too(bench: Bench) -> None:
    plan = hoisted(mixes("a: x NHWC NCHW", "b: x NHWC NCHW"))
    assert sources(plan) == {"x": 1}
    assert plan.nodes[0].name == "transform:0"


def test_share_takes_what_hoisting_leaves(bench: Bench) -> None:
    """Equal Transforms, whatever else uses the value."""
    resolved = extended_of(fork("NHWC", "NHWC", "NCHW", "NCHW4c", "NCHW4c"))
    assert sources(resolved) == {"stem": 4}
    assert sources(optimise(resolved, ["share"])) == {"stem": 2}
    assert moved(optimise(resolved, ["share"])) < moved(resolved)


# The rules beyond the paper's


def sound(plan: LoweredGraph, graph: Graph) -> list[tuple[str, str]]:
    """What is transformed and to which layout, after the independent check."""
    checked(plan, graph)
    return [(t.input, str(plan.values[t.output].layout)) for t in plan.transforms()]


def test_a_transform_sinks_below_a_node_that_takes_any_layout(bench: Bench) -> None:
    """f(T(v)) = T(f(v)): two Transforms at the inputs of a join are one after it."""
    nodes = ("a: x NHWC NHWC", "b: z NHWC NHWC", "held: x NCHW4c NCHW4c")
    graph = mixes(*nodes, "join: held a b ANY ANY ANY ANY", "end: join NHWC NCHW")
    resolved = extended_of(graph)
    inputs = [("x", "NHWC"), ("z", "NHWC"), ("x", "NCHW4c")]
    assert sound(resolved, graph) == [*inputs, ("a", "NCHW4c"), ("b", "NCHW4c"), ("join", "NHWC")]
    plan = optimise(resolved, ["sink"])
    assert sorted(sound(plan, graph)) == sorted([*inputs, ("held", "NHWC")])


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


def test_what_another_type_holds_nearly_is_rounded_twice(bench: Bench) -> None:
    """Tenths come back from f32, which has none: from there a second type may round otherwise."""
    plan = chained(extended_of(mixes(*ONE)), "NCHW")
    tenths = replace(plan.values["stem"], layout=Layout("NCHW:s8(scale=0.1)"))
    target = plan.values[plan.nodes[-1].inputs[0]]
    narrow = replace(target, layout=Layout("NHWC:bf16"))
    plan = replace(plan, values={**plan.values, "stem": tenths, target.name: narrow})
    assert len(list(optimise(plan, ["cancel"]).transforms())) == 2


@pytest.mark.parametrize("seed", range(40))
def test_moving_ends_and_never_costs_more(bench: Bench, seed: int) -> None:
    resolved = extended_of(random_graph(seed))
    for passes in (["sink"], ["rise"], ["sink", "rise", "sink", "rise", "share", "cancel"]):
        assert moved(optimise(resolved, passes)) <= moved(resolved)


# Readers that read a value as it is made, in pieces

WINDOWS = {"N": 1, "A": 3, "B": 5, "P": 2, "Q": 4, "C": 32}


def windows(g: Graph) -> VTensor:
    """An image of windows A B of places P Q, seen as an image of places H W; not as it lies."""
    x = g.add(Softmax(("C",)), g.input("w", WINDOWS))
    x = g.add(Rename(tuple((dim, dim) for dim in "NAPBQC")), x)
    seen: VTensor = g.add(Reshape((("N", 1), ("H", 6), ("W", 20), ("C", 32))), x)
    return seen


def image(g: Graph, name: str = "x") -> VTensor:
    return g.input(name, {"N": 1, "H": 6, "W": 20, "C": 32})


#: What reads the windows.
READERS: dict[str, Callable[[Graph, VTensor], VTensor]] = {
    "sum": lambda g, y: g.add(Add(), y, image(g)),
    "run": lambda g, y: g.add(Mul(), g.add(Relu(), g.add(Add(), y, image(g))), image(g, "z")),
    "twice": lambda g, y: g.add(Mul(), g.add(Add(), y, image(g)), y),
    "mean": lambda g, y: g.add(Mean(("H", "W"), keepdims=True), g.add(Add(), y, image(g))),
    "caller": lambda g, y: y,
}


def reading(kind: str = "sum") -> Graph:
    g = Graph(kind)
    g.output(READERS[kind](g, windows(g)), "y")
    return g.seal()


def conversions(graph: Graph, **options: Any) -> int:
    """How many conversions a run has that gives what NumPy gives."""
    numpy = {"optimize": "none", "libraries": ["numpy"]}
    return len(compared(graph, 1e-5, 1e-6, numpy, **options).plan.conversions)


@pytest.mark.parametrize("kind", READERS)
def test_what_reads_pieces_needs_no_transform(kind: str) -> None:
    """What is delivered is still transformed."""
    graph = reading(kind)
    assert conversions(graph) == (kind == "caller")
    assert conversions(graph, optimize=["all", "-absorb"])


def test_libraries_that_are_given_bind() -> None:
    assert conversions(reading(), libraries=["onednn", "numpy"])


def test_single_elements_are_not_picked_from_everywhere() -> None:
    """Read in another order, elements would lie one here, one there."""
    g = Graph("turned")
    x = g.add(Softmax(("C",)), g.input("x", {"N": 1, "C": 32, "H": 8, "W": 8}))
    y = g.add(Softmax(("C",)), g.input("z", {"N": 1, "H": 8, "W": 8, "C": 32}))
    g.output(g.add(Add(), x, y), "y")
    conversions(g.seal())


def heavy() -> Graph:
    """A convolution whose image has another order of memory than it is blocked by, and a sum."""
    g = Graph("heavy")
    x = g.input("x", {"N": 1, "C": 32, "H": 12, "W": 12})
    w = g.constant(np.ones((32, 32, 3, 3), np.float32), "O I h w")
    g.output(g.add(Conv2D(), g.add(Conv2D(), x, w), w), "y")
    return g.seal()


@pytest.mark.parametrize("light", [False, True])
@pytest.mark.parametrize("make", [heavy, reading])
def test_heavy_readers_are_not_asked_for_a_first_plan(
    make: Callable[[], Graph], light: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, ask = list[str](), _Removal._variant_for

    def counting(self: _Removal, reader: OpNode) -> Variant | None:
        asked.append(reader.op_name)
        return ask(self, reader)

    monkeypatch.setattr(_Removal, "_variant_for", counting)
    resolved = extend(resolve(simplify(make(), pass_names("none"), EVERY)))
    left = absorb(resolved, Settings(light=light))
    if make is heavy:
        assert any(resolved.transforms())
        assert asked == ([] if light else ["Conv2D"])
    else:
        assert asked
        assert not any(left.transforms())


@pytest.mark.parametrize(("other", "nest"), [("NC12c", False), ("NC32c", False), ("NC4c", True)])
def test_blocks_that_do_not_nest_have_no_common_axes(other: str, nest: bool) -> None:
    """The last block of 32 is not full."""
    axes = nested([Layout("NC16c"), Layout(other)], {"N": 1, "C": 48})
    assert (axes is not None) == nest
