"""EWO against brute force on random graphs: the fewest bytes, and the least of drawn times."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

import pytest

from eval.networks import NAMES, build
from optimizer.choice.candidates import paper_variants, shared_variants
from optimizer.choice.ilp import choose
from optimizer.choice.problem import Problem
from optimizer.joint import timed_variants
from optimizer.pipeline import optimise
from optimizer.settings import Settings
from resolver.lowered import LoweredGraph
from tests.libraries.bench import Bench
from tests.libraries.slow import ALL, slow_but
from tests.optimizer.clocks import Drawn
from tests.optimizer.graphs import (
    MOST,
    by_brute_force,
    check_same_values,
    combinations,
    extended_of,
    moved,
    random_graph,
)
from tests.resolver.networks import checked
from vtensor.errors import InputError
from vtensor.language.graph import Graph, Node
from vtensor.language.tensor import VTensor
from vtensor.report import certificate_lines
from vtensor.runtime.tuning import tuner as tuning

COUNT = 540 if ALL else 40
BATCH = 20
LEVELS = ("none", "lho", "ewo", "all")
in_batches = pytest.mark.parametrize("first", range(0, COUNT, BATCH))


def problems(seed: int) -> tuple[LoweredGraph, Problem, Problem]:
    """The resolver's graph, and its problems for ``shared`` and ``paper``."""
    extended = extended_of(random_graph(seed))
    variants = shared_variants(extended), paper_variants(extended)
    return extended, Problem.of(extended, variants[0]), Problem.of(extended, variants[1])


def timed_problem(seed: int, **options: float) -> Problem:
    """A random graph's problem, on a clock of its own."""
    graph, clock = extended_of(random_graph(seed)), Drawn(seed)
    return Problem.of(graph, timed_variants(graph, clock), clock, **options)  # type: ignore[arg-type]


def check_minimal(problem: Problem, chosen: Mapping[str, int]) -> None:
    """No assignment costs less, nor takes less where there is a clock."""
    least = by_brute_force(problem)
    if problem.clock:
        assert problem.time_cost(chosen) == least.time, problem.graph.name
    else:
        assert problem.shared_cost(chosen) == least.shared, problem.graph.name


@in_batches
def test_the_program_finds_what_brute_force_finds(bench: Bench, first: int) -> None:
    for seed in range(first, first + BATCH):
        solver = "CBC" if seed % 10 == 0 else ""
        _, shared, paper = problems(seed)
        timed = timed_problem(seed)
        if combinations(shared) <= MOST:
            check_minimal(shared, choose(shared, "shared", solver).chosen)
            fewest = by_brute_force(paper).paper
            assert paper.paper_cost(choose(paper, "paper", solver).chosen) == fewest, seed
        if combinations(timed) <= MOST:
            check_minimal(timed, choose(timed, "time", solver).chosen)


def test_most_graphs_are_small_enough_and_most_have_a_choice(bench: Bench) -> None:
    """What the proof would be worth otherwise."""
    shared = [problems(seed)[1] for seed in range(COUNT)]
    assert sum(1 < combinations(problem) <= MOST for problem in shared) >= 0.95 * COUNT
    assert sum(len(problem.variants) >= 4 for problem in shared[:30]) >= 12
    sizes = [combinations(timed_problem(seed)) for seed in range(COUNT)]
    assert sum(1 < size <= MOST for size in sizes) >= 0.9 * COUNT


def test_a_choice_that_is_not_the_best_is_seen(bench: Bench) -> None:
    """The twins: the resolver's own variants, the fewest bytes, which take longer, a wrong time."""
    shared = [problems(seed)[1] for seed in range(12)]
    worse = next(
        problem
        for problem in shared
        if problem.shared_cost(choose(problem).chosen) < problem.shared_cost({})
    )
    check_minimal(worse, choose(worse).chosen)
    timed = [timed_problem(seed) for seed in range(12)]
    slower = next(
        problem
        for problem in timed
        if problem.time_cost(choose(problem).chosen)
        > problem.time_cost(choose(problem, "time").chosen)
    )
    check_minimal(slower, choose(slower, "time").chosen)
    lying = {
        name: [replace(variant, ns=10**6 - (variant.ns or 0)) for variant in variants]
        for name, variants in slower.variants.items()
    }
    misled = choose(replace(slower, variants=lying), "time").chosen
    for problem, chosen in ((worse, {}), (slower, choose(slower).chosen), (slower, misled)):
        with pytest.raises(AssertionError):
            check_minimal(problem, chosen)


