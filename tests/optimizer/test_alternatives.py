"""Which variants nodes have, and which of them would remove a Transform, at which cost."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from libdesc import register
from libdesc.onednn.routines_window import Convolution
from libdesc.preferences import Preferences
from libdesc.registry import registry
from ops import Conv2D, Rename
from optimizer.choice import alternatives as search
from optimizer.choice import ilp
from optimizer.choice.alternatives import Alternative, alternatives
from optimizer.choice.candidates import paper_variants, shared_variants
from optimizer.choice.problem import Edge, Problem, Traffic
from optimizer.choice.solver import SolverError
from optimizer.pipeline import optimise, simplify
from optimizer.settings import Settings
from optimizer.share import share
from ptensor import PTensor, lib_tagger
from ptensor.evaluation import Call, Variant
from ptensor.layout import Layout
from resolver.change import changed
from resolver.evaluate import resolve
from resolver.extend import extend
from resolver.lowered import LoweredGraph, TransformNode
from resolver.probe import Prober
from tests.libraries.bench import HERE, Bench
from tests.libraries.golden import Golden
from tests.libraries.toy import handlers
from tests.optimizer.graphs import chained, combinations, extended_of, moved, random_graph
from tests.resolver.networks import IMAGE, checked, mix, mixes
from vtensor.commands.alternatives import alternative_dict, alternative_lines
from vtensor.language.graph import Graph
from vtensor.language.operators import Context, run_compute
from vtensor.language.tensor import VTensor

#: Random graphs, and the most assignments of variants that are tried one by one for a Transform.
SEEDS, MOST = range(30), 300


@pytest.fixture
def two(bench: Bench) -> Bench:
    """``Mix`` on ``other`` as well, which is asked last and takes images in NHWC alone."""
    register(HERE / "other")

    @bench.invoker("Mix", library="other")
    def other_mix(ctx: Context, op: object, *operands: VTensor) -> None:
        asked = ("NHWC" if "H" in t.dims else "".join(t.dims) for t in operands)
        tensors = [PTensor(t).require(text) for t, text in zip(operands, asked, strict=True)]
        if lib_tagger("other", tensors[:-1], tensors[-1:]):
            return
        raise AssertionError("nothing runs here")

    return bench


def edge_of(graph: LoweredGraph, transform: TransformNode) -> Edge:
    """What a Transform changes."""
    source, target = graph.values[transform.input], graph.values[transform.output]
    return source.name, source.layout, target.layout


def check_change(graph: LoweredGraph, alternative: Alternative, source: Graph) -> None:
    """Made, the change is sound, removes the Transform, and costs what it says."""
    assert alternative.change is not None
    fresh = checked(share(changed(graph, alternative.change.variants), Settings()), source)
    value, produced, wanted = edge_of(graph, alternative.transform)
    dims = graph.values[value].dims
    for left, *ends in (edge_of(fresh, t) for t in fresh.transforms() if t.input == value):
        same = produced.same(ends[0], dims) and wanted.same(ends[1], dims)
        assert not same, (source.name, left)
    was, now = moved(graph), moved(fresh)
    assert alternative.change.cost == (now.bytes - was.bytes, now.transforms - was.transforms)


def by_trying(problem: Problem, edge: Edge) -> Traffic | None:
    """The least that any assignment costs that does not need this Transform."""
    value, produced, wanted = edge[0], *(problem.same(edge[0], layout) for layout in edge[1:])
    names, best = list(problem.variants), None
    for variants in product(*(range(len(problem.variants[name])) for name in names)):
        chosen = dict(zip(names, variants, strict=True))
        if all(ends[1:3] != (produced, wanted) for ends in problem.edges(chosen, [value])):
            cost = problem.shared_cost(chosen)
            best = cost if best is None else min(best, cost)
    return best


def problems(problem: Problem, alternative: Alternative, source: Graph) -> Iterator[Problem]:
    """The variants as they are; and with those of ``other`` for each node whose end is fixed."""
    yield problem
    for end in alternative.ends:
        if end.node is not None and end.fixed:
            name = end.node.name
            pinned = resolve(source, preferences=Preferences(nodes={name: "other"}))
            [there] = [node.variant for node in pinned.operators if node.name == name]
            variants = {**problem.variants, name: (*problem.variants_of(name), there)}
            yield replace(problem, variants=variants)


def check_cheapest(alternative: Alternative, edge: Edge, tried: list[Problem]) -> None:
    """What is said is what trying all assignments gives."""
    costs = [by_trying(problem, edge) for problem in tried]
    least = min((cost for cost in costs if cost is not None), default=None)
    was = tried[0].shared_cost({})
    said = alternative.change and Traffic(*map(sum, zip(alternative.change.cost, was, strict=True)))
    assert said == least, edge


def test_the_change_removes_it_and_none_is_cheaper(two: Bench) -> None:
    seen: Counter[str] = Counter()
    for source in map(random_graph, SEEDS):
        graph, problem = solved(source)
        for alternative in alternatives(graph):
            change = alternative.change
            if change is not None:
                check_change(graph, alternative, source)
            tried = list(problems(problem, alternative, source))
            few = max(map(combinations, tried)) <= MOST
            if few:
                check_cheapest(alternative, edge_of(graph, alternative.transform), tried)
            kind = "none" if change is None else "library" if change.moved else "variants"
            seen.update([kind, "tried" if few else "too many"])
    assert min(seen[kind] for kind in ("none", "library", "variants", "tried")) >= 10, seen


def solved(source: Graph) -> tuple[LoweredGraph, Problem]:
    """The optimised graph, and its problem."""
    graph = optimise(extended_of(source), "all", Settings("shared"))
    return graph, Problem.of(graph, shared_variants(graph))


def test_a_change_that_is_none_is_seen(two: Bench) -> None:
    """The twin: the variants that a graph has already, another cost, and no change."""
    source = held("ANY ANY")
    graph, problem = solved(source)
    [alternative] = alternatives(graph)
    assert alternative.change is not None
    tried = list(problems(problem, alternative, source))
    edge = edge_of(graph, alternative.transform)
    dear = replace(alternative.change, cost=alternative.change.cost._replace(bytes=1))
    for wrong in (dear, replace(alternative.change, variants={})):
        with pytest.raises(AssertionError):
            check_change(graph, replace(alternative, change=wrong), source)
    for change in (dear, None):
        with pytest.raises(AssertionError):
            check_cheapest(replace(alternative, change=change), edge, tried)


def held(*between: str) -> Graph:
    """A node that makes NCHW alone, nodes that ask so, and one that takes NHWC alone."""
    names = ["stem", *(f"n{index}" for index in range(len(between))), "end"]
    rows = zip(names, ["x", *names], ["NCHW NCHW", *between, "NHWC NCHW"], strict=False)
    return mixes(*(f"{name}: {operand} {asks}" for name, operand, asks in rows))


def lines(alternative: Alternative, graph: LoweredGraph) -> str:
    """What ``vtensor explain`` says of it."""
    nodes = {node.name: node for node in graph.operators}
    return "\n".join(line.text for line in alternative_lines(alternative_dict(alternative, nodes)))


def only(source: Graph) -> tuple[LoweredGraph, Alternative]:
    """The optimised graph and the alternative of its one Transform."""
    graph, _ = solved(source)
    [alternative] = alternatives(graph)
    return graph, alternative


def test_none_is_an_answer(bench: Bench) -> None:
    """A chain of Transforms has none, either."""
    graph, alternative = only(held())
    assert alternative.change is None
    assert [(end.fixed, end.makes) for end in alternative.ends] == [(True, True), (True, False)]
    assert lines(alternative, graph).endswith("change: none")
    assert list(alternatives(chained(graph, "NCHW4c"))) == []


def test_an_open_node_moves_it_with_the_fewest_others(bench: Bench) -> None:
    """Behind any of five nodes it costs the same: that the next one changes is enough."""
    _, alternative = only(held(*["ANY ANY"] * 5))
    assert alternative.change is not None
    assert alternative.change.cost == (0, 0)
    assert len(alternative.change.variants) == 1


def test_another_library_at_a_fixed_end_removes_it(two: Bench) -> None:
    """Pinned to it, the network really has no such Transform."""
    source = held()
    graph, alternative = only(source)
    assert alternative.change is not None
    preferences = Preferences(nodes={alternative.change.moved: "other"})
    pinned = optimise(extend(resolve(source, preferences=preferences)), "all")
    assert moved(pinned) == Traffic(
        *map(sum, zip(moved(graph), alternative.change.cost, strict=True))
    )
    edges = [edge_of(pinned, transform) for transform in pinned.transforms()]
    assert edge_of(graph, alternative.transform) not in edges
    for preferences in (Preferences(order=("toy",)), Preferences(operators={"Mix": "toy"})):
        same = optimise(extend(resolve(source, preferences=preferences)), "all")
        assert next(alternatives(same)).change is None, "the session does not allow it"


def test_a_node_follows_the_one_that_moves(two: Bench) -> None:
    """The program ties ``n2`` to ``n1``, which has several variants only on two libraries."""
    source = held("NCHW NHWC", "NCHW NCHW", "ANY ANY")
    graph, _ = solved(source)
    alternative = next(each for each in alternatives(graph) if each.transform.input == "n0")
    check_change(graph, alternative, source)


def test_native_code_is_not_exchanged_for_a_call_back(two: Bench) -> None:
    key = ("Mix", "toy", "cpu")
    registry().invokers[key] = replace(registry().invokers[key], python=False)
    assert only(held())[1].change is None


def test_what_explain_says(two: Bench, golden: Golden) -> None:
    """Ends that are fixed and a caller's; a change of variants, of a library, and none."""
    texts = []
    for source in (held(), random_graph(5)):
        graph, _ = solved(source)
        texts += [
            f"{alternative.transform.input}\n{lines(alternative, graph)}"
            for alternative in alternatives(graph)
        ]
    golden.check(re.sub(r"/\S+/(\w+\.py):\d+", r"\1", "\n".join(texts)))


