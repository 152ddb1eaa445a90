"""Segments of a network: the parts between values that later nodes have to know before they run.

A network is cut where nodes need to know a value that only a run computes. The *first* part has all
nodes that do not depend on such nodes. After it, nodes of control flow run, whose graphs are
networks of their own. The *rest* reads the values of both as inputs, so that their values may
decide sizes; it is cut again if its nodes need further values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import GraphProto, NodeProto, TypeProto, helper

from optimizer.constants.originals import Originals
from vtensor.frontends.builder import attributes_of
from vtensor.frontends.control import DECIDING, constants_of
from vtensor.frontends.folding import Facts
from vtensor.frontends.functions import call, function_of, spellings_of
from vtensor.frontends.network import (
    InputType,
    Network,
    NetworkNode,
    needed,
    reads_of,
    running_nodes,
)
from vtensor.frontends.splicing import Splice, op_type
from vtensor.frontends.taken_names import TakenNames
from vtensor.frontends.values import is_arithmetic
from vtensor.language.dtype import numpy_dtype
from vtensor.language.records import dataclass, replace
from vtensor.language.spelling import COUNTED, Counts

if TYPE_CHECKING:
    from vtensor.frontends.onnx import Model

#: The type of a value: its element type, and its sizes as ``InputType`` has them.
Kind = tuple[str, tuple[int | None, ...] | None]


@dataclass(frozen=True, eq=False)
class Control:
    """A node of control flow that runs between two segments.

    Attributes:
        node: the node.
        model: the model that it belongs to.
        attributes: its attributes by name.
        reads: names of all values that it reads and that are not the model's constants.
    """

    node: NetworkNode
    model: Model
    attributes: Mapping[str, Any] = field(default_factory=dict)
    reads: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """The operator's name."""
        return self.node.label

    @property
    def inputs(self) -> list[str]:
        """Names of the node's inputs; an empty name is an optional input that is left out."""
        return list(self.node.proto.input)

    @property
    def outputs(self) -> list[str]:
        """Names of the node's outputs; an empty name is an output that is left out."""
        return list(self.node.proto.output)

    def constant(self, name: str) -> Any:
        """Return the array of a constant of the model; None if the value is no constant."""
        return self.model.network.arrays.get(name)

    def captured(self, attribute: str) -> list[str]:
        """Return the names of the outer values that one of the node's graphs reads.

        Constants of the model are left out.
        """
        return [n for n in self.reads if n in _outer_reads(self.attributes[attribute])]

    def passed(self, attribute: str) -> dict[str, str]:
        """Return, for each output of a graph that is one of its inputs or an outer value, by name,
        the name of that value.
        """
        graph, identity = self.attributes[attribute], op_type("identity")
        same = {n.output[0]: n.input[0] for n in graph.node if n.op_type == identity}
        given = {*(value.name for value in graph.input), *self.captured(attribute)}
        passed = {}
        for value in graph.output:
            name = value.name
            while name in same and name not in given:
                name = same[name]
            if name in given:
                passed[value.name] = name
        return passed

    def body(self, attribute: str, kinds: Mapping[str, Kind]) -> Model:
        """Return one of the node's graphs as a model.

        Its inputs are the graph's own inputs, then the outer values that the graph reads. Its
        outputs are those that are not ``passed``.

        Args:
            attribute: the name of the attribute that holds the graph.
            kinds: the types of all inputs, by name.

        Raises:
            ModelError: the graph is inconsistent.
        """
        graph, network = self.attributes[attribute], self.model.network
        own = [value.name for value in graph.input]
        inputs = {name: _input_type(kinds[name]) for name in (*own, *self.captured(attribute))}
        outer = _outer_reads(graph)
        arrays = {n: a for n, a in network.arrays.origins().items() if n in outer}
        passed = self.passed(attribute)
        outputs = list(dict.fromkeys(v.name for v in graph.output if v.name not in passed))
        nodes, used = running_nodes(
            [*constants_of(graph), *graph.node], {*inputs, *arrays}, outputs, self.node.opsets
        )
        declared = {value.name: _without_sizes(value.type) for value in graph.output}
        return self.model.part(_part(network, nodes, inputs, outputs, used, declared, arrays))


