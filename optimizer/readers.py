"""The maker and the readers of each value of a graph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Sequence

from vtensor.language.graph import Graph, Node


class Readers:
    """The nodes of a graph by the values that they read and make."""

    def __init__(self, graph: Graph) -> None:
        self._maker: dict[str, Node] = {}
        self._readers = defaultdict[str, list[Node]](list)
        for node in graph.nodes.values():
            self.add(node)
        self._delivered = set(graph.outputs.values())

    def add(self, node: Node) -> None:
        """Note that the graph has a new node."""
        self._maker.update(dict.fromkeys(node.outputs, node))
        for name in node.inputs:
            self._readers[name].append(node)

    def drop(self, node: Node) -> None:
        """Note that the graph has lost a node."""
        for name in node.outputs:
            del self._maker[name]
        for name in node.inputs:
            self._readers[name].remove(node)

    def inside(self, value: str, nodes: Container[str]) -> bool:
        """Return whether only nodes whose names are in ``nodes`` read a value.

        False if the value is an output of the graph.
        """
        readers = self._readers.get(value, ())
        return value not in self._delivered and all(node.name in nodes for node in readers)

    def maker(self, value: str) -> Node | None:
        """Return the node that makes a value; None for an input or a constant."""
        return self._maker.get(value)

    def of(self, value: str) -> Sequence[Node]:
        """Return the nodes that read a value. A node is in the list once for each input by which it
        reads the value.

        The list is empty if the value is an output of the graph.
        """
        return () if value in self._delivered else self._readers.get(value, ())

    def every(self, value: str) -> Sequence[Node]:
        """Return the nodes that read a value, each once, also if it is an output of the graph."""
        return [*dict.fromkeys(self._readers.get(value, ()))]

    def delivered(self, value: str) -> bool:
        """Return whether a value is an output of the graph."""
        return value in self._delivered

    def alone(self, value: str) -> Node | None:
        """Return the only node that reads a value; it may read the value by several of its inputs.

        Returns None if no node or several nodes read the value, or if it is an output of the graph.
        """
        nodes = self.of(value)
        return nodes[0] if nodes and all(node is nodes[0] for node in nodes) else None

    def only(self, value: str) -> Node | None:
        """Return the only node that reads a value, by a single one of its inputs.

        Returns None if no input or several inputs read the value, or if it is an output of the
        graph.
        """
        nodes = self.of(value)
        return nodes[0] if len(nodes) == 1 else None
