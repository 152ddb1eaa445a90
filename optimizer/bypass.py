"""What reads a copy of a value reads the value itself.

    relu(identity(x * w))  becomes  relu(x * w)

An identity moves nothing, but it hides from other simplifications what is behind a node. Which
operator it is, is its own declaration (the trait ``Structural``).
"""

from __future__ import annotations

from libdesc.preferences import EVERY, Preferences
from vtensor.language.graph import Graph, Node
from vtensor.language.operators import info_of
from vtensor.language.records import replace


def bypass(graph: Graph, preferences: Preferences = EVERY) -> Graph:
    """The same network without identities; one that makes an output stays, or is pinned.

    Args:
        graph: sealed; it is not changed.
        preferences: which nodes are pinned.
    """
    delivered = set(graph.outputs.values())
    source: dict[str, str] = {}
    nodes: dict[str, Node] = {}
    for name, node in graph.nodes.items():
        inputs = tuple(source.get(value, value) for value in node.inputs)
        [first, *_], info = node.outputs, info_of(node.op)
        gone = info.structural == "identity" and first not in delivered
        if gone and not preferences.pinned(name, info.name):
            source[first] = inputs[0]
        else:
            nodes[name] = node if inputs == node.inputs else replace(node, inputs=inputs)
    return replace(graph, nodes=nodes)
