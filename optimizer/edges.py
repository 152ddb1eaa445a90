"""Who uses what in a lowered graph, and Transforms put into one another's place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from resolver.lowered import LoweredGraph, LoweredNode, TransformNode
from vtensor.language.records import replace

#: A node that reads a value, or the name under which the value is delivered.
User = LoweredNode | str


def users(graph: LoweredGraph) -> dict[str, list[User]]:
    """Of each value: the nodes that read it, once for each time, and the outputs that it is."""
    found: dict[str, list[User]] = {name: [] for name in graph.values}
    for node in graph.nodes:
        for name in node.inputs:
            found[name].append(node)
    for alias, name in graph.outputs.items():
        found[name].append(alias)
    return found


def transforms_of(graph: LoweredGraph) -> dict[str, list[TransformNode]]:
    """Of each value: the Transforms that read it."""
    found: dict[str, list[TransformNode]] = {}
    for node in graph.nodes:
        if isinstance(node, TransformNode):
            found.setdefault(node.input, []).append(node)
    return found


def merged(graph: LoweredGraph, groups: Iterable[Sequence[TransformNode]]) -> LoweredGraph:
    """Of each group of equal Transforms of one value, the first, directly after its producer."""
    first: dict[str, TransformNode] = {}  # by value: what is to stand behind its producer
    placed: dict[str, list[TransformNode]] = {}
    renamed: dict[str, str] = {}
    gone: set[str] = set()
    for group in groups:
        kept, *others = group
        reasons = tuple(reason for node in others for reason in node.reasons)
        first[kept.name] = replace(kept, more=(*kept.more, *reasons))
        placed.setdefault(kept.input, []).append(first[kept.name])
        renamed |= {other.output: kept.output for other in others}
        gone |= {node.name for node in group}
    made = {name for node in graph.nodes for name in node.outputs}
    nodes: list[LoweredNode] = [t for name in placed if name not in made for t in placed[name]]
    for node in graph.nodes:
        if node.name not in gone:
            nodes.append(node)
            nodes += [t for name in node.outputs for t in placed.get(name, ())]
    return rewired(replace(graph, nodes=nodes), renamed)


def rewired(graph: LoweredGraph, renamed: Mapping[str, str]) -> LoweredGraph:
    """Every use of a value that is gone reads another instead; values that nobody makes go."""

    def name_of(name: str) -> str:
        while name in renamed:
            name = renamed[name]
        return name

    nodes: list[LoweredNode] = []
    for node in graph.nodes:
        if renamed.keys().isdisjoint(node.inputs):
            nodes.append(node)
        elif isinstance(node, TransformNode):
            nodes.append(replace(node, input=name_of(node.input)))
        else:
            nodes.append(replace(node, inputs=tuple(map(name_of, node.inputs))))
    return replace(
        graph,
        nodes=nodes,
        values={name: value for name, value in graph.values.items() if name not in renamed},
        outputs={alias: name_of(name) for alias, name in graph.outputs.items()},
    )
