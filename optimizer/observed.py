"""The values at which a network's error counts.

An output's error counts at the output, but in front of a closing operator that stretches errors,
such as one of exponentials, at what that reads. Where a result jumps (an index, a truth value, a
whole number), its error says nothing: that of what it was decided by counts.
"""

from __future__ import annotations

from collections.abc import Iterator

from vtensor.language.graph import Graph, Node
from vtensor.language.operators import info_of
from vtensor.language.traits import VIEWS, Jumps, Stretches


def observed(graph: Graph) -> tuple[str, ...]:
    """Names of the values at which errors count: floating-point numbers that data decides."""
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
    found = (_behind(graph, makers, n) for n in [*ends, *(n for n in deciding if n in needed)])
    return tuple(dict.fromkeys(name for name in found if name in varying))


def _jumps(graph: Graph, node: Node) -> bool:
    """A small difference of what a node reads may be any difference of what it makes."""
    whole = not all(_is_float(graph, name) for name in node.outputs)
    floats = any(_is_float(graph, name) for name in node.inputs)
    return info_of(node.op).trait(Jumps) is not None or (whole and floats)


def _behind(graph: Graph, makers: dict[str, Node], name: str) -> str:
    """What a value is made of by operators that stretch errors, and by views of them."""
    seen = name
    while (node := makers.get(seen)) is not None:
        info = info_of(node.op)
        stretches = info.trait(Stretches) is not None
        if not (stretches or info.structural in VIEWS) or not _is_float(graph, node.inputs[0]):
            break
        seen = node.inputs[0]
        name = seen if stretches else name  # a view alone is as good as what it looks at
    return name


def _varying(graph: Graph) -> set[str]:
    """Values that are made from inputs."""
    found = set(graph.inputs)
    for node in graph.nodes.values():
        if not found.isdisjoint(node.inputs):
            found.update(node.outputs)
    return found - set(graph.inputs)


def _needed(graph: Graph) -> set[str]:
    """Values that some output depends on."""
    found = set(graph.outputs.values())
    for node in reversed(graph.nodes.values()):
        if not found.isdisjoint(node.outputs):
            found.update(node.inputs)
    return found


def _is_float(graph: Graph, name: str) -> bool:
    return graph.values[name].dtype[0] in "fbc" and graph.values[name].dtype != "bool"


def without_observed(graph: Graph, names: tuple[str, ...]) -> Iterator[tuple[str, list[Node]]]:
    """Offers of fusion in which none of these values passes inside, by lead."""
    for lead, behind in graph.offers.items():
        kept: list[Node] = []
        made = set(graph.nodes[lead].outputs)
        for node in behind:
            if not made.isdisjoint(names):
                break
            kept.append(node)
            made = set(node.outputs)
        yield lead, kept
