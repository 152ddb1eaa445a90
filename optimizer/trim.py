"""The part of a choice that removes a Transform, without what is changed for nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from optimizer.problem import Cost, Edge, Problem


def trimmed(problem: Problem, chosen: Mapping[str, int], edge: Edge) -> dict[str, int]:
    """The variants that must change, by node; at the same cost, or less of what is saved elsewhere.

    Nodes that share no value do not touch one another's cost, so only those remain that hang
    together with the edge's value. Of them, a node goes back to its own if that costs no more.
    """
    changed = {node: number for node, number in chosen.items() if number}
    kept = {node: changed[node] for node in _connected(problem, changed, edge[0])}
    for node in reversed(kept):
        back = {one: number for one, number in kept.items() if one != node}
        around = values_of(problem, [node])
        cheap = problem.shared_cost(back, around) <= problem.shared_cost(kept, around)
        if cheap and not owes(problem, back, edge):
            kept = back
    return kept


def owes(problem: Problem, chosen: Mapping[str, int], edge: Edge) -> bool:
    """A choice of variants needs this Transform."""
    return any((v, s, t) == edge for v, s, t, _ in problem.edges(chosen, edge[:1]))


def values_of(problem: Problem, nodes: Iterable[str]) -> set[str]:
    """The values that nodes make or want and on which Transforms may stand."""
    found = (problem.nodes[name] for name in nodes)
    return {
        value for node in found for value in (*node.inputs, *node.outputs)
    } & problem.uses.keys()


def extra(problem: Problem, chosen: Mapping[str, int]) -> Cost:
    """What a choice costs more than the variants that the nodes have; less where it is negative."""
    around = values_of(problem, chosen)
    now, then = problem.shared_cost({}, around), problem.shared_cost(chosen, around)
    return Cost(then.bytes - now.bytes, then.transforms - now.transforms)


def _connected(problem: Problem, nodes: Iterable[str], value: str) -> dict[str, None]:
    """The nodes that share a value with each other and with this one, the nearest first."""
    found: dict[str, None] = {}
    values, left = {value}, dict.fromkeys(nodes)
    while adjacent := [node for node in left if not values.isdisjoint(values_of(problem, [node]))]:
        for node in adjacent:
            del left[node]
            found[node] = None
        values = values_of(problem, adjacent)
    return found
