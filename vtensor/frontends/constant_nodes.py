"""``Constant`` nodes whose data is apart: a model's initializers, which some exporters write so."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import AttributeProto, GraphProto, NodeProto, TensorProto

from optimizer.originals import Original
from vtensor.errors import ModelError
from vtensor.frontends.beside import Place
from vtensor.frontends.calls import domain_of
from vtensor.frontends.inline import Parts, of_node
from vtensor.frontends.tensors import Array, tensor_origin


def without_constants(
    graph: GraphProto,
    parts: Parts,
    opsets: Mapping[str, int],
    have: Mapping[str, Original],
    arrays: dict[str, Array | Original],
    places: dict[str, Place],
) -> list[NodeProto]:
    """The nodes; in the places of those that are initializers, since their data is apart, are some
    that make nothing.

    Args:
        graph: its nodes whose data is apart and are none get it back.
        parts: where the data is.
        opsets: version by domain.
        have: what somebody has of the arrays already.
        arrays, places: of initializers; those of such nodes are put there.
    """
    taken = {*arrays, *(value.name for value in graph.input)}
    found = list[NodeProto]()
    for number, node in enumerate(graph.node):
        data = parts.data.get(place := of_node(number))
        if data is None or not _is_initializer(node, opsets) or node.output[0] in taken:
            if data is not None:  # whoever reads the node says what it is
                node.attribute[0].t.raw_data = data.now().tobytes()
            found.append(node)
            continue
        [name], tensor = node.output, node.attribute[0].t
        try:
            one = have.get(name) or tensor_origin(tensor, None, data)
        except ModelError:  # which counts only where somebody reads it
            tensor.raw_data = data.now().tobytes()
            found.append(node)
            continue
        taken.add(name)
        arrays[name] = one
        if isinstance(one, Original):
            places[name] = "", place
        found.append(NodeProto(op_type=node.op_type))
    return found


def _is_initializer(node: NodeProto, opsets: Mapping[str, int]) -> bool:
    """Whether a node whose data is apart is no more than an initializer."""
    [attribute] = node.attribute
    return (
        node.op_type == "Constant"
        and domain_of(node) == ""
        and bool(opsets.get(""))
        and not node.input
        and len(node.output) == 1
        and all(isinstance(one, str) for one in (node.name, *node.output))
        and (attribute.name, attribute.type) == ("value", AttributeProto.TENSOR)
        and attribute.t.data_location != TensorProto.EXTERNAL
    )
