"""Lower bounds on a network's time: what its heavy nodes take if nothing else takes time.

A node is heavy where its library's routine says that arithmetic outweighs memory: convolutions and
products of matrices. What else a network holds costs a session time, and these bounds none.
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


class Limits(NamedTuple):
    """Bounds of a network.

    Attributes:
        warm_ns: nanoseconds of the fastest kernel that each heavy node's library has for it, in
            whatever layouts, each repeated alone with a warm cache, added up.
        chain_ns: nanoseconds of the heavy nodes one after another, as their libraries like them
            best, each with constants of its own.
        nodes: how many heavy nodes there are.
    """

    warm_ns: int
    chain_ns: int
    nodes: int


def limits(session: Session) -> Limits:
    """The bounds of a session's last plan, on its thread and with its budget of kernel threads.

    Nodes of equal operator, sizes and element types are measured once. Nothing else should run
    meanwhile.

    Raises:
        InputError: there is no plan yet.
        VTensorError: a heavy node does not run alone in any variant.
    """
    executor, graph = Executor.of(session.threads), session.plan.graph.bare
    return executor.planning(partial(_limits, graph, executor))


def _limits(graph: LoweredGraph, executor: Executor) -> Limits:
    prober, values = Prober(graph), graph.tensors
    warm: dict[str, int] = {}
    heavy: list[OpNode] = []
    for node in graph.operators:
        if prober.heavy(node):
            heavy.append(node)
            key, _ = signature(node, values)
            if key not in warm:
                others = [replace(node, variant=one) for one in prober.variants(node)]
                warm[key] = _fastest_ns(node, others, values, executor)
    total = sum(warm[signature(node, values)[0]] for node in heavy)
    return Limits(total, chain_ns(heavy, values, executor) if heavy else 0, len(heavy))


def _fastest_ns(
    node: OpNode, others: Sequence[OpNode], values: Mapping[str, VTensor], executor: Executor
) -> int:
    """Of the variants that run; of the node as it is decided where none does."""
    found = list[int]()
    for one in others:
        with suppress(VTensorError):  # one may need more than memory allows
            found.append(node_ns(one, values, executor))
    return min(found) if found else node_ns(node, values, executor)


def chain_ns(nodes: Sequence[OpNode], values: Mapping[str, VTensor], executor: Executor) -> int:
    """Nanoseconds of nodes run one after another without Python, each on what the last one wrote.

    Each has constants of its own; all else lies in three arenas in turn, whatever its size. It is
    zeros, which stay zeros: numbers might fade until they are subnormal, and those are slow.
    """
    plan = plan_on_numbers(*alone(nodes, values), Workspace(executor, max_bytes_of(None)))
    program = _program(plan.recorded)
    run = partial(executor.replay, program, [])
    return executor.run(lambda: least_ns(run, len(program)))


def _program(recorded: Sequence[RecordedStep]) -> Program:
    """Steps that each read an arena and write the next of three; scratch has a fourth."""
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
        arena.memory().fill(0)  # pages that nobody wrote would all be one page
    return _replay.Program(regions, steps)


def _slots(step: RecordedStep) -> list[tuple[str, int, str]]:
    """Name, bytes and access of a step's slots."""
    from vtensor.runtime import _replay

    assert step.native is not None, "what is heavy is native"
    slots: list[tuple[str, int, str]] = _replay.describe(step.native)["slots"]
    return slots
