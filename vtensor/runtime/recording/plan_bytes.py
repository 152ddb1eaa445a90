"""How much memory a plan needs, before any of it is taken."""

from __future__ import annotations

from collections.abc import Iterator

from resolver.lowered import LoweredGraph, OpNode, Value
from vtensor.errors import BudgetError, describe
from vtensor.language.operators import info_of
from vtensor.language.traits import VIEWS
from vtensor.runtime.recording.offsets import Piece, live_bytes
from vtensor.storage.budget import REMEDY


def needed_bytes(graph: LoweredGraph) -> int:
    """What a plan takes at once, as ``check_plan`` counts it."""
    return sum(value.nbytes for value in held(graph)) + live_bytes(list(pieces(graph)))


def held(graph: LoweredGraph) -> list[Value]:
    """What a plan has throughout: its inputs, outputs and constants."""
    ends = [graph.values[name] for name in (*graph.inputs, *graph.outputs.values())]
    return ends + [value for value in graph.values.values() if value.constant]


def check_plan(graph: LoweredGraph, max_bytes: int) -> None:
    """See that what a plan needs at once fits into a budget, before any of it is taken.

    These are its inputs and outputs, constants as they come and as they are packed, and, at the
    worst node, the other values that are still to be read. Scratch is not known yet: the arena has
    to fit as well.

    Raises:
        BudgetError: they do not fit; names the node that takes most.
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
    """The memory of what nodes make, from the node that makes it to the last that reads it; that
    of outputs is not among it.
    """
    of = {name: name for name in graph.values}  # whose memory it is
    made, last = dict[str, int](), dict[str, int]()
    for index, node in enumerate(graph.nodes):
        view = isinstance(node, OpNode) and info_of(node.op).structural in VIEWS
        for name, output in zip(node.inputs, node.outputs, strict=False):
            if view and graph.values[name].nbytes == graph.values[output].nbytes:
                of[output] = of[name]  # else its library has to copy
        for output in node.outputs:
            if of[output] == output:
                made[output] = index
            last[of[output]] = index
        for name in node.inputs:
            last[of[name]] = index
    outside = {of[name] for name in graph.outputs.values()}
    for name, first in made.items():
        if name not in outside and not graph.values[name].constant:
            yield Piece(graph.values[name].nbytes, first, last[name])


def _maker(graph: LoweredGraph, value: str) -> str:
    """Who makes a value."""
    for node in graph.nodes:
        if value in node.outputs:
            op = node.op_name if isinstance(node, OpNode) else "Transform"
            return f"{op} {node.name!r}"
    return f"{'input' if value in graph.inputs else 'constant'} {value!r}"
