"""The choice of variants as an integer program.

Each open node has a one-hot vector x over its variants. Where both ends of an edge are open, a
variable y[s, t] is 1 when the value is made in s and wanted in t; its margins are the vectors of
the two ends, which makes the relaxation tight. The two objectives differ in what they sum.

Source: the paper, section 5.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from math import ceil, gcd
from typing import TYPE_CHECKING, Any, NamedTuple

from optimizer.detached_import import import_on_thread
from optimizer.problem import Edge, Problem, Use
from optimizer.settings import TIME_LIMIT
from optimizer.solver import Solved, solve
from optimizer.tie import Tie, ties
from ptensor.layout import Layout

if TYPE_CHECKING:
    from fractions import Fraction

#: What a solver may be off by in the row of errors, which is scaled to 1.
ROUNDING = 1e-5

#: The unit of the row of packed constants.
MEGABYTE = 1e6

#: A linear expression by layout: 1 for the layout in which an end is.
End = Mapping[Layout, Any]


class Solution(NamedTuple):
    """What a solver found.

    Attributes:
        chosen: the number of a variant, by open node.
        solved: how the solver ended.
        bound: no choice is below it, in the unit of the cost.
    """

    chosen: dict[str, int]
    solved: Solved
    bound: int


def choose(
    problem: Problem,
    objective: str = "shared",
    solver: str = "",
    time_limit: float = TIME_LIMIT,
    forbidden: Edge | None = None,
) -> Solution:
    """The variants of least cost, within what errors and packed constants may be.

    sum of (added[variant] / budget)^2 * x[variant] <= 1, and
    sum of bytes[variant] * x[variant] <= room, in bytes more than the resolver's variants take.

    ``shared``: minimise sum of bytes[e] * z[e] over e = (value, s, t), z[e] >= every y of e; of all
    that do, sum of z. ``paper``: minimise the sum of y[s, t] with s != t over all edges. ``time``:
    minimise sum of ns[e] * z[e] plus sum of ns[variant] * x[variant], ``Problem.charged``.

    Args:
        forbidden: a Transform that ``shared`` may not need: y[s, t] = 0; it is to be avoidable.

    Raises:
        SolverError: the solver is missing, fails, or finds nothing in its time.
    """
    cost = problem.objective(objective)
    if not problem.variants:  # no choice, and nobody to be asked
        return Solution({}, Solved("none", "optimal", 0.0, 0.0, 0.0), cost({}))
    if objective == "paper":
        program = _Program(problem, {})
        return program.solve(program.differing(), cost, solver, time_limit)
    if objective == "time":
        measured = problem.clock is None or problem.clock.measured
        program = _Program(problem, {} if measured else ties(problem))
        return program.solve(program.nanoseconds(), cost, solver, time_limit)
    program = _Program(problem, ties(problem, forbidden[0] if forbidden else ""))
    return program.solve(program.transforms(forbidden), cost, solver, time_limit)


class _Program:
    """The variables and constraints of a problem."""

    def __init__(self, problem: Problem, tied: Mapping[str, Tie]) -> None:
        self.pulp = pulp = import_on_thread("pulp")
        self.problem = problem
        self.model = pulp.LpProblem("variants", pulp.LpMinimize)
        self.numbers = count()
        self.unit: Fraction | int = 1  # of cost, for one of the objective
        self.tied = tied
        self.x: dict[str, list[Any]] = {}
        for node, variants in problem.variants.items():  # makers come before those that follow them
            if node in tied:
                leader, places = tied[node]
                self.x[node] = [self.x[leader][place] for place in places]
            else:
                self.x[node] = [self._variable("x", "Binary") for _ in variants]
                self.model += pulp.lpSum(self.x[node]) == 1
        self._row(*self._errors())
        self._row(*self._room())

    def _errors(self) -> tuple[list[Any], float]:
        """The squares of what inexact variants add, and what they may add up to."""
        allowed = self.problem.allowed
        budget = allowed.budget if allowed else 0.0
        terms = [
            (share.added / budget) ** 2 * self.x[node][number]
            for node, shares in self.problem.shares.items()
            for number, share in shares.items()
        ]
        return terms, 1 - ROUNDING

    def _room(self) -> tuple[list[Any], float]:
        """What packed constants take more than the resolver's, and what that may be."""
        room = self.problem.room
        if room is None:
            return [], 0
        terms = [
            more / MEGABYTE * x
            for node in self.problem.variants
            for number, x in enumerate(self.x[node])
            if (more := self.problem.packed_more(node, number))
        ]
        return terms, max(room, 0) / MEGABYTE

    def _row(self, terms: list[Any], most: float) -> None:
        if terms:
            self.model += self.pulp.lpSum(terms) <= most

    def differing(self) -> Any:
        """The number of edges whose ends differ."""
        return self.pulp.lpSum(y for (_, s, t), y in self._edges() if s != t)

    def nanoseconds(self) -> Any:
        """What the open nodes take, and the Transforms that must exist."""
        kernels = (
            self.problem.charged(node, number) * x
            for node in self.problem.variants
            for number, x in enumerate(self.x[node])
        )
        changes = (self.problem.ns(*edge) * self._any_of(ys) for edge, ys in self._owed().items())
        return self.pulp.lpSum([*kernels, *changes])

    def transforms(self, forbidden: Edge | None = None) -> Any:
        """The bytes of the Transforms that must exist; their number breaks ties."""
        from fractions import Fraction

        owed = self._owed(forbidden)
        sizes = {edge: self.problem.bytes(*edge) for edge in owed}
        unit, weight = gcd(*sizes.values()) or 1, len(owed) + 1  # more than all of them together
        self.unit = Fraction(unit, weight)
        return self.pulp.lpSum(
            (size // unit * weight + 1) * self._any_of(owed[edge]) for edge, size in sizes.items()
        )

    def solve(
        self,
        objective: Any,
        cost: Callable[[Mapping[str, int]], int],
        solver: str,
        time_limit: float,
    ) -> Solution:
        """Minimise an expression; ``cost`` is what the choice costs, parts that are fixed too."""
        self.model.setObjective(objective + 0 * next(iter(self.x.values()))[0])
        solved = solve(self.model, solver, time_limit)
        chosen = {
            node: max(range(len(vector)), key=lambda i, vector=vector: vector[i].value())  # type: ignore[misc]
            for node, vector in self.x.items()
        }
        slack = 0.0 if solved.status == "optimal" else solved.objective - solved.bound
        return Solution(chosen, solved, cost(chosen) - ceil(min(slack * self.unit, cost(chosen))))

    def _owed(self, forbidden: Edge | None = None) -> dict[Edge, list[Any]]:
        """By Transform what it is owed to, each of which is 1 when so."""
        owed: dict[Edge, list[Any]] = {}
        for edge, y in self._edges():
            if edge[1] != edge[2]:
                owed.setdefault(edge, []).append(y)
            if edge == forbidden:
                self.model += y == 0
        return owed

    def _any_of(self, ys: list[Any]) -> Any:
        """What is 1 as soon as one of them is; where there is one only, it is that."""
        if len(ys) == 1:
            return ys[0]
        z = self._variable("z")
        for y in ys:
            self.model += z >= y
        return z

    def _edges(self) -> Iterator[tuple[Edge, Any]]:
        """Of the edges of each value with an open end: pairs of layouts, with what is 1 when so."""
        for value, uses in self.problem.uses.items():
            made = self._made(value)
            ends = [self._wanted(value, use) for use in uses if use.node not in self.tied]
            if len(made) == 1 and all(len(wanted) == 1 for wanted in ends):
                continue
            for wanted in ends:
                if len(made) > 1 and len(wanted) > 1:
                    yield from self._both(value, made, wanted)
                else:  # also where both are fixed: the Transform between them may serve others
                    for s, p in made.items():
                        for t, q in wanted.items():
                            yield (value, s, t), p if len(made) > 1 else q

    def _both(self, value: str, made: End, wanted: End) -> Iterator[tuple[Edge, Any]]:
        y = {(s, t): self._variable("y") for s in made for t in wanted}
        for s, p in made.items():
            self.model += self.pulp.lpSum(y[s, t] for t in wanted) == p
        for t, q in wanted.items():
            self.model += self.pulp.lpSum(y[s, t] for s in made) == q
        for (s, t), variable in y.items():
            yield (value, s, t), variable

    def _made(self, value: str) -> End:
        node = self.problem.makers.get(value, "")
        return self._end(node, lambda number: self.problem.made(value, number))

    def _wanted(self, value: str, use: Use) -> End:
        return self._end(use.node, lambda number: self.problem.wanted(value, use, number))

    def _end(self, node: str, layout: Any) -> End:
        """By layout: the sum of the variants that have it there; 1 where the node is fixed."""
        if node not in self.x:
            return {layout(0): 1}
        variants: dict[Layout, list[Any]] = {}
        for index, variable in enumerate(self.x[node]):
            variants.setdefault(layout(index), []).append(variable)
        if len(variants) == 1:
            return dict.fromkeys(variants, 1)
        return {layout: self.pulp.lpSum(several) for layout, several in variants.items()}

    def _variable(self, kind: str, category: str = "Continuous") -> Any:
        return self.model.add_variable(f"{kind}{next(self.numbers)}", 0, 1, cat=category)
