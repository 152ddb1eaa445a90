"""The uses of values in a lowered graph, and Transforms that replace equal ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from resolver.lowered import LoweredGraph, LoweredNode, TransformNode
from vtensor.language.records import replace

#: A user of a value: a node that reads it, or the name of the graph's output that it is.
User = LoweredNode | str


def users(graph: LoweredGraph) -> dict[str, list[User]]:
    """Return the users of each value, by value: the nodes that read it, a node once for each such
    input.

    For a value that is an output of the graph, the name of the output is a user as well.
    """
    uses: dict[str, list[User]] = {name: [] for name in graph.values}
    for node in graph.nodes:
        for name in node.inputs:
            uses[name].append(node)
    for alias, name in graph.outputs.items():
        uses[name].append(alias)
    return uses


def transforms_of(graph: LoweredGraph) -> dict[str, list[TransformNode]]:
    """Return the Transforms of each value that has some, by name of the value."""
    transforms: dict[str, list[TransformNode]] = {}
    for node in graph.nodes:
        if isinstance(node, TransformNode):
            transforms.setdefault(node.input, []).append(node)
    return transforms


def merged(graph: LoweredGraph, groups: Iterable[Sequence[TransformNode]]) -> LoweredGraph:
    """Return the graph with each group of equal Transforms replaced by the first Transform of the
    group.

    That Transform moves to the place right after the node that makes its input.
    """
    placed: dict[str, list[TransformNode]] = {}  # by value: the Transforms to put after its maker
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
    """Return the graph with some values replaced by other ones in all their uses.

    Args:
        graph: the graph.
        renamed: by name of a value to drop, the name of the value to use in its place. The latter
            may be a key, too.
    """

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
