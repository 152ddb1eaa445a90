"""Choices without their sizes: what was chosen for a network, applied to the network in other
sizes.

A ``ChosenGraph`` is a finished lowered graph of which the sizes are ignored. It tells the library
of each node, the fused nodes, the layout of each value, the Transforms, and the order of all nodes.
Applied to the same network in other sizes it gives a lowered graph at once: no invoker is evaluated
and no program is solved. If some nodes do not fit, ``resolve`` decides these and their neighbours
again. It takes all other nodes from the choice (``settled``).

The result is not checked here. The recorder asks libraries whether they take their calls as before
(``Evaluation.confirming``). The checker proves soundness. Nothing shows that the choice is as good
as one made for these sizes: the certificate was for other sizes.
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
from vtensor.language.operators import label_of
from vtensor.language.process.interrupts import Unfit
from vtensor.language.records import dataclass, replace

if TYPE_CHECKING:
    from vtensor.language.graph import Graph, Node

#: Why a node does not fit: two layouts agree for the old sizes but not for the new ones, or the
#: other way round.
MOVED = "Transforms are needed elsewhere than before"


class ChoiceRefused(Unfit):  # no error: the caller then makes another choice
    """Raised if a choice does not fit a graph of other sizes; the message says why.

    Attributes:
        nodes: names of the nodes that do not fit; all other nodes of the choice may be kept. Empty
            if the choice as a whole does not fit.
    """

    def __init__(self, why: str, nodes: Iterable[str] = ()) -> None:
        super().__init__(why)
        self.nodes = frozenset(nodes)


@dataclass(frozen=True, eq=False)
class ChosenGraph:
    """The choice that was made for one combination of sizes.

    Args:
        chosen: the lowered graph, optimised and checked. Of its values only names, types, layouts
            and the names of dims are read; of its nodes everything but parameters.
    """

    chosen: LoweredGraph

    @classmethod
    def of(cls, graph: LoweredGraph) -> ChosenGraph:
        """Return the choice in a plan's lowered graph.

        It has no constants, and no times: these hold for the sizes of the plan only.
        """
        nodes = [_untimed_node(node) if isinstance(node, OpNode) else node for node in graph.nodes]
        return cls(replace(graph, nodes=nodes, constants={}))

    def on(self, graph: Graph) -> LoweredGraph:
        """Apply this choice to a graph of other sizes, and return the lowered graph.

        Args:
            graph: simplified like the graph that the choice was made for.

        Raises:
            ChoiceRefused: the graph has other nodes, edges or dims. Or some nodes do not fit, which
                the error names: fewer followers may be fused into the node than before, or the new
                sizes need other Transforms before or after it than the choice has.
        """
        lowered, faults = self._placed(graph)
        for node, why in faults.items():
            raise ChoiceRefused(f"{node}: {why}", faults)
        return lowered

    def roughly(self, graph: Graph) -> LoweredGraph:
        """Apply this choice to a graph of other sizes as ``on`` does, even if Transforms are then
        missing or not needed.

        Raises:
            ChoiceRefused: as for ``on``, but not because of Transforms.
        """
        lowered, faults = self._placed(graph)
        for node, why in faults.items():
            if why != MOVED:
                raise ChoiceRefused(f"{node}: {why}", faults)
        return lowered

    def _placed(self, graph: Graph) -> tuple[LoweredGraph, Mapping[str, str]]:
        """Return (lowered, faults): the lowered graph for a graph of other sizes, and why nodes do
        not fit, by their names.

        Raises:
            ChoiceRefused: the graph has other nodes, edges or dims.
        """
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
            placed = with_parameters(graph, node)
            nodes.append(placed)
            fused |= dict.fromkeys(node.variant.followers, node.name)
            if len(placed.followers) < len(node.followers):
                faults[node.name] = "fewer nodes may be fused into it than before"
            elif not all(alike(values, *row) for row in _operand_layouts(node)):
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
            notes={**chosen.notes, **graph.notes},
        )
        return lowered, faults

    def settled(self, graph: Graph, without: Collection[str]) -> dict[str, OpNode]:
        """Return the nodes of this choice that a graph of other sizes has too, by name.

        Args:
            graph: a simplified graph of the same network.
            without: names of nodes to leave out. Nodes that read their outputs or make their inputs
                are left out, too.
        """
        bare = self.chosen.bare
        excluded = [node for node in bare.operators if node.name in without]
        read_by_excluded = {name for node in excluded for name in node.inputs}
        made_by_excluded = {name for node in excluded for name in node.outputs}
        return {
            node.name: with_parameters(graph, node)
            for node in bare.operators
            if node.name not in without
            and read_by_excluded.isdisjoint(node.outputs)
            and made_by_excluded.isdisjoint(node.inputs)
            and self._has(graph, node)
        }

    def _has(self, graph: Graph, node: OpNode) -> bool:
        """Return whether a graph has this node, with the same operands and fused followers."""
        twin = graph.nodes.get(node.name)
        if twin is None or type(twin.op) is not type(node.op):
            return False
        offered = tuple(graph.offers.get(node.name, ()))[: len(node.followers)]
        if [*map(_edges, offered)] != [*map(_edges, node.followers)]:
            return False
        inputs, outputs = twin.inputs, twin.outputs
        for follower in offered:
            inputs += tuple(name for name in follower.inputs if name != outputs[0])
            outputs = (*follower.outputs, *twin.outputs[1:])
        if (inputs, outputs) != (node.inputs, node.outputs):
            return False
        return all(map(partial(self._alike_in, graph), _operand_names(node)))

    def _alike_in(self, graph: Graph, name: str) -> bool:
        """Return whether a graph has the value ``name`` with the same type and dims, constant in
        both or in neither.
        """
        value, twin = self.chosen.values[name], graph.values.get(name)
        return (
            twin is not None
            and (twin.dtype, [*twin.dims]) == (value.dtype, [*value.dims])
            and (name in graph.constants) == value.constant
        )

    def _readers(self, value: str) -> set[str]:
        """Return the names of the nodes that read a value."""
        return {node.name for node in self.chosen.operators if value in node.inputs}

    def _values(self, graph: Graph) -> Iterator[tuple[str, Value]]:
        """Yield (name, value) for each value of the choice, in the choice's layout and with its
        sizes in ``graph``.

        Raises:
            ChoiceRefused: the graph has a value with other dims or type, or lacks it.
        """
        for name, value in self.chosen.values.items():
            twin = graph.values.get(self.sources[name])
            if twin is None or twin.dtype != value.dtype or [*twin.dims] != [*value.dims]:
                raise ChoiceRefused(f"{name} is no value of it, or has other dims")
            if (self.sources[name] in graph.constants) != value.constant:
                raise ChoiceRefused(f"{name} is a constant in one of them alone")
            yield name, replace(value, dims=twin.dims)

    @cached_property
    def sources(self) -> Mapping[str, str]:
        """For each value, by name, the network's value of which it is a copy, perhaps in another
        layout.
        """
        return self.chosen.sources

    @cached_property
    def _makers(self) -> Mapping[str, str]:
        return {name: node.name for node in self.chosen.operators for name in node.outputs}


def lasting_certificate(chosen: LoweredGraph) -> Certificate | None:
    """Return the certificate of a choice if it holds for all sizes; None if it does not, or there
    is none.

    It holds for all sizes if no node had a second variant to choose from, and no Transform runs:
    then no other choice is better.
    """
    certificate = chosen.certificate
    is_free = (
        certificate is not None and not certificate.open_nodes and not any(chosen.transforms())
    )
    return certificate if is_free else None


def with_parameters(graph: Graph, node: OpNode) -> OpNode:
    """Return a node of a choice with the operator and parameters that it has in a graph of other
    sizes.

    It has fewer followers if the graph offers fewer for it, and none if the graph offers others.

    Raises:
        ChoiceRefused: the graph has another operator under this name, or no node.
    """
    twin = graph.nodes.get(node.name)
    if twin is None or type(twin.op) is not type(node.op):
        raise ChoiceRefused(f"{node.name} is no node of it, or another operator")
    offered = tuple(graph.offers.get(node.name, ()))[: len(node.followers)]
    if [*map(_edges, offered)] != [*map(_edges, node.followers[: len(offered)])]:
        offered = ()
    label = " + ".join([label_of(twin.op), *(follower.op_name for follower in offered)])
    return replace(node, op=twin.op, op_name=label, followers=offered)


def _operand_names(node: OpNode) -> tuple[str, ...]:
    """Return the names of a node's operands, inputs first."""
    return (*node.inputs, *node.outputs)


def _operand_layouts(node: OpNode) -> Iterator[tuple[str, Layout]]:
    """Yield (name, layout) for each operand of a node: its name, and the layout in which the node
    takes it.
    """
    return zip(_operand_names(node), node.variant.layouts, strict=True)


def _untimed_node(node: OpNode) -> OpNode:
    return replace(node, variant=_untimed(node.variant))


def _untimed(variant: Variant) -> Variant:
    pieces = tuple(map(_untimed, variant.pieces))
    return replace(variant, ns=None, basis="declared", pieces=pieces)


def _edges(node: Node) -> tuple[str, Sequence[str], Sequence[str], type]:
    return node.name, node.inputs, node.outputs, type(node.op)


def alike(values: Mapping[str, Value], name: str, layout: Layout) -> bool:
    """Return whether ``layout`` puts the elements of the value ``name`` where its own layout puts
    them.

    The two layouts may be spelled differently.
    """
    value = values[name]
    return value.layout == layout or value.layout.same(layout.normalized(value.dtype), value.dims)
