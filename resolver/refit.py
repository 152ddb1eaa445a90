"""Nodes that libraries do not take as they were chosen for other sizes, decided anew one by one.

A library blocks weights by what it has to do, and dims of one element may stand anywhere but are in
the way with two. What such a node reads lies as it did; where it makes something otherwise now, the
nodes that read that are asked, too, until values lie again as they did. All others stay as they
are, and so do all Transforms of what is computed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ptensor.evaluation import Variant
from ptensor.layout import Layout
from resolver.extend import with_constants
from resolver.lowered import LoweredGraph, OpNode
from resolver.probe import answered
from resolver.strategy import MOVED, StrategyRefused


def refitted(graph: LoweredGraph, names: Collection[str]) -> tuple[LoweredGraph, tuple[str, ...]]:
    """A graph with nodes in variants that their libraries take in its sizes; those that are others.

    Args:
        graph: with its Transforms.
        names: nodes whose libraries do not take them as they are.

    Raises:
        StrategyRefused: some cannot be without Transforms elsewhere, or have reference code alone.
        NoInvokerError: no library changes a constant into what is wanted.
    """
    fitter, faults = _Fitter(graph), dict[str, str]()
    for node in graph.nodes:
        moved = not fitter.layouts.keys().isdisjoint(node.inputs)
        if not isinstance(node, OpNode):
            if moved:
                faults[node.reason.consumer] = MOVED
        elif (moved or node.name in names) and (why := fitter.fit(node)):
            faults[node.name] = why
    for name in graph.outputs.values():
        if name in fitter.layouts:
            faults |= {node.name: MOVED for node in graph.operators if name in node.outputs}
    for who, why in faults.items():
        raise StrategyRefused(f"{who}: {why}", {*names, *faults})
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

    def fit(self, node: OpNode) -> str:
        """Ask a node's library for what it reads as it lies now; why not, if it does not do it."""
        graph, values = self._graph, self._graph.values
        names = [graph.sources[x] if values[x].constant else x for x in node.inputs]
        inputs = [replace(values[x], layout=self.layouts.get(x, values[x].layout)) for x in names]
        made = answered(node, [one.tensor(graph.constants.get(one.name)) for one in inputs])
        if made is None or made.inexact or made.reference > node.variant.reference:
            return "its library has nothing as good for it"
        count = len(inputs)
        for one, layout in zip(inputs, made.layouts[:count], strict=True):
            if not (one.constant or layout.same(one.layout, one.dims)):
                return MOVED
        for name, layout in zip(node.outputs, made.layouts[count:], strict=True):
            if not layout.same(values[name].layout, values[name].dims):
                self.layouts[name] = layout
        self.variants[node.name] = replace(made, refused=node.variant.refused)
        return ""

    def graph(self) -> LoweredGraph:
        """The graph as it is now."""
        own = self._graph.values
        values = {name: replace(own[name], layout=one) for name, one in self.layouts.items()}
        return with_constants(replace(self._graph, values={**own, **values}), self.variants)
