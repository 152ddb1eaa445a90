"""Functions: operators that are defined by other operators, by ONNX or by the model itself.

If VTensor lacks the operator, the nodes of the function's body replace the node that calls it. The
names of these nodes and of their values begin with the name of the calling node.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import onnx
from onnx import FunctionProto

from vtensor.errors import ModelError
from vtensor.frontends.folding import Facts, schema_of
from vtensor.frontends.network import Network, NetworkNode, reads_of, versions
from vtensor.frontends.splicing import Splice, defined
from vtensor.frontends.taken_names import TakenNames
from vtensor.language.operators import OPERATORS
from vtensor.language.process.interrupts import pass_signals
from vtensor.language.spelling import Spelling
from vtensor.language.wording import counted


def spellings_of(node: NetworkNode) -> list[Spelling]:
    """Return the ``Spelling`` objects that read a node's operator in the node's opset.

    Empty if VTensor lacks the operator.
    """
    return OPERATORS.spellings(node.label, node.opsets[node.domain])


def has_body(domain: str, op_type: str, opset: int) -> bool:
    """Return whether ONNX defines an operator by a function.

    >>> has_body("", "SoftmaxCrossEntropyLoss", 13), has_body("", "MatMul", 13)
    (True, False)
    """
    try:
        schema: Any = onnx.defs.get_schema(op_type, opset, domain)  # ONNX's stubs are incomplete
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


def function_of(node: NetworkNode, network: Network, facts: Facts) -> FunctionProto | None:
    """Return the function that a node calls: the model's own, or ONNX's if VTensor lacks the
    operator.

    None if there is no such function, or if ONNX's function depends on types that are unknown yet.

    Raises:
        ModelError: the model's function has fewer inputs than the node, or reads a value that it
            does not define.
    """
    function = network.functions.get(node.key)
    if function is None:
        schema = schema_of(node)
        return None if spellings_of(node) or schema is None else _onnx_function(schema, node, facts)
    local = {*function.input, *defined(function.node)}
    if len(node.proto.input) > len(function.input):
        raise ModelError(f"the function takes {counted(len(function.input), 'input')}")
    foreign = sorted({name for each in function.node for name in reads_of(each)} - local)
    if foreign:
        raise ModelError(f"the function reads {foreign[0]!r}, which is defined nowhere")
    return function


def _onnx_function(schema: Any, node: NetworkNode, facts: Facts) -> FunctionProto | None:
    """Return the function by which ONNX defines a node's operator.

    Of several versions, it is the newest one up to the node's opset, or else the oldest. None if
    ONNX has no function for the operator, or none for the types of the node's inputs. None also if
    the function depends on types and the rank of an input is unknown.
    """
    if schema.has_function:
        version = _version(schema.function_opset_versions, node)
        return _parsed(schema.get_function_with_opset_version(version))
    known = all(facts.sizes(name) is not None for name in node.inputs)
    if not known or not schema.has_context_dependent_function:
        return None
    version = _version(schema.context_dependent_function_opset_versions, node)
    types = [facts.types[name].SerializeToString() if name else b"" for name in node.proto.input]
    try:
        body = schema.get_context_dependent_function_with_opset_version(
            version, node.proto.SerializeToString(), types
        )
    except Exception as error:  # bindings raise errors of any kind
        pass_signals(error)
        return None
    return _parsed(body) if body else None  # None: ONNX has no function for these types


def _parsed(function: bytes) -> FunctionProto:
    """Return the function that these bytes encode."""
    parsed: FunctionProto = FunctionProto.FromString(function)
    return parsed


def _version(available: Sequence[int], node: NetworkNode) -> int:
    """Return the newest of the versions ``available`` up to the node's opset, or else the
    oldest.
    """
    wanted = node.opsets[node.domain]
    return max((v for v in available if v <= wanted), default=min(available))


def call(node: NetworkNode, function: FunctionProto, taken: TakenNames) -> list[NetworkNode]:
    """Return copies of a function's nodes that replace the node that calls it.

    Args:
        node: the calling node.
        function: the function's body.
        taken: the names of all values and nodes; the names of new ones are added to it.

    Raises:
        ModelError: the body is inconsistent.
    """
    schema = schema_of(node)
    values = {a.name: a.default_value for a in schema.attributes.values()} if schema else {}
    values |= {a.name: a for a in (*function.attribute_proto, *node.proto.attribute)}
    attributes = {name: attribute for name, attribute in values.items() if attribute.type}
    names = dict(zip_longest(function.input, node.proto.input[: len(function.input)], fillvalue=""))
    outputs = [pair for pair in zip(function.output, node.proto.output, strict=False) if pair[1]]
    splice = Splice(node, taken)
    splice.add(function.node, names, outputs, attributes)
    return splice.nodes(node.outputs, {**node.opsets, **versions(function.opset_import)})
