"""What was chosen for a network, apart from its sizes: the same choice for other sizes.

A strategy is a finished lowered graph without its sizes: which library runs which nodes together,
how every value lies, where Transforms stand, in which order all of it runs. Of a graph of the same
network for other sizes it makes a lowered graph at once: nothing is evaluated, and nothing solved.

What it does not know, others see to. Whether libraries take their calls as before is found out when
the plan is recorded (``Evaluation.confirming``). Whether it is sound, the checker says. That it is
as good as a plan of its own, nobody: the certificate was for other sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from ptensor.evaluation import Variant
from ptensor.layout import Layout
from resolver.evaluate import stored
from resolver.lowered import Certificate, LoweredGraph, LoweredNode, OpNode, Value
from vtensor.language.operators import label_of

if TYPE_CHECKING:
    from vtensor.language.graph import Graph, Node


class StrategyRefused(Exception):  # it is no error: the sizes get a plan of their own
    """A strategy does not fit other sizes, for a reason."""


@dataclass(frozen=True)
class Strategy:
    """What was chosen for one choice of sizes.

    Args:
        chosen: the lowered graph, optimised and checked. Of its values only names, types, layouts
            and the names of dims are read; of its nodes everything but parameters.
    """

    chosen: LoweredGraph

    @classmethod
    def of(cls, graph: LoweredGraph) -> Strategy:
        """The strategy of a plan: without constants, and without times, which are its sizes'."""
        nodes = [_untimed(node) if isinstance(node, OpNode) else node for node in graph.nodes]
        return cls(replace(graph, nodes=nodes, constants={}))

    def on(self, graph: Graph) -> LoweredGraph:
        """What was chosen, for a graph of other sizes.

        Args:
            graph: simplified as the one was that this is the strategy of.

        Raises:
            StrategyRefused: it has other nodes, edges or dims, less may be fused than was, or a
                Transform is needed where none was, or none where one was.
        """
        chosen, values = self.chosen, dict(self._values(graph))
        fused: dict[str, str] = {}
        nodes: list[LoweredNode] = []
        for node in chosen.nodes:
            if isinstance(node, OpNode):
                nodes.append(self._node(graph, node, values))
                fused |= dict.fromkeys(node.variant.followers, node.name)
            else:
                _expect(not _alike(values, node.input, values[node.output].layout), node.name)
                nodes.append(node)
        if tuple(graph.inputs) != chosen.inputs or graph.outputs.keys() != chosen.outputs.keys():
            raise StrategyRefused("it has other inputs or outputs")
        for alias, name in chosen.outputs.items():
            wanted = chosen.delivery.get(alias, Layout.plain(values[name].dims))
            _expect(wanted.is_any or _alike(values, name, wanted), f"output {alias}")
        return replace(
            chosen,
            values=values,
            nodes=nodes,
            merged={**graph.merged, **fused},
            certificate=self._certificate,
            constants=stored(graph, [name for name in values if name in graph.constants]),
            rewritten=graph.rewritten,
        )

    def _values(self, graph: Graph) -> Iterator[tuple[str, Value]]:
        """The values in the layouts that were chosen, in their new sizes."""
        for name, value in self.chosen.values.items():
            given = graph.values.get(self._sources[name])
            if given is None or given.dtype != value.dtype or [*given.dims] != [*value.dims]:
                raise StrategyRefused(f"{name} is no value of it, or has other dims")
            if (self._sources[name] in graph.constants) != value.constant:
                raise StrategyRefused(f"{name} is a constant in one of them alone")
            yield name, replace(value, dims=given.dims)

    @cached_property
    def _sources(self) -> Mapping[str, str]:
        return self.chosen.sources

    @cached_property
    def _certificate(self) -> Certificate | None:
        """What holds in all sizes: where nothing is converted, no choice gains anything."""
        found = self.chosen.certificate
        free = found is not None and not found.open_nodes and not any(self.chosen.transforms())
        return found if free else None

    def _node(self, graph: Graph, node: OpNode, values: Mapping[str, Value]) -> OpNode:
        """A node with the parameters that it has in these sizes."""
        given = graph.nodes.get(node.name)
        if given is None or type(given.op) is not type(node.op):
            raise StrategyRefused(f"{node.name} is no node of it, or another operator")
        offered = tuple(graph.offers.get(node.name, ()))[: len(node.followers)]
        if [*map(_reads, offered)] != [*map(_reads, node.followers)]:
            raise StrategyRefused(f"{node.name}: not all of what was fused behind it may be")
        for name, layout in zip((*node.inputs, *node.outputs), node.variant.layouts, strict=True):
            _expect(_alike(values, name, layout), node.name)
        label = " + ".join([label_of(given.op), *(one.op_name for one in offered)])
        return replace(node, op=given.op, op_name=label, followers=offered)


def _untimed(node: OpNode) -> OpNode:
    return replace(node, variant=_without_times(node.variant))


def _without_times(variant: Variant) -> Variant:
    apart = tuple(map(_without_times, variant.apart))
    return replace(variant, ns=None, basis="declared", apart=apart)


def _reads(node: Node) -> tuple[str, Sequence[str], Sequence[str], type]:
    return node.name, node.inputs, node.outputs, type(node.op)


def _alike(values: Mapping[str, Value], name: str, layout: Layout) -> bool:
    """A value lies as a layout says, perhaps in other words."""
    value = values[name]
    return value.layout == layout or value.layout.same(layout.normalized(value.dtype), value.dims)


def _expect(holds: bool, who: str) -> None:
    if not holds:
        raise StrategyRefused(f"{who}: Transforms are needed elsewhere than before")
