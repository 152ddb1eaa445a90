"""Solvers by an integer program: element-wise optimisation as in the paper, and the optimum."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import count
from typing import Any

from eval.gap.problem import Measure, Node, Problem
from eval.gap.rules import hoist
from eval.gap.score import Solution
from optimizer.choice.solver import SolverError, solve
from optimizer.detached_import import import_on_thread

#: Seconds for the solver.
TIME_LIMIT = 600.0


def elementwise_program(problem: Problem, measure: Measure = "bytes") -> Solution:  # noqa: ARG001
    """Choose the layouts of element-wise nodes so that the fewest edges convert, then hoist (EWO).

    All other nodes have the alternative of the resolver. An edge counts 1 if its value is made in
    another layout than wanted, whatever it costs and whether or not readers share the conversion.

    Simplified: the paper tries two layouts, here each node has all its alternatives.

    Source: the paper, section 5.2, Fig. 9.
    """
    nodes = {node.name for node in problem.nodes if node.kind == "elementwise"}
    choice = _minimised(problem, nodes, lambda *_: 1, None, shared=False)
    return Solution(choice, hoist(problem, choice))


def joint_program(problem: Problem, measure: Measure = "bytes") -> Solution:
    """Choose the alternatives of all nodes together for the least cost, proven optimal.

    Minimise the sum of costs of chosen alternatives and needed conversions. x is 1 for a chosen
    alternative; y[s, t] is 1 for an edge whose value is made in s and wanted in t, and sums to the
    x of either end; z >= y is 1 for a conversion that some edge needs.

    Raises:
        SolverError: the solver is missing, fails, or proves no optimum in time.

    Source: ``optimizer/choice/ilp.py``, written again for this data.
    """
    nodes = {node.name for node in problem.nodes}

    def conversion(value: str, source: str, target: str) -> float:
        return problem.conversion(value, source, target, measure)

    return Solution(_minimised(problem, nodes, conversion, measure, shared=True))


def _minimised(
    problem: Problem,
    free: Collection[str],
    conversion: Callable[[str, str, str], float],
    measure: Measure | None,
    shared: bool,
) -> dict[str, int]:
    """Return the choice of least cost; nodes that are not in ``free`` have their first alternative.

    Args:
        problem: the problem.
        free: names of the nodes with a choice.
        conversion: the cost of a conversion of (value, source, target).
        measure: the measure of the nodes' own costs; None counts conversions alone.
        shared: True counts a conversion once for all readers of the value.

    Raises:
        SolverError: the solver is missing, fails, or proves no optimum in time.
    """
    pulp: Any = import_on_thread("pulp")
    model, numbers = pulp.LpProblem("layouts", pulp.LpMinimize), count()

    def variable(category: str = "Continuous") -> Any:
        return model.add_variable(f"v{next(numbers)}", 0, 1, cat=category)

    x = {
        node.name: [variable("Binary") for _ in node.alternatives]
        if node.name in free and len(node.alternatives) > 1
        else [1]
        for node in problem.nodes
    }
    for row in x.values():
        model += pulp.lpSum(row) == 1
    terms = (
        []
        if measure is None
        else [
            alternative.cost(measure) * chosen
            for node in problem.nodes
            for alternative, chosen in zip(node.alternatives, x[node.name], strict=False)
        ]
    )
    for value, readers in problem.readers.items():
        maker, place = problem.makers.get(value, (None, 0))
        made = _ends(maker, x, "writes", place, problem.given.get(value, ""))
        needed = dict[tuple[str, str], Any]()
        for node, at, layout in readers:
            wanted = _ends(node, x, "reads", at, layout)
            y = {(s, t): variable() for s in made for t in wanted}
            for s, chosen in made.items():
                model += pulp.lpSum(y[s, t] for t in wanted) == pulp.lpSum(chosen)
            for t, chosen in wanted.items():
                model += pulp.lpSum(y[s, t] for s in made) == pulp.lpSum(chosen)
            for (s, t), edge in y.items():
                if s == t:
                    continue
                if not shared or len(readers) == 1:
                    terms.append(conversion(value, s, t) * edge)
                    continue
                if (s, t) not in needed:
                    needed[s, t] = variable()
                    terms.append(conversion(value, s, t) * needed[s, t])
                model += needed[s, t] >= edge
    model.setObjective(pulp.lpSum(terms) + 0 * variable())
    solved = solve(model, time_limit=TIME_LIMIT)
    if solved.status != "optimal":
        raise SolverError(f"{solved.solver}: no proof of the optimum in {TIME_LIMIT:.0f} s")
    return {
        name: max(range(len(row)), key=lambda i, row=row: row[i].value())  # type: ignore[misc]
        for name, row in x.items()
        if len(row) > 1
    }


def _ends(
    node: Node | None, x: Mapping[str, Sequence[Any]], side: str, place: int, fixed: str
) -> dict[str, list[Any]]:
    """Return the layouts of one end of an edge, each with the variables of the alternatives that
    have it; ``fixed`` alone if the end is no node.

    Args:
        node: the node of the end, or None.
        x: the variables of the alternatives of each node.
        side: ``reads`` or ``writes``.
        place: index of the value among what the node reads or writes.
        fixed: the layout of an end that is no node.
    """
    if node is None:
        return {fixed: [1]}
    ends = dict[str, list[Any]]()
    for alternative, chosen in zip(node.alternatives, x[node.name], strict=False):
        ends.setdefault(getattr(alternative, side)[place], []).append(chosen)
    return ends
