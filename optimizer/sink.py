"""A Transform moves to after a node, or to before it, if that costs less.

A node that a Transform can pass has variants for both layouts of the Transform. No operator is
named here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from optimizer.choice.candidates import shared_variants
from optimizer.choice.problem import Problem
from optimizer.remake import remade
from optimizer.settings import Settings
from resolver.lowered import LoweredGraph, OpNode

#: A function that returns whether a pass may choose a variant for a node. Its arguments: the
#: problem, the node, the present choice, the index of the variant.
Fits = Callable[[Problem, OpNode, dict[str, int], int], bool]


def sink(graph: LoweredGraph, settings: Settings) -> LoweredGraph:  # noqa: ARG001
    """f(T(v)) = T(f(v)), if that is cheaper; nodes are tried in running order."""
    return _with_improvements(graph, _takes_what_comes, downwards=True)


def rise(graph: LoweredGraph, settings: Settings) -> LoweredGraph:  # noqa: ARG001
    """T(f(v, w)) = f(T(v), T(w)), if that is cheaper; nodes are tried in reverse order."""
    return _with_improvements(graph, _makes_what_is_wanted, downwards=False)


def _with_improvements(graph: LoweredGraph, fits: Fits, downwards: bool) -> LoweredGraph:
    """Change the variant of one node after another as long as the cost falls. Return the new graph.

    The cost is (bytes, number of Transforms). Each change lowers it, so the pass ends.

    Args:
        graph: the lowered graph; it is not changed.
        fits: returns whether a node may get a variant; its arguments are those of ``Fits``.
        downwards: True visits the nodes in running order, False in reverse order.
    """
    settled = graph.certificate is not None and graph.certificate.settled
    if settled or not any(graph.transforms()):
        return graph
    problem = Problem.of(graph, shared_variants(graph))
    nodes = [node for name, node in problem.nodes.items() if name in problem.variants]
    order = nodes if downwards else nodes[::-1]
    chosen: dict[str, int] = {}
    while sum(_improved(problem, node, chosen, fits) for node in order):
        pass
    return remade(graph, problem, chosen) if chosen else graph


def _improved(problem: Problem, node: OpNode, chosen: dict[str, int], fits: Fits) -> bool:
    """Choose the cheapest fitting variant of a node; return whether the choice has changed.

    Args:
        problem: the nodes and their variants.
        node: the node.
        chosen: the present choice: the index of the variant by node. The new variant is set in it.
        fits: returns whether a node may get a variant; its arguments are those of ``Fits``.
    """
    around: Iterable[str] = {*node.inputs, *node.outputs} & problem.uses.keys()
    current = chosen.get(node.name, 0)
    numbers = range(len(problem.variants[node.name]))
    costs = {
        number: problem.shared_cost({**chosen, node.name: number}, around)
        for number in numbers
        if number == current or fits(problem, node, chosen, number)
    }
    best = min(costs, key=lambda number: (costs[number], number != current))
    if costs[best] < costs[current]:
        chosen[node.name] = best
        return True
    return False


def _takes_what_comes(problem: Problem, node: OpNode, chosen: dict[str, int], number: int) -> bool:
    """Return whether the node's variant with index ``number`` reads some input in the layout in
    which the choice ``chosen`` makes that input.
    """
    changed = {**chosen, node.name: number}
    ends = problem.edges(changed, node.inputs)
    return any(use.node == node.name and made == wanted for _, made, wanted, use in ends)


def _makes_what_is_wanted(
    problem: Problem, node: OpNode, chosen: dict[str, int], number: int
) -> bool:
    """Return whether the node's variant with index ``number`` makes some output in a layout in
    which the choice ``chosen`` wants it.
    """
    changed = {**chosen, node.name: number}
    return any(made == wanted for _, made, wanted, _ in problem.edges(changed, node.outputs))
