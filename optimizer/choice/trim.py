"""The part of a choice that is needed to remove a Transform: the choice without needless changes of
variants.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from optimizer.choice.problem import Edge, Problem, Traffic


def trimmed(problem: Problem, chosen: Mapping[str, int], edge: Edge) -> dict[str, int]:
    """Return the changes of ``chosen`` that are needed to do without the Transform ``edge``.

    A change is the index, above 0, of a node's new variant. Nodes that share no value do not affect
    one another's cost. So only changes of nodes that are connected with the Transform's value are
    returned. Such a change is left out, too, if without it the choice costs no more and still does
    not need the Transform.

    Args:
        problem: the nodes and their variants.
        chosen: a choice that does not need the Transform: the index of the variant by node.
        edge: the Transform: (value, layout before, layout after).
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
    """Return the names of those inputs and outputs of nodes that are no constants, so that
    Transforms of them may be needed.
    """
    of_names = (problem.nodes[name] for name in nodes)
    return {
        value for node in of_names for value in (*node.inputs, *node.outputs)
    } & problem.uses.keys()


def extra(problem: Problem, chosen: Mapping[str, int]) -> Traffic:
    """Return the cost of a choice minus the cost of the choice in which all nodes run in their
    first variants.

    The result is negative if the choice is cheaper.
    """
    around = values_of(problem, chosen)
    now, then = problem.shared_cost({}, around), problem.shared_cost(chosen, around)
    return Traffic(then.bytes - now.bytes, then.transforms - now.transforms)


def _connected(problem: Problem, nodes: Iterable[str], value: str) -> dict[str, None]:
    """Return those of ``nodes`` that are connected with a value, as keys of a dict, the nearest
    first.

    A node is connected if it makes or reads the value, or shares another value with a connected
    node.
    """
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
