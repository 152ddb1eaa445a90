"""Tensors in attributes of nodes.

Their data may be in the node, in another file (external), or split off from the model's bytes to be
read later (separate). A ``Constant`` node of the model's graph with separate or external data
becomes an initializer, since some exporters write initializers as such nodes. In all other nodes,
separate data is put back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

from optimizer.constants.originals import Original
from vtensor.errors import BudgetError, ModelError
from vtensor.frontends.calls import domain_of, graphs_of
from vtensor.frontends.files.deferred_arrays import Place
from vtensor.frontends.files.external import DataFiles
from vtensor.frontends.files.inline import Parts, of_node
from vtensor.frontends.tensors import Array, known_origin, place_of, take_in, tensor_origin

#: Types of attributes that hold neither a tensor nor a graph.
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
    """Turn ``Constant`` nodes with separate or external data into initializers.

    Args:
        graph: a model's graph. Separate data is put back into nodes that do not become
            initializers.
        parts: the model's bytes, split into the raw data of large weights (separate) and the rest.
        files: files of external data; None for a model from memory without a root.
        opsets: the opset's version, by domain.
        have: arrays that an earlier read of the model has left to be read on demand, by name.
        arrays: the initializers, by name; those made of ``Constant`` nodes are added.
        places: for each initializer that is read on demand, by name, where its bytes are; likewise.

    Returns:
        All nodes of the graph, in order; a node that became an initializer is an empty one.
    """
    taken = {*arrays, *(value.name for value in graph.input)}
    nodes = list[NodeProto]()
    for number, node in enumerate(graph.node):
        data = parts.data.get(place := of_node(number))
        is_external = data is not None or (node.op_type == "Constant" and _is_external(node))
        if not is_external or not _is_initializer(node, opsets) or node.output[0] in taken:
            if data is not None:
                node.attribute[0].t.raw_data = data.now().tobytes()
            nodes.append(node)
            continue
        [name], tensor = node.output, node.attribute[0].t
        try:
            origin = known_origin(name, tensor, have) or tensor_origin(tensor, files, data)
        except (BudgetError, ModelError):  # raised again later, if a node that runs reads the array
            if data is not None:
                tensor.raw_data = data.now().tobytes()
            nodes.append(node)
            continue
        taken.add(name)
        arrays[name] = origin
        if isinstance(origin, Original):
            places[name] = place_of(tensor, origin.nbytes) or ("", place)
        nodes.append(NodeProto(op_type=node.op_type))
    return nodes


def take_in_tensors(nodes: Iterable[NodeProto], files: DataFiles | None) -> None:
    """Read external data into the tensors of nodes, and of the graphs inside of the nodes.

    Raises:
        ModelError: a tensor's data cannot be read; the error names the node.
        BudgetError: the data exceeds the limit of ``files``; the error names the node.
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
    """Yield (node, tensor) for each tensor whose data is in another file.

    Tensors in graphs inside of the nodes are included; ``node`` is then the innermost node.
    """
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
    """Yield the nodes of a model's graph and of its functions."""
    yield from model.graph.node
    for function in model.functions:
        yield from function.node


def _tensors(attribute: AttributeProto) -> Iterator[TensorProto]:
    """Yield an attribute's tensors and the initializers of its graphs, but no tensors of graphs'
    nodes.
    """
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
    """Return whether a tensor among a node's attributes has its data in a file."""
    return any(each.t.data_location == TensorProto.EXTERNAL for each in node.attribute)


def _is_initializer(node: NodeProto, opsets: Mapping[str, int]) -> bool:
    """Return whether a node is a plain ``Constant``, whose tensor could be an initializer
    instead.
    """
    if len(node.attribute) != 1:
        return False
    [attribute] = node.attribute
    return (
        node.op_type == "Constant"
        and domain_of(node) == ""
        and bool(opsets.get(""))
        and not node.input
        and len(node.output) == 1
        and all(isinstance(name, str) for name in (node.name, *node.output))
        and (attribute.name, attribute.type) == ("value", AttributeProto.TENSOR)
    )
