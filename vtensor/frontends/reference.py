"""The last resort: a node whose operator VTensor lacks, to be run by ONNX's reference evaluator."""

from __future__ import annotations

from libdesc.onnx_reference.node import OneNode, OnnxNode
from vtensor.errors import ModelError
from vtensor.frontends.folding import Facts, has_graphs, one_node
from vtensor.frontends.network import Network, NetworkNode
from vtensor.frontends.tensors import element_type
from vtensor.frontends.values import INTEGERS
from vtensor.language.interrupts import pass_signals
from vtensor.language.spelling import NodeReader, Spelling
from vtensor.language.tensor import VTensor


def reference_spelling(node: NetworkNode, network: Network, facts: Facts) -> Spelling | None:
    """How to read a node for which no spelling is registered.

    None where ONNX's evaluator has no such operator either, and for control flow, whose graphs read
    values that are no inputs of the node.
    """
    if has_graphs(node):
        return None
    used = [name for name in node.outputs if name in network.used]
    one = one_node(node, facts.types, used)
    try:
        _ = one.evaluator
    except Exception as error:  # whatever ONNX raises for what it has no implementation of
        pass_signals(error)
        return None

    def read(reader: NodeReader) -> list[VTensor]:
        return _read(reader, node, one, used, facts)

    return Spelling(node.proto.op_type, 1, read, names=lambda _: None)  # each dim is one of its own


def _read(
    reader: NodeReader, node: NetworkNode, one: OneNode, used: list[str], facts: Facts
) -> list[VTensor]:
    """The operator on an operand for each value that the node reads, however often it does."""
    names = list(node.proto.input)
    operands = [reader.input(names.index(name)) for name in dict.fromkeys(node.inputs)]
    places = [list(node.proto.output).index(name) for name in used]
    outputs = tuple(_output(reader, node, place, facts) for place in places)
    if not operands:
        raise reader.refuse("onnx.reference could run it, if it had an input")
    made = reader.add(OnnxNode(one, outputs), *operands)
    values = [made] if isinstance(made, VTensor) else list(made)
    by_place = dict(zip(places, values, strict=True))
    return [by_place.get(place, values[0]) for place in range(places[-1] + 1)]


def _output(
    reader: NodeReader, node: NetworkNode, place: int, facts: Facts
) -> tuple[str, tuple[tuple[str, int], ...]]:
    """Element type and sizes by dim of an output, as ONNX's shape inference has them."""
    name = node.proto.output[place]
    kind, sizes = facts.types.get(name), facts.sizes(name)
    if kind is not None and not kind.HasField("tensor_type"):
        raise reader.refuse(f"output {place} ({name!r}) is no tensor")
    if kind is None or sizes is None or None in sizes:
        for index, given in enumerate(node.proto.input):
            if given and reader.input(index).dtype in INTEGERS:
                reader.constant(index)  # a size that is fed, perhaps: ask for its value
        raise reader.refuse(
            f"the sizes of output {place} ({name!r}) are decided by data, or ONNX's shape "
            "inference does not know them"
        )
    try:
        dtype = element_type(kind.tensor_type.elem_type, f"output {place} ({name!r})")
    except ModelError as error:
        raise reader.refuse(str(error)) from error
    return dtype, tuple(zip(reader.output_names(place), (s or 0 for s in sizes), strict=True))
