"""Element-wise optimisation: the rows of all open nodes at once, by an integer program.

Source: the paper, section 5.2, Fig. 9.
"""

from __future__ import annotations

from dataclasses import replace

from optimizer.candidates import Rows, paper_rows, shared_rows
from optimizer.ilp import Choice, choose
from optimizer.problem import Assignment, Cost, Problem
from optimizer.remake import remade
from optimizer.settings import Settings
from optimizer.share import share
from optimizer.solver import SolverError, solver_name
from optimizer.timed import timed_rows
from resolver.evaluate import Resolution
from resolver.extended import Certificate, ExtendedGraph


def reconcile(graph: ExtendedGraph, settings: Settings) -> ExtendedGraph:
    """The rows that make the objective least; the graph as it was where that is no gain.

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
    problem = Problem.of(origin, _rows(origin.resolution, settings), settings.clock)
    try:
        choice = choose(problem, settings.objective, settings.solver, settings.time_limit)
    except SolverError as error:
        name = settings.solver or solver_name()
        failed = Certificate(
            settings.objective, name, f"failed: {error}", len(problem.rows), *before, *before
        )
        return replace(graph, certificate=failed)
    chosen = choice.chosen if _better(problem, settings.objective, choice.chosen) else {}
    if settings.clock is not None:  # the resolver's own rows, too, say what they take
        chosen = dict.fromkeys(problem.rows, 0) | chosen
    graph = remade(graph, problem, chosen) if chosen else share(graph, settings)
    certificate = _certificate(problem, settings.objective, choice, before, chosen)
    return replace(graph, certificate=certificate)


def _rows(resolution: Resolution, settings: Settings) -> Rows:
    if settings.clock is not None:
        return timed_rows(resolution, settings.clock)
    return paper_rows(resolution) if settings.objective == "paper" else shared_rows(resolution)


def _better(problem: Problem, objective: str, chosen: Assignment) -> bool:
    """A choice costs less than the rows that the nodes have; of as many bytes, fewer Transforms."""
    if objective == "shared":
        return problem.shared_cost(chosen) < problem.shared_cost({})
    cost = problem.objective(objective)
    return cost(chosen) < cost({})


def _moved(graph: ExtendedGraph) -> Cost:
    """What the Transforms that a graph has move, and how many they are."""
    pairs = [(graph.values[node.input], graph.values[node.output]) for node in graph.transforms()]
    return Cost(sum(source.nbytes + target.nbytes for source, target in pairs), len(pairs))


def _certificate(
    problem: Problem, objective: str, choice: Choice, before: Cost, chosen: Assignment
) -> Certificate:
    """What the solver says of the whole graph; ``chosen`` is what it has now."""
    reached = problem.objective(objective)(chosen)
    timed = objective == "time"
    return Certificate(
        objective,
        choice.solved.solver,
        choice.solved.status,
        len(problem.rows),
        *before,
        *problem.shared_cost(chosen),
        bound=choice.bound,
        gap=max(reached - choice.bound, 0) / reached if reached else 0.0,
        seconds=choice.solved.seconds,
        ns_before=problem.time_cost({}) if timed else None,
        ns_after=reached if timed else None,
    )
