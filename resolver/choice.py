"""What was chosen for a network, apart from its sizes: the same choice for other sizes.

A strategy is a finished lowered graph without its sizes: which library runs which nodes together,
how every value lies, where Transforms stand, in which order all of it runs. Of a graph of the same
network for other sizes it makes a lowered graph at once: nothing is evaluated, and nothing solved.
Where some of its nodes do not fit, ``resolve`` decides these and their neighbours anew, and takes
the others as they are here (``settled``).

What it does not know, others see to. Whether libraries take their calls as before is found out when
the plan is recorded (``Evaluation.confirming``). Whether it is sound, the checker says. That it is
as good as a plan of its own, nobody: the certificate was for other sizes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ptensor.evaluation import Variant
from ptensor.layout import Layout
from resolver.constants import stored
from resolver.lowered import (
    Certificate,
    LoweredGraph,
    LoweredNode,
    OpNode,
    Value,
)
from vtensor.language.cached import cached_property
from vtensor.language.interrupts import Unfit
from vtensor.language.operators import label_of
from vtensor.language.records import dataclass, replace

if TYPE_CHECKING:
    from vtensor.language.graph import Graph, Node

#: Two layouts are equal in some sizes only.
MOVED = "Transforms are needed elsewhere than before"


class ChoiceRefused(Unfit):  # it is no error: other variants are chosen for the sizes
    """A strategy does not fit other sizes, for a reason.

    Attributes:
        nodes: those that do not fit; the others may stay as they are. Empty where it is the network
            that does not fit.
    """

    def __init__(self, why: str, nodes: Iterable[str] = ()) -> None:
        super().__init__(why)
        self.nodes = frozenset(nodes)


@dataclass(frozen=True, eq=False)
class ChosenGraph:
    """What was chosen for one choice of sizes.

    Args:
        chosen: the lowered graph, optimised and checked. Of its values only names, types, layouts
            and the names of dims are read; of its nodes everything but parameters.
    """

    chosen: LoweredGraph

    @classmethod
    def of(cls, graph: LoweredGraph) -> ChosenGraph:
        """The strategy of a plan: without constants, and without times, which are its sizes'."""
        nodes = [_untimed(node) if isinstance(node, OpNode) else node for node in graph.nodes]
        return cls(replace(graph, nodes=nodes, constants={}))

    def on(self, graph: Graph) -> LoweredGraph:
        """What was chosen, for a graph of other sizes.

        Args:
            graph: simplified as the one was that this is the strategy of.

        Raises:
            ChoiceRefused: it has other nodes, edges or dims; or, at the nodes that it names, less
                may be fused than was, or a Transform is needed where none was, or none where one
                was.
        """
        made, faults = self._put(graph)
        for who, why in faults.items():
            raise ChoiceRefused(f"{who}: {why}", faults)
        return made

    def roughly(self, graph: Graph) -> LoweredGraph:
        """The same, also where Transforms are needed elsewhere than before.

        Raises:
            ChoiceRefused: as ``on``, for other reasons.
        """
        made, faults = self._put(graph)
        for who, why in faults.items():
            if why != MOVED:
                raise ChoiceRefused(f"{who}: {why}", faults)
        return made

    def _put(self, graph: Graph) -> tuple[LoweredGraph, Mapping[str, str]]:
        """What was chosen, for a graph of other sizes, and what is wrong with nodes."""
        chosen, values = self.chosen, dict(self._values(graph))
        if tuple(graph.inputs) != chosen.inputs or graph.outputs.keys() != chosen.outputs.keys():
            raise ChoiceRefused("it has other inputs or outputs")
        fused: dict[str, str] = {}
        nodes: list[LoweredNode] = []
        faults: dict[str, str] = {}
        for node in chosen.nodes:
            if not isinstance(node, OpNode):
                if alike(values, node.input, values[node.output].layout):
                    made_by = self._makers.get(self.sources[node.output], "")
                    faults |= dict.fromkeys(self._readers(node.output) or {made_by}, MOVED)
                nodes.append(node)
                continue
            made = with_parameters(graph, node)
            nodes.append(made)
            fused |= dict.fromkeys(node.variant.followers, node.name)
            if len(made.followers) < len(node.followers):
                faults[node.name] = "not all of what was fused behind it may be"
            elif not all(alike(values, *row) for row in _lying(node)):
                faults[node.name] = MOVED
        for alias, name in chosen.outputs.items():
            wanted = chosen.delivery.get(alias, Layout.plain(values[name].dims))
            if not (wanted.is_any or alike(values, name, wanted)):
                faults[self._makers.get(self.sources[name], "")] = MOVED
        lowered = replace(
            chosen,
            values=values,
            nodes=nodes,
            merged={**graph.merged, **fused},
            certificate=lasting_certificate(chosen),
            constants=stored(graph, [name for name in values if name in graph.constants]),
            rewritten=graph.rewritten,
        )
        return lowered, faults

    def settled(self, graph: Graph, without: Collection[str]) -> dict[str, OpNode]:
        """The nodes that a graph of other sizes has as this one has them, as they were chosen.

        Args:
            graph: as for ``on``.
            without: nodes that are left out, and with them those before and behind them.
        """
        bare = self.chosen.bare
        left = [node for node in bare.operators if node.name in without]
        read = {name for node in left for name in node.inputs}
        made = {name for node in left for name in node.outputs}
        return {
            node.name: with_parameters(graph, node)
            for node in bare.operators
            if node.name not in without
            and read.isdisjoint(node.outputs)
            and made.isdisjoint(node.inputs)
            and self._has(graph, node)
        }

    def _has(self, graph: Graph, node: OpNode) -> bool:
        """A graph has a node with the same operands, and what is fused behind it."""
        given = graph.nodes.get(node.name)
        if given is None or type(given.op) is not type(node.op):
            return False
        offered = tuple(graph.offers.get(node.name, ()))[: len(node.followers)]
        if [*map(_reads, offered)] != [*map(_reads, node.followers)]:
            return False
        inputs, outputs = given.inputs, given.outputs
        for one in offered:
            inputs += tuple(name for name in one.inputs if name != outputs[0])
            outputs = (*one.outputs, *given.outputs[1:])
        if (inputs, outputs) != (node.inputs, node.outputs):
            return False
        return all(map(partial(self._alike_in, graph), _names(node)))

    def _alike_in(self, graph: Graph, name: str) -> bool:
        """A graph has a value under this name, of the same kind."""
        value, given = self.chosen.values[name], graph.values.get(name)
        return (
            given is not None
            and (given.dtype, [*given.dims]) == (value.dtype, [*value.dims])
            and (name in graph.constants) == value.constant
        )

    def _readers(self, value: str) -> set[str]:
        """The nodes that read a value."""
        return {one.name for one in self.chosen.operators if value in one.inputs}

    def _values(self, graph: Graph) -> Iterator[tuple[str, Value]]:
        """The values in the layouts that were chosen, in their new sizes."""
        for name, value in self.chosen.values.items():
            given = graph.values.get(self.sources[name])
            if given is None or given.dtype != value.dtype or [*given.dims] != [*value.dims]:
                raise ChoiceRefused(f"{name} is no value of it, or has other dims")
            if (self.sources[name] in graph.constants) != value.constant:
                raise ChoiceRefused(f"{name} is a constant in one of them alone")
            yield name, replace(value, dims=given.dims)

    @cached_property
    def sources(self) -> Mapping[str, str]:
        """The network's value that each of its values is, in some layout."""
        return self.chosen.sources

    @cached_property
    def _makers(self) -> Mapping[str, str]:
        return {name: node.name for node in self.chosen.operators for name in node.outputs}


