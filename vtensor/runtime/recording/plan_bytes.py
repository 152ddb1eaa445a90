"""The memory that a plan needs, counted before it is allocated."""

from __future__ import annotations

from collections.abc import Iterator

from resolver.lowered import LoweredGraph, OpNode, Value
from vtensor.errors import BudgetError, describe
from vtensor.language.operators import info_of
from vtensor.language.traits import VIEWS
from vtensor.runtime.recording.offsets import Piece, live_bytes
from vtensor.storage.budget import REMEDY


def needed_bytes(graph: LoweredGraph) -> int:
    """Return the bytes that a plan needs at once: inputs, outputs, constants, and live values."""
    return sum(value.nbytes for value in held(graph)) + live_bytes(list(pieces(graph)))


def held(graph: LoweredGraph) -> list[Value]:
    """Return the values that a plan holds throughout: its inputs, outputs and constants."""
    ends = [graph.values[name] for name in (*graph.inputs, *graph.outputs.values())]
    return ends + [value for value in graph.values.values() if value.constant]


def check_plan(graph: LoweredGraph, max_bytes: int) -> None:
    """Check that a plan fits into a memory budget, before any memory is allocated.

    Counted are inputs, outputs, constants as read and as packed, and the values that are live at
    the worst node. Scratch is not known yet; it is checked with the arena.

    Raises:
        BudgetError: the plan does not fit; the message names the node that makes the largest value.
    """
    needed = needed_bytes(graph)
    if needed > max_bytes:
        largest = max(graph.values.values(), key=lambda value: value.nbytes)
        raise BudgetError(
            describe(
                f"{_maker(graph, largest.name)}: the plan needs {needed} bytes of memory and the "
                f"budget is {max_bytes}; the largest value takes {largest.nbytes}",
                {largest.name: (largest.dtype, largest.dims)},
                remedy=REMEDY,
            )
        )


def pieces(graph: LoweredGraph) -> Iterator[Piece]:
    """Yield the memory of each value as a piece, needed from the node that makes the value to the
    value's last reader.

    The fields ``first`` and ``last`` are indices of nodes here. Inputs, outputs and constants of
    the graph are left out.
    """
    of = {name: name for name in graph.values}  # for each value, the owner of its memory
    makers, last = dict[str, int](), dict[str, int]()
    for index, node in enumerate(graph.nodes):
        view = isinstance(node, OpNode) and info_of(node.op).structural in VIEWS
        for name, output in zip(node.inputs, node.outputs, strict=False):
            if view and graph.values[name].nbytes == graph.values[output].nbytes:
                of[output] = of[name]  # of other sizes, the library has to copy the value
        for output in node.outputs:
            if of[output] == output:
                makers[output] = index
            last[of[output]] = index
        for name in node.inputs:
            last[of[name]] = index
    outside = {of[name] for name in graph.outputs.values()}
    for name, first in makers.items():
        if name not in outside and not graph.values[name].constant:
            yield Piece(graph.values[name].nbytes, first, last[name])


def _maker(graph: LoweredGraph, value: str) -> str:
    """Return a text that says what makes a value, for messages.

    It is the operator and the name of a node, or "input" or "constant" and the name of the value.
    """
    for node in graph.nodes:
        if value in node.outputs:
            op = node.op_name if isinstance(node, OpNode) else "Transform"
            return f"{op} {node.name!r}"
    return f"{'input' if value in graph.inputs else 'constant'} {value!r}"
