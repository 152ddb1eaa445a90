"""How much memory a session may take, checked before it is taken."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from resolver.extended import ExtendedGraph, OpNode
from vtensor.errors import BudgetError, InputError, describe
from vtensor.operators import VIEWS, info_of

#: Where a container's limit stands.
_CGROUP = Path("/sys/fs/cgroup/memory.max")

REMEDY = "raise max_bytes= (--max-bytes on the command line), or give smaller inputs"


def max_bytes_of(given: int | None) -> int:
    """A budget; None is three quarters of the memory of the machine, or of its container.

    Raises:
        InputError: it is no integer of at least 1.
    """
    if given is None:
        return _memory() * 3 // 4
    if not isinstance(given, int) or isinstance(given, bool) or given < 1:
        raise InputError(f"max_bytes={given!r} must be an integer of at least 1, or None")
    return given


def _memory() -> int:
    installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(installed, int(_CGROUP.read_text()))
    except (OSError, ValueError):  # no such file, or "max"
        return installed


@contextmanager
def memory_errors() -> Iterator[None]:
    """What runs out of memory inside is a typed error.

    Raises:
        BudgetError: there was less memory than the budget allows.
    """
    try:
        yield
    except MemoryError as error:
        raise BudgetError(
            f"memory ran out before the budget did: {error}\n  to fix: give a smaller "
            "max_bytes=, which refuses before memory is taken, or smaller inputs"
        ) from error


def check_plan(graph: ExtendedGraph, max_bytes: int) -> None:
    """See that a plan's values, and copies of its outputs, fit into a budget together.

    Raises:
        BudgetError: they do not; names the node that takes most.
    """
    views = {
        made
        for node in graph.nodes
        if isinstance(node, OpNode) and info_of(node.op).structural in VIEWS
        for name, made in zip(node.inputs, node.outputs, strict=True)
        if graph.values[name].nbytes == graph.values[made].nbytes  # else its library has to copy
    }
    taken = [value for value in graph.values.values() if value.name not in views]
    needed = sum(value.nbytes for value in taken)
    needed += sum(graph.values[name].nbytes for name in graph.outputs.values())
    if needed > max_bytes:
        largest = max(taken, key=lambda value: value.nbytes)
        raise BudgetError(
            describe(
                f"{_maker(graph, largest.name)}: the plan needs {needed} bytes of memory and the "
                f"budget is {max_bytes}; the largest value takes {largest.nbytes}",
                {largest.name: (largest.dtype, largest.dims)},
                remedy=REMEDY,
            )
        )


def _maker(graph: ExtendedGraph, value: str) -> str:
    """Who makes a value."""
    for node in graph.nodes:
        if value in node.outputs:
            op = node.op_name if isinstance(node, OpNode) else "Transform"
            return f"{op} {node.name!r}"
    return f"{'input' if value in graph.inputs else 'constant'} {value!r}"
