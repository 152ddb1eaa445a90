"""EWO against brute force on random graphs: the solver's choice is the best there is."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from libdesc.registry import registry
from optimizer.choice.candidates import paper_variants, shared_variants
from optimizer.choice.ilp import choose
from optimizer.choice.problem import Problem
from optimizer.pipeline import optimise
from optimizer.settings import Settings
from resolver.check import check
from resolver.lowered import LoweredGraph
from tests.libraries.bench import Bench
from tests.libraries.slow import ALL
from tests.optimizer.graphs import (
    MOST,
    by_brute_force,
    check_same_values,
    combinations,
    extended_of,
    moved,
    random_graph,
)
from vtensor.language.graph import Graph, Node
from vtensor.language.tensor import VTensor

COUNT = 540 if ALL else 60
BATCH = 20
LEVELS = ("none", "lho", "ewo", "all")


def problems(seed: int) -> tuple[LoweredGraph, Problem, Problem]:
    """The resolver's graph, and its problems for ``shared`` and ``paper``."""
    extended = extended_of(random_graph(seed))
    variants = shared_variants(extended), paper_variants(extended)
    return extended, Problem.of(extended, variants[0]), Problem.of(extended, variants[1])


@pytest.mark.parametrize("first", range(0, COUNT, BATCH))
def test_the_program_finds_what_brute_force_finds(bench: Bench, first: int) -> None:
    for seed in range(first, first + BATCH):
        _, shared, paper = problems(seed)
        if combinations(shared) > MOST:
            continue
        solver = "CBC" if seed % 10 == 0 else ""
        check_minimal(shared, choose(shared, "shared", solver).chosen)
        fewest = by_brute_force(paper).paper
        assert paper.paper_cost(choose(paper, "paper", solver).chosen) == fewest, seed


def check_minimal(problem: Problem, chosen: Mapping[str, int]) -> None:
    """No assignment costs less."""
    least = by_brute_force(problem).shared
    assert problem.shared_cost(chosen) == least, problem.graph.name


def test_most_graphs_are_small_enough_and_most_have_a_choice(bench: Bench) -> None:
    """What the proof would be worth otherwise."""
    sizes = [combinations(problems(seed)[1]) for seed in range(COUNT)]
    assert sum(1 < size <= MOST for size in sizes) >= 0.95 * COUNT
    assert sum(len(problems(seed)[1].variants) >= 4 for seed in range(30)) >= 12


@pytest.mark.parametrize("first", range(0, COUNT, BATCH))
def test_each_level_is_sound_and_none_is_worse(bench: Bench, first: int) -> None:
    able = [library.name for library in registry().libraries.values() if library.transforms]
    for seed in range(first, first + BATCH):
        graph = random_graph(seed)
        resolved = extended_of(graph)
        costs = [moved(resolved)]
        for level in LEVELS[1:]:
            found = optimise(resolved, level)
            check(found, graph, able)
            costs.append(moved(found))
        assert costs == sorted(costs, reverse=True), seed
        certificate = optimise(resolved, "ewo").certificate
        assert certificate is not None
        left = (certificate.bytes_after, certificate.count_after)
        assert (left, certificate.bound) == (costs[2], costs[2].bytes), seed


@pytest.mark.parametrize("seed", range(0, COUNT, 10))
def test_a_pass_a_second_time_changes_nothing(bench: Bench, seed: int) -> None:
    resolved = extended_of(random_graph(seed))
    assert str(resolved) == str(extended_of(random_graph(seed)))
    for name in ("lho", "ewo", "sink", "rise", "share", "cancel"):
        once = optimise(resolved, [name])
        assert moved(optimise(once, [name])) == moved(once), name
        if name in ("lho", "share", "cancel"):
            assert str(optimise(once, [name])) == str(once), name


@pytest.mark.parametrize("seed", range(0, COUNT, 6))
def test_values_stay(bench: Bench, seed: int) -> None:
    levels = [*((level, "shared") for level in LEVELS), ("all", "paper")]
    options = [{"optimize": level, "objective": objective} for level, objective in levels]
    check_same_values(random_graph(seed), seed, options)


def shuffled(graph: Graph, seed: int) -> Graph:
    """The same graph with the operands of open nodes in another order."""
    rng = random.Random(seed)
    g = Graph(graph.name)
    values = {name: g.input(name, graph.values[name].dims) for name in graph.inputs}
    for name, array in graph.constants.items():
        values[name] = g.constant(array, list(graph.values[name].dims), name)
    for node in graph.nodes.values():
        values[node.outputs[0]] = g.add(node.op, *_turned(node, values, rng), name=node.name)
    for alias, name in graph.outputs.items():
        g.output(values[name], alias)
    return g.seal()


def _turned(node: Node, values: dict[str, VTensor], rng: random.Random) -> list[VTensor]:
    inputs = [values[name] for name in node.inputs]
    if set(node.op.asks) == {"ANY"}:  # type: ignore[attr-defined]
        head = [t for t in inputs if t.dims == inputs[0].dims]
        inputs = [*rng.sample(head, len(head)), *inputs[len(head) :]]
    return inputs


@pytest.mark.parametrize("seed", range(0, COUNT, 6))
def test_the_best_does_not_depend_on_the_order_of_operands(bench: Bench, seed: int) -> None:
    one, other = random_graph(seed), shuffled(random_graph(seed), seed)
    for objective in ("shared", "paper"):
        settings = Settings(objective)
        found = [optimise(extended_of(g), ["ewo"], settings).certificate for g in (one, other)]
        assert found[0] is not None
        assert found[1] is not None
        assert found[0].bound == found[1].bound, objective


def test_a_choice_that_is_not_the_best_is_seen(bench: Bench) -> None:
    """The twin: the resolver's own variants, which on some graph are not the cheapest."""
    shared = [problems(seed)[1] for seed in range(12)]
    worse = next(one for one in shared if one.shared_cost(choose(one).chosen) < one.shared_cost({}))
    check_minimal(worse, choose(worse).chosen)
    with pytest.raises(AssertionError):
        check_minimal(worse, {})
