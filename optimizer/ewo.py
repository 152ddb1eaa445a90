"""Element-wise optimisation: the variants of all open nodes at once, by an integer program.

Source: the paper, section 5.2, Fig. 9.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from optimizer.candidates import Variants, paper_variants, shared_variants
from optimizer.ilp import Solution, choose
from optimizer.problem import Cost, Problem
from optimizer.remake import remade
from optimizer.settings import Settings
from optimizer.share import share
from optimizer.solver import SolverError, solver_name
from optimizer.timed import timed_variants
from resolver.evaluate import Resolution
from resolver.extended import Certificate, ExtendedGraph


def reconcile(graph: ExtendedGraph, settings: Settings) -> ExtendedGraph:
    """The variants that make the objective least; the graph as it was where that is no gain.

    The certificate says what the solver proved. Where it fails, the graph stays, and that is said.
    """
    origin = graph.origin
    assert origin is not None, "a graph that extend made has an origin"
    before = _moved(graph)
    if not before.transforms and settings.clock is None:  # nothing is to be gained
        nothing = Certificate(
            settings.objective, "none", "optimal", 0, 0, 0, 0, 0, bound=0, gap=0.0
        )
        return replace(graph, certificate=nothing)
    problem = Problem.of(origin, _variants(origin.resolution, settings), settings.clock)
    try:
        solution = choose(problem, settings.objective, settings.solver, settings.time_limit)
    except SolverError as error:
        name = settings.solver or solver_name()
        failed = Certificate(
            settings.objective, name, f"failed: {error}", len(problem.variants), *before, *before
        )
        return replace(graph, certificate=failed)
    chosen = solution.chosen if _better(problem, settings.objective, solution.chosen) else {}
    if settings.clock is not None:  # the resolver's own variants, too, say what they take
        chosen = dict.fromkeys(problem.variants, 0) | chosen
    graph = remade(graph, problem, chosen) if chosen else share(graph, settings)
    certificate = _certificate(problem, settings.objective, solution, before, chosen)
    return replace(graph, certificate=certificate)


def _variants(resolution: Resolution, settings: Settings) -> Variants:
    if settings.clock is not None:
        return timed_variants(resolution, settings.clock)
    return (
        paper_variants(resolution) if settings.objective == "paper" else shared_variants(resolution)
    )


def _better(problem: Problem, objective: str, chosen: Mapping[str, int]) -> bool:
    """A choice costs less than what the nodes have; of as many bytes, fewer Transforms."""
    if objective == "shared":
        return problem.shared_cost(chosen) < problem.shared_cost({})
    cost = problem.objective(objective)
    return cost(chosen) < cost({})


def _moved(graph: ExtendedGraph) -> Cost:
    """What the Transforms that a graph has move, and how many they are."""
    pairs = [(graph.values[node.input], graph.values[node.output]) for node in graph.transforms()]
    return Cost(sum(source.nbytes + target.nbytes for source, target in pairs), len(pairs))


def _certificate(
    problem: Problem, objective: str, solution: Solution, before: Cost, chosen: Mapping[str, int]
) -> Certificate:
    """What the solver says of the whole graph; ``chosen`` is what it has now."""
    reached = problem.objective(objective)(chosen)
    timed = objective == "time"
    return Certificate(
        objective,
        solution.solved.solver,
        solution.solved.status,
        len(problem.variants),
        *before,
        *problem.shared_cost(chosen),
        bound=solution.bound,
        gap=max(reached - solution.bound, 0) / reached if reached else 0.0,
        seconds=solution.solved.seconds,
        ns_before=problem.time_cost({}) if timed else None,
        ns_after=reached if timed else None,
    )
