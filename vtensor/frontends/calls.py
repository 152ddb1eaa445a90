"""Calls of a model's own functions: which function a node calls, and whether expansion ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter

from onnx import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
)

from vtensor.errors import ModelError

#: Domain, name and overload of a function.
FunctionKey = tuple[str, str, str]

#: Largest number of nodes that a model may have once its functions are expanded.
MAX_NODES = 1 << 17

_ONNX_DOMAINS = ("", "ai.onnx")


def domain_of(named: OperatorSetIdProto | FunctionProto | NodeProto) -> str:
    """Return the domain of an operator, a function or an import; empty for ONNX's own."""
    return "" if named.domain in _ONNX_DOMAINS else named.domain


def graphs_of(attribute: AttributeProto) -> list[GraphProto]:
    """Return the graphs that an attribute holds."""
    return [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]


def check_functions(model: ModelProto) -> None:
    """Check that the expansion of a model's functions ends, with at most MAX_NODES nodes.

    Raises:
        ModelError: a function calls itself, directly or through other functions; or the expansion
            has more than MAX_NODES nodes.
    """
    calls = {(domain_of(f), f.name, f.overload): list(_calls(f.node)) for f in model.functions}
    nodes: dict[FunctionKey, int] = {}
    try:
        for name in TopologicalSorter(calls).static_order():
            nodes[name] = sum(nodes.get(call, 1) for call in calls.get(name, ())) or 1
    except CycleError as error:
        names = ", ".join(call[1] for call in error.args[1])
        raise ModelError(f"its functions call themselves: {names}") from None
    total = sum(nodes.get(call, 1) for call in _calls(model.graph.node))
    if total > MAX_NODES:
        raise ModelError(f"more than {MAX_NODES} nodes are left when its functions are expanded")


def _calls(nodes: Iterable[NodeProto]) -> Iterator[FunctionKey]:
    """Yield the key of the operator of each node, and of each node inside of control flow.

    If a function of the model has the same key, the node calls it.
    """
    for node in nodes:
        yield domain_of(node), node.op_type, node.overload
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _calls(graph.node)
