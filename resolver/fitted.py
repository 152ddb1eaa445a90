"""A strategy on graphs that differ in sizes alone: only what sizes decide is looked at again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from ptensor.layout import Layout
from resolver.constants import stored
from resolver.lowered import LoweredGraph, OpNode, TransformNode, Value
from resolver.proof import Proof
from resolver.strategy import Strategy, alike, sized
from vtensor.language.records import replace

if TYPE_CHECKING:
    from vtensor.language.graph import Graph


class Fitted:
    """A strategy that fits a graph, for other graphs with the same nodes, edges and offers.

    Args:
        strategy: it fits.
        first: the lowered graph that it made.
        values, nodes: the names of those that may differ; all others are the same objects.

    Attributes:
        proof: what the checker has proved of the lowered graphs.
    """

    def __init__(
        self,
        strategy: Strategy,
        first: LoweredGraph,
        values: Collection[str],
        nodes: Collection[str],
    ) -> None:
        self.proof = Proof()
        self._first = replace(first, constants={})
        self._sources = strategy.sources
        self._values = [
            value for name, value in first.values.items() if self._sources[name] in values
        ]
        self._nodes = [
            (place, chosen)
            for place, (node, chosen) in enumerate(
                zip(first.nodes, strategy.chosen.nodes, strict=True)
            )
            if isinstance(node, OpNode)
            and isinstance(chosen, OpNode)
            and not {node.name, *(one.name for one in node.followers)}.isdisjoint(nodes)
        ]
        open_ones = {value.name for value in self._values}
        self._questions = [row for row in _questions(first) if row[0] in open_ones]
        self._constants = [
            name
            for name, value in first.values.items()
            if value.constant and name == self._sources[name]
        ]

    def on(self, graph: Graph) -> LoweredGraph | None:
        """What was chosen, for a graph of other sizes; None where layouts are no longer equal, or
        no longer different.
        """
        made = self.made(graph)
        return made if self.holds(made.values) else None

    def holds(self, values: Mapping[str, Value]) -> bool:
        """Whether layouts are equal, and different, where they were."""
        return all(
            alike(values, name, layout) == answer for name, layout, answer in self._questions
        )

    def made(self, graph: Graph) -> LoweredGraph:
        """What was chosen, for a graph of other sizes, in which layouts are as they were."""
        first, values = self._first, dict(self._first.values)
        for one in self._values:
            dims = graph.values[self._sources[one.name]].dims
            values[one.name] = Value(one.name, one.dtype, dims, one.layout, one.constant)
        nodes = [*first.nodes]
        for place, chosen in self._nodes:
            nodes[place] = sized(graph, chosen)
        return replace(first, values=values, nodes=nodes, constants=stored(graph, self._constants))


def _questions(graph: LoweredGraph) -> list[tuple[str, Layout, bool]]:
    """What sizes decide: which values lie as a layout says, and which do not."""
    rows, values = list[tuple[str, Layout, bool]](), graph.values
    for node in graph.nodes:
        if isinstance(node, TransformNode):
            rows.append((node.input, values[node.output].layout, False))
        else:
            names = (*node.inputs, *node.outputs)
            rows += [(*row, True) for row in zip(names, node.variant.layouts, strict=True)]
    for alias, name in graph.outputs.items():
        wanted = graph.delivery.get(alias, Layout.plain(values[name].dims))
        if not wanted.is_any:
            rows.append((name, wanted, True))
    return [row for row in dict.fromkeys(rows) if not row[2] or values[row[0]].layout != row[1]]
