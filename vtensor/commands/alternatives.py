"""What would remove a Transform, and what forbids its removal, as JSON data and as lines of
text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from vtensor.language.wording import counted
from vtensor.report import MEGABYTE, Line

if TYPE_CHECKING:
    from optimizer.choice.alternatives import Alternative, Change, End
    from resolver.lowered import OpNode


def alternative_dict(alternative: Alternative, nodes: Mapping[str, OpNode]) -> dict[str, Any]:
    """Return, for ``--json``, what forbids to remove a Transform and which change removes it at
    least cost.

    Args:
        alternative: the Transform, its ends (who makes its input, who reads its output), and the
            change.
        nodes: the network's nodes by name.
    """
    change = alternative.change
    return {
        "forbidden_by": [_end(end) for end in alternative.ends if end.fixed],
        "cheapest_change": change and _change(change, nodes),
        "failed": alternative.failed or None,
    }


def _end(end: End) -> dict[str, Any]:
    node, asked = end.node, end.requirement
    return {
        "node": node and node.name,
        "operator": node and node.op_name,
        "library": node and node.variant.library,
        "operand": node and node.roles[end.place],
        "makes": end.makes,
        "layout": str(end.layout),
        "at": asked and f"{asked.file}:{asked.line}",
    }


def _change(change: Change, nodes: Mapping[str, OpNode]) -> dict[str, Any]:
    return {
        "nodes": [
            {
                "node": name,
                "operator": nodes[name].op_name,
                "library": row.library,
                "layouts": [str(layout) for layout in row.layouts],
            }
            for name, row in change.variants.items()
        ],
        "moved": change.moved or None,
        "bytes": change.cost.bytes,
        "transforms": change.cost.transforms,
        "proven": change.proven,
    }


def alternative_lines(row: Mapping[str, Any]) -> Iterator[Line]:
    """Yield the lines that print an alternative; ``row`` is from ``alternative_dict``."""
    for end in row["forbidden_by"]:
        yield Line("", f"    forbidden by {_end_text(end)}")
    if not row["forbidden_by"]:
        yield Line("", "    forbidden by no node: both ends can take another layout, at a cost")
    if row["failed"]:
        yield Line("ref", f"    cheapest  change is not known: {row['failed']}")
    elif row["cheapest_change"]:
        yield Line("", f"    cheapest  change: {_change_text(row['cheapest_change'])}")
    else:
        yield Line("", "    cheapest  change: none")


def _end_text(end: Mapping[str, Any]) -> str:
    if end["node"] is None:
        return f"the caller, who {'gives' if end['makes'] else 'takes'} it in {end['layout']}"
    node = f"{end['operator']} {end['node']} on {end['library']}"
    verb = "makes" if end["makes"] else "takes"
    return f"{node}, which {verb} {end['operand']} in {end['layout']} alone, at {end['at']}"


def _change_text(change: Mapping[str, Any]) -> str:
    """Return a change as text: its nodes and its cost.

    The node that gets another library comes first.
    """
    moved = change["moved"]
    rows = sorted(change["nodes"], key=lambda row: row["node"] != moved)
    shown = [
        f"{row['operator']} {row['node']} "
        + (f"on {row['library']}, " if row["node"] == moved else "")
        + f"in {' '.join(row['layouts'])}"
        for row in rows[:4]
    ]
    more = [f"{len(rows) - 4} more nodes"] if len(rows) > 4 else []
    speed = " (kernels' speed not counted)" if moved else ""
    proven = "" if change["proven"] else ", the best found in time"
    return f"{'; '.join([*shown, *more])}: {_cost_text(change)}{proven}{speed}"


def _cost_text(change: Mapping[str, Any]) -> str:
    count = change["transforms"]
    number = counted(abs(count), "Transform")
    text = f"{number} {'more' if count > 0 else 'fewer'}" if count else "as many Transforms"
    return f"{change['bytes'] / MEGABYTE:+.2f} MB, {text}"
