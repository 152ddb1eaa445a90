"""Nodes that libraries do not take as they were chosen for other sizes, decided anew one by one.

A library blocks weights by what it has to do, and dims of one element may stand anywhere but are in
the way with two. What such a node reads lies as it did; where it makes something otherwise now, the
nodes that read that are asked, too, until values lie again as they did. All others stay as they
are. Where a node takes what it reads in another layout alone, a Transform stands before it: whoever
asks for this decides what that may cost.
"""

from __future__ import annotations

from collections.abc import Collection

from ptensor.evaluation import Variant
from ptensor.layout import Layout
from resolver.extend import extended_again
from resolver.lowered import LoweredGraph, OpNode
from resolver.probe import answered
from resolver.strategy import StrategyRefused
from vtensor.language.records import replace


def refitted(graph: LoweredGraph, names: Collection[str]) -> tuple[LoweredGraph, tuple[str, ...]]:
    """A graph with nodes in variants that their libraries take in its sizes; those that are others.

    Args:
        graph: with its Transforms.
        names: nodes whose libraries do not take them as they are.

    Raises:
        StrategyRefused: a library declines one of them, or has reference code alone.
        NoInvokerError: no library changes one layout into another.
    """
    fitter, faults = _Fitter(graph), set[str]()
    for node in graph.operators:
        moved = not fitter.layouts.keys().isdisjoint(node.inputs)
        if (moved or node.name in names) and not fitter.fits(node):
            faults.add(node.name)
    for who in faults:
        text = f"{who}: its library has nothing as good for what it reads"
        raise StrategyRefused(text, {*names, *faults})
    return fitter.graph(), tuple(fitter.variants)


class _Fitter:
    """Collects what is different.

    Attributes:
        variants: by node.
        layouts: of values that do not lie as they did.
    """

    def __init__(self, graph: LoweredGraph) -> None:
        self._graph = graph
        self.variants: dict[str, Variant] = {}
        self.layouts: dict[str, Layout] = {}

    def fits(self, node: OpNode) -> bool:
        """Ask a node's library for what it reads as it lies now; whether it has something good."""
        graph, values = self._graph, self._graph.values
        names = [graph.sources[x] if values[x].constant else x for x in node.inputs]
        inputs = [replace(values[x], layout=self.layouts.get(x, values[x].layout)) for x in names]
        made = answered(node, [one.tensor(graph.constants.get(one.name)) for one in inputs])
        if made is None or made.inexact or made.reference > node.variant.reference:
            return False
        for name, layout in zip(node.outputs, made.layouts[len(inputs) :], strict=True):
            if not layout.same(values[name].layout, values[name].dims):
                self.layouts[name] = layout
        self.variants[node.name] = replace(made, refused=node.variant.refused)
        return True

    def graph(self) -> LoweredGraph:
        """The graph as it is now."""
        return extended_again(self._graph, self.variants, self.layouts)
