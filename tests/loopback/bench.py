"""The library ``loopback``, registered for a while, and what its plans must look like."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from unittest.mock import patch

import numpy as np

from libdesc import register
from ptensor.buffer import Buffer
from resolver.lowered import LoweredGraph, OpNode, TransformNode
from tests.libraries.scratch import scratch_registry
from tests.loopback.handlers import has_one_layout
from tests.loopback.invokers import declare_invokers, definitions, ran
from tests.operators.harness import Given, run
from tests.operators.tables.cases import Case
from tests.property.strategies import bits
from vtensor.language.dtype import from_numpy
from vtensor.language.graph import Graph
from vtensor.language.operators import info_of
from vtensor.runtime.session import Session

_allocate = Buffer.allocate


def _poisoned(nbytes: int) -> Buffer:
    """Memory full of NaN: what nobody writes is seen, pads included."""
    buffer = _allocate(nbytes)
    buffer.memory[...] = 0xFF
    return buffer


@contextmanager
def loopback() -> Iterator[None]:
    """Inside the block the library is there, has run nothing yet, and fresh memory is NaN."""
    with scratch_registry(), patch.object(Buffer, "allocate", _poisoned):
        register(Path(__file__).parent)
        declare_invokers()
        ran.clear()
        yield


def check_scrambled(graph: LoweredGraph) -> None:
    """No two arguments of an operator are alike, and a Transform stands at each.

    It stands before each input, constant or not, and behind each output that is delivered, but for
    what has one layout only.
    """
    faults = list(_faults(graph))
    assert not faults, "\n".join(faults)


def _faults(graph: LoweredGraph) -> Iterator[str]:
    changed = {node.output for node in graph.nodes if isinstance(node, TransformNode)}
    operators = [node for node in graph.nodes if isinstance(node, OpNode)]
    for node in operators:
        operands = zip(node.roles, (*node.inputs, *node.outputs), strict=True)
        layouts = {
            role: layout
            for (role, name), layout in zip(operands, node.variant.layouts, strict=True)
            if not has_one_layout(graph.values[name].dims)
        }
        for one, other in combinations(layouts, 2):
            if layouts[one] == layouts[other]:
                yield f"{one} and {other} of {node.op_name} are both in {layouts[one]}"
        for role, name in zip(node.roles, node.inputs, strict=False):
            if role in layouts and name not in changed:
                yield f"{role} of {node.op_name} is taken as it lies"
    made = {name for node in operators for name in node.outputs}
    for alias, name in graph.outputs.items():
        if name in made and not has_one_layout(graph.values[name].dims):
            yield f"output {alias} is delivered as it lies"


def check_case(case: Case, dtype: str = "f32", libraries: tuple[str, ...] = ()) -> LoweredGraph:
    """A case gives the bits that its definition gives, and its plan is scrambled.

    Args:
        case: an operator on inputs.
        dtype: their element type.
        libraries: those that may run Transforms, beside NumPy.

    Returns:
        The lowered graph.
    """
    given = case.given(dtype=dtype)
    graph, names = _one_node(case.op, given), ["loopback", *libraries]
    feeds = {f"x{i}": one.array for i, one in enumerate(given) if not one.constant}
    with Session(graph, libraries=names, optimize="none", threads=1) as session:
        found = session.run(None, feeds)
        plan = session.plan.graph
    check_scrambled(plan)
    definition = definitions()[info_of(case.op).name].library
    for value, expected in zip(found, run(definition, case.op, given).values, strict=True):
        np.testing.assert_array_equal(bits(value), bits(expected), err_msg=str(case))
    return plan


def _one_node(op: object, given: list[Given]) -> Graph:
    graph = Graph("one node")
    inputs = [
        graph.constant(one.array, one.dims, f"x{i}")
        if one.constant
        else graph.input(f"x{i}", one.extents, from_numpy(one.array.dtype))
        for i, one in enumerate(given)
    ]
    made = graph.add(op, *inputs)
    for value in made if isinstance(made, tuple) else (made,):
        graph.output(value)
    return graph.seal()
