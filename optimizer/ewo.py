"""Element-wise optimisation: the variants of all open nodes at once, by an integer program.

Source: the paper, section 5.2, Fig. 9.
"""

from __future__ import annotations

from collections.abc import Mapping

from optimizer.candidates import paper_variants, shared_variants
from optimizer.ilp import Solution, choose
from optimizer.problem import Cost, Problem
from optimizer.remake import remade
from optimizer.settings import Settings
from optimizer.share import share
from optimizer.solver import SolverError, solver_name
from resolver.errors import ErrorProof
from resolver.lowered import Certificate, LoweredGraph
from vtensor.language.records import replace


def reconcile(graph: LoweredGraph, settings: Settings) -> LoweredGraph:
    """The variants that make the objective least; the graph as it was where that is no gain.

    Each node stays on its library.
    """
    objective = "paper" if settings.objective == "paper" else "shared"
    if not any(graph.transforms()):
        return nothing_to_gain(graph, objective)
    variants = paper_variants(graph) if objective == "paper" else shared_variants(graph)
    return chosen_by(graph, Problem.of(graph, variants), objective, settings)


def nothing_to_gain(graph: LoweredGraph, objective: str) -> LoweredGraph:
    """The graph as it is: no choice could make it better."""
    ns = 0 if objective == "time" else None
    proved = Certificate(
        objective, "none", "optimal", 0, 0, 0, 0, 0, 0, 0.0, ns_before=ns, ns_after=ns
    )
    return replace(graph, certificate=proved)


def chosen_by(
    graph: LoweredGraph, problem: Problem, objective: str, settings: Settings
) -> LoweredGraph:
    """The graph in the best choice of a problem.

    The certificate says what the solver proved. Where it fails, the graph stays, and that is said.
    """
    before, basis = _moved(graph), problem.clock.basis if problem.clock else "declared"
    try:
        solution = choose(problem, objective, settings.solver, settings.time_limit)
    except SolverError as error:
        name = settings.solver or solver_name()
        failed = Certificate(
            objective,
            name,
            f"failed: {error}",
            len(problem.variants),
            *before,
            *before,
            basis=basis,
        )
        return replace(graph, certificate=failed)
    chosen = solution.chosen if _improves(problem, objective, solution.chosen) else {}
    if problem.margin:  # estimates do not tell apart what takes as long
        chosen = problem.returned(chosen)
    certificate = _certificate(problem, objective, solution, before, chosen)
    if basis == "measured":  # the resolver's own variants, too, say what they take
        chosen = dict.fromkeys(problem.variants, 0) | chosen
    graph = remade(graph, problem, chosen) if chosen else share(graph, settings)
    return replace(graph, certificate=replace(certificate, basis=basis))


def _improves(problem: Problem, objective: str, chosen: Mapping[str, int]) -> bool:
    """A choice costs less than what the nodes have; of as many bytes, fewer Transforms."""
    if not problem.fits(chosen):  # as a solver's rounding could have it
        return False
    if objective == "shared":
        return problem.shared_cost(chosen) < problem.shared_cost({})
    cost = problem.objective(objective)
    return cost(chosen) < cost({})


def _moved(graph: LoweredGraph) -> Cost:
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
        errors=_errors(problem, chosen),
    )


def _errors(problem: Problem, chosen: Mapping[str, int]) -> ErrorProof | None:
    allowed = problem.allowed
    if allowed is None:
        return None
    return ErrorProof(allowed.tolerance, allowed.budget, problem.chosen_shares(chosen))
