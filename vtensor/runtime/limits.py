"""What a network's heavy nodes would take if nothing else took time: bounds to hold a session to.

A node is heavy where its library's routine says that arithmetic outweighs memory: convolutions and
products of matrices. What else a network holds costs a session time, and these bounds none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ptensor.buffer import Buffer
from resolver.evaluate import Resolution
from resolver.extended import OpNode
from resolver.probe import Prober
from vtensor.runtime.executor import Executor
from vtensor.runtime.measure import alone, median_ns, node_ns, signature
from vtensor.runtime.plan import Array, Plan
from vtensor.runtime.record import RecordedStep
from vtensor.runtime.session import Session
from vtensor.tensor import VTensor


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
    """
    origin = session.plan.graph.origin
    assert origin is not None, "a plan's graph has an origin"
    return Executor.of(session.threads).run(lambda: _limits(origin.resolution))


def _limits(resolution: Resolution) -> Limits:
    prober, values = Prober(resolution), resolution.values
    warm: dict[str, int] = {}
    heavy: list[OpNode] = []
    for node in resolution.nodes:
        offer = prober.offer(node)
        if offer.heavy:
            heavy.append(node)
            key = signature(node, values)
            if key not in warm:
                ways = (replace(node, decision=way) for way in offer.ways or [node.decision])
                warm[key] = min(node_ns(way, values) for way in ways)
    total = sum(warm[signature(node, values)] for node in heavy)
    return Limits(total, chain_ns(heavy, values) if heavy else 0, len(heavy))


def chain_ns(nodes: Sequence[OpNode], values: Mapping[str, VTensor]) -> int:
    """Nanoseconds of nodes run one after another, each on what the one before it wrote.

    Each has constants of its own; all else lies in three buffers in turn, whatever its size: the
    numbers mean nothing.
    """
    from vtensor.runtime import _replay

    plan = Plan(*alone(nodes, values))
    slots = [slot for step in plan.recorded for slot in step.slots]
    largest = max(slot if isinstance(slot, int) else slot.nbytes for slot in slots)
    buffers = [Buffer.allocate(largest) for _ in range(4)]
    for buffer in buffers:
        buffer.memory.fill(0)  # pages that nobody wrote would all be one page
    chain = [
        (step.native, _memory(step, buffers[number % 3], buffers[(number + 1) % 3], buffers[3]))
        for number, step in enumerate(plan.recorded)
    ]

    def run() -> None:
        for step, memory in chain:
            _replay.execute(step, memory)

    return median_ns(run)


def _memory(step: RecordedStep, read: Buffer, written: Buffer, scratch: Buffer) -> list[Array]:
    """A step's memory: its constants', and of buffers for what else it reads, writes or needs."""
    from vtensor.runtime import _replay

    assert step.native is not None, "what is heavy is native"
    said = _replay.describe(step.native)["slots"]
    memory = []
    for slot, (_, _, access) in zip(step.slots, said, strict=True):
        if isinstance(slot, int):
            memory.append(scratch.memory)
        elif slot.constant:
            memory.append(slot.buffer.memory)
        else:
            memory.append((read if access == "read" else written).memory)
    return memory
