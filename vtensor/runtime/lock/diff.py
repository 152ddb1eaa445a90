"""What two lock files do not agree about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from resolver.lock_choice import Choices, NodeChoice
from resolver.lowered import TransformNode
from vtensor.language.records import dataclass
from vtensor.runtime.lock.lock_file import Lock
from vtensor.runtime.lock.rows import TRANSFORM, input_rows

#: By how much, relative to the larger one, times may differ that are equal for a reader.
TOLERANCE = 0.1


@dataclass(frozen=True)
class Difference:
    """One thing that two lock files do not agree about.

    Attributes:
        about: ``plan``, ``node`` or ``cost``.
        name: the node's; the section of the file, where it is about the whole plan.
        field: what differs; ``order``, where the same nodes run in another one.
        a, b: what they say of it; None where one says nothing.
    """

    about: str
    name: str
    field: str
    a: str | None
    b: str | None


def differences(a: Lock, b: Lock, costs: bool = True) -> list[Difference]:
    """What two plans do not agree about, in the order of the files.

    Reasons are not compared: they say where somebody asked, line by line.

    Args:
        a, b: the plans.
        costs: compare what nodes cost, too.
    """
    found = [*_about(a, b), *node_differences(a.choices, b.choices)]
    return [*found, *_costs(a, b)] if costs else found


def _about(a: Lock, b: Lock) -> Iterator[Difference]:
    tables = [
        {
            "": {"model": one.model, "content": one.content, "passes": one.passes},
            "versions": one.versions,
            "machine": {"processor": one.processor, "threads": one.threads},
            "options": one.options.row(),
            "inputs": input_rows(one.choices),
            "outputs": one.choices.outputs,
        }
        for one in (a, b)
    ]
    for section in tables[0]:
        yield from _fields("plan", section, tables[0][section], tables[1][section])


def node_differences(a: Choices, b: Choices) -> Iterator[Difference]:
    """What is chosen otherwise for nodes, and whether they run in another order."""
    rows = [{row.name: row for row in one.rows} for one in (a, b)]
    for name in dict.fromkeys([*rows[0], *rows[1]]):
        yield from _fields(
            "node", name, *(_said(one, rows[at].get(name)) for at, one in enumerate((a, b)))
        )
    orders = [[name for name in one if name in rows[1 - at]] for at, one in enumerate(rows)]
    for one, other in zip(*orders, strict=True):
        if one != other:
            yield Difference("node", one, "order", one, other)
            return


def _said(choices: Choices, row: NodeChoice | TransformNode | None) -> Mapping[str, Any]:
    """What there is to say of a node; nothing of none."""
    if row is None:
        return {}
    if isinstance(row, TransformNode):
        source, target = row.input, str(choices.layouts[row.output])
        askers = [one.consumer for one in row.reasons]
        about = {"operator": TRANSFORM, "library": row.library, "of": source, "to": target}
        return about | {"required by": askers}
    variant = row.variant
    operands = zip(row.roles, (*row.inputs, *row.outputs), variant.forms, strict=True)
    found = {"operator": row.op_name, "library": variant.library, "kernel": variant.kernel}
    found |= {"error": f"{variant.error:.1e}"} if variant.inexact else {}
    found |= {"reference": "true"} if variant.reference else {}
    said = {role: f"{name}: {form}" for role, name, form in operands}
    return found | {"fuses": list(variant.followers)} | said


def _fields(
    about: str, name: str, a: Mapping[str, Any], b: Mapping[str, Any]
) -> Iterator[Difference]:
    """The fields of which two tables do not say the same; one row where one says nothing at all."""
    if about == "node" and not (a and b):
        whole = [f"{one['operator']} on {one['library']}" if one else None for one in (a, b)]
        yield Difference(about, name, "", *whole)
        return
    for field in dict.fromkeys([*a, *b]):
        if (one := a.get(field)) != (other := b.get(field)):
            yield Difference(about, name, field, _text(one), _text(other))


def _text(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, Mapping):
        return " ".join(f"{key}={_text(one)}" for key, one in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(str, value))
    return str(value)


def _costs(a: Lock, b: Lock) -> Iterator[Difference]:
    """Of the nodes that both have."""
    for name, one in a.costs.items():
        other = b.costs.get(name)
        if other is None:
            continue
        same = all(one.get(key) == other.get(key) for key in ("bytes", "basis"))
        if not (same and _almost_equal(one.get("ns"), other.get("ns"))):
            yield Difference("cost", name, "", _cost(one), _cost(other))


def _almost_equal(a: int | None, b: int | None) -> bool:
    if a is None or b is None:
        return a is b
    return abs(a - b) <= TOLERANCE * max(a, b)


def _cost(row: Mapping[str, Any]) -> str:
    ns = f"{row['ns'] / 1e3:.1f} us {row['basis']}" if "ns" in row else "not known"
    return f"{ns}, {row['bytes']} bytes" if "bytes" in row else ns
