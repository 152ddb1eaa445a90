"""Element-wise optimisation: the rows of all open nodes at once, by an integer program.

Source: the paper, section 5.2, Fig. 9.
"""

from __future__ import annotations

from dataclasses import replace

from optimizer.candidates import paper_rows, shared_rows
from optimizer.ilp import Choice, choose
from optimizer.problem import Cost, Problem
from optimizer.remake import remade
from optimizer.settings import Settings
from optimizer.share import share
from optimizer.solver import SolverError, solver_name
from resolver.extended import Certificate, ExtendedGraph


def reconcile(graph: ExtendedGraph, settings: Settings) -> ExtendedGraph:
    """The rows that make the objective least; the graph as it was where that is no gain.

    The certificate says what the solver proved. Where it fails, the graph stays, and that is said.
    """
    origin = graph.origin
    assert origin is not None, "a graph that extend made has an origin"
    before = _moved(graph)
    if not before.transforms:  # nothing is to be gained
        nothing = Certificate(
            settings.objective, "none", "optimal", 0, 0, 0, 0, 0, bound=0, gap=0.0
        )
        return replace(graph, certificate=nothing)
    paper = settings.objective == "paper"
    rows = (paper_rows if paper else shared_rows)(origin.resolution)
    problem = Problem.of(origin, rows)
    least = problem.shared_cost({})
    try:
        choice = choose(problem, settings.objective, settings.solver, settings.time_limit)
    except SolverError as error:
        name = settings.solver or solver_name()
        failed = Certificate(
            settings.objective, name, f"failed: {error}", len(problem.rows), *before, *before
        )
        return replace(graph, certificate=failed)
    if paper:
        better = problem.paper_cost(choice.chosen) < problem.paper_cost({})
    else:
        better = problem.shared_cost(choice.chosen) < least
    graph = remade(graph, problem, choice.chosen) if better else share(graph, settings)
    after = problem.shared_cost(choice.chosen if better else {})
    return replace(graph, certificate=_certificate(problem, settings, choice, before, after))


def _moved(graph: ExtendedGraph) -> Cost:
    """What the Transforms that a graph has move, and how many they are."""
    pairs = [(graph.values[node.input], graph.values[node.output]) for node in graph.transforms()]
    return Cost(sum(source.nbytes + target.nbytes for source, target in pairs), len(pairs))


def _certificate(
    problem: Problem, settings: Settings, choice: Choice, before: Cost, after: Cost
) -> Certificate:
    """What the solver says of the whole graph."""
    paper = settings.objective == "paper"
    reached = problem.paper_cost(choice.chosen) if paper else after.bytes
    return Certificate(
        settings.objective,
        choice.solved.solver,
        choice.solved.status,
        len(problem.rows),
        *before,
        *after,
        bound=choice.bound,
        gap=max(reached - choice.bound, 0) / reached if reached else 0.0,
        seconds=choice.solved.seconds,
    )
