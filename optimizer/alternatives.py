"""What forbids removing a Transform, and what the cheapest change that removes it would cost.

A Transform is removed when its value is no longer made in one layout and wanted in the other. Two
kinds of change are tried: other variants of open nodes; and, beside them, another library for one
node that leaves its end of the Transform no other layout.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from optimizer.candidates import Candidates, other_libraries, shared_variants
from optimizer.ilp import choose
from optimizer.problem import Cost, Edge, Problem
from optimizer.settings import Settings
from optimizer.solver import SolverError
from optimizer.trim import extra, owes, trimmed
from ptensor.evaluation import Requirement, Variant
from ptensor.layout import Layout
from resolver.lowered import LoweredGraph, OpNode, TransformNode
from vtensor.language.records import dataclass, replace


@dataclass(frozen=True)
class End:
    """One end of a Transform.

    Attributes:
        node: who makes its value, or wants it otherwise; None is the caller.
        place: which operand of the node that is, inputs first.
        layout: how it lies there.
        makes: it is the end that makes the value.
        fixed: the node has it so in each of its variants; a caller always has.
    """

    node: OpNode | None
    place: int
    layout: Layout
    makes: bool
    fixed: bool

    @property
    def requirement(self) -> Requirement | None:
        """What the node's invoker asked for there."""
        return self.node.variant.requirements[self.place] if self.node else None


@dataclass(frozen=True)
class Change:
    """A change that removes a Transform.

    Attributes:
        variants: the new variant of each node that changes.
        moved: the one among them that goes to another library; empty where none has to.
        cost: padded bytes that Transforms then read and write more, and how many there are more;
            negative where that is less. How fast kernels are is not in it.
        proven: no change of these kinds costs less.
    """

    variants: Mapping[str, Variant]
    moved: str
    cost: Cost
    proven: bool


@dataclass(frozen=True)
class Alternative:
    """A Transform with what stands at its ends.

    Attributes:
        change: the cheapest; None where nothing removes it.
        failed: why the solver does not know; empty where it does.
    """

    transform: TransformNode
    ends: tuple[End, ...]
    change: Change | None
    failed: str = ""


def alternatives(graph: LoweredGraph, settings: Settings | None = None) -> Iterator[Alternative]:
    """The alternative of each Transform that runs each time; sought when it is asked for.

    A Transform of a chain, which no level leaves, stands for no pair of ends and has none.
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
    """What a Transform changes; None where it does not stand between a maker and a user."""
    if node.input not in problem.uses:
        return None
    layouts = (graph.values[name].layout for name in (node.input, node.output))
    source, target = (problem.same(node.input, layout) for layout in layouts)
    edge = (node.input, source, target)
    return edge if owes(problem, {}, edge) else None


def _ends(problem: Problem, edge: Edge) -> Iterator[End]:
    """Who makes the value, then those who want it in the layout of the Transform."""
    value, source, target = edge
    maker = problem.nodes.get(problem.makers.get(value, ""))
    place = len(maker.inputs) + maker.outputs.index(value) if maker else 0
    yield End(maker, place, source, True, _fixed(problem, value, maker, place))
    for use in problem.uses[value]:
        if problem.wanted(value, use, 0) == target:
            user = problem.nodes.get(use.node)
            yield End(user, use.place, target, False, _fixed(problem, value, user, use.place))


def _fixed(problem: Problem, value: str, node: OpNode | None, place: int) -> bool:
    variants = problem.variants_of(node.name) if node else ()
    return len({problem.same(value, variant.layouts[place]) for variant in variants}) < 2


@dataclass(frozen=True)
class _Search:
    """The changes that remove one Transform."""

    problem: Problem
    edge: Edge
    settings: Settings

    def cheapest(self, ends: tuple[End, ...]) -> Change | None:
        """The cheapest change of all; of variants alone where that is as cheap."""
        fixed = dict.fromkeys(end.node.name for end in ends if end.node and end.fixed)
        changes = [self._change(name) for name in ("", *fixed)]
        found = [change for change in changes if change is not None]
        return min(found, key=lambda change: change.cost, default=None)

    def _change(self, moved: str) -> Change | None:
        """The cheapest change of variants, one node's on other libraries among them."""
        problem = self._with_others(moved) if moved else self.problem
        if problem is None or not problem.avoidable(self.edge):
            return None
        settings = self.settings
        found = choose(
            problem, solver=settings.solver, time_limit=settings.time_limit, forbidden=self.edge
        )
        chosen = trimmed(problem, found.chosen, self.edge)
        variants = {name: problem.variants[name][number] for name, number in chosen.items()}
        stays = (
            moved not in variants or variants[moved].library == problem.nodes[moved].variant.library
        )
        proven = found.solved.status == "optimal"
        return Change(variants, "" if stays else moved, extra(problem, chosen), proven)

    def _with_others(self, name: str) -> Problem | None:
        """The problem in which a node may be on another library; None where none takes it."""
        node, problem = self.problem.nodes[name], self.problem
        others = [
            variant
            for library in other_libraries(self.problem.graph, node, passed=True)
            for variant in Candidates(problem.graph).on(node, library)
        ]
        variants = {**problem.variants, name: (*problem.variants_of(name), *others)}
        in_order = {node: variants[node] for node in problem.nodes if node in variants}
        return replace(problem, variants=in_order) if others else None
