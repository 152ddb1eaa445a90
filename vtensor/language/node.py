"""A node of a graph."""

from __future__ import annotations

from vtensor.language.records import dataclass


@dataclass(frozen=True, eq=False)
class Node:
    """An operator applied to values.

    Attributes:
        name: the node's name.
        op: the operator instance.
        op_name: the operator's label in plans.
        inputs, outputs: the names of the values that the node reads and computes, in order.
    """

    name: str
    op: object
    op_name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
