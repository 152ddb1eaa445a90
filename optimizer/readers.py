"""Who reads what a node makes."""

from __future__ import annotations

from collections import Counter

from vtensor.graph import Graph, Node


class Readers:
    """The nodes of a graph by what they read; an output is read once more."""

    def __init__(self, graph: Graph) -> None:
        self._node = {name: node for node in graph.nodes.values() for name in node.inputs}
        self._count = Counter(name for node in graph.nodes.values() for name in node.inputs)
        self._count.update(graph.outputs.values())
        self._graph = graph
        self._maker = {name: node for node in graph.nodes.values() for name in node.outputs}

    def maker(self, value: str) -> Node | None:
        """The node that makes a value; None for an input or a constant."""
        return self._maker.get(value)

    def all(self, value: str) -> list[Node]:
        """The nodes that read a value, in order; none where it is an output."""
        if value in self._graph.outputs.values():
            return []
        return [node for node in self._graph.nodes.values() if value in node.inputs]

    def only(self, value: str) -> Node | None:
        """The node that reads a value, once; None where there is no such, or another reader."""
        return self._node.get(value) if self._count[value] == 1 else None
