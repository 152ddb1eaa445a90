"""Which values and nodes of a model are no arrays of numbers."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, TypeProto, helper, numpy_helper

from vtensor.errors import EdgesNeeded, ModelError
from vtensor.frontends.calls import domain_of
from vtensor.frontends.edges.steps import SHARED, STEPS, STRUCTURAL, Step
from vtensor.language.operators import OPERATORS

#: The domain of learned models.
ML = "ai.onnx.ml"

#: The names of the operators of Python steps, without their domains.
_TYPES = frozenset(label.rpartition(":")[2] for label in STEPS)


def check_edges(proto: ModelProto) -> None:
    """Raise EdgesNeeded if a model has values that no graph holds."""
    if needs_edges(proto):
        raise EdgesNeeded(
            "it has texts, sequences, optional values or maps, which are no values of a graph; "
            "a Session runs it, with Python steps at its ends"
        )


def needs_edges(proto: ModelProto) -> bool:
    """Return whether a model has texts, sequences, optional values or maps."""
    graph = proto.graph
    values = (*graph.input, *graph.output)
    return (
        any(is_text(value.type) or not is_array(value.type) for value in values)
        or any(tensor.data_type == TensorProto.STRING for tensor in graph.initializer)
        or any(node.op_type in _TYPES and label_of(node) in STEPS for node in graph.node)
        or any(node.domain == ML and texts_of(node) for node in graph.node)
    )


def spelled(kind: str) -> str:
    """Return the name that ONNX has for the operator with the trait ``Structural(kind)``."""
    return OPERATORS.structural(kind).onnx[0].op_type


def step_of(node: NodeProto) -> Step | None:
    """Return the function of a node's operator in a Python step; None if it has none."""
    shared = {spelled(kind): step for kind, step in STRUCTURAL.items()}
    label = label_of(node)
    return STEPS.get(label) or SHARED.get(label) or shared.get(label)


def label_of(node: NodeProto) -> str:
    """Return a node's operator, with its domain unless that is ONNX's own."""
    domain = domain_of(node)
    return f"{domain}::{node.op_type}" if domain else str(node.op_type)


def is_constant(node: NodeProto) -> bool:
    """Return whether a node is a constant of the model."""
    return bool(node.op_type == "Constant" and not node.domain)


def is_array(kind: TypeProto) -> bool:
    return kind.WhichOneof("value") in (None, "tensor_type")


def is_text(kind: TypeProto | None) -> bool:
    """Return whether a type is an array of texts."""
    return kind is not None and kind.tensor_type.elem_type == TensorProto.STRING


def attributes_of(node: NodeProto) -> dict[str, Any]:
    """Return a node's attributes by name, texts as ``str``."""
    return {attribute.name: _attribute(attribute) for attribute in node.attribute}


def _attribute(attribute: AttributeProto) -> Any:
    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    if attribute.type == AttributeProto.STRINGS:
        return [text.decode("utf-8", "surrogateescape") for text in value]
    return value if attribute.type != AttributeProto.TENSOR else array_of(value)


def array_of(tensor: TensorProto) -> Any:
    """Return a tensor's array, texts as ``str``.

    Raises:
        ModelError: there are more or fewer texts than its dims say.
    """
    if tensor.data_type != TensorProto.STRING:
        return numpy_helper.to_array(tensor)
    if len(tensor.string_data) != prod(tensor.dims) or min(tensor.dims, default=0) < 0:
        sizes = "x".join(map(str, tensor.dims))
        raise ModelError(
            f"'{tensor.name}' has {len(tensor.string_data)} texts for {sizes} elements"
        )
    texts = np.empty(len(tensor.string_data), object)
    texts[:] = [text.decode("utf-8", "surrogateescape") for text in tensor.string_data]
    return texts.reshape(tuple(tensor.dims))


def texts_of(node: NodeProto) -> list[str]:
    """Return the texts that a node's attributes contribute to values."""
    texts: list[str] = []
    for attribute in node.attribute:
        if attribute.type == AttributeProto.TENSOR:
            if attribute.t.data_type == TensorProto.STRING:
                texts += array_of(attribute.t).reshape(-1).tolist()
        elif "string" in attribute.name and "hashmap" not in attribute.name:
            value = _attribute(attribute)
            texts += [value] if isinstance(value, str) else value
    return texts
