"""A node of a graph."""

from __future__ import annotations

from vtensor.language.records import dataclass


@dataclass(frozen=True, eq=False)
class Node:
    """An operator applied to values, which go by name; ``op_name`` is what plans call it."""

    name: str
    op: object
    op_name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