@dataclass(frozen=True, eq=False)
class Cut:
    """A model that is cut into a first part, nodes of control flow, and the rest.

    Attributes:
        first: the model of the first part; None if it computes nothing.
        controls: the nodes of control flow that run after it, in order.
        rest: names of the outputs that the rest computes.
        live: names of the values that the rest reads, and that the first part and ``controls``
            compute.
        rest_of: makes the model of the rest, given the types of the values ``live``.
    """

    first: Model | None
    controls: Sequence[Control]
    rest: Sequence[str]
    live: Sequence[str]
    rest_of: Callable[[Mapping[str, Kind]], Model]


def cut(model: Model, names: Mapping[str, bool], facts: Facts) -> Cut | None:
    """Cut a model before nodes that need to know values that only a run computes.

    Args:
        model: the model.
        names: these nodes by name, with True if a node inside of them needs the value.
        facts: the types and values that are known without a run.

    Returns:
        The parts; None if these nodes need no value that another node computes.

    Raises:
        ModelError: a function is inconsistent.
    """
    network = _with_bodies(model.network, names, facts)
    if network is not model.network:
        return Cut(None, (), network.outputs, (), lambda _: model.part(network))
    waiting, controls, before = _split(network, {*names})
    controlled = {name for node in controls for name in node.outputs}
    rest = [name for name in network.outputs if name in waiting]
    repeated = [n for n in before if _is_known(n, facts) or is_arithmetic(n, facts)]
    chosen = {node.name for node in repeated}
    nodes, used = needed(
        [n for n in network.nodes if n.name in chosen or waiting.keys() & {*n.outputs}], rest
    )
    made = {name for node in nodes for name in node.outputs}
    given = {*network.inputs, *network.arrays.origins()}
    live = sorted(used - made - given)
    if not live and not controls:
        return None
    reads = {name for node in controls for name in node.reads}
    ends = [name for name in network.outputs if name not in waiting and name not in controlled]
    outputs = list(dict.fromkeys([*ends, *sorted({*live, *reads} - controlled - given)]))
    first = _first(network, before, outputs, facts)

    def rest_of(kinds: Mapping[str, Kind]) -> Model:
        inputs = {name: kind for name, kind in network.inputs.items() if name in used}
        inputs |= {name: _input_type(kinds[name]) for name in live}
        return model.part(_part(network, nodes, inputs, rest, used, network.declared))

    return Cut(
        model.part(first) if outputs else None,
        [_control(node, model) for node in controls],
        rest,
        live,
        rest_of,
    )


def _with_bodies(network: Network, names: Mapping[str, bool], facts: Facts) -> Network:
    """Return the network with other nodes in place of some of the nodes ``names``.

    In place of a node that calls a function, there is the function's body; in place of one that
    finds a number of elements, the node that delivers this number, and slices by it. The result is
    ``network`` itself if there is no such node.

    Args:
        network: the network.
        names: nodes by name, with True if a node inside of them needs to know a value.
        facts: the types and values that are known without a run.
    """
    nodes = list[NetworkNode]()
    taken = TakenNames([*network.value_names(), *(node.name for node in network.nodes)])
    for node in network.nodes:
        inner = names.get(node.name)
        function = function_of(node, network, facts) if inner else None
        counts = [each.counts for each in spellings_of(node) if inner is False and each.counts]
        if function is not None:
            nodes += [replace(part, origin=None) for part in call(node, function, taken)]
        elif counts:
            nodes += _counted(node, counts[0], network, taken)
        else:
            nodes.append(node)
    if len(nodes) == len(network.nodes):
        return network
    nodes, used = needed(nodes, network.outputs)
    return replace(network, nodes=nodes, used=frozenset(used), local={}, computed={})


