"""Explanation of a plan as data: the cause of each Transform, and which libraries declined each
node.

Everything is read off the lowered graph, for reports and for ``--json``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ptensor.evaluation import Requirement
from resolver.lowered import LoweredGraph, LoweredNode, OpNode, TransformNode
from vtensor.errors import GraphError


def explain_transforms(graph: LoweredGraph) -> list[dict[str, Any]]:
    """Return a dict for each Transform that runs in every run of the plan, the one that moves the
    most bytes first.

    Its entry ``share`` is the number of bytes that the Transform reads and writes, as a fraction of
    those that all nodes of a run read and write; pads are included.
    """
    total = bytes_of_a_run(graph)
    rows = [_transform(graph, node, total) for node in graph.transforms()]
    return sorted(rows, key=lambda row: -int(row["bytes"]))


def bytes_of_a_run(graph: LoweredGraph) -> int:
    """Return the bytes that the nodes of a run read and write, pads included.

    Transforms of constants, which run ahead of time, do not count.
    """
    ahead = {node.name for node in graph.ahead()}
    return sum(_moved(graph, node) for node in graph.nodes if node.name not in ahead)


def explain_node(graph: LoweredGraph, name: str) -> dict[str, Any]:
    """Return a dict that explains how a node runs.

    For an operator it has the library, the layouts of the operands, what the invoker required of
    each, and why other libraries declined the node. A Transform has the dict of
    ``explain_transforms``.

    Args:
        graph: the lowered graph.
        name: name of a node, or of a value, which stands for the node that makes it.

    Raises:
        GraphError: there is no such node or value.
    """
    if name not in {node.name for node in graph.nodes}:
        name = graph.merged.get(name, name)
    for node, row in zip(graph.nodes, explain_nodes(graph), strict=True):
        if name == node.name or name in node.outputs:
            return row
    names = ", ".join(node.name for node in graph.nodes)
    raise GraphError(f"{graph.name} has no node {name!r}; its nodes are {names}")


def explain_nodes(graph: LoweredGraph) -> list[dict[str, Any]]:
    """Return the dict of ``explain_node`` for every node, in the graph's order."""
    total = bytes_of_a_run(graph)
    makers = {name: node.name for node in graph.nodes for name in node.outputs}
    return [
        _transform(graph, node, total)
        if isinstance(node, TransformNode)
        else _operator(graph, node, makers)
        for node in graph.nodes
    ]


def refusals(graph: LoweredGraph) -> list[dict[str, Any]]:
    """Return the reasons for which libraries declined nodes, the most frequent reason first.

    There is a dict for each combination of library, operator and reason, with the names of the
    nodes.
    """
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
    """Return the number of bytes that a node reads and writes."""
    return sum(graph.values[name].nbytes for name in (*node.inputs, *node.outputs))


def _transform(graph: LoweredGraph, node: TransformNode, total: int) -> dict[str, Any]:
    """Return the dict that explains a Transform.

    Args:
        total: the number of bytes that all nodes of a run read and write.
    """
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
                "node": cause.consumer,
                "operator": cause.op or None,
                "library": cause.library or None,
                "operand": cause.role or None,
                "asked": _asked(cause.requirement) if cause.requirement else [],
                "at": _place(cause.requirement),
            }
            for cause in node.reasons
        ],
        "produced_by": {"node": reason.producer, "operator": reason.producer_op or None},
        "text": "; ".join(map(str, node.reasons)),
    }


def _operator(graph: LoweredGraph, node: OpNode, makers: Mapping[str, str]) -> dict[str, Any]:
    """Return the dict that explains an operator's node.

    Args:
        makers: for each value, the name of the node that makes it.
    """
    variant = node.variant
    names = (*node.inputs, *node.outputs)
    return {
        "node": node.name,
        "operator": node.op_name,
        "library": variant.library,
        "merged": [gone for gone, into in graph.merged.items() if into == node.name],
        "notes": graph.notes_of(node),
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
            {"library": refusal.library, "priority": refusal.priority, "reason": refusal.reason}
            for refusal in variant.refused
        ],
    }


def _error(graph: LoweredGraph, node: OpNode) -> dict[str, float] | None:
    """Return the measured error of an approximate node; None for a strict node.

    The keys of the dict are ``own``, ``gain`` and ``added``; see the attributes ``error``, ``gain``
    and ``added`` of ``Share``.
    """
    proof = graph.certificate.errors if graph.certificate is not None else None
    for share in proof.shares if proof is not None else ():
        if share.node == node.name:
            return {"own": share.error, "gain": share.gain, "added": share.added}
    return None


def _asked(requirement: Requirement) -> list[str]:
    return [str(layout) for layout in requirement.layouts] or ["ANY"]


def _place(requirement: Requirement | None) -> str | None:
    return f"{requirement.file}:{requirement.line}" if requirement else None
