"""Why a Transform cannot be removed, and what the cheapest change that removes it would cost.

A Transform is needed as long as its value is made in one layout and wanted in another. Two kinds of
change are tried: other variants of open nodes; and, in addition, another library for one node whose
variants all have the same layout at the Transform.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from optimizer.choice.candidates import Candidates, other_libraries, shared_variants
from optimizer.choice.ilp import choose
from optimizer.choice.problem import Edge, Problem, Traffic
from optimizer.choice.solver import SolverError
from optimizer.choice.trim import extra, owes, trimmed
from optimizer.settings import Settings
from ptensor.evaluation import Requirement, Variant
from ptensor.layout import Layout
from resolver.lowered import LoweredGraph, OpNode, TransformNode
from vtensor.language.records import dataclass, replace


@dataclass(frozen=True)
class End:
    """One end of a Transform.

    Attributes:
        node: the node that makes or reads the value; None is the caller of the session.
        place: index of the value among the node's operands, inputs first.
        layout: layout of the value at this end.
        makes: True at the end that makes the value.
        fixed: True if all variants of the node have this layout here; a caller has no others.
    """

    node: OpNode | None
    place: int
    layout: Layout
    makes: bool
    fixed: bool

    @property
    def requirement(self) -> Requirement | None:
        """The requirement of the node's invoker for the operand at this end; None at the caller's
        end.
        """
        return self.node.variant.requirements[self.place] if self.node else None


@dataclass(frozen=True)
class Change:
    """A change that removes a Transform.

    Attributes:
        variants: the new variant of each node that changes.
        moved: the node in ``variants`` that moves to another library; empty if none does.
        cost: additional padded bytes read and written by Transforms, and additional Transforms;
            negative if there are fewer. Times of kernels are not included.
        proven: True if it is proven that no change of the kinds that are tried costs less.
    """

    variants: Mapping[str, Variant]
    moved: str
    cost: Traffic
    proven: bool


@dataclass(frozen=True)
class Alternative:
    """A Transform, its ends, and the cheapest change that removes it.

    Attributes:
        transform: the Transform.
        ends: the end that makes the Transform's input, then the ends that want the Transform's
            output.
        change: the cheapest change; None if no change removes it.
        failed: the solver's error; empty if it had none.
    """

    transform: TransformNode
    ends: tuple[End, ...]
    change: Change | None
    failed: str = ""


def alternatives(graph: LoweredGraph, settings: Settings | None = None) -> Iterator[Alternative]:
    """Yield the alternative of each Transform that runs in every run; each is computed on demand.

    A Transform of a constant runs once, and is skipped. So is a Transform whose input another
    Transform makes, since no node makes its input; no level leaves such chains.
    """
    problem = Problem.of(graph, shared_variants(graph))
    for node in graph.transforms():
        edge = _edge(graph, problem, node)
        if edge is None:
            continue
        ends = tuple(_ends(problem, edge))
        search = _Search(problem, edge, settings or Settings())
        change, failed = None, ""
        try:
            change = search.cheapest(ends)
        except SolverError as error:
            failed = str(error)
        yield Alternative(node, ends, change, failed)


def _edge(graph: LoweredGraph, problem: Problem, node: TransformNode) -> Edge | None:
    """Return the (value, source, target) of a Transform; None if no node or input of the graph
    makes its input, or if no use wants its output.
    """
    if node.input not in problem.uses:
        return None
    layouts = (graph.values[name].layout for name in (node.input, node.output))
    source, target = (problem.same(node.input, layout) for layout in layouts)
    edge = (node.input, source, target)
    return edge if owes(problem, {}, edge) else None


def _ends(problem: Problem, edge: Edge) -> Iterator[End]:
    """Yield the end that makes the value of ``edge``, then the ends that want the value in the
    target layout of ``edge``.
    """
    value, source, target = edge
    maker = problem.nodes.get(problem.makers.get(value, ""))
    place = len(maker.inputs) + maker.outputs.index(value) if maker else 0
    yield End(maker, place, source, True, _fixed(problem, value, maker, place))
    for use in problem.uses[value]:
        if problem.wanted(value, use, 0) == target:
            user = problem.nodes.get(use.node)
            yield End(user, use.place, target, False, _fixed(problem, value, user, use.place))


def _fixed(problem: Problem, value: str, node: OpNode | None, place: int) -> bool:
    """Return whether all variants of ``node`` have one layout at ``place``; True for a caller."""
    variants = problem.variants_of(node.name) if node else ()
    return len({problem.same(value, variant.layouts[place]) for variant in variants}) < 2


@dataclass(frozen=True)
class _Search:
    """The search for changes that remove one Transform, ``edge``."""

    problem: Problem
    edge: Edge
    settings: Settings

    def cheapest(self, ends: tuple[End, ...]) -> Change | None:
        """Return the cheapest change that removes the Transform; None if no change does.

        If several are cheapest, it is one that moves no node to another library, if there is one.

        Args:
            ends: the ends of the Transform.
        """
        fixed = dict.fromkeys(end.node.name for end in ends if end.node and end.fixed)
        changes = [self._change(name) for name in ("", *fixed)]
        possible = [change for change in changes if change is not None]
        return min(possible, key=lambda change: change.cost, default=None)

    def _change(self, moved: str) -> Change | None:
        """Return the cheapest change in which no node leaves its library, except perhaps the node
        named ``moved``, if that is not empty.

        None if no such change removes the Transform.
        """
        problem = self._with_others(moved) if moved else self.problem
        if problem is None or not problem.avoidable(self.edge):
            return None
        settings = self.settings
        solution = choose(
            problem, solver=settings.solver, time_limit=settings.time_limit, forbidden=self.edge
        )
        chosen = trimmed(problem, solution.chosen, self.edge)
        variants = {name: problem.variants[name][number] for name, number in chosen.items()}
        on_own_library = (
            moved not in variants or variants[moved].library == problem.nodes[moved].variant.library
        )
        proven = solution.solved.status == "optimal"
        return Change(variants, "" if on_own_library else moved, extra(problem, chosen), proven)

    def _with_others(self, name: str) -> Problem | None:
        """Return the problem with variants of the node ``name`` on other libraries added; None if
        no other library takes the node.
        """
        node, problem = self.problem.nodes[name], self.problem
        others = [
            variant
            for library in other_libraries(self.problem.graph, node, passed=True)
            for variant in Candidates(problem.graph).on(node, library)
        ]
        variants = {**problem.variants, name: (*problem.variants_of(name), *others)}
        in_order = {node: variants[node] for node in problem.nodes if node in variants}
        return replace(problem, variants=in_order) if others else None
