"""Writing a plan down as it runs, for ``programs.py``."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from libdesc.script import Script
from resolver.lowered import LoweredGraph, OpNode
from vtensor.language.records import dataclass
from vtensor.runtime.entries import MOST_BYTES
from vtensor.runtime.plan import Plan
from vtensor.runtime.plan_bytes import needed_bytes
from vtensor.runtime.programs import slots_of
from vtensor.runtime.recording.packing_table import NotKept, TableWriter, kind_row, value_row
from vtensor.runtime.recording.weights import PlanWeights

if TYPE_CHECKING:
    from vtensor.runtime.recipes import Row

Array = np.ndarray[Any, Any]

#: The most bytes of a plan that is kept; an entry begins with a digest.
MOST = MOST_BYTES - (1 << 10)


@dataclass(eq=False)
class Notes:
    """A plan, and what says how its steps and constants were made.

    Args:
        plan: as it was made while ``script`` noted native calls.
        large: the arrays of the model that are read later, by the id of what holds them.
        rows: what its nodes came to.
        script: noted its steps.
        applied: where rules were applied to its graph.
    """

    plan: Plan
    large: Mapping[int, str]
    rows: Mapping[str, Row]
    script: Script
    applied: Collection[tuple[str, str]]

    @property
    def graph(self) -> LoweredGraph:
        """The plan's."""
        return self.plan.graph

    def payload(self, name: str, strategy: bytes) -> bytes:
        """What an entry holds.

        Args:
            name: the entry's.
            strategy: what was chosen.

        Raises:
            NotKept: no entry can hold it.
        """
        plan, weights = self.plan, self._weights
        if not strategy:
            raise NotKept("nobody knows what was chosen")
        if plan.calls_back:
            raise NotKept("a step is Python's")
        outputs = [
            (alias, value_row(one.value), one.binding) for alias, one in plan.deliveries.items()
        ]
        if any(binding is None for *_, binding in outputs):
            raise NotKept("a constant is delivered")
        constants = plan.placement.constants()
        steps = plan.placement.placed(constants)
        told, places = weights.data(constants, [native for native, _ in steps])
        used = dict(zip(places, [native for native, _ in steps], strict=True))
        head = {
            "name": name,
            "needs": needed_bytes(self.graph),
            "arena": plan.placement.nbytes,
            **told,
            "natives": [*used],
            "slots": slots_of([*used.values()]),
            "steps": [(place, slots) for place, (_, slots) in zip(places, steps, strict=True)],
            "inputs": [*map(value_row, plan.inputs)],
            "own": [*map(kind_row, plan.own)],
            "outputs": outputs,
            "applied": sorted(self.applied),
            "strategy": weights.keep(strategy),
        }
        return payload_of(head, weights)

    @property
    def _weights(self) -> TableWriter:
        packed = self.plan.packed
        assert isinstance(packed, PlanWeights), "a plan of nodes has packed them"
        return TableWriter(packed, self.large, self.script)

    def check(self) -> None:
        """See that nothing was chosen by the values of large arrays.

        Raises:
            NotKept: something may have been.
        """
        check_unseen(self.graph.operators, self.graph, self.rows, self._weights)


def payload_of(head: Mapping[str, Any], weights: TableWriter) -> bytes:
    """An entry of plain data, and the bytes that it speaks of.

    Raises:
        NotKept: it is too large.
    """
    text = json.dumps(head, separators=(",", ":")).encode() + b"\n" + bytes(weights.blob)
    if len(text) > MOST:
        raise NotKept("it is too large")
    return text


def check_unseen(
    nodes: Iterable[OpNode], graph: LoweredGraph, rows: Mapping[str, Row], weights: TableWriter
) -> None:
    """See that nothing was chosen by the values of large arrays.

    Args:
        nodes, graph: what was recorded, and of which graph it is.
        rows: what nodes came to.
        weights: the constants of the graph.

    Raises:
        NotKept: something may have been.
    """
    for node in nodes:
        row = rows.get(node.name)
        if row is None or row.entry.recipe is None:
            for name in _constants_of(graph, node):
                if weights.is_large(name):
                    raise NotKept(f"{node.name} may look at {name}")


def _constants_of(graph: LoweredGraph, node: OpNode) -> Iterator[str]:
    yield from (name for name in node.inputs if graph.values[name].constant)