@in_batches
def test_each_level_is_sound_and_none_is_worse(bench: Bench, first: int) -> None:
    for seed in range(first, first + BATCH):
        graph = random_graph(seed)
        resolved = extended_of(graph)
        plans = [checked(optimise(resolved, level), graph) for level in LEVELS]
        costs = [moved(plan) for plan in plans]
        assert costs[0] == moved(resolved)
        assert costs == sorted(costs, reverse=True), seed
        certificate = plans[2].certificate
        assert certificate is not None
        left = (certificate.bytes_after, certificate.count_after)
        assert (left, certificate.bound) == (costs[2], costs[2].bytes), seed


@pytest.mark.parametrize("name", slow_but(("resnet50", "mobilenet_v2"), NAMES))
def test_each_level_of_a_network_is_sound_and_none_is_worse(name: str) -> None:
    graph = build(name)
    resolved = extended_of(graph)
    plans = [checked(optimise(resolved, level), graph) for level in LEVELS]
    costs = [moved(plan) for plan in plans]
    assert costs == sorted(costs, reverse=True)
    certificate = plans[2].certificate
    assert certificate is not None
    assert certificate.minimal
    assert certificate.bound == costs[2].bytes
    assert moved(checked(optimise(resolved, "ewo", Settings("paper")), graph)) >= costs[2]


@in_batches
def test_plans_on_times_are_sound_and_say_what_they_take(bench: Bench, first: int) -> None:
    for seed in range(first, first + BATCH):
        graph, problem = random_graph(seed), timed_problem(seed)
        plan = optimise(extended_of(graph), "all", Settings("time", clock=Drawn(seed)))
        certificate = checked(plan, graph).certificate
        assert certificate is not None
        assert (certificate.unit, certificate.status, certificate.gap) == ("ns", "optimal", 0)
        assert not certificate.minimal
        assert certificate.ns_before == problem.time_cost({})
        assert certificate.ns_after == certificate.bound == choose(problem, "time").bound
        assert certificate.count_after == sum(1 for _ in plan.transforms())
        if combinations(problem) <= MOST:
            assert certificate.ns_after == by_brute_force(problem).time


def test_transforms_that_are_charged_more_are_fewer(bench: Bench) -> None:
    """The program is exact with a price as without, and some graph has fewer Transforms for it."""
    saved = 0
    for seed in range(20):
        free, dear = (timed_problem(seed, price=price) for price in (0.0, 1.0))
        choices = choose(free, "time").chosen, choose(dear, "time").chosen
        if combinations(dear) <= MOST:
            check_minimal(dear, choices[1])
        count, fewer = (free.shared_cost(choice).transforms for choice in choices)
        assert fewer <= count
        saved += count - fewer
    assert saved


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
def test_values_stay(bench: Bench, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(tuning, "Tuner", lambda *_: Drawn(seed))
    levels = [*((level, "shared") for level in LEVELS), ("all", "paper")]
    options = [{"optimize": level, "objective": objective} for level, objective in levels]
    check_same_values(random_graph(seed), seed, [*options, {"tune": True}])


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
    graphs = random_graph(seed), shuffled(random_graph(seed), seed)
    for objective in ("shared", "paper"):
        settings = Settings(objective)
        certificates = [optimise(extended_of(g), ["ewo"], settings).certificate for g in graphs]
        assert certificates[0] is not None
        assert certificates[1] is not None
        assert certificates[0].bound == certificates[1].bound, objective


def test_a_variant_without_a_time_is_left_out(bench: Bench) -> None:
    for seed in range(10):
        graph = extended_of(random_graph(seed))
        variants = timed_variants(graph, Drawn(seed, unknown=1.0))
        assert all(len(variant) == 1 for variant in variants.values())
        known = timed_variants(graph, Drawn(seed, unknown=0.5)).values()
        assert all(variant.ns is not None for row in known if len(row) > 1 for variant in row)


def test_a_clock_and_its_objective_go_together() -> None:
    for settings in ({"objective": "time"}, {"objective": "shared", "clock": Drawn(0)}):
        with pytest.raises(InputError, match="tune=True"):
            Settings(**settings)


def test_a_certificate_on_times_is_in_milliseconds(bench: Bench) -> None:
    plan = optimise(extended_of(random_graph(0)), "all", Settings("time", clock=Drawn(0)))
    assert plan.certificate is not None
    [line] = certificate_lines(replace(plan.certificate, ns_before=2_500_000, ns_after=1_000_000))
    for part in ("2.500 ms", "1.000 ms", "(time, "):
        assert part in line.text
