"""Nodes that read a copy of a value read the value itself.

    relu(identity(x * w))  becomes  relu(x * w)

An identity moves no memory, but it hides the nodes after it from other simplifications. An operator
declares that it is an identity (the trait ``Structural``).
"""

from __future__ import annotations

from libdesc.preferences import EVERY, Preferences
from vtensor.language.graph import Graph, Node
from vtensor.language.operators import info_of
from vtensor.language.records import replace


def bypass(graph: Graph, preferences: Preferences = EVERY) -> Graph:
    """Return the same network without identities. An identity stays if it makes an output of the
    network or is pinned to a library.

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
        removable = info.structural == "identity" and first not in delivered
        if removable and not preferences.pinned(name, info.name):
            source[first] = inputs[0]
        else:
            nodes[name] = node if inputs == node.inputs else replace(node, inputs=inputs)
    return replace(graph, nodes=nodes)
