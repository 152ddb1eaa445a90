"""Runs nodes whose operators VTensor lacks on ONNX's reference evaluator, as the last resort."""

from __future__ import annotations

from libdesc.onnx_reference.node import OneNode, OnnxNode
from vtensor.errors import ModelError
from vtensor.frontends.folding import Facts, has_graphs, one_node
from vtensor.frontends.network import Network, NetworkNode
from vtensor.frontends.tensors import element_type
from vtensor.frontends.values import INTEGERS
from vtensor.language.process.interrupts import pass_signals
from vtensor.language.spelling import NodeReader, Spelling
from vtensor.language.tensor import VTensor


def reference_spelling(node: NetworkNode, network: Network, facts: Facts) -> Spelling | None:
    """Return a ``Spelling`` that reads a node as a call-back to ONNX's reference evaluator.

    None if the evaluator lacks the node's operator. None also for control flow, since its graphs
    read values that are not inputs of the node.
    """
    if has_graphs(node):
        return None
    used = [name for name in node.outputs if name in network.used]
    model = one_node(node, facts.types, used)
    try:
        _ = model.evaluator
    except Exception as error:  # ONNX has no implementation of the operator
        pass_signals(error)
        return None

    def read(reader: NodeReader) -> list[VTensor]:
        return _read(reader, node, model, used, facts)

    return Spelling(node.proto.op_type, 1, read, names=lambda _: None)  # no two dims are unified


def _read(
    reader: NodeReader, node: NetworkNode, model: OneNode, used: list[str], facts: Facts
) -> list[VTensor]:
    """Add the call-back that runs a node, and return its outputs up to the last used one.

    Unused outputs are not computed. In the returned list, the first used output stands in place of
    each of them.

    Args:
        reader: the reader of the node; a value that the node reads twice becomes one operand.
        node: the node.
        model: the node as a model for ONNX's evaluator.
        used: names of the outputs that are used.
        facts: the known types and values.
    """
    names = list(node.proto.input)
    operands = [reader.input(names.index(name)) for name in dict.fromkeys(node.inputs)]
    places = [list(node.proto.output).index(name) for name in used]
    outputs = tuple(_output(reader, node, place, facts) for place in places)
    if not operands:
        raise reader.refuse("onnx.reference could run it, if it had an input")
    added = reader.add(OnnxNode(model, outputs), *operands)
    values = [added] if isinstance(added, VTensor) else list(added)
    by_place = dict(zip(places, values, strict=True))
    return [by_place.get(place, values[0]) for place in range(places[-1] + 1)]


def _output(
    reader: NodeReader, node: NetworkNode, place: int, facts: Facts
) -> tuple[str, tuple[tuple[str, int], ...]]:
    """Return the element type of output number ``place``, and the names and sizes of its dims.

    Raises:
        NodeRefused: the output is no tensor, or its sizes are unknown.
        ValuesNeededError: its sizes may depend on the values of the model's inputs.
    """
    name = node.proto.output[place]
    kind, sizes = facts.types.get(name), facts.sizes(name)
    if kind is not None and not kind.HasField("tensor_type"):
        raise reader.refuse(f"output {place} ({name!r}) is no tensor")
    if kind is None or sizes is None or None in sizes:
        for index, given in enumerate(node.proto.input):
            if given and reader.input(index).dtype in INTEGERS:
                reader.constant(index)  # raises if a given value could decide the sizes
        raise reader.refuse(
            f"the sizes of output {place} ({name!r}) are decided by data, or ONNX's shape "
            "inference does not know them"
        )
    try:
        dtype = element_type(kind.tensor_type.elem_type, f"output {place} ({name!r})")
    except ModelError as error:
        raise reader.refuse(str(error)) from error
    return dtype, tuple(zip(reader.output_names(place), (s or 0 for s in sizes), strict=True))
