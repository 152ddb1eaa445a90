"""What may be fused behind a node, so that its output is stored once.

    relu(x * w + b + r)  is one call, where a library takes all of it

Leads are the operators that are linear in an operand, the costly ones, those that are point-wise,
and those that put tensors together; behind one there are point-wise operators (the trait
``Pointwise``), of which the library reads what they compute. The pass only offers: while layouts
are resolved, the library that takes a lead says how many it takes with it, and the others stay
nodes, which may be leads in turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from libdesc.preferences import EVERY, Preferences
from optimizer.readers import Readers
from vtensor.language.graph import Graph, Node
from vtensor.language.operators import info_of
from vtensor.language.records import replace
from vtensor.language.traits import Linear, Pointwise

#: How many are offered behind a lead: what a library takes at once is far less.
MOST = 16


def fuse(graph: Graph, preferences: Preferences = EVERY) -> Graph:
    """The same graph, with offers: by lead, the nodes behind it that may be fused to it.

    Each alone reads the value before it, which is no output, has its dims and its element type, and
    is not pinned; its other operands are known when the lead runs.

    Args:
        graph: sealed; it is not changed.
        preferences: which nodes are pinned.
    """
    readers = Readers(graph)
    place = {name: i for i, node in enumerate(graph.nodes.values()) for name in node.outputs}
    found = {
        lead.name: tuple(islice(_behind(graph, lead, readers, place, preferences), MOST))
        for lead in graph.nodes.values()
        if info_of(lead.op).trait(Linear) or info_of(lead.op).light
    }
    return replace(graph, offers={name: behind for name, behind in found.items() if behind})


def _behind(
    graph: Graph, lead: Node, readers: Readers, place: Mapping[str, int], preferences: Preferences
) -> Iterator[Node]:
    value = lead.outputs[0]
    begin = place[value]
    while (node := readers.alone(value)) is not None:
        info = info_of(node.op)
        if info.trait(Pointwise) is None or preferences.pinned(node.name, info.name):
            return
        if any(name != value and place.get(name, -1) >= begin for name in node.inputs):
            return
        before, after = graph.values[value], graph.values[node.outputs[0]]
        if (before.dtype, [*before.dims.items()]) != (after.dtype, [*after.dims.items()]):
            return
        yield node
        [value] = node.outputs
