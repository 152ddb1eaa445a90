"""Why a Transform cannot be removed, and the cost of the cheapest change that would remove it.

A Transform is needed as long as its value is made in one layout and wanted in another. Two kinds of
change are tried. The first gives other variants to open nodes (nodes with several variants). The
second also moves one node to another library: a node whose variants all have the same layout at the
Transform.
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
    """One end of a Transform: the maker of its input, or a reader of its output.

    Attributes:
        node: the node that makes or reads the value; None if the caller of the session does, for an
            input or output of the graph.
        place: the index of the value among the operands of the node; inputs come first.
        layout: the layout in which the value is made or wanted at this end.
        makes: True at the end that makes the value.
        fixed: True if all variants of the node have this layout for the value. True for the caller.
    """

    node: OpNode | None
    place: int
    layout: Layout
    makes: bool
    fixed: bool

    @property
    def requirement(self) -> Requirement | None:
        """The requirement of the node's invoker for the layout of the value; None if the end is the
        caller of the session.
        """
        return self.node.variant.requirements[self.place] if self.node else None


@dataclass(frozen=True)
class Change:
    """A change that removes a Transform.

    Attributes:
        variants: the new variant of each node that changes.
        moved: the node in ``variants`` that moves to another library; empty if none does.
        cost: the additional bytes, pads included, that Transforms read and write, and the number of
            additional Transforms. They are negative if there are fewer. Times of kernels are not
            included.
        proven: True if no change of the kinds that are tried can cost less.
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
        ends: the end that makes the Transform's input, then the ends that read its output.
        change: the cheapest change; None if no change removes it.
        failed: the error message of the solver; empty if the solver has not failed.
    """

    transform: TransformNode
    ends: tuple[End, ...]
    change: Change | None
    failed: str = ""


def alternatives(graph: LoweredGraph, settings: Settings | None = None) -> Iterator[Alternative]:
    """Yield the alternative of each Transform that is executed in every run. Each is computed when
    it is requested.

    Two kinds of Transforms are skipped. A Transform of a constant is executed only once. A
    Transform may read the output of another Transform, so that no node makes its input; no level
    leaves such chains.
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
    """Return (value, layout before, layout after) of a Transform.

    Returns None if its input is made by neither a node nor the caller, or if no reader wants its
    output.
    """
    if node.input not in problem.uses:
        return None
    layouts = (graph.values[name].layout for name in (node.input, node.output))
    source, target = (problem.same(node.input, layout) for layout in layouts)
    edge = (node.input, source, target)
    return edge if owes(problem, {}, edge) else None


def _ends(problem: Problem, edge: Edge) -> Iterator[End]:
    """Yield the end that makes the value of the Transform ``edge``, then the ends that want the
    value in the layout after the Transform.
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
    """Return whether all variants of ``node`` have the same layout for the operand at index
    ``place``; True if ``node`` is None, the caller.
    """
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
        """Return the cheapest change that removes the Transform; None if no change does.

        All nodes stay on their libraries. Only the node named ``moved``, unless that is empty, may
        move to another one.
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
        """Return the problem with more variants of the node ``name``: those on other libraries.

        Returns None if no other library can run the node.
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
