"""The differences of two lock files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from resolver.lock_choice import Choices, NodeChoice
from resolver.lowered import TransformNode
from vtensor.language.records import dataclass, replace
from vtensor.runtime.lock.lock_file import Lock
from vtensor.runtime.lock.rows import TRANSFORM, input_rows

#: The sections of a file that its segments share.
_SHARED = ("versions", "machine", "options")

#: The largest relative difference of two times that count as equal.
TOLERANCE = 0.1


@dataclass(frozen=True)
class Difference:
    """One difference of two lock files.

    Attributes:
        about: the kind of thing that differs: ``plan``, ``node`` or ``cost``.
        name: the node's name, or the file's section if ``about`` is ``plan``; after the segment's
            name and a colon if the files have segments.
        field: the name of the field that differs. It is ``order`` if the same nodes run in another
            order. It is empty for a cost, and for a node that only one file has.
        a, b: the values of the field in the first and the second file; None if a file lacks the
            field.
    """

    about: str
    name: str
    field: str
    a: str | None
    b: str | None


def differences(a: Lock, b: Lock, costs: bool = True) -> list[Difference]:
    """Return the differences of two lock files, in the order of their sections.

    Reasons are not compared: they name source lines.

    Args:
        a, b: the lock files.
        costs: True compares the costs of nodes as well.
    """
    rows = [*_plan_differences(a, b), *node_differences(a.choices, b.choices)]
    rows += _costs(a, b) if costs else ()
    for name in dict.fromkeys([*a.segments, *b.segments]):
        left, right = a.segments.get(name), b.segments.get(name)
        if left is None or right is None:
            have = ["a plan" if segment is not None else None for segment in (left, right)]
            rows.append(Difference("plan", f"segment {name}", "", *have))
        else:
            rows += [
                replace(row, name=f"{name}: {row.name}".removesuffix(": "))
                for row in differences(left, right, costs)
                if row.about != "plan" or row.name not in _SHARED
            ]
    return rows


def _plan_differences(a: Lock, b: Lock) -> Iterator[Difference]:
    tables = [
        {
            "": {"model": lock.model, "content": lock.content, "passes": lock.passes},
            "versions": lock.versions,
            "machine": {"processor": lock.processor, "threads": lock.threads},
            "options": lock.options.row(),
            "inputs": input_rows(lock.choices),
            "outputs": lock.choices.outputs,
        }
        for lock in (a, b)
    ]
    for section in tables[0]:
        yield from _fields("plan", section, tables[0][section], tables[1][section])


def node_differences(a: Choices, b: Choices) -> Iterator[Difference]:
    """Yield the differences of two choices: first those of each node, then at most one of the
    running order.

    The latter names the first place at which the nodes that both choices have run in another order.
    """
    rows = [{row.name: row for row in choices.rows} for choices in (a, b)]
    for name in dict.fromkeys([*rows[0], *rows[1]]):
        yield from _fields(
            "node",
            name,
            *(_compared_fields(choices, rows[at].get(name)) for at, choices in enumerate((a, b))),
        )
    orders = [[name for name in names if name in rows[1 - at]] for at, names in enumerate(rows)]
    for name, other in zip(*orders, strict=True):
        if name != other:
            yield Difference("node", name, "order", name, other)
            return


def _compared_fields(choices: Choices, row: NodeChoice | TransformNode | None) -> Mapping[str, Any]:
    """Return the fields of a node that ``node_differences`` compares, by name; empty if ``row`` is
    None.

    Args:
        choices: the choice that the node belongs to.
        row: the node; None if the choice has no such node.
    """
    if row is None:
        return {}
    if isinstance(row, TransformNode):
        source, target = row.input, str(choices.layouts[row.output])
        askers = [reason.consumer for reason in row.reasons]
        transform_fields = {
            "operator": TRANSFORM,
            "library": row.library,
            "of": source,
            "to": target,
        }
        return transform_fields | {"required by": askers}
    variant = row.variant
    operands = zip(row.roles, (*row.inputs, *row.outputs), variant.forms, strict=True)
    fields = {"operator": row.op_name, "library": variant.library, "kernel": variant.kernel}
    fields |= {"error": f"{variant.error:.1e}"} if variant.inexact else {}
    fields |= {"reference": "true"} if variant.reference else {}
    said = {role: f"{name}: {form}" for role, name, form in operands}
    return fields | {"fuses": list(variant.followers)} | said


def _fields(
    about: str, name: str, a: Mapping[str, Any], b: Mapping[str, Any]
) -> Iterator[Difference]:
    """Yield a difference for each field in which two tables differ.

    A node that is in one file only gives a single difference, whose field is empty.

    Args:
        about, name: the attributes of these names of each yielded difference.
        a, b: the tables of the first and second file; empty if the file lacks the node.
    """
    if about == "node" and not (a and b):
        whole = [f"{row['operator']} on {row['library']}" if row else None for row in (a, b)]
        yield Difference(about, name, "", *whole)
        return
    for field in dict.fromkeys([*a, *b]):
        if (left := a.get(field)) != (right := b.get(field)):
            yield Difference(about, name, field, _text(left), _text(right))


def _text(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, Mapping):
        return " ".join(f"{key}={_text(entry)}" for key, entry in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(str, value))
    return str(value)


def _costs(a: Lock, b: Lock) -> Iterator[Difference]:
    """Yield a difference for each node that has a cost in both files, if the costs differ.

    Times within ``TOLERANCE`` of each other count as equal.
    """
    for name, left in a.costs.items():
        right = b.costs.get(name)
        if right is None:
            continue
        same = all(left.get(key) == right.get(key) for key in ("bytes", "basis"))
        if not (same and _almost_equal(left.get("ns"), right.get("ns"))):
            yield Difference("cost", name, "", _cost(left), _cost(right))


def _almost_equal(a: int | None, b: int | None) -> bool:
    if a is None or b is None:
        return a is b
    return abs(a - b) <= TOLERANCE * max(a, b)


def _cost(row: Mapping[str, Any]) -> str:
    ns = f"{row['ns'] / 1e3:.1f} us {row['basis']}" if "ns" in row else "not known"
    return f"{ns}, {row['bytes']} bytes" if "bytes" in row else ns
