"""The uses of values in a lowered graph, and Transforms that replace equal ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from resolver.lowered import LoweredGraph, LoweredNode, TransformNode
from vtensor.language.records import replace

#: A node that reads a value, or the name under which the value is delivered.
User = LoweredNode | str


def users(graph: LoweredGraph) -> dict[str, list[User]]:
    """Map each value to the nodes that read it, once for each input, and to outputs that it is."""
    uses: dict[str, list[User]] = {name: [] for name in graph.values}
    for node in graph.nodes:
        for name in node.inputs:
            uses[name].append(node)
    for alias, name in graph.outputs.items():
        uses[name].append(alias)
    return uses


def transforms_of(graph: LoweredGraph) -> dict[str, list[TransformNode]]:
    """Map each value that Transforms read to these Transforms."""
    transforms: dict[str, list[TransformNode]] = {}
    for node in graph.nodes:
        if isinstance(node, TransformNode):
            transforms.setdefault(node.input, []).append(node)
    return transforms


def merged(graph: LoweredGraph, groups: Iterable[Sequence[TransformNode]]) -> LoweredGraph:
    """Replace each group of equal Transforms by its first one, next to the value's producer."""
    placed: dict[str, list[TransformNode]] = {}  # by value: to stand after its producer
    renamed: dict[str, str] = {}
    removed: set[str] = set()
    for group in groups:
        kept, *others = group
        reasons = tuple(reason for node in others for reason in node.reasons)
        merged_node = replace(kept, more=(*kept.more, *reasons))
        placed.setdefault(kept.input, []).append(merged_node)
        renamed |= {other.output: kept.output for other in others}
        removed |= {node.name for node in group}
    produced = {name for node in graph.nodes for name in node.outputs}
    nodes: list[LoweredNode] = [t for name in placed if name not in produced for t in placed[name]]
    for node in graph.nodes:
        if node.name not in removed:
            nodes.append(node)
            nodes += [t for name in node.outputs for t in placed.get(name, ())]
    return rewired(replace(graph, nodes=nodes), renamed)


def rewired(graph: LoweredGraph, renamed: Mapping[str, str]) -> LoweredGraph:
    """Let uses of each value in ``renamed`` read the value it maps to, and drop the former."""

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