def lasting_certificate(chosen: LoweredGraph) -> Certificate | None:
    """Return the certificate of a choice if it holds in all sizes: where nothing is converted, no
    choice gains anything. None if it holds for the choice's own sizes alone.
    """
    found = chosen.certificate
    is_free = found is not None and not found.open_nodes and not any(chosen.transforms())
    return found if is_free else None


def with_parameters(graph: Graph, node: OpNode) -> OpNode:
    """A node with the parameters that it has in a graph of other sizes.

    It has fewer followers where fewer are offered.

    Raises:
        ChoiceRefused: the graph has another node under this name, or none.
    """
    given = graph.nodes.get(node.name)
    if given is None or type(given.op) is not type(node.op):
        raise ChoiceRefused(f"{node.name} is no node of it, or another operator")
    offered = tuple(graph.offers.get(node.name, ()))[: len(node.followers)]
    if [*map(_reads, offered)] != [*map(_reads, node.followers[: len(offered)])]:
        offered = ()
    label = " + ".join([label_of(given.op), *(one.op_name for one in offered)])
    return replace(node, op=given.op, op_name=label, followers=offered)


def _names(node: OpNode) -> tuple[str, ...]:
    """A node's operands."""
    return (*node.inputs, *node.outputs)


def _lying(node: OpNode) -> Iterator[tuple[str, Layout]]:
    """A node's operands, and how it takes each."""
    return zip(_names(node), node.variant.layouts, strict=True)


def _untimed(node: OpNode) -> OpNode:
    return replace(node, variant=_without_times(node.variant))


def _without_times(variant: Variant) -> Variant:
    pieces = tuple(map(_without_times, variant.pieces))
    return replace(variant, ns=None, basis="declared", pieces=pieces)


def _reads(node: Node) -> tuple[str, Sequence[str], Sequence[str], type]:
    return node.name, node.inputs, node.outputs, type(node.op)


def alike(values: Mapping[str, Value], name: str, layout: Layout) -> bool:
    """A value lies as a layout says, perhaps in other words."""
    value = values[name]
    return value.layout == layout or value.layout.same(layout.normalized(value.dtype), value.dims)
