"""How much memory a session may take, checked before it is taken."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from resolver.lowered import LoweredGraph, OpNode, Value
from vtensor.errors import BudgetError, InputError, describe
from vtensor.language.operators import info_of
from vtensor.language.traits import VIEWS
from vtensor.runtime.cgroups import MEMBERSHIP, MOUNT, folders
from vtensor.runtime.offsets import Piece, live_bytes

#: Where a control group's limit stands, by version.
_FILES = {1: "memory.limit_in_bytes", 2: "memory.max"}

REMEDY = "raise max_bytes= (--max-bytes on the command line), or give smaller inputs"


def max_bytes_of(given: int | None) -> int:
    """A budget; None is three quarters of the memory of the machine, or of its container.

    Raises:
        InputError: it is no integer of at least 1.
    """
    if given is None:
        return max(1, available_memory() * 3 // 4)
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        raise InputError(
            f"max_bytes={given!r} (--max-bytes on the command line) must be an integer of at "
            "least 1, or None"
        )
    return given


def available_memory(membership: Path = MEMBERSHIP, mount: Path = MOUNT) -> int:
    """The bytes of memory that this process may use: the machine's, less what its groups forbid."""
    least = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for version, folder in folders("memory", membership, mount):
        with suppress(OSError, ValueError):  # no such file, or "max"
            least = min(least, max(0, int((folder / _FILES[version]).read_text())))
    return least


@contextmanager
def memory_errors() -> Iterator[None]:
    """What runs out of memory inside is a typed error.

    Raises:
        BudgetError: there was less memory than the budget allows.
    """
    try:
        yield
    except MemoryError as error:
        raise ran_out(error) from error


def ran_out(error: MemoryError) -> BudgetError:
    """The typed error."""
    return BudgetError(
        f"memory ran out before the budget did: {error}\n  to fix: give a smaller "
        "max_bytes= (--max-bytes on the command line), which refuses before memory is taken, or "
        "smaller inputs"
    )


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
