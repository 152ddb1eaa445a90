"""Element-wise optimisation: the variants of all open nodes at once, by an integer program.

Source: the paper, section 5.2, Fig. 9.
"""

from __future__ import annotations

from collections.abc import Mapping

from optimizer.choice.candidates import paper_variants, shared_variants
from optimizer.choice.ilp import Solution, choose
from optimizer.choice.problem import Problem, Traffic
from optimizer.choice.solver import SolverError, solver_name
from optimizer.remake import remade
from optimizer.settings import Settings
from optimizer.share import share
from resolver.errors import ErrorProof
from resolver.lowered import Certificate, LoweredGraph
from vtensor.language.records import replace


def reconcile(graph: LoweredGraph, settings: Settings) -> LoweredGraph:
    """Return the graph in those variants of nodes that minimise the objective, with the solver's
    certificate.

    Each node stays on its library. If no choice of variants costs less, all nodes keep their
    variants.
    """
    objective = "paper" if settings.objective == "paper" else "shared"
    if not any(graph.transforms()):
        return nothing_to_gain(graph, objective)
    variants = paper_variants(graph) if objective == "paper" else shared_variants(graph)
    return chosen_by(graph, Problem.of(graph, variants), objective, settings)


def nothing_to_gain(graph: LoweredGraph, objective: str) -> LoweredGraph:
    """Return the graph unchanged, with a certificate that no choice could improve it."""
    ns = 0 if objective == "time" else None
    certificate = Certificate(
        objective, "none", "optimal", 0, 0, 0, 0, 0, 0, 0.0, ns_before=ns, ns_after=ns
    )
    return replace(graph, certificate=certificate)


def chosen_by(
    graph: LoweredGraph, problem: Problem, objective: str, settings: Settings
) -> LoweredGraph:
    """Return the graph in the best choice of variants, with the solver's certificate.

    If the solver fails, the graph is unchanged and the certificate names the failure.

    Args:
        graph: the lowered graph with its Transforms.
        problem: the variants of its nodes.
        objective: ``shared``, ``paper`` or ``time``, as in ``Settings``.
        settings: the solver and its time limit.
    """
    before, basis = _transform_cost(graph), problem.clock.basis if problem.clock else "declared"
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
    if problem.margin:  # nodes that gain no time keep their variants
        chosen = problem.without_idle_changes(chosen)
    certificate = _certificate(problem, objective, solution, before, chosen)
    if basis == "measured":  # the resolver's own variants state their times, too
        chosen = dict.fromkeys(problem.variants, 0) | chosen
    graph = remade(graph, problem, chosen) if chosen else share(graph, settings)
    return replace(graph, certificate=replace(certificate, basis=basis))


def _improves(problem: Problem, objective: str, chosen: Mapping[str, int]) -> bool:
    """Return whether a choice is within the limits of the problem and costs less than no change of
    variants.

    For the objective ``shared``, a choice also improves if it costs as many bytes but has fewer
    Transforms.
    """
    if not problem.fits(chosen):  # possible by a solver's rounding
        return False
    if objective == "shared":
        return problem.shared_cost(chosen) < problem.shared_cost({})
    cost = problem.objective(objective)
    return cost(chosen) < cost({})


def _transform_cost(graph: LoweredGraph) -> Traffic:
    """Return the bytes that the graph's Transforms move, and their number."""
    pairs = [(graph.values[node.input], graph.values[node.output]) for node in graph.transforms()]
    return Traffic(sum(source.nbytes + target.nbytes for source, target in pairs), len(pairs))


def _certificate(
    problem: Problem,
    objective: str,
    solution: Solution,
    before: Traffic,
    chosen: Mapping[str, int],
) -> Certificate:
    """Return the certificate of a solution.

    Args:
        problem: the variants.
        objective: ``shared``, ``paper`` or ``time``.
        solution: what the solver found.
        before: the bytes and the number of Transforms before the choice.
        chosen: the choice that is made: the solution's, without changes that gain nothing.
    """
    cost = problem.objective(objective)(chosen)
    timed = objective == "time"
    return Certificate(
        objective,
        solution.solved.solver,
        solution.solved.status,
        len(problem.variants),
        *before,
        *problem.shared_cost(chosen),
        bound=solution.bound,
        gap=max(cost - solution.bound, 0) / cost if cost else 0.0,
        seconds=solution.solved.seconds,
        ns_before=problem.time_cost({}) if timed else None,
        ns_after=cost if timed else None,
        errors=_errors(problem, chosen),
    )


def _errors(problem: Problem, chosen: Mapping[str, int]) -> ErrorProof | None:
    """Return the proof that what a choice adds to the error is within the allowed error; None if no
    error is allowed.
    """
    allowed = problem.allowed
    if allowed is None:
        return None
    shares = problem.chosen_shares(chosen)
    return ErrorProof(allowed.tolerance, allowed.budget, shares, scale=allowed.scale)
