"""Rows with what they take on this machine, for the objective ``time``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import compress
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol

from optimizer.candidates import Rows, shared_rows
from ptensor.evaluation import Decision
from ptensor.layout import Layout
from resolver.evaluate import Resolution
from resolver.extended import OpNode
from resolver.probe import Prober
from vtensor.tensor import VTensor

if TYPE_CHECKING:
    from libdesc.transforms import LayoutChange


class Clock(Protocol):
    """What nodes and Transforms take on this machine, in nanoseconds."""

    def node(self, node: OpNode, values: Mapping[str, VTensor]) -> int | None:
        """Of a node as it is decided; None where that is not known."""

    def transform(self, value: VTensor, change: LayoutChange) -> int:
        """Of a value from one layout to the other."""


def timed_rows(resolution: Resolution, clock: Clock) -> Rows:
    """The rows of every node, each as fast as its library runs it; the resolver's is the first.

    Tried are the rows of ``shared_rows`` and the ways that libraries offer. Of those that differ at
    most in how constants lie the fastest is left; one whose time is not known is none.
    """
    prober = Prober(resolution)
    offered = {node.name: prober.offer(node).ways for node in resolution.nodes}
    rows = shared_rows(resolution, offered)
    return {
        node.name: _fastest(resolution, node, rows[node.name], clock) for node in resolution.nodes
    }


def _fastest(
    resolution: Resolution, node: OpNode, rows: Sequence[Decision], clock: Clock
) -> list[Decision]:
    """The resolver's row, and for each that its neighbours may see the fastest."""
    if len(rows) == 1:
        return [*rows]
    values = resolution.values
    timed = [replace(row, ns=clock.node(replace(node, decision=row), values)) for row in rows]
    if timed[0].ns is None:  # then there is nothing to compare with
        return [rows[0]]
    seen = [not values[name].constant for name in (*node.inputs, *node.outputs)]
    best: dict[tuple[Layout, ...], Decision] = {}
    for row in sorted((row for row in timed if row.ns is not None), key=attrgetter("ns")):
        best.setdefault(tuple(compress(row.layouts, seen)), row)
    return [timed[0], *(row for row in best.values() if row is not timed[0])]
