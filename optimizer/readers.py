"""Who makes a value, and who reads it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Sequence

from vtensor.language.graph import Graph, Node


class Readers:
    """The nodes of a graph by what they read, and by what they make."""

    def __init__(self, graph: Graph) -> None:
        self._maker: dict[str, Node] = {}
        self._readers = defaultdict[str, list[Node]](list)
        for node in graph.nodes.values():
            self.add(node)
        self._delivered = set(graph.outputs.values())

    def add(self, node: Node) -> None:
        """Take a node in that is new."""
        self._maker.update(dict.fromkeys(node.outputs, node))
        for name in node.inputs:
            self._readers[name].append(node)

    def drop(self, node: Node) -> None:
        """Forget a node that is gone."""
        for name in node.outputs:
            del self._maker[name]
        for name in node.inputs:
            self._readers[name].remove(node)

    def inside(self, value: str, nodes: Container[str]) -> bool:
        """Only nodes of these names need a value; it is no output."""
        readers = self._readers.get(value, ())
        return value not in self._delivered and all(node.name in nodes for node in readers)

    def maker(self, value: str) -> Node | None:
        """The node that makes a value; None for an input or a constant."""
        return self._maker.get(value)

    def of(self, value: str) -> Sequence[Node]:
        """The nodes that read a value, once each time that they do; none where it is an output."""
        return () if value in self._delivered else self._readers.get(value, ())

    def alone(self, value: str) -> Node | None:
        """The only node that reads a value, once or several times; None where there is no such."""
        nodes = self.of(value)
        return nodes[0] if nodes and all(node is nodes[0] for node in nodes) else None

    def only(self, value: str) -> Node | None:
        """The node that reads a value, once; None where there is no such, or another reader."""
        nodes = self.of(value)
        return nodes[0] if len(nodes) == 1 else None
