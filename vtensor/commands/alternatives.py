"""What forbids removing a Transform and what would remove it, as data and as lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from vtensor.language.wording import counted
from vtensor.report import MEGABYTE, Line

if TYPE_CHECKING:
    from optimizer.alternatives import Alternative, Change, End
    from resolver.lowered import OpNode


def alternative_dict(found: Alternative, nodes: Mapping[str, OpNode]) -> dict[str, Any]:
    """An alternative as data; ``nodes`` are the network's, by name."""
    change = found.change
    return {
        "forbidden_by": [_end(end) for end in found.ends if end.fixed],
        "cheapest_change": change and _change(change, nodes),
        "failed": found.failed or None,
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
    """An alternative, line by line."""
    for end in row["forbidden_by"]:
        yield Line("", f"    forbidden by {_who(end)}")
    if not row["forbidden_by"]:
        yield Line("", "    forbidden by nobody: its ends may lie otherwise, at a cost")
    if row["failed"]:
        yield Line("ref", f"    cheapest  change is not known: {row['failed']}")
    elif row["cheapest_change"]:
        yield Line("", f"    cheapest  change: {_what(row['cheapest_change'])}")
    else:
        yield Line("", "    cheapest  change: none")


def _who(end: Mapping[str, Any]) -> str:
    if end["node"] is None:
        return f"the caller, who {'gives' if end['makes'] else 'takes'} it in {end['layout']}"
    who = f"{end['operator']} {end['node']} on {end['library']}"
    verb = "makes" if end["makes"] else "takes"
    return f"{who}, which {verb} {end['operand']} in {end['layout']} alone, at {end['at']}"


def _what(change: Mapping[str, Any]) -> str:
    """The nodes that change, the one that moves first, and what that costs."""
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
    return f"{'; '.join([*shown, *more])}: {_cost(change)}{proven}{speed}"


def _cost(change: Mapping[str, Any]) -> str:
    count = change["transforms"]
    number = counted(abs(count), "Transform")
    how = f"{number} {'more' if count > 0 else 'fewer'}" if count else "as many Transforms"
    return f"{change['bytes'] / MEGABYTE:+.2f} MB, {how}"
