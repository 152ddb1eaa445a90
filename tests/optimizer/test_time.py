"""The objective ``time`` on drawn times: the choice is the fastest there is, by brute force."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from libdesc.registry import registry
from optimizer.choice.ilp import choose
from optimizer.choice.problem import Problem
from optimizer.joint import timed_variants
from optimizer.pipeline import optimise
from optimizer.settings import Settings
from resolver.check import check
from tests.libraries.bench import Bench
from tests.optimizer.clocks import Drawn
from tests.optimizer.graphs import (
    MOST,
    by_brute_force,
    check_same_values,
    combinations,
    extended_of,
    random_graph,
)
from tests.optimizer.test_proof import BATCH, COUNT
from vtensor.errors import InputError
from vtensor.report import certificate_lines
from vtensor.runtime.tuning import tuner as tuning


def problem_of(seed: int) -> Problem:
    """A random graph's problem, on a clock of its own."""
    graph, clock = extended_of(random_graph(seed)), Drawn(seed)
    return Problem.of(graph, timed_variants(graph, clock), clock)


def check_fastest(problem: Problem, chosen: Mapping[str, int]) -> None:
    """No assignment takes less."""
    assert problem.time_cost(chosen) == by_brute_force(problem).time, problem.graph.name


@pytest.mark.parametrize("first", range(0, COUNT, BATCH))
def test_the_program_finds_what_brute_force_finds(bench: Bench, first: int) -> None:
    for seed in range(first, first + BATCH):
        problem = problem_of(seed)
        if combinations(problem) <= MOST:
            check_fastest(problem, choose(problem, "time", "CBC" if seed % 10 == 0 else "").chosen)


def test_most_graphs_are_small_enough_and_most_have_a_choice(bench: Bench) -> None:
    """What the proof would be worth otherwise."""
    sizes = [combinations(problem_of(seed)) for seed in range(COUNT)]
    assert sum(1 < size <= MOST for size in sizes) >= 0.9 * COUNT


def test_a_choice_that_is_not_the_fastest_is_seen(bench: Bench) -> None:
    """The twin: the fewest bytes, which on some graph take longer; and a wrong time."""
    problems = [problem_of(seed) for seed in range(12)]
    slower = next(
        one
        for one in problems
        if one.time_cost(choose(one).chosen) > one.time_cost(choose(one, "time").chosen)
    )
    check_fastest(slower, choose(slower, "time").chosen)
    with pytest.raises(AssertionError):
        check_fastest(slower, choose(slower).chosen)
    lying = {
        name: [replace(variant, ns=10**6 - (variant.ns or 0)) for variant in variants]
        for name, variants in slower.variants.items()
    }
    with pytest.raises(AssertionError):
        check_fastest(slower, choose(replace(slower, variants=lying), "time").chosen)


def test_transforms_that_are_charged_more_are_fewer(bench: Bench) -> None:
    """The program is exact with a price as without, and some graph has fewer Transforms for it."""
    saved = 0
    for seed in range(20):
        graph, clock = extended_of(random_graph(seed)), Drawn(seed)
        variants = timed_variants(graph, clock)
        free, dear = (Problem.of(graph, variants, clock, price=one) for one in (0.0, 1.0))
        found = choose(free, "time").chosen, choose(dear, "time").chosen
        if combinations(dear) <= MOST:
            check_fastest(dear, found[1])
        count, fewer = (free.shared_cost(one).transforms for one in found)
        assert fewer <= count
        saved += count - fewer
    assert saved


@pytest.mark.parametrize("first", range(0, COUNT, BATCH))
def test_plans_are_sound_and_say_what_they_take(bench: Bench, first: int) -> None:
    able = [library.name for library in registry().libraries.values() if library.transforms]
    for seed in range(first, first + BATCH):
        graph, problem = random_graph(seed), problem_of(seed)
        found = optimise(extended_of(graph), "all", Settings("time", clock=Drawn(seed)))
        check(found, graph, able)
        made = found.certificate
        assert made is not None
        assert (made.unit, made.status, made.gap, made.minimal) == ("ns", "optimal", 0, False)
        assert made.ns_before == problem.time_cost({})
        assert made.ns_after == made.bound == choose(problem, "time").bound
        assert made.count_after == sum(1 for _ in found.transforms())
        if combinations(problem) <= MOST:
            assert made.ns_after == by_brute_force(problem).time


@pytest.mark.parametrize("seed", range(0, COUNT, 6))
def test_values_stay(bench: Bench, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(tuning, "Tuner", lambda *_: Drawn(seed))
    check_same_values(random_graph(seed), seed, [{"optimize": "none"}, {"tune": True}])


def test_a_row_without_a_time_is_none(bench: Bench) -> None:
    for seed in range(10):
        graph = extended_of(random_graph(seed))
        variants = timed_variants(graph, Drawn(seed, unknown=1.0))
        assert all(len(variant) == 1 for variant in variants.values())
        known = timed_variants(graph, Drawn(seed, unknown=0.5))
        assert all(
            variant.ns is not None for one in known.values() if len(one) > 1 for variant in one
        )


def test_a_clock_and_its_objective_go_together() -> None:
    for settings in ({"objective": "time"}, {"objective": "shared", "clock": Drawn(0)}):
        with pytest.raises(InputError, match="tune=True"):
            Settings(**settings)


def test_the_certificate_is_in_milliseconds(bench: Bench) -> None:
    found = optimise(extended_of(random_graph(0)), "all", Settings("time", clock=Drawn(0)))
    assert found.certificate is not None
    [line] = certificate_lines(replace(found.certificate, ns_before=2_500_000, ns_after=1_000_000))
    assert "2.500 ms" in line.text
    assert "1.000 ms" in line.text
    assert "(time, " in line.text
