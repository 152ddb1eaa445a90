"""The choice of variants as an integer program.

Each open node has a vector x over its variants, in which the element of the chosen variant is 1 and
all others are 0. An edge leads from the maker of a value to a reader. If both ends of an edge are
open, the variable y[s, t] is 1 if the value is made in layout s and wanted in layout t, else 0. The
sums of y over s and over t equal the vectors of the two ends, which makes the relaxation tight. The
variable z is 1 for each Transform that is needed. The objectives are different sums of x, y and z.

Source: the paper, section 5.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count
from math import ceil, gcd
from typing import TYPE_CHECKING, Any, NamedTuple

from optimizer.choice.problem import Edge, Problem, Use
from optimizer.choice.solver import Solved, solve
from optimizer.choice.tie import Tie, ties
from optimizer.detached_import import import_on_thread
from optimizer.settings import TIME_LIMIT
from ptensor.layout import Layout

if TYPE_CHECKING:
    from fractions import Fraction

#: What is left free for a solver's rounding in the constraint on errors, whose limit is scaled to
#: 1.
ROUNDING = 1e-5

#: The unit of the constraint on packed constants, in bytes.
MEGABYTE = 1e6

#: The layouts that an end of an edge may have: for each, a linear expression that is 1 if the end
#: has it, else 0.
EndLayouts = Mapping[Layout, Any]


class Solution(NamedTuple):
    """A choice of variants, and what the solver proved of it.

    Attributes:
        chosen: the index of the chosen variant, by node, for each node that has several variants.
        solved: how the solver ended.
        bound: a lower bound of the cost of every choice, in the unit of the objective: bytes, edges
            or nanoseconds.
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
    """Return the variants of least cost within the limits of errors and packed constants.

    sum of (added[variant] / budget)^2 * x[variant] <= 1, and
    sum of bytes[variant] * x[variant] <= room, where bytes are those of packed constants beyond the
    resolver's variant.

    ``shared``: minimise sum of bytes[e] * z[e] over e = (value, s, t), z[e] >= every y of e; among
    equals, sum of z. ``paper``: minimise the sum of y[s, t] with s != t over all edges. ``time``:
    minimise sum of ns[e] * z[e] plus sum of ns[variant] * x[variant] (``Problem.charged``).

    x is 1 for the chosen variants, y[s, t] is 1 for an edge whose value is made in layout s and
    wanted in t, and z[e] is 1 for a Transform e that is needed; else they are 0.

    Args:
        problem: the nodes, their variants, and the limits.
        objective: ``shared``, ``paper`` or ``time``.
        solver: ``HiGHS`` or ``CBC``; empty is the first that is installed.
        time_limit: seconds for the solver.
        forbidden: for ``shared``, a Transform that the choice may not need: y[s, t] = 0. Some
            choice has to do without it (``Problem.avoidable``).

    Raises:
        SolverError: the solver is missing, fails, or finds nothing within its time.
    """
    cost = problem.objective(objective)
    if not problem.variants:  # nothing to choose, no solver is needed
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
    """The variables and constraints of a problem, as a PuLP model.

    Args:
        problem: the variants and limits.
        tied: the nodes whose variant is determined by that of another node, so that they have no
            variables of their own.
    """

    def __init__(self, problem: Problem, tied: Mapping[str, Tie]) -> None:
        self.pulp = pulp = import_on_thread("pulp")
        self.problem = problem
        self.model = pulp.LpProblem("variants", pulp.LpMinimize)
        self.numbers = count()
        self.unit: Fraction | int = 1  # the bytes for which 1 of the objective stands
        self.tied = tied
        self.x: dict[str, list[Any]] = {}
        for node, variants in problem.variants.items():  # makers precede the nodes tied to them
            if node in tied:
                leader, places = tied[node]
                self.x[node] = [self.x[leader][place] for place in places]
            else:
                self.x[node] = [self._variable("x", "Binary") for _ in variants]
                self.model += pulp.lpSum(self.x[node]) == 1
        self._row(*self._errors())
        self._row(*self._packed())

    def _errors(self) -> tuple[list[Any], float]:
        """Return the terms and the limit of the constraint on errors.

        There is a term for each approximate variant. It is the square of what the variant adds to
        the error, relative to the budget, times the variable of the variant.
        """
        allowed = self.problem.allowed
        budget = allowed.limit if allowed else 0.0
        terms = [
            (share.added / budget) ** 2 * self.x[node][number]
            for node, shares in self.problem.shares.items()
            for number, share in shares.items()
        ]
        return terms, 1 - ROUNDING

    def _packed(self) -> tuple[list[Any], float]:
        """Return the terms and the limit of the constraint on packed constants, in megabytes.

        A term is what the constants of a variant take beyond those of the resolver's variant, times
        the variable of the variant. There are no terms if there is no limit.
        """
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

    def _row(self, terms: list[Any], limit: float) -> None:
        """Add the constraint that the sum of ``terms``, if there are any, is at most ``limit``."""
        if terms:
            self.model += self.pulp.lpSum(terms) <= limit

    def differing(self) -> Any:
        """Return the number of edges whose ends differ, as an expression."""
        return self.pulp.lpSum(y for (_, s, t), y in self._edges() if s != t)

    def nanoseconds(self) -> Any:
        """Return the time of open nodes and of needed Transforms, in nanoseconds, as an
        expression.
        """
        kernels = (
            self.problem.charged(node, number) * x
            for node in self.problem.variants
            for number, x in enumerate(self.x[node])
        )
        changes = (self.problem.ns(*edge) * self._any_of(ys) for edge, ys in self._owed().items())
        return self.pulp.lpSum([*kernels, *changes])

    def transforms(self, forbidden: Edge | None = None) -> Any:
        """Return the bytes of the needed Transforms as an expression. Of equal bytes, fewer
        Transforms give less.

        ``self.unit`` is set to the bytes for which 1 of the expression stands. The Transform
        ``forbidden`` must not be needed.
        """
        from fractions import Fraction

        owed = self._owed(forbidden)
        sizes = {edge: self.problem.bytes(*edge) for edge in owed}
        # one ``unit`` of bytes weighs more than all Transforms that are counted
        unit, weight = gcd(*sizes.values()) or 1, len(owed) + 1
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
        """Minimise an expression.

        Args:
            objective: the expression.
            cost: returns the cost of a choice, including the part that is the same for all choices.
            solver: name of the solver; empty is the first that is installed.
            time_limit: seconds for the solver.
        """
        self.model.setObjective(objective + 0 * next(iter(self.x.values()))[0])
        solved = solve(self.model, solver, time_limit)
        chosen = {
            node: max(range(len(vector)), key=lambda i, vector=vector: vector[i].value())  # type: ignore[misc]
            for node, vector in self.x.items()
        }
        slack = 0.0 if solved.status == "optimal" else solved.objective - solved.bound
        return Solution(chosen, solved, cost(chosen) - ceil(min(slack * self.unit, cost(chosen))))

    def _owed(self, forbidden: Edge | None = None) -> dict[Edge, list[Any]]:
        """Return, for each Transform (value, source, target), the 0/1 variables of the edges that
        need it.

        The variables of the Transform ``forbidden`` are constrained to 0.
        """
        owed: dict[Edge, list[Any]] = {}
        for edge, y in self._edges():
            if edge[1] != edge[2]:
                owed.setdefault(edge, []).append(y)
            if edge == forbidden:
                self.model += y == 0
        return owed

    def _any_of(self, ys: list[Any]) -> Any:
        """Return a variable that is at least each variable of ``ys``; the variable itself if there
        is only one.
        """
        if len(ys) == 1:
            return ys[0]
        z = self._variable("z")
        for y in ys:
            self.model += z >= y
        return z

    def _edges(self) -> Iterator[tuple[Edge, Any]]:
        """Yield ((value, source, target), variable) of the edges of each value that has several
        layouts at one of its ends. Edges to tied nodes are left out.

        The variable is 1 if the value is made in layout ``source`` and wanted in ``target``, else
        0.
        """
        for value, uses in self.problem.uses.items():
            sources = self._made(value)
            ends = [self._wanted(value, use) for use in uses if use.node not in self.tied]
            if len(sources) == 1 and all(len(wanted) == 1 for wanted in ends):
                continue
            for wanted in ends:
                if len(sources) > 1 and len(wanted) > 1:
                    yield from self._both(value, sources, wanted)
                else:  # even if both are fixed: other edges may share their Transform
                    for s, p in sources.items():
                        for t, q in wanted.items():
                            yield (value, s, t), p if len(sources) > 1 else q

    def _both(self, value: str, made: EndLayouts, wanted: EndLayouts) -> Iterator[tuple[Edge, Any]]:
        """Add the variables of an edge of which both ends are open (have several layouts).

        Yield ((value, source, target), variable) for each pair of layouts.

        Args:
            value: the value of the edge.
            made: by layout, an expression that is 1 if the value is made in that layout.
            wanted: by layout, an expression that is 1 if the value is wanted in that layout.
        """
        y = {(s, t): self._variable("y") for s in made for t in wanted}
        for s, p in made.items():
            self.model += self.pulp.lpSum(y[s, t] for t in wanted) == p
        for t, q in wanted.items():
            self.model += self.pulp.lpSum(y[s, t] for s in made) == q
        for (s, t), variable in y.items():
            yield (value, s, t), variable

    def _made(self, value: str) -> EndLayouts:
        node = self.problem.makers.get(value, "")
        return self._end(node, lambda number: self.problem.made(value, number))

    def _wanted(self, value: str, use: Use) -> EndLayouts:
        return self._end(use.node, lambda number: self.problem.wanted(value, use, number))

    def _end(self, node: str, layout: Any) -> EndLayouts:
        """Return, by layout, the sum of the variables of the node's variants that have this layout.

        If all variants have the same layout, it is 1.

        Args:
            node: name of the node; one without variables has one layout.
            layout: takes the index of a variant and returns the variant's layout.
        """
        if node not in self.x:
            return {layout(0): 1}
        variants: dict[Layout, list[Any]] = {}
        for index, variable in enumerate(self.x[node]):
            variants.setdefault(layout(index), []).append(variable)
        if len(variants) == 1:
            return dict.fromkeys(variants, 1)
        return {layout: self.pulp.lpSum(xs) for layout, xs in variants.items()}

    def _variable(self, kind: str, category: str = "Continuous") -> Any:
        return self.model.add_variable(f"{kind}{next(self.numbers)}", 0, 1, cat=category)
