"""Tensors in nodes whose data is apart or in files.

``Constant`` nodes of the model's graph are initializers, which some exporters write so; all other
tensors get their data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

from optimizer.originals import Original
from vtensor.errors import BudgetError, ModelError
from vtensor.frontends.calls import domain_of, graphs_of
from vtensor.frontends.deferred_arrays import Place
from vtensor.frontends.external import DataFiles
from vtensor.frontends.inline import Parts, of_node
from vtensor.frontends.tensors import Array, known_origin, place_of, take_in, tensor_origin

#: Types of attributes without a tensor or a graph.
_WITHOUT_TENSORS = frozenset(
    AttributeProto.AttributeType.Value(name + many)
    for name in ("FLOAT", "INT", "STRING")
    for many in ("", "S")
)


def without_constants(
    graph: GraphProto,
    parts: Parts,
    files: DataFiles | None,
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
        files: where external data may be; None of a model from memory without a root.
        opsets: version by domain.
        have: what somebody has of the arrays already.
        arrays, places: of initializers; those of such nodes are put there.
    """
    taken = {*arrays, *(value.name for value in graph.input)}
    found = list[NodeProto]()
    for number, node in enumerate(graph.node):
        data = parts.data.get(place := of_node(number))
        is_external = data is not None or (node.op_type == "Constant" and _is_external(node))
        if not is_external or not _is_initializer(node, opsets) or node.output[0] in taken:
            if data is not None:  # whoever reads the node says what it is
                node.attribute[0].t.raw_data = data.now().tobytes()
            found.append(node)
            continue
        [name], tensor = node.output, node.attribute[0].t
        try:
            one = known_origin(name, tensor, have) or tensor_origin(tensor, files, data)
        except (BudgetError, ModelError):  # which counts only if a node that runs reads it
            if data is not None:
                tensor.raw_data = data.now().tobytes()
            found.append(node)
            continue
        taken.add(name)
        arrays[name] = one
        if isinstance(one, Original):
            places[name] = place_of(tensor, one.nbytes) or ("", place)
        found.append(NodeProto(op_type=node.op_type))
    return found


def take_in_tensors(nodes: Iterable[NodeProto], files: DataFiles | None) -> None:
    """Read the external data of tensors in nodes, and in graphs in them, into the tensors.

    Raises:
        ModelError, BudgetError: as for ``tensor_array``; the node is named.
    """
    for node, tensor in external_tensors(nodes):
        what = f"{node.op_type} {node.name or (*node.output, '')[0]!r}"
        try:
            take_in(tensor, files)
        except ModelError as error:
            raise ModelError(f"{what}: {error}") from error.__cause__
        except BudgetError as error:
            raise BudgetError(f"{what}: {error}") from None


def external_tensors(nodes: Iterable[NodeProto]) -> Iterator[tuple[NodeProto, TensorProto]]:
    """Return the tensors in nodes, and in graphs in them, whose data is in a file."""
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type in _WITHOUT_TENSORS:
                continue
            for tensor in _tensors(attribute):
                if tensor.data_location == TensorProto.EXTERNAL:
                    yield node, tensor
            for graph in graphs_of(attribute):
                yield from external_tensors(graph.node)


def own_nodes(model: ModelProto) -> Iterator[NodeProto]:
    """Return the nodes of a model's graph and of its functions."""
    yield from model.graph.node
    for function in model.functions:
        yield from function.node


def _tensors(attribute: AttributeProto) -> Iterator[TensorProto]:
    """Return the tensors of an attribute, those of its graphs without their nodes'."""
    graphs = graphs_of(attribute)
    sparse = [tensor for graph in graphs for tensor in graph.sparse_initializer]
    if attribute.HasField("t"):
        yield attribute.t
    if attribute.HasField("sparse_tensor"):
        sparse.append(attribute.sparse_tensor)
    yield from attribute.tensors
    for graph in graphs:
        yield from graph.initializer
    for tensor in (*sparse, *attribute.sparse_tensors):
        yield from (tensor.values, tensor.indices)


def _is_external(node: NodeProto) -> bool:
    return any(each.t.data_location == TensorProto.EXTERNAL for each in node.attribute)


def _is_initializer(node: NodeProto, opsets: Mapping[str, int]) -> bool:
    """Whether a node whose data is apart is no more than an initializer."""
    if len(node.attribute) != 1:
        return False
    [attribute] = node.attribute
    return (
        node.op_type == "Constant"
        and domain_of(node) == ""
        and bool(opsets.get(""))
        and not node.input
        and len(node.output) == 1
        and all(isinstance(one, str) for one in (node.name, *node.output))
        and (attribute.name, attribute.type) == ("value", AttributeProto.TENSOR)
    )
