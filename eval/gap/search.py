"""Solvers that search: a beam over partial choices, and dynamic programming on trees."""

from __future__ import annotations

from heapq import nsmallest
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from eval.gap.problem import Measure, Problem
from eval.gap.score import Solution

Costs = NDArray[np.float64]


class _State(NamedTuple):
    """A choice for the nodes so far.

    Attributes:
        cost: the cost so far.
        made: the layouts of values that are still to be read.
        converted: the conversions of these values that are paid.
        chosen: the alternative of the last node, and the ``chosen`` of the state before.
    """

    cost: float
    made: dict[str, str]
    converted: frozenset[tuple[str, str]]
    chosen: tuple[int, object] | None


def beam(problem: Problem, measure: Measure = "bytes", width: int = 64) -> Solution:
    """Extend partial choices node by node in topological order; keep the ``width`` cheapest.

    Conversions are paid when a node reads the value, once per layout. Of equal costs, earlier
    alternatives are kept.

    Simplified: torch-spyre counts a conversion by the elements of the value. Its later versions
    merge states that differ only in values that nobody reads any more, and add a lower bound of
    what is to come (pull request 3291); this is the first version (pull request 1979).

    Source: torch-spyre, optimize_restickify.py, 2026.
    """
    last = {value: node.name for node in problem.nodes for value in node.reads}
    last.update((value, "") for value, _ in problem.outputs)
    states = [_State(0, dict(problem.given), frozenset(), None)]
    for node in problem.nodes:
        dead = {value for value in (*node.reads, *node.writes) if last.get(value) == node.name}
        extended = list[tuple[float, int, int]]()
        for index, state in enumerate(states):
            for number, alternative in enumerate(node.alternatives):
                cost = state.cost + alternative.cost(measure)
                for value, layout in dict.fromkeys(zip(node.reads, alternative.reads, strict=True)):
                    if (value, layout) not in state.converted:
                        cost += problem.conversion(value, state.made[value], layout, measure)
                extended.append((cost, index, number))
        survivors = list[_State]()
        for cost, index, number in nsmallest(width, extended):
            state, alternative = states[index], node.alternatives[number]
            made = {v: layout for v, layout in state.made.items() if v not in dead}
            made.update(
                (v, w) for v, w in zip(node.writes, alternative.writes, strict=True) if v in last
            )
            read = zip(node.reads, alternative.reads, strict=True)
            kept = {edge for edge in (*state.converted, *read) if edge[0] not in dead}
            survivors.append(_State(cost, made, frozenset(kept), (number, state.chosen)))
        states = survivors

    def end(state: _State) -> float:
        left = (edge for edge in dict.fromkeys(problem.outputs) if edge not in state.converted)
        return state.cost + sum(problem.conversion(v, state.made[v], w, measure) for v, w in left)

    numbers, chosen = list[int](), min(states, key=end).chosen
    while chosen is not None:
        number, chosen = chosen  # type: ignore[assignment]
        numbers.append(number)
    names = (node.name for node in problem.nodes)
    return Solution(dict(zip(names, reversed(numbers), strict=True)))


def tree_programming(problem: Problem, measure: Measure = "bytes") -> Solution:
    """Minimise the sum of costs of nodes and of edges between two nodes by dynamic programming.

    A node with one neighbour is folded into it: for each alternative of the neighbour, the best of
    the node is added to its costs. On a tree this is exact. Where each node has two neighbours or
    more, a node with two is folded into the edge between them, which is exact, too; else the node
    with the most neighbours takes the alternative that is cheapest with the best of each neighbour
    (the approximation by PBQP). Nodes are decided in the opposite order.

    Simplified: a conversion counts for each edge by itself, as in NeoCPU, so that those that
    readers share are counted several times.

    Source: Liu et al., "Optimizing CNN Model Inference on CPUs" (NeoCPU), USENIX ATC 2019,
    section 3.3.2; Scholz and Eckstein, "Register allocation for irregular architectures", 2002.
    """
    costs, edges = _pairwise(problem, measure)
    open_nodes, removed = dict.fromkeys(costs), list[tuple[str, dict[str, Costs]]]()
    choice = dict[str, int]()
    while open_nodes:
        few = min(open_nodes, key=lambda name: len(edges[name]))
        if len(edges[few]) > 2:  # no exact reduction is left
            few = max(open_nodes, key=lambda name: len(edges[name]))
        around = edges.pop(few)
        del open_nodes[few]
        for other in around:
            del edges[other][few]
        if len(around) > 2:
            ahead = [(c + costs[other]).min(axis=1) for other, c in around.items()]
            choice[few] = best = int((costs[few] + sum(ahead)).argmin())
            for other, matrix in around.items():
                costs[other] = costs[other] + matrix[best]
            continue
        removed.append((few, around))
        if len(around) == 1:
            [(other, matrix)] = around.items()
            costs[other] = costs[other] + (costs[few][:, None] + matrix).min(axis=0)
        elif around:
            (left, a), (right, b) = around.items()
            folded = (costs[few][:, None, None] + a[:, :, None] + b[:, None, :]).min(axis=0)
            edges[left][right] = edges[left].get(right, 0) + folded
            edges[right][left] = edges[right].get(left, 0) + folded.T
    for name, around in reversed(removed):
        total = costs[name] + sum(matrix[:, choice[other]] for other, matrix in around.items())
        choice[name] = int(total.argmin())
    return Solution(choice)


def _pairwise(
    problem: Problem, measure: Measure
) -> tuple[dict[str, Costs], dict[str, dict[str, Costs]]]:
    """Return the costs of each node's alternatives, and of each pair of alternatives of two nodes
    of which one reads what the other makes. Conversions of inputs and outputs count to the node.
    """
    rows = {n.name: [a.cost(measure) for a in n.alternatives] for n in problem.nodes}
    costs = {name: np.array(row, float) for name, row in rows.items()}
    edges: dict[str, dict[str, Costs]] = {node.name: {} for node in problem.nodes}
    for value, readers in problem.readers.items():
        maker, place = problem.makers.get(value, (None, 0))
        sources = [a.writes[place] for a in maker.alternatives] if maker else [problem.given[value]]
        for node, at, layout in readers:
            targets = [a.reads[at] for a in node.alternatives] if node else [layout]
            matrix = np.array(
                [[problem.conversion(value, s, t, measure) for t in targets] for s in sources],
                float,
            )
            if maker and node:
                ahead, back = edges[maker.name], edges[node.name]
                ahead[node.name] = ahead.get(node.name, 0) + matrix
                back[maker.name] = back.get(maker.name, 0) + matrix.T
            elif node:
                costs[node.name] += matrix[0]
            elif maker:
                costs[maker.name] += matrix[:, 0]
    return costs, edges
