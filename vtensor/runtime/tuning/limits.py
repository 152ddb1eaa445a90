"""Lower bounds on a network's time: the time of its heavy nodes alone.

A node is heavy if its library's routine says that it takes longer for arithmetic than for memory:
convolutions and matrix products. All other work of a session counts as 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from resolver.lowered import LoweredGraph, OpNode
from resolver.probe import Prober
from vtensor.errors import VTensorError
from vtensor.language.tensor import VTensor
from vtensor.runtime.execution.executor import Executor
from vtensor.runtime.execution.steps import RecordedStep
from vtensor.runtime.recording.on_numbers import plan_on_numbers
from vtensor.runtime.recording.workspace import Workspace
from vtensor.runtime.tuning.measure import alone, least_ns, node_ns, signature
from vtensor.storage.budget import max_bytes_of

if TYPE_CHECKING:
    from vtensor.runtime._replay import Program
    from vtensor.runtime.session import Session


class TimeBounds(NamedTuple):
    """Lower bounds of a network's time, from its heavy nodes (convolutions, matrix products) alone.

    Attributes:
        warm_ns: the sum, over heavy nodes, of the time of the fastest kernel in any layout, run
            alone in warm caches; in nanoseconds.
        chain_ns: the time, in nanoseconds, of the heavy nodes run one after another in the layouts
            that their libraries prefer. Each node reads constants of its own.
        nodes: the number of heavy nodes.
    """

    warm_ns: int
    chain_ns: int
    nodes: int


def limits(session: Session) -> TimeBounds:
    """Return the bounds for the plan of a session's last run, measured on the session's number of
    threads.

    A heavy node (a convolution or matrix product) is measured once for all nodes of the same
    operator, sizes and element types. Nothing else should run meanwhile.

    Raises:
        InputError: there is no plan yet.
        VTensorError: a heavy node (a convolution or matrix product) runs alone in no variant.
    """
    executor, graph = Executor.of(session.threads), session.plan.graph.bare
    return executor.planning(partial(_limits, graph, executor))


def _limits(graph: LoweredGraph, executor: Executor) -> TimeBounds:
    prober, values = Prober(graph), graph.tensors
    warm: dict[str, int] = {}
    heavy: list[OpNode] = []
    for node in graph.operators:
        if prober.heavy(node):
            heavy.append(node)
            key, _ = signature(node, values)
            if key not in warm:
                others = [replace(node, variant=variant) for variant in prober.variants(node)]
                warm[key] = _fastest_ns(node, others, values, executor)
    total = sum(warm[signature(node, values)[0]] for node in heavy)
    return TimeBounds(total, chain_ns(heavy, values, executor) if heavy else 0, len(heavy))


def _fastest_ns(
    node: OpNode, others: Sequence[OpNode], values: Mapping[str, VTensor], executor: Executor
) -> int:
    """Return the time of the fastest of ``others``, in nanoseconds. Variants that fail are left
    out.

    If all of them fail, it is the time of ``node``.

    Args:
        node: the node in its own variant.
        others: the node in other variants.
        values: the values that the node reads and writes, by name.
        executor: the executor that measures.
    """
    times_ns = list[int]()
    for other in others:
        with suppress(VTensorError):  # one may need more than memory allows
            times_ns.append(node_ns(other, values, executor))
    return min(times_ns) if times_ns else node_ns(node, values, executor)


def chain_ns(nodes: Sequence[OpNode], values: Mapping[str, VTensor], executor: Executor) -> int:
    """Return the time of nodes run one after another, in nanoseconds.

    Each node reads constants of its own. All other operands are in three arenas, used in rotation:
    a node reads one arena and writes the next, whatever the sizes are. The arenas hold zeros,
    because other numbers could become subnormal, with which arithmetic is slow.

    Args:
        nodes: the nodes in their variants.
        values: the values that the nodes read and write, by name.
        executor: the executor that measures.
    """
    plan = plan_on_numbers(*alone(nodes, values), Workspace(executor, max_bytes_of(None)))
    program = _program(plan.recorded)
    run = partial(executor.replay, program, [])
    return executor.run(lambda: least_ns(run, len(program)))


def _program(recorded: Sequence[RecordedStep]) -> Program:
    """Return a program in which each step reads one of three arenas and writes the next.

    Constants keep their memory; scratch is in a fourth arena.
    """
    from vtensor.runtime import _replay

    arenas = [_replay.Arena() for _ in range(4)]
    regions: list[object] = [*arenas]
    steps = []
    for number, step in enumerate(recorded):
        places = []
        for slot, (_, nbytes, access) in zip(step.slots, _slots(step), strict=True):
            place = 3 if isinstance(slot, int) else (number + (access != "read")) % 3
            if not isinstance(slot, int) and slot.constant:
                place = len(regions)
                regions.append(slot.buffer.memory)
            else:
                arenas[place].grow(nbytes)
            places.append((place, 0))
        steps.append((step.native, places))
    for arena in arenas:
        arena.memory().fill(0)  # untouched pages would all map to one zero page
    return _replay.Program(regions, steps)


def _slots(step: RecordedStep) -> list[tuple[str, int, str]]:
    """Return the name, bytes and access of each slot of a step."""
    from vtensor.runtime import _replay

    assert step.native is not None, "heavy nodes are native steps"
    slots: list[tuple[str, int, str]] = _replay.describe(step.native)["slots"]
    return slots
