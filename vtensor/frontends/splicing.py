"""Nodes in place of one node: what a function or a graph inside of a node holds, made its own.

Every name in there becomes one that nothing else has, and begins with the name of the node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto, helper, numpy_helper

from vtensor.frontends.calls import graphs_of
from vtensor.frontends.network import NetworkNode, running_nodes
from vtensor.frontends.taken_names import TakenNames
from vtensor.frontends.tensors import Array
from vtensor.language.operators import OPERATORS
from vtensor.language.records import dataclass


@dataclass(eq=False)
class Splice:
    """Collects the nodes that take the place of ``node``.

    Args:
        taken: every name of a value or a node of the network; new ones join.
        prefix: what names begin with behind the node's own.
    """

    node: NetworkNode
    taken: TakenNames
    prefix: str = ""
    protos: list[NodeProto] = field(default_factory=list)

    def add(
        self,
        protos: Sequence[NodeProto],
        names: Mapping[str, str],
        outputs: Iterable[tuple[str, str]] = (),
        attributes: Mapping[str, AttributeProto] | None = None,
    ) -> dict[str, str]:
        """Add copies of nodes under names of their own.

        Args:
            names: what values that are given to the nodes are called outside.
            outputs: values in there that are delivered, each with its name outside.
            attributes: what references to attributes stand for; others are dropped.

        Returns:
            The name outside of every value.
        """
        names, own = dict(names), defined(protos)
        passed = []
        for inner, outer in outputs:
            if inner in own and inner not in names:
                names[inner] = outer
            else:  # delivered as it was given, or twice
                passed.append((inner, outer))
        for inner in own:
            names.setdefault(inner, self.free(inner))
        self.protos += [_renamed(proto, names, attributes or {}) for proto in protos]
        for inner, outer in passed:
            self.alias(names.get(inner, inner), outer)
        return names

    def alias(self, value: str, name: str) -> None:
        """A value under another name."""
        self.protos.append(NodeProto(op_type=op_type("identity"), input=[value], output=[name]))

    def new(self, kind: str, inputs: Sequence[str], axis: int, output: str = "") -> str:
        """The output of a structural operator along an axis."""
        output = output or self.free(kind)
        self.protos.append(helper.make_node(op_type(kind), inputs, [output], axis=axis))
        return output

    def constant(self, array: Array) -> str:
        """A value that is known."""
        name = self.free("constant")
        value = numpy_helper.from_array(array)
        self.protos.append(helper.make_node("Constant", [], [name], value=value))
        return name

    def stack(self, values: Sequence[str], axis: int, output: str) -> None:
        """Values of one shape along a new axis."""
        given, attributes, rows = list[str](), dict[str, Any](), []
        if self.node.opset < 13:
            attributes["axes"] = [axis]
        else:
            given.append(self.constant(np.array([axis])))
        for value in values:
            rows.append(self.free("row"))
            made = helper.make_node("Unsqueeze", [value, *given], rows[-1:], **attributes)
            self.protos.append(made)
        self.new("concat", rows, axis, output)

    def free(self, stem: str) -> str:
        """A name that nothing else has, behind the node's own."""
        return self.taken.free(f"{self.node.name}/{self.prefix}{stem}")

    def nodes(self, outputs: Sequence[str], opsets: Mapping[str, int]) -> list[NetworkNode]:
        """The nodes, in running order; those alone that these outputs need.

        Raises:
            ModelError: they do not hang together.
        """
        own = {name for proto in self.protos for name in proto.output}
        self.taken -= own
        try:
            nodes, _ = running_nodes(
                self.protos, self.taken, outputs, opsets, self.node, self.prefix
            )
        finally:
            self.taken |= own
        self.taken.update(node.name for node in nodes)
        return nodes


def op_type(kind: str) -> str:
    """How ONNX calls a structural operator."""
    return OPERATORS.structural(kind).onnx[0].op_type


def defined(protos: Iterable[NodeProto]) -> dict[str, None]:
    """The values that nodes define, and graphs inside of them."""
    names: dict[str, None] = {}
    for proto in protos:
        names.update((name, None) for name in proto.output if name)
        for attribute in proto.attribute:
            for graph in graphs_of(attribute):
                given = (*graph.input, *graph.initializer)
                names.update((value.name, None) for value in given)
                names.update(defined(graph.node))
    return names


def _renamed(
    proto: NodeProto, names: Mapping[str, str], attributes: Mapping[str, AttributeProto]
) -> NodeProto:
    """A copy of a node with other names, and values in place of references to attributes."""
    copy = NodeProto()
    copy.CopyFrom(proto)
    copy.input[:] = [names.get(name, name) for name in proto.input]
    copy.output[:] = [names.get(name, name) for name in proto.output]
    del copy.attribute[:]
    for attribute in proto.attribute:
        if not attribute.ref_attr_name:
            added = copy.attribute.add()
            added.CopyFrom(attribute)
            for graph in graphs_of(added):
                _rename_graph(graph, names, attributes)
        elif attribute.ref_attr_name in attributes:
            added = copy.attribute.add()
            added.CopyFrom(attributes[attribute.ref_attr_name])
            added.name = attribute.name
    return copy


def _rename_graph(
    graph: GraphProto, names: Mapping[str, str], attributes: Mapping[str, AttributeProto]
) -> None:
    del graph.value_info[:]
    for value in (*graph.input, *graph.output, *graph.initializer):
        value.name = names.get(value.name, value.name)
    nodes = [_renamed(node, names, attributes) for node in graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
