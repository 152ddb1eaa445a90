"""Solvers that follow a rule: one pass over the nodes, or one comparison of two layouts.

Each takes a problem and the measure to minimise, and returns a solution. Rules that look at no cost
ignore the measure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from eval.gap.problem import Alternative, Measure, Node, Problem
from eval.gap.score import Solution, score


def producer_wins(problem: Problem, measure: Measure = "bytes") -> Solution:  # noqa: ARG001
    """Let each node take the layout in which its producer made the value, unless its library wants
    another; convert on each edge by itself.

    The resolver has run this rule: its choice is the first alternative of each node.

    Source: the paper, section 5.1, Algorithm 1.
    """
    return Solution({}, _every_edge(problem, {}))


def hoisted(problem: Problem, measure: Measure = "bytes") -> Solution:  # noqa: ARG001
    """Do as ``producer_wins``, then merge the conversions behind a branch (LHO).

    They are merged if all readers of the value need a conversion into the same layout.

    Source: the paper, section 5.2, Fig. 4.
    """
    return Solution({}, hoist(problem, {}))


def hoist(problem: Problem, choice: Mapping[str, int]) -> dict[tuple[str, str], int]:
    """Return how often each conversion of a choice runs after layout hoisting (LHO)."""
    repeats = _every_edge(problem, choice)
    for value, layout in repeats:
        if all(problem.wanted(reader, choice) == layout for reader in problem.readers[value]):
            repeats[value, layout] = 1
    return repeats


def _every_edge(problem: Problem, choice: Mapping[str, int]) -> dict[tuple[str, str], int]:
    """Return how often each conversion runs if no two readers share one."""
    counts = Counter[tuple[str, str]]()
    for value, readers in problem.readers.items():
        if readers:
            made = problem.made(value, choice)
            counts.update((value, w) for r in readers if (w := problem.wanted(r, choice)) != made)
    return dict(counts)


def push_transposes(problem: Problem, measure: Measure = "bytes") -> Solution:
    """Push the conversions before a node through it where that costs no more.

    Nodes are visited once, in topological order. A node with a converted input may take that input
    as it is made. It does if the conversions around it and its kernel then cost no more than
    before. Convolutions and matrix products stay: ONNX Runtime moves Transposes through other
    nodes only.

    Simplified: ONNX Runtime pushes only where a later Transpose may cancel, ranks costs by the
    number of dims instead of bytes, and runs the pass again after other passes.

    Source: ONNX Runtime, core/optimizer/transpose_optimization.
    """
    choice = dict.fromkeys((node.name for node in problem.nodes), 0)
    for node in problem.nodes:
        if node.kind == "product":
            continue
        now = node.alternatives[0]
        made = [problem.made(value, choice) for value in node.reads]
        pushed = [
            number
            for number, other in enumerate(node.alternatives)
            if any(m == r != n for m, r, n in zip(made, other.reads, now.reads, strict=True))
        ]
        costs = {n: around(problem, node, choice | {node.name: n}, measure) for n in pushed}
        best = min(pushed, key=costs.__getitem__, default=0)
        if costs.get(best, 0) <= around(problem, node, choice, measure):
            choice[node.name] = best
    return Solution(choice)


def around(problem: Problem, node: Node, choice: Mapping[str, int], measure: Measure) -> float:
    """Return the cost of a node's kernel and of all conversions of values that it reads or writes.

    A conversion is counted once for all its readers.
    """
    total = node.alternatives[choice.get(node.name, 0)].cost(measure)
    for value in dict.fromkeys((*node.reads, *node.writes)):
        made = problem.made(value, choice)
        wanted = {problem.wanted(reader, choice) for reader in problem.readers[value]}
        total += sum(problem.conversion(value, made, layout, measure) for layout in wanted)
    return total


def one_layout(problem: Problem, measure: Measure = "bytes") -> Solution:
    """Bring the whole network into declared order, and into channels last; take the better one.

    Each node takes the alternative with the most operands in the layout, and of equal ones the one
    that costs least.

    Simplified: Grappler decides by the share of convolutions with which layout, and MIGraphX by
    counting conversions, before kernels are chosen; here the score decides.

    Source: AMD MIGraphX, pull request 5040; TensorFlow, generic_layout_optimizer.cc.
    """
    both = [
        Solution({node.name: _most(problem, node, last, measure) for node in problem.nodes})
        for last in (False, True)
    ]
    return min(both, key=lambda solution: getattr(score(problem, solution), measure))


def _most(problem: Problem, node: Node, last: bool, measure: Measure) -> int:
    """Return the alternative of a node with the most operands in one layout: with channels last if
    ``last``, else in declared order.
    """
    tensors = [problem.values[name] for name in (*node.reads, *node.writes)]
    goal = [tensor.channels_last if last else tensor.plain for tensor in tensors]

    def key(number: int) -> tuple[float, ...]:
        layouts = _layouts(node.alternatives[number])
        hits = sum(have == want for have, want in zip(layouts, goal, strict=True))
        return -hits, node.alternatives[number].cost(measure), node.alternatives[number].ns

    return min(range(len(node.alternatives)), key=key)


def _layouts(alternative: Alternative) -> tuple[str, ...]:
    return (*alternative.reads, *alternative.writes)


def channels_last(problem: Problem, measure: Measure = "bytes") -> Solution:
    """Run convolutions and matrix products with channels last wherever a kernel can; let all other
    nodes follow the layout in which their inputs are made.

    Of several alternatives that follow equally many inputs, the fastest is taken.

    Simplified: inductor does so only for networks that its count of channels calls profitable, and
    generates its own kernels for all nodes but the former.

    Source: PyTorch, torch/_inductor/graph.py, decide_layout_opt.
    """
    choice = dict[str, int]()
    for node in problem.nodes:
        if node.kind == "product":
            choice[node.name] = _most(problem, node, True, measure)
            continue
        made = [problem.made(value, choice) for value in node.reads]

        def key(number: int, node: Node = node, made: list[str] = made) -> tuple[float, ...]:
            other = node.alternatives[number]
            hits = sum(have == want for have, want in zip(other.reads, made, strict=True))
            return -hits, other.ns

        choice[node.name] = min(range(len(node.alternatives)), key=key)
    return Solution(choice)
