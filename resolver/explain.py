"""Why a plan is what it is: each Transform with who asked for it, each node with who declined it.

Everything is read off the lowered graph, as data that a report prints or ``--json`` shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ptensor.evaluation import Requirement
from resolver.lowered import LoweredGraph, LoweredNode, OpNode, TransformNode
from vtensor.errors import GraphError


def explain_transforms(graph: LoweredGraph) -> list[dict[str, Any]]:
    """The Transforms that run each time, the largest first.

    ``share`` is the part of all bytes that the run's nodes read and write, pads included.
    """
    total = bytes_of_a_run(graph)
    rows = [_transform(graph, node, total) for node in graph.transforms()]
    return sorted(rows, key=lambda row: -int(row["bytes"]))


def bytes_of_a_run(graph: LoweredGraph) -> int:
    """What all nodes that run each time read and write, in bytes, pads included."""
    ahead = {node.name for node in graph.ahead()}
    return sum(_moved(graph, node) for node in graph.nodes if node.name not in ahead)


def explain_node(graph: LoweredGraph, name: str) -> dict[str, Any]:
    """One node: its library and layouts, what each operand had to be, and who declined it and why.

    Args:
        graph: the lowered graph.
        name: of a node, or of a value, which means the node that makes it.

    Raises:
        GraphError: there is neither.
    """
    if name not in {node.name for node in graph.nodes}:
        name = graph.merged.get(name, name)
    for node, row in zip(graph.nodes, explain_nodes(graph), strict=True):
        if name == node.name or name in node.outputs:
            return row
    names = ", ".join(node.name for node in graph.nodes)
    raise GraphError(f"{graph.name} has no node {name!r}; its nodes are {names}")


def explain_nodes(graph: LoweredGraph) -> list[dict[str, Any]]:
    """Every node, as ``explain_node`` has it, in the graph's order."""
    total = bytes_of_a_run(graph)
    makers = {name: node.name for node in graph.nodes for name in node.outputs}
    return [
        _transform(graph, node, total)
        if isinstance(node, TransformNode)
        else _operator(graph, node, makers)
        for node in graph.nodes
    ]


def refusals(graph: LoweredGraph) -> list[dict[str, Any]]:
    """Each reason for which a library declined, with the nodes: the most frequent first."""
    nodes: dict[tuple[str, str, str], list[str]] = {}
    for node in graph.nodes:
        if isinstance(node, OpNode):
            for refusal in node.variant.refused:
                key = (refusal.library, node.op_name, refusal.reason)
                nodes.setdefault(key, []).append(node.name)
    rows = [
        {"library": library, "operator": op, "reason": reason, "nodes": names}
        for (library, op, reason), names in nodes.items()
    ]
    return sorted(rows, key=lambda row: -len(row["nodes"]))


def _moved(graph: LoweredGraph, node: LoweredNode) -> int:
    return sum(graph.values[name].nbytes for name in (*node.inputs, *node.outputs))


def _transform(graph: LoweredGraph, node: TransformNode, total: int) -> dict[str, Any]:
    source, target, reason = graph.values[node.input], graph.values[node.output], node.reason
    moved = _moved(graph, node)
    return {
        "node": node.name,
        "operator": "Transform",
        "library": node.library,
        "value": node.input,
        "dtype": source.dtype,
        "sizes": dict(source.dims),
        "source": str(source.layout),
        "target": str(target.layout),
        "bytes": moved,
        "share": moved / total if total else 0.0,
        "ahead_of_time": source.constant,
        "required_by": [
            {
                "node": one.consumer,
                "operator": one.op or None,
                "library": one.library or None,
                "operand": one.role or None,
                "asked": _asked(one.requirement) if one.requirement else [],
                "at": _place(one.requirement),
            }
            for one in node.reasons
        ],
        "produced_by": {"node": reason.producer, "operator": reason.producer_op or None},
        "text": "; ".join(map(str, node.reasons)),
    }


def _operator(graph: LoweredGraph, node: OpNode, makers: Mapping[str, str]) -> dict[str, Any]:
    variant = node.variant
    names = (*node.inputs, *node.outputs)
    return {
        "node": node.name,
        "operator": node.op_name,
        "library": variant.library,
        "merged": [one for one, into in graph.merged.items() if into == node.name],
        "kernel": variant.kernel or None,
        "ns": variant.ns,
        "basis": variant.basis,
        "error": _error(graph, node),
        "operands": [
            {
                "role": role,
                "value": name,
                "dtype": graph.values[name].dtype,
                "sizes": dict(graph.values[name].dims),
                "layout": str(layout),
                "bytes": graph.values[name].nbytes,
                "constant": graph.values[name].constant,
                "asked": _asked(requirement),
                "at": _place(requirement),
                "made_by": makers.get(name),
            }
            for role, name, layout, requirement in zip(
                node.roles, names, variant.layouts, variant.requirements, strict=True
            )
        ],
        "declined": [
            {"library": one.library, "priority": one.priority, "reason": one.reason}
            for one in variant.refused
        ],
    }


def _error(graph: LoweredGraph, node: OpNode) -> dict[str, float] | None:
    """What was measured of an inexact node; None of a strict one."""
    proof = graph.certificate.errors if graph.certificate is not None else None
    for share in proof.shares if proof is not None else ():
        if share.node == node.name:
            return {"own": share.error, "gain": share.gain, "added": share.added}
    return None


def _asked(requirement: Requirement) -> list[str]:
    return [str(one) for one in requirement.layouts] or ["ANY"]


def _place(requirement: Requirement | None) -> str | None:
    return f"{requirement.file}:{requirement.line}" if requirement else None
