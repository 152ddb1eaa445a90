"""What ONNX's own shape inference does not survive, found by ``python -m tests.fuzz``.

It is C++ and runs in this process: what ends or stops it must not reach it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter

from onnx import ModelProto, NodeProto, TensorProto, TypeProto, helper

from vtensor.errors import ModelError
from vtensor.frontends.tensors import MAX_RANK

#: Functions and loops of a model may become this many nodes, no more.
MOST_NODES = 1 << 17

#: A row of more integers than this is no shape.
_LONGEST_SHAPE = 4096

#: Begins the name of a size that inference must not know; no model's own begins so.
_LONG = "\0long "


#: An equation between subscripts, spaces left out; each operand has at most one ellipsis.
_TERM = r"[A-Za-z]*(\.\.\.)?[A-Za-z]*"
_EQUATION = re.compile(rf"{_TERM}(,{_TERM})*(->{_TERM})?")


def check_functions(model: ModelProto) -> None:
    """See that expanding a model's functions ends, and before memory does.

    Raises:
        ModelError: a function calls itself, or calls of calls add up to too many nodes.
    """
    calls = {(f.domain, f.name, f.overload): list(_calls(f.node)) for f in model.functions}
    nodes: dict[tuple[str, str, str], int] = {}
    try:
        for name in TopologicalSorter(calls).static_order():
            nodes[name] = sum(nodes.get(call, 1) for call in calls.get(name, ())) or 1
    except CycleError as error:
        names = ", ".join(call[1] for call in error.args[1])
        raise ModelError(f"its functions call themselves: {names}") from None
    total = sum(nodes.get(call, 1) for call in _calls(model.graph.node))
    if total > MOST_NODES:
        raise ModelError(f"more than {MOST_NODES} nodes are left when its functions are expanded")


def _calls(nodes: Iterable[NodeProto]) -> Iterator[tuple[str, str, str]]:
    """What nodes call, those of control flow inside them too."""
    for node in nodes:
        yield node.domain, node.op_type, node.overload
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _calls(graph.node)


def attribute_fault(node: NodeProto) -> str:
    """What is wrong with an attribute, whatever the operator is; empty when nothing is.

    Inference keeps 32 bits of some axes and reads and writes where these point, makes as many
    outputs as an attribute says, and reads texts as if they were right.
    """
    for attribute in node.attribute:
        name = attribute.name
        if name in ("axis", "axes"):
            for axis in (attribute.i, *attribute.ints):
                if abs(axis) > MAX_RANK:
                    return f"{name} {axis} is no axis"
        if name == "num_outputs" and attribute.i != len(node.output):
            return f"{name} is {attribute.i}, and it has {len(node.output)} outputs"
        if name == "batch_dims" and attribute.i < 0:
            return f"{name} is {attribute.i}"
        if not attribute.s.isascii():
            return f"{name} {attribute.s!r} is no plain text"
        if name == "equation":
            text = attribute.s.decode().replace(" ", "")
            if not _EQUATION.fullmatch(text) or text.count(",") + 1 != len(node.input):
                return f"{name} {text!r} is none between {len(node.input)} operands"
    return ""


def bounded(kind: TypeProto) -> TypeProto:
    """A type as inference may see it: the size of a long row of integers has no value.

    It may be meant as a shape, and inference would make as many dims as it has elements.
    """
    dims = kind.tensor_type.shape.dim
    if kind.tensor_type.elem_type != TensorProto.INT64 or len(dims) != 1:
        return kind
    if dims[0].dim_value <= _LONGEST_SHAPE:
        return kind
    return helper.make_tensor_type_proto(TensorProto.INT64, [f"{_LONG}{dims[0].dim_value}"])


def unbounded(kind: TypeProto) -> TypeProto:
    """A type with the sizes that ``bounded`` took away."""
    for dim in kind.tensor_type.shape.dim:
        if dim.dim_param.startswith(_LONG):
            dim.dim_value = int(dim.dim_param.removeprefix(_LONG))
    return kind
