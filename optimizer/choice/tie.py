"""Ties: nodes whose variant can be derived from the variant of the node before.

A tied node needs no variables of its own, which makes the integer program smaller.
"""

from __future__ import annotations

from optimizer.choice.problem import Problem
from resolver.lowered import OpNode

#: The tie of a node v to a node u: the name of u; and for the index of each variant of v, the index
#: of the variant of u that goes with it.
Tie = tuple[str, list[int]]


def ties(problem: Problem, untied: str = "") -> dict[str, Tie]:
    """Return, by node, ties that leave some cheapest choice possible.

    A node v is tied to a node u under these conditions:

    - v has one input that is no constant: u's output, which nothing else reads;
    - variants of u and v correspond one to one: u makes the output in the layout that v wants;
    - u's output has equally many bytes in all layouts, as has v's output, and v's has no more;
    - where time is minimised, v takes as long in each of its variants, and no more noise is charged
      on v's output than on u's.

    A choice with a Transform between u and v is then no cheaper than the same choice with v in u's
    layout: the latter saves this Transform and needs at most one more, of v's output.

    Args:
        problem: the nodes and their variants.
        untied: a value of which a Transform is forbidden: nodes that make or read it are not tied.
    """
    tied: dict[str, Tie] = {}
    for name in problem.variants:
        node = problem.nodes[name]
        tie = _tie(problem, node)
        if tie is not None and untied not in (*node.inputs, *node.outputs):
            tied[name] = tie
    return tied


def _tie(problem: Problem, node: OpNode) -> Tie | None:
    """Return the tie of a node to the node that makes its input; None if a condition of ``ties``
    does not hold.
    """
    inputs = [value for value in node.inputs if not problem.value(value).constant]
    if len(inputs) != 1 or len(node.outputs) != 1:
        return None
    [value] = inputs
    maker = problem.makers.get(value, "")
    if maker not in problem.variants or len(problem.uses[value]) != 1:
        return None
    [use] = problem.uses[value]
    sources = [problem.made(value, number) for number in range(len(problem.variants[maker]))]
    numbers = range(len(problem.variants[node.name]))
    wanted = [problem.wanted(value, use, number) for number in numbers]
    if (
        len(set(sources)) < len(sources)
        or len(set(wanted)) < len(wanted)
        or set(sources) != set(wanted)
    ):
        return None
    if problem.clock and len({problem.charged(node.name, number) for number in numbers}) > 1:
        return None
    if problem.doubt(node.outputs[0]) > problem.doubt(value):
        return None
    before, after = _sizes(problem, value), _sizes(problem, node.outputs[0])
    if len(before) > 1 or len(after) > 1 or max(after) > max(before):
        return None
    return maker, [sources.index(layout) for layout in wanted]


def _sizes(problem: Problem, value: str) -> set[int]:
    """Return the numbers of bytes that a value has in all layouts in which it may be made or
    wanted.
    """
    variants = problem.variants
    layouts = [problem.made(value, i) for i in range(len(variants.get(problem.makers[value], [0])))]
    for use in problem.uses.get(value, ()):
        layouts += [problem.wanted(value, use, i) for i in range(len(variants.get(use.node, [0])))]
    tensor = problem.value(value)
    return {layout.nbytes(tensor.dims, tensor.dtype) for layout in layouts}
