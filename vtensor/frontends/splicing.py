"""Splicing: the nodes of a function, or of a graph inside a node, replace that node.

Every name of these nodes and of their values becomes unique and begins with the name of the
replaced node.
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
    """The nodes that replace ``node``, as they are collected.

    Args:
        node: the node that is replaced.
        taken: the names of all values and nodes of the network; the names of new ones are added to
            it.
        prefix: the middle part of new names: a new name is ``NODE/`` + ``prefix`` + its own part,
            where ``NODE`` is the name of the replaced node.
        protos: the nodes so far.
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
        """Add copies of nodes; the copies and their values get unique names.

        Args:
            protos: the nodes.
            names: the network's names of the values that the nodes are given, by their names in
                ``protos``.
            outputs: (name in ``protos``, name in the network) of each value that is delivered.
            attributes: a function's attributes, by name: those of its call and defaults; each
                replaces the nodes' references to it. A reference to any other one is dropped.

        Returns:
            The network's names of all values, by their names in ``protos``.
        """
        names, inner_values = dict(names), defined(protos)
        passed = []
        for inner, outer in outputs:
            if inner in inner_values and inner not in names:
                names[inner] = outer
            else:  # the value is an input of the nodes, or is delivered twice
                passed.append((inner, outer))
        for inner in inner_values:
            names.setdefault(inner, self.free(inner))
        self.protos += [_renamed(proto, names, attributes or {}) for proto in protos]
        for inner, outer in passed:
            self.alias(names.get(inner, inner), outer)
        return names

    def alias(self, value: str, name: str) -> None:
        """Add an Identity node, which gives value ``value`` the name ``name``, too."""
        self.protos.append(NodeProto(op_type=op_type("identity"), input=[value], output=[name]))

    def new(self, kind: str, inputs: Sequence[str], axis: int, output: str = "") -> str:
        """Add a node of a structural operator along an axis, and return the name of its output.

        Args:
            kind: VTensor's structural operator, such as ``concat``.
            inputs: names of its inputs.
            axis: the axis.
            output: name of its output; a new name if empty.
        """
        output = output or self.free(kind)
        self.protos.append(helper.make_node(op_type(kind), inputs, [output], axis=axis))
        return output

    def constant(self, array: Array) -> str:
        """Add a ``Constant`` node, and return the name of its output."""
        name = self.free("constant")
        value = numpy_helper.from_array(array)
        self.protos.append(helper.make_node("Constant", [], [name], value=value))
        return name

    def stack(self, values: Sequence[str], axis: int, output: str) -> None:
        """Add nodes that stack values of one shape along a new axis, number ``axis`` of the result.

        ``output`` is the name of the result.
        """
        axes, attributes, rows = list[str](), dict[str, Any](), []
        if self.node.opset < 13:
            attributes["axes"] = [axis]
        else:
            axes.append(self.constant(np.array([axis])))
        for value in values:
            rows.append(self.free("row"))
            unsqueeze = helper.make_node("Unsqueeze", [value, *axes], rows[-1:], **attributes)
            self.protos.append(unsqueeze)
        self.new("concat", rows, axis, output)

    def free(self, stem: str) -> str:
        """Return a new name: the replaced node's name, the prefix, ``stem``, and a number if
        necessary.
        """
        return self.taken.free(f"{self.node.name}/{self.prefix}{stem}")

    def nodes(self, outputs: Sequence[str], opsets: Mapping[str, int]) -> list[NetworkNode]:
        """Return those collected nodes that the values ``outputs`` need, in an order in which they
        can run.

        ``opsets`` has the opset version by domain that these nodes get.

        Raises:
            ModelError: the nodes are inconsistent.
        """
        defined_names = {name for proto in self.protos for name in proto.output}
        self.taken -= defined_names
        try:
            nodes, _ = running_nodes(
                self.protos, self.taken, outputs, opsets, self.node, self.prefix
            )
        finally:
            self.taken |= defined_names
        self.taken.update(node.name for node in nodes)
        return nodes


def op_type(kind: str) -> str:
    """Return the ONNX operator of VTensor's structural operator ``kind``, such as ``concat``."""
    return OPERATORS.structural(kind).onnx[0].op_type


def defined(protos: Iterable[NodeProto]) -> dict[str, None]:
    """Return the names of all values that nodes, and the graphs inside of them, define.

    The names are the keys, in order; the values of the dict are None.
    """
    names: dict[str, None] = {}
    for proto in protos:
        names.update((name, None) for name in proto.output if name)
        for attribute in proto.attribute:
            for graph in graphs_of(attribute):
                inputs = (*graph.input, *graph.initializer)
                names.update((value.name, None) for value in inputs)
                names.update(defined(graph.node))
    return names


def _renamed(
    proto: NodeProto, names: Mapping[str, str], attributes: Mapping[str, AttributeProto]
) -> NodeProto:
    """Return a copy of a node with other names of values.

    Args:
        proto: the node.
        names: new names by old ones; other names stay.
        attributes: a function's attributes, by name: those of its call and defaults; each replaces
            the node's references to it. A reference to any other one is dropped.
    """
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
    """Rename the values of a graph inside a node, in place; the arguments are those of
    ``_renamed``.
    """
    del graph.value_info[:]
    for value in (*graph.input, *graph.output, *graph.initializer):
        value.name = names.get(value.name, value.name)
    nodes = [_renamed(node, names, attributes) for node in graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
