"""The part of a choice that removes a Transform, without needless changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from optimizer.choice.problem import Edge, Problem, Traffic


def trimmed(problem: Problem, chosen: Mapping[str, int], edge: Edge) -> dict[str, int]:
    """Return the changes of a choice that are needed to remove the Transform ``edge``, by node.

    Nodes that share no value do not affect one another's cost, so only nodes connected with the
    edge's value remain. Of these, a node returns to its first variant if that costs no more.
    """
    changed = {node: number for node, number in chosen.items() if number}
    kept = {node: changed[node] for node in _connected(problem, changed, edge[0])}
    for node in reversed(kept):
        without = {name: number for name, number in kept.items() if name != node}
        around = values_of(problem, [node])
        cheap = problem.shared_cost(without, around) <= problem.shared_cost(kept, around)
        if cheap and not owes(problem, without, edge):
            kept = without
    return kept


def owes(problem: Problem, chosen: Mapping[str, int], edge: Edge) -> bool:
    """Return whether a choice of variants needs the Transform ``edge``."""
    return any((v, s, t) == edge for v, s, t, _ in problem.edges(chosen, edge[:1]))


def values_of(problem: Problem, nodes: Iterable[str]) -> set[str]:
    """Return the values of nodes on which there may be Transforms."""
    of_names = (problem.nodes[name] for name in nodes)
    return {
        value for node in of_names for value in (*node.inputs, *node.outputs)
    } & problem.uses.keys()


def extra(problem: Problem, chosen: Mapping[str, int]) -> Traffic:
    """Return the cost of a choice minus that of the first variants; negative if it is cheaper."""
    around = values_of(problem, chosen)
    now, then = problem.shared_cost({}, around), problem.shared_cost(chosen, around)
    return Traffic(then.bytes - now.bytes, then.transforms - now.transforms)


def _connected(problem: Problem, nodes: Iterable[str], value: str) -> dict[str, None]:
    """Return the nodes connected with a value by shared values, the nearest first."""
    connected: dict[str, None] = {}
    values, pending = {value}, dict.fromkeys(nodes)
    while adjacent := [
        node for node in pending if not values.isdisjoint(values_of(problem, [node]))
    ]:
        for node in adjacent:
            del pending[node]
            connected[node] = None
        values = values_of(problem, adjacent)
    return connected
