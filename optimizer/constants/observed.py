"""The observed values: the values of a network at which its error is measured.

- The error of an output is measured at the output itself.
- If the last operator stretches errors, as exponentials do, it is measured at that operator's
  input.
- The error of a result that jumps (an index, a truth value, a whole number) has no meaning. Errors
  are then measured at the values that decide the result.
"""

from __future__ import annotations

from collections.abc import Iterator

from vtensor.language.graph import Graph, Node
from vtensor.language.operators import info_of
from vtensor.language.traits import VIEWS, Jumps, Stretches


def observed(graph: Graph) -> tuple[str, ...]:
    """Return the names of the values at which errors are measured.

    Each is a floating-point value that depends on inputs.
    """
    makers = {name: node for node in graph.nodes.values() for name in node.outputs}
    varying = _varying(graph)
    after_jump, deciding = set[str](), list[str]()
    for node in graph.nodes.values():
        read = [name for name in node.inputs if name in varying]
        if not after_jump.isdisjoint(read):
            after_jump.update(node.outputs)
        elif _jumps(graph, node) and read:
            after_jump.update(node.outputs)
            deciding += [name for name in read if _is_float(graph, name)]
    ends = [name for name in graph.outputs.values() if name in varying - after_jump]
    needed = _needed(graph)
    values = (
        _before_stretching(graph, makers, n) for n in [*ends, *(n for n in deciding if n in needed)]
    )
    return tuple(dict.fromkeys(name for name in values if name in varying))


def _jumps(graph: Graph, node: Node) -> bool:
    """Return whether a small difference in a node's input can make any difference in its output."""
    whole = not all(_is_float(graph, name) for name in node.outputs)
    floats = any(_is_float(graph, name) for name in node.inputs)
    return info_of(node.op).trait(Jumps) is not None or (whole and floats)


def _before_stretching(graph: Graph, makers: dict[str, Node], name: str) -> str:
    """Return the value at which the error of the value ``name`` is measured.

    It is the value before the operators that stretch errors (as exponentials do) and make ``name``;
    views among them are passed over. It is ``name`` itself if there is no such operator.

    Args:
        graph: the graph.
        makers: the node that makes a value, by value.
        name: the value.
    """
    current = name
    while (node := makers.get(current)) is not None:
        info = info_of(node.op)
        stretches = info.trait(Stretches) is not None
        if not (stretches or info.structural in VIEWS) or not _is_float(graph, node.inputs[0]):
            break
        current = node.inputs[0]
        name = current if stretches else name  # views alone do not change the error
    return name


def _varying(graph: Graph) -> set[str]:
    """Return the names of the values that nodes compute from inputs of the graph."""
    values = set(graph.inputs)
    for node in graph.nodes.values():
        if not values.isdisjoint(node.inputs):
            values.update(node.outputs)
    return values - set(graph.inputs)


def _needed(graph: Graph) -> set[str]:
    """Return the names of the values that outputs of the graph depend on, outputs included."""
    values = set(graph.outputs.values())
    for node in reversed(graph.nodes.values()):
        if not values.isdisjoint(node.outputs):
            values.update(node.inputs)
    return values


def _is_float(graph: Graph, name: str) -> bool:
    return graph.values[name].dtype[0] in "fbc" and graph.values[name].dtype != "bool"


def without_observed(graph: Graph, names: tuple[str, ...]) -> Iterator[tuple[str, list[Node]]]:
    """Yield (lead, followers) for each lead, a node to which following nodes may be fused.

    The followers end before the first one whose fusion would put a value of ``names`` inside the
    fused node.
    """
    for lead, behind in graph.offers.items():
        kept: list[Node] = []
        outputs = set(graph.nodes[lead].outputs)
        for node in behind:
            if not outputs.isdisjoint(names):
                break
            kept.append(node)
            outputs = set(node.outputs)
        yield lead, kept
