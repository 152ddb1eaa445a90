"""Placement of all memory that a plan's steps touch: a region and an offset in it for each slot."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ptensor.buffer import Buffer, TensorStorage
from vtensor.language.records import dataclass
from vtensor.runtime.execution.steps import RecordedStep
from vtensor.runtime.recording.lifetimes import Lifetime, Lifetimes, lifetimes
from vtensor.runtime.recording.offsets import live_bytes, offsets

if TYPE_CHECKING:
    from vtensor.runtime._replay import Arena, Program

Array = np.ndarray[Any, Any]

#: A place in memory: a region, and the offset of the first byte there.
Place = tuple[int, int]


@dataclass(frozen=True)
class Placement:
    """The places of a plan's memory: in the arena, in memory that each run binds, or in constants.

    Attributes:
        steps: the steps, in running order.
        bound: the storages whose memory each run binds: inputs, then outputs.
        hosts: for each storage that uses the memory of an output, that output's storage.
        offsets: the offsets of storages in the arena, in bytes.
        scratch: the offsets of scratch in the arena, in bytes, by (index of the step, index of the
            slot).
        nbytes: the bytes of the arena.
        live: the most bytes of the arena in use at one step. No arena could be smaller.
    """

    steps: Sequence[RecordedStep]
    bound: Sequence[TensorStorage]
    hosts: Mapping[TensorStorage, TensorStorage]
    offsets: Mapping[TensorStorage, int]
    scratch: Mapping[tuple[int, int], int]
    nbytes: int
    live: int

    def program(self, arena: Arena) -> Program:
        """Compile the steps to one native program on an arena that is large enough.

        Raises:
            ValueError: a step does not fit its memory.
        """
        from vtensor.runtime import _replay

        constants = self.constants()
        regions: list[object] = [arena, *(storage.nbytes for storage in self.bound)]
        regions += [storage.buffer.memory for storage in constants]
        return _replay.Program(regions, self.placed(constants), repeatable=True)

    def placed(self, constants: Sequence[TensorStorage]) -> list[tuple[object, list[Place]]]:
        """Return (step, slots) for each step. Slots are (region, byte offset in the region) for
        each slot of a native step; a call-back has none.

        Region 0 is the arena. The regions of memory that runs bind follow, then those of constants.

        Args:
            constants: the storages that own the memory of constants, in the order of their regions.
        """
        where = {storage: region for region, storage in enumerate([*self.bound, *constants], 1)}

        def place(index: int, slot: int, operand: TensorStorage | int) -> Place:
            if isinstance(operand, int):
                return 0, self.scratch[index, slot]
            root = self.hosts.get(operand.root, operand.root)
            region, begin = (0, self.offsets[root]) if root in self.offsets else (where[root], 0)
            return region, begin + operand.begin

        steps: list[tuple[object, list[Place]]] = []
        for index, step in enumerate(self.steps):
            if step.callback is not None:
                steps.append((step.callback, []))
            else:
                slots = enumerate(step.slots)
                steps.append(
                    (step.native, [place(index, slot, operand) for slot, operand in slots])
                )
        return steps

    def constants(self) -> list[TensorStorage]:
        """Return the storages that own the memory of the constants that steps read, each once."""
        roots = {
            slot.root: None
            for step in self.steps
            for slot in step.slots
            if not isinstance(slot, int) and slot.root.bound
        }
        return [root for root in roots if root not in self.bound]

    def memory(self, index: int, arena: Array) -> list[Array]:
        """Return the memory of each slot of a step, whose storages must be bound.

        Args:
            index: the index of the step.
            arena: the bytes of the arena, for scratch.
        """
        memory_of = []
        for slot, operand in enumerate(self.steps[index].slots):
            if isinstance(operand, int):
                begin = self.scratch[index, slot]
                memory_of.append(arena[begin : begin + operand])
            else:
                memory_of.append(operand.memory)
        return memory_of

    def buffers(self, arena: Arena) -> dict[TensorStorage, Buffer]:
        """Return a buffer in ``arena`` for each storage that is placed there, for use by Python."""
        memory = arena.memory()
        return {
            storage: Buffer(memory[begin : begin + storage.nbytes])
            for storage, begin in self.offsets.items()
        }


def place(
    steps: Sequence[RecordedStep], inputs: Sequence[TensorStorage], outputs: Sequence[TensorStorage]
) -> Placement:
    """Place all memory that steps touch.

    Args:
        steps: the steps, in running order.
        inputs, outputs: the storages whose memory each run binds.
    """
    arrangement = arranged(steps, inputs, outputs)
    begins, nbytes = offsets([lifetime.piece for lifetime in arrangement.ours])
    begin = dict(zip(arrangement.ours, begins, strict=True))
    away = arrangement.away
    return Placement(
        steps,
        [*inputs, *outputs],
        arrangement.hosts,
        {storage: begin[t] for storage, t in arrangement.lifetimes.of.items() if t not in away},
        {key: begin[t] for key, t in arrangement.lifetimes.scratch.items()},
        nbytes,
        live_bytes([lifetime.piece for lifetime in arrangement.ours]),
    )


@dataclass(frozen=True)
class Arranged:
    """The lifetimes of memory, before places in the arena are chosen.

    Attributes:
        lifetimes: the lifetimes of all memory in the arena or in an output.
        hosts: for each storage that uses the memory of an output, that output's storage.
        away: the lifetimes of values that are in an output's memory.
        ours: the lifetimes of values and scratch that are in the arena.
    """

    lifetimes: Lifetimes
    hosts: Mapping[TensorStorage, TensorStorage]
    away: Collection[Lifetime]
    ours: Sequence[Lifetime]


def arranged(
    steps: Sequence[RecordedStep], inputs: Sequence[TensorStorage], outputs: Sequence[TensorStorage]
) -> Arranged:
    """Return the lifetimes of all memory that steps touch, divided into memory of outputs and
    memory of the arena.

    Args:
        steps: the steps, in running order.
        inputs, outputs: the storages whose memory each run binds.
    """
    constants = {
        slot.root
        for step in steps
        for slot in step.slots
        if not isinstance(slot, int) and slot.root.bound
    }
    times = lifetimes(steps, constants | set(inputs), set(outputs))
    hosts = {
        storage: output
        for output in outputs
        if output in times.of
        for storage in times.of[output].storages
        if storage is not output
    }
    away = {times.of[output] for output in outputs if output in times.of}
    return Arranged(
        times, hosts, away, [lifetime for lifetime in times.distinct() if lifetime not in away]
    )