def _counted(
    node: NetworkNode, counts: Counts, network: Network, taken: TakenNames
) -> list[NetworkNode]:
    """Return the nodes that replace one of which only a run knows how much it finds.

    These are the node that delivers the number of what it finds, and slices by that number.

    Args:
        node: the node.
        counts: the axis along which an output has what is found, by the output's index.
        network: the network of the node.
        taken: the names of all values and nodes; the names of new ones are added to it.
    """
    proto, splice = NodeProto.FromString(node.proto.SerializeToString()), Splice(node, taken)
    count, listed = splice.free("count"), list(proto.output)
    proto.domain, begin = COUNTED, splice.constant(np.array([0]))
    for place, axis in counts(attributes_of(node, network)).items():
        if place < len(listed) and listed[place]:
            whole, output = splice.free("found"), listed[place]
            proto.output[place] = whole
            axes = splice.constant(np.array([axis]))
            splice.protos.append(
                NodeProto(
                    op_type=op_type("slice"), input=[whole, begin, count, axes], output=[output]
                )
            )
    proto.output.append(count)
    splice.protos.append(proto)
    opsets = {**node.opsets, COUNTED: 1, "": max(node.opset, 13)}
    nodes = splice.nodes(node.outputs, opsets)
    return [replace(each, origin=None) for each in nodes]


def _split(
    network: Network, names: set[str]
) -> tuple[dict[str, NetworkNode], list[NetworkNode], list[NetworkNode]]:
    """Return (values of the rest with their nodes, nodes of control flow, nodes of the first part).

    Args:
        network: the network.
        names: names of the nodes that need to know values that a run computes.
    """
    after: set[str] = set()
    waiting: dict[str, NetworkNode] = {}
    controls, before = [], []
    for node in network.nodes:
        depends = bool(after.intersection(node.reads))
        if not depends and node.name not in names:
            before.append(node)
            continue
        after.update(node.outputs)
        if depends or node.label not in DECIDING:
            waiting.update(dict.fromkeys(node.outputs, node))
        else:
            controls.append(node)
    return waiting, controls, before


def _is_known(node: NetworkNode, facts: Facts) -> bool:
    """Return whether a node is computed before a run, so that each part may compute it."""
    return facts.static.issuperset(node.outputs)


def _first(
    network: Network, before: Sequence[NetworkNode], outputs: Sequence[str], facts: Facts
) -> Network:
    """Return the network of the first part.

    Args:
        network: the network.
        before: the nodes that may belong to the part.
        outputs: names of the values that it delivers.
        facts: the known types.
    """
    nodes, used = needed(before, outputs)
    inputs = {name: kind for name, kind in network.inputs.items() if name in used}
    types = {name: _without_sizes(facts.types.get(name)) for name in outputs}
    return _part(network, nodes, inputs, outputs, used, {**types, **network.declared})


def _part(
    network: Network,
    nodes: Sequence[NetworkNode],
    inputs: Mapping[str, InputType],
    outputs: Sequence[str],
    used: set[str],
    declared: Mapping[str, TypeProto],
    arrays: Mapping[str, Any] | None = None,
) -> Network:
    """Return a network of some nodes of ``network``, or of a graph inside one of them."""
    have = network.arrays.origins() if arrays is None else arrays
    return replace(
        network,
        inputs=inputs,
        outputs=outputs,
        arrays=Originals({name: array for name, array in have.items() if name in used}),
        nodes=nodes,
        declared=declared,
        used=frozenset(used),
        stored=None,
        folded=set(),
        local={},
        computed={},
        overridable={},
    )


def _control(node: NetworkNode, model: Model) -> Control:
    """Return a node of control flow of a model as a ``Control``."""
    attributes = {a.name: helper.get_attribute_value(a) for a in node.proto.attribute}
    reads = sorted(node.reads - model.network.arrays.origins().keys())
    return Control(node, model, attributes, tuple(reads))


def _outer_reads(graph: GraphProto) -> set[str]:
    """Return the names of the outer values that a graph reads."""
    inside = {value.name for value in (*graph.input, *graph.initializer)}
    inside.update(name for node in graph.node for name in node.output)
    reads = {value.name for value in graph.output}
    return reads.union(*map(reads_of, graph.node)) - inside


def _input_type(kind: Kind) -> InputType:
    """Return the type of a value as that of an input."""
    dtype, sizes = kind
    return InputType(dtype, helper.np_dtype_to_tensor_dtype(numpy_dtype(dtype)), sizes)


def _without_sizes(kind: TypeProto | None) -> TypeProto:
    """Return a type of the same element type that says nothing about sizes."""
    number = kind.tensor_type.elem_type if kind is not None else 0
    return helper.make_tensor_type_proto(number, None) if number else TypeProto()
