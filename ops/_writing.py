"""Shared functions that write operators as ONNX nodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from string import ascii_letters
from types import MappingProxyType
from typing import Any

from ops._normalizations import positions
from vtensor.language.dims import broadcast
from vtensor.operators import NodeWriter, Write


def parameters(op: Any) -> dict[str, Any]:
    """Return an operator's parameters by name, as values for ONNX's attributes."""
    fields = dataclasses.fields(op)
    values = {field.name: getattr(op, field.name) for field in fields}
    reals = {field.name: float(values[field.name]) for field in fields if field.type == "float"}
    return values | reals


def write_aligned(op_type: str) -> Write:
    """Return a function that writes an operator as one ONNX node of the type ``op_type``.

    The axes of each operand are brought into the output's order of dims. The operator's parameters
    become attributes of the same names.
    """

    def write(node: NodeWriter, op: Any) -> None:
        order = list(node.outputs[0].dims)
        operands = (node.operand(x, order) for x in node.inputs)
        node.emit(op_type, *operands, **parameters(op))

    return write


def write_along(op_type: str) -> Write:
    """Return a function that writes an operator along some dims as one ONNX node ``op_type``.

    The operator has one operand and a parameter ``axis``, which names the dims. ONNX takes one
    axis: several dims are merged into one, which comes last.
    """

    def write(node: NodeWriter, op: Any) -> None:
        [x] = node.inputs
        if len(op.axis) == 1:
            node.emit(op_type, node.operand(x), axis=positions(x, op.axis)[0])
        else:
            order = [*(dim for dim in x.dims if dim not in op.axis), "*".join(op.axis)]
            node.emit(op_type, node.operand(x, order), order=order, axis=-1)

    return write


def write_reduction(op_type: str, since: int) -> Write:
    """Return a function that writes a reduction as one ONNX node ``op_type``.

    ONNX has the reduced axes as an input from opset ``since`` on, and as an attribute before.
    """

    def write(node: NodeWriter, op: Any) -> None:
        [x] = node.inputs
        axes = positions(x, op.axes)
        if node.opset < since and not axes:
            raise node.refuse(f"no axes: ONNX can say so from opset {since} on")
        if node.opset < since:
            node.emit(op_type, node.operand(x), axes=axes, keepdims=op.keepdims)
        elif axes:
            node.emit(op_type, node.operand(x), node.constant(axes), keepdims=op.keepdims)
        else:
            node.emit(op_type, node.operand(x), noop_with_empty_axes=1, keepdims=op.keepdims)

    return write


def write_sum(node: NodeWriter, same: Mapping[str, str] = MappingProxyType({})) -> None:
    """Write a node as ONNX's Einsum: the product of its inputs, summed over dims not in its output.

    ``same`` maps a dim of an input to the dim that the equation has in its place.
    """
    [y] = node.outputs
    rows = [[(same.get(dim, dim), size) for dim, size in t.dims.items()] for t in node.inputs]
    sizes = broadcast(*map(dict, rows))
    if any(size != sizes[dim] for row in rows for dim, size in row):
        raise node.refuse("a size of 1 that is repeated along another's")
    letters = dict(zip(sizes, ascii_letters, strict=False))
    terms = ("".join(letters[dim] for dim, _ in row) for row in rows)
    equation = f"{','.join(terms)}->{''.join(letters[dim] for dim in y.dims)}"
    node.emit("Einsum", *map(node.operand, node.inputs), equation=equation)