def test_a_solver_that_fails_or_is_late_is_said(
    two: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = ilp.choose

    def late(*args: Any, **named: Any) -> Any:
        choice = real(*args, **named)
        return choice._replace(solved=replace(choice.solved, status="time limit"))

    def crash(*args: Any, **named: Any) -> Any:
        raise SolverError("out of luck")

    source = held("ANY ANY")
    for broken, text in ((late, "the best found in time"), (crash, "not known: out of luck")):
        monkeypatch.setattr(search, "choose", broken)
        graph, alternative = only(source)
        assert text in lines(alternative, graph)


# Variants: what a library takes, and nothing else


def texts(variants: object) -> dict[str, list[str]]:
    """Variants by node, as words."""
    return {
        name: [" ".join(str(layout) for layout in variant.layouts) for variant in row]
        for name, row in variants.items()  # type: ignore[attr-defined]
    }


def branch(bench: Bench) -> Graph:
    """A fixed node, an open one, and behind a Rename one that wants a layout of its own."""
    g = Graph("branch")
    stem = mix(bench, "NCHW NCHW", g.input("x", IMAGE), graph=g, name="stem")
    free = mix(bench, "ANY ANY", stem, graph=g, name="free")
    named = g.add(Rename((("C", "K"),)), free, name="renamed")
    g.output(mix(bench, "NKHW4k NKHW", named, graph=g, name="end"))
    return g.seal()


def test_a_layout_from_behind_a_rename_is_tried_before_it(bench: Bench) -> None:
    rows = texts(shared_variants(resolve(branch(bench))))
    assert rows["stem"] == ["NCHW NCHW"]
    assert set(rows["free"]) == {"NCHW NCHW", "NHWC NHWC", "NCHW4c NCHW4c"}
    assert "NCHW4c NKHW4k" in rows["renamed"]


def test_what_the_library_declines_is_no_row(bench: Bench) -> None:
    handlers.refusal = lambda call, row: "no" if "4c" in str(row[0]) else None
    rows = texts(shared_variants(resolve(branch(bench))))
    assert set(rows["free"]) == {"NCHW NCHW", "NHWC NHWC"}


@pytest.mark.parametrize(("channels", "blocked"), [(6, False), (8, True)])
def test_the_papers_candidates_of_a_broadcast(bench: Bench, channels: int, blocked: bool) -> None:
    """A row of 6 channels has no form in blocks of 4; 8 channels have."""
    sizes: dict[str, Any] = {"x": {"N": 2, "C": channels, "H": 3, "W": 3}, "row": {"C": channels}}
    nodes = ("plain: x NCHW NCHW", "blocks: x NCHW NCHW4c", "sum: plain blocks row ANY ANY ANY ANY")
    rows = texts(paper_variants(resolve(mixes(*nodes, **sizes))))
    assert ("NCHW4c NCHW4c C4c NCHW4c" in rows["sum"]) is blocked
    assert {variant.split()[0] for variant in rows["sum"]} >= {"NCHW", "NHWC"}


def test_only_who_wants_variants_has_them_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library has them looked through for that, which takes longer than all else it says."""
    g = Graph("one")
    x = g.input("x", {"N": 1, "C": 16, "H": 14, "W": 14})
    w = g.constant(np.ones((32, 16, 3, 3), np.float32), "O I h w")
    g.output(g.add(Conv2D(), x, w), "y")
    resolved = extend(resolve(simplify(g.seal())))
    [node] = resolved.bare.operators
    listed, real = list[str](), Convolution.variants

    def seen(routine: Convolution, call: Call) -> Iterable[Variant]:
        listed.append(call.node)
        return real(routine, call)

    monkeypatch.setattr(Convolution, "variants", seen)
    prober = Prober(resolved)
    prober.takes(node, node.variant)
    assert prober.heavy(node)
    assert listed == []
    assert prober.variants(node)
    assert listed == [node.name]


def test_a_prober_lends_answers_to_the_next(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = resolve(branch(bench))
    free = next(node for node in graph.operators if node.name == "free")
    asked, real = list[str](), run_compute

    def counted(ctx: Context, op: object, inputs: Sequence[VTensor]) -> tuple[VTensor, ...]:
        asked.append(ctx.node)
        return real(ctx, op, inputs)

    monkeypatch.setattr("resolver.probe.run_compute", counted)
    first = Prober(graph)
    said = first.decide(free, [Layout("NHWC")]), first.takes(free, free.variant)
    assert asked
    asked.clear()
    second = Prober(graph, first)
    assert said == (second.decide(free, [Layout("NHWC")]), second.takes(free, free.variant))
    assert asked == []
    assert Prober(graph).takes(free, free.variant) == said[1]
    assert asked
