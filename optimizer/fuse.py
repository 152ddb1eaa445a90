"""Offers of nodes that may be fused to the node before them, so that its output is stored once.

    relu(x * w + b + r)  is one call, if a library takes all of it

A lead is a node to which nodes after it may be fused. It is a costly operator (linear in an
operand), a point-wise operator, or an operator that puts tensors together. The nodes fused to it
are its followers: point-wise operators (the trait ``Pointwise``), which tell a library what they
compute. The pass only offers followers. While layouts are resolved, the library that takes a lead
says how many followers it takes. The others stay nodes, and may be leads themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from libdesc.preferences import EVERY, Preferences
from optimizer.readers import Readers
from vtensor.language.graph import Graph, Node
from vtensor.language.operators import info_of, result_type
from vtensor.language.records import replace
from vtensor.language.traits import Linear, Pointwise

#: The most nodes that are offered to a lead, the node to which they may be fused. Libraries take
#: far fewer at once.
MAX_FOLLOWERS = 16


def fuse(graph: Graph, preferences: Preferences = EVERY) -> Graph:
    """Return the same network with offers. An offer lists, for one node (the lead), the nodes after
    it that may be fused to it.

    An offered node is not pinned to a library. The output of the node before it has no other
    reader, is no output of the graph, and has the dims of the offered node's output. The element
    types may differ. All other operands of the offered node are made before the lead runs.

    Args:
        graph: sealed; it is not changed.
        preferences: which nodes are pinned.
    """
    readers = Readers(graph)
    place = {name: i for i, node in enumerate(graph.nodes.values()) for name in node.outputs}
    offers = {
        lead.name: tuple(
            islice(_followers(graph, lead, readers, place, preferences), MAX_FOLLOWERS)
        )
        for lead in graph.nodes.values()
        if info_of(lead.op).trait(Linear) or info_of(lead.op).light
    }
    return replace(
        graph, offers={name: followers for name, followers in offers.items() if followers}
    )


def _followers(
    graph: Graph, lead: Node, readers: Readers, place: Mapping[str, int], preferences: Preferences
) -> Iterator[Node]:
    """Yield the nodes that may be fused to the node ``lead``, in order.

    ``place`` has, by name of a value, the index of the node that makes the value.
    """
    value = lead.outputs[0]
    begin = place[value]
    if not _declares_type(graph, lead):
        return
    while (node := readers.alone(value)) is not None:
        info = info_of(node.op)
        if info.trait(Pointwise) is None or preferences.pinned(node.name, info.name):
            return
        if any(name != value and place.get(name, -1) >= begin for name in node.inputs):
            return
        before, after = graph.values[value], graph.values[node.outputs[0]]
        if [*before.dims.items()] != [*after.dims.items()] or not _declares_type(graph, node):
            return
        yield node
        [value] = node.outputs


def _declares_type(graph: Graph, node: Node) -> bool:
    """Return whether the first output of a node has the element type that its operator declares."""
    types = [graph.values[name].dtype for name in node.inputs]
    return result_type(node.op, types) == graph.values[node.outputs[0]].dtype
