"""The two baselines: on random graphs of two libraries, and in Fig. 9."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from libdesc.preferences import Preferences
from ops.reshape import Rename, Reshape
from optimizer.choice.candidates import paper_variants, shared_variants
from optimizer.choice.problem import Problem
from optimizer.pipeline import optimise
from optimizer.settings import Settings
from ptensor import Layout, lib_tagger
from resolver.evaluate import resolve
from resolver.extend import extend
from resolver.lowered import LoweredGraph, OpNode, TransformNode
from resolver.modes import channels_last
from tests.libraries import operators
from tests.libraries.bench import Bench
from tests.libraries.golden import Golden
from tests.libraries.toy import handlers
from tests.optimizer.graphs import check_same_values, random_graph
from tests.resolver.networks import IMAGE, checked, mix, mixes
from vtensor.language.graph import Graph
from vtensor.language.operators import Context
from vtensor.language.tensor import VTensor

SEEDS = range(24)
MODES = ("aware", "held")


@pytest.fixture
def two(bench: Bench) -> Bench:
    """Mix has an invoker of another library, too."""

    @bench.invoker("Mix", library="numpy")
    def numpy_mix(ctx: Context, op: object, *operands: VTensor) -> None:
        texts = op.asks  # type: ignore[attr-defined]
        tensors = [operators.ask(t, text) for t, text in zip(operands, texts, strict=True)]
        if not lib_tagger("numpy", tensors[:-1], tensors[-1:]):
            arrays = [operators.logical(t) for t in tensors[:-1]]
            operators.write(tensors[-1], operators.mixed(arrays, operands))

    return bench


def pins(graph: Graph) -> dict[str, str]:
    return dict.fromkeys(list(graph.nodes)[1::2], "numpy")


def made(graph: Graph, *passes: str, objective: str = "shared") -> LoweredGraph:
    """The graph of a list of passes, checked."""
    extended = extend(resolve(graph, preferences=Preferences(nodes=pins(graph))))
    return checked(optimise(extended, passes, Settings(objective)), graph)


def ways(graph: LoweredGraph) -> Iterator[tuple[OpNode | None, OpNode, list[str]]]:
    """Of each edge between operators: its ends, and the values that lie along it."""
    makers = {name: node for node in graph.nodes for name in node.outputs}
    for node in graph.operators:
        for name in node.inputs:
            way = [name]
            while isinstance(maker := makers.get(way[0]), TransformNode):
                way.insert(0, maker.input)
            yield maker, node, way


def misled(graph: LoweredGraph) -> list[str]:
    """The values that pass between two libraries, but nowhere with channels last."""
    return [
        way[0]
        for maker, node, way in ways(graph)
        if maker and maker.variant.library != node.variant.library
        if not any(_last(graph, name) for name in way)
    ]


def _last(graph: LoweredGraph, name: str) -> bool:
    value = graph.values[name]
    return value.layout.same(channels_last(value.dims), value.dims)


def test_two_libraries_meet_in_channels_last(two: Bench) -> None:
    graphs = [random_graph(seed) for seed in SEEDS]
    assert all(misled(made(graph, "aware")) == [] for graph in graphs)
    assert any(misled(made(graph)) for graph in graphs)  # the resolver's own: what fails is seen


def test_a_conversion_inside_an_operator_is_its_own(two: Bench) -> None:
    for seed in SEEDS:
        graph = made(random_graph(seed), "aware")
        edges = [step for _, _, way in ways(graph) for step in way[1:]]
        assert len(edges) == len(set(edges)), seed
        for maker, node, way in ways(graph):
            between = maker is not None and maker.variant.library != node.variant.library
            assert len(way) <= 2 + between, seed


def through(bench: Bench, view: object, library: str) -> list[str]:
    """The conversions of an operator, a view of what it makes, and one on a library behind it."""
    graph = Graph("views")
    first = mix(bench, "NCHW NCHW8c", graph.input("x", IMAGE), graph=graph, name="first")
    seen = graph.add(view, first, name="view")
    graph.output(mix(bench, "ANY ANY", seen, graph=graph, name="last"), "y")
    pinned = Preferences(nodes={"last": library})
    lowered = optimise(extend(resolve(graph.seal(), preferences=pinned)), ["aware"])
    layouts = {name: value.layout for name, value in lowered.values.items()}
    return [
        f"{layouts[transform.input]} {layouts[transform.output]}"
        for transform in lowered.transforms()
    ]


def test_a_view_is_of_no_library(two: Bench) -> None:
    """It shares memory: what passes through it passes from its maker to its reader."""
    flat, again = Reshape((("N", 1), ("C", 384))), Rename((("H", "H"),))
    assert through(two, flat, "toy") == ["NCHW8c NCHW"]
    assert through(two, again, "toy") == ["NCHW8c NCHW"]  # delivered
    assert through(two, again, "numpy") == ["NCHW8c NHWC", "NHWC NCHW"]


def test_what_may_lie_anyhow_is_held_at_channels_last(two: Bench) -> None:
    for seed in SEEDS:
        graph = made(random_graph(seed), "held")
        for node in graph.operators:
            if set(node.op.asks) == {"ANY"}:  # type: ignore[attr-defined]
                assert all(_last(graph, name) for name in (*node.inputs, *node.outputs))


def test_a_node_whose_library_declines_channels_last_stays(two: Bench) -> None:
    handlers.refusal = lambda call, row: "no" if row[0] == Layout("NHWC") else None
    [node] = made(mixes("n: x ANY ANY"), "held").operators
    assert [str(layout) for layout in node.variant.layouts] == ["NCHW", "NCHW"]


@pytest.mark.parametrize("seed", SEEDS[::4])
def test_values_stay(two: Bench, seed: int) -> None:
    graph = random_graph(seed)
    lists = ([], *([mode] for mode in MODES), ["held", "ewo", "lho"], ["aware", "ewo"])
    options = [{"optimize": passes, "pin": pins(graph)} for passes in lists]
    check_same_values(graph, seed, options)


def fig_9(bench: Bench) -> Graph:
    """A convolution, an addition of a constant that is broadcast, a convolution."""
    g = Graph("fig9")
    bias = g.constant(np.ones((16, 4), np.float32), "C H", "const")
    conv = mix(bench, "NCHW NCHW8c", g.input("x", IMAGE), graph=g, name="conv1")
    add = mix(bench, "ANY ANY ANY", conv, bias, graph=g, name="add")
    g.output(mix(bench, "NCHW8c NCHW", add, graph=g, name="conv2"), "y")
    return g.seal()


def costs(problem: Problem, weigh: bool) -> Iterator[str]:
    """Candidate sets, and of each edge the cost matrix: 1, or bytes, where two of them differ."""
    for node in problem.nodes:
        rows = problem.variants_of(node)
        yield f"{node}: {' | '.join(' '.join(map(str, row.layouts)) for row in rows)}"
    for value, uses in problem.uses.items():
        for use in uses:
            maker = problem.makers.get(value, "")
            if maker and use.node:
                yield f"{maker} -> {use.node}"
                for m in range(len(problem.variants_of(maker))):
                    ends = [
                        (problem.made(value, m), problem.wanted(value, use, k))
                        for k in range(len(problem.variants_of(use.node)))
                    ]
                    paid = (problem.bytes(value, s, t) if weigh else 1 for s, t in ends)
                    yield " ".join(str(p * (s != t)) for p, (s, t) in zip(paid, ends, strict=True))


def test_fig_9a_element_wise_operators_are_held_at_nhwc(two: Bench, golden: Golden) -> None:
    graph = fig_9(two)
    golden.check("\n\n".join(str(made(graph, mode)) for mode in MODES))


def test_fig_9b_candidate_sets_and_cost_matrices(two: Bench, golden: Golden) -> None:
    graph = made(fig_9(two), "held")
    lines = []
    for name, candidates in (("paper", paper_variants), ("shared", shared_variants)):
        problem = Problem.of(graph, candidates(graph))
        lines += [f"objective {name}", *costs(problem, name == "shared"), ""]
    golden.check("\n".join(lines[:-1]))


def test_fig_9c_no_transform_is_left_and_the_constant_lies_ready(
    two: Bench, golden: Golden
) -> None:
    graph = fig_9(two)
    plans = [made(graph, "held", "ewo", objective=name) for name in ("paper", "shared")]
    assert [len(list(plan.transforms())) for plan in plans] == [0, 0]
    assert str(plans[0]) == str(plans[1])
    golden.check(str(plans[0]))
