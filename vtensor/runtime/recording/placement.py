"""Where everything that a plan's steps touch lies, and the native program of them."""

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

#: Where something lies: a region, and the byte at which it begins there.
Place = tuple[int, int]


@dataclass(frozen=True)
class Placement:
    """The regions of a plan: the arena, what each run binds, constants.

    Attributes:
        steps: what runs.
        bound: owners of memory that each run brings: inputs, then outputs.
        hosts: for a storage without memory of its own in the arena, the output in whose memory it
            lies.
        offsets: where storages lie in the arena.
        scratch: where scratch lies in the arena, by step and slot.
        nbytes: the size of the arena that is needed.
        live: what is needed at once at most: no arena could be smaller.
    """

    steps: Sequence[RecordedStep]
    bound: Sequence[TensorStorage]
    hosts: Mapping[TensorStorage, TensorStorage]
    offsets: Mapping[TensorStorage, int]
    scratch: Mapping[tuple[int, int], int]
    nbytes: int
    live: int

    def program(self, arena: Arena) -> Program:
        """The steps as one native program on an arena that is large enough.

        Raises:
            ValueError: a step does not fit its memory.
        """
        from vtensor.runtime import _replay

        constants = self.constants()
        regions: list[object] = [arena, *(storage.nbytes for storage in self.bound)]
        regions += [storage.buffer.memory for storage in constants]
        return _replay.Program(regions, self.placed(constants), repeatable=True)

    def placed(self, constants: Sequence[TensorStorage]) -> list[tuple[object, list[Place]]]:
        """The steps, with the place of each slot. The arena is the first region; what runs bring,
        and then these constants, are the others.
        """
        where = {storage: region for region, storage in enumerate([*self.bound, *constants], 1)}

        def place(index: int, slot: int, of: TensorStorage | int) -> Place:
            if isinstance(of, int):
                return 0, self.scratch[index, slot]
            root = self.hosts.get(of.root, of.root)
            region, begin = (0, self.offsets[root]) if root in self.offsets else (where[root], 0)
            return region, begin + of.begin

        steps: list[tuple[object, list[Place]]] = []
        for index, step in enumerate(self.steps):
            if step.callback is not None:
                steps.append((step.callback, []))
            else:
                slots = enumerate(step.slots)
                steps.append((step.native, [place(index, slot, of) for slot, of in slots]))
        return steps

    def constants(self) -> list[TensorStorage]:
        """Owners of memory that stays as it is, each once."""
        roots = {
            slot.root: None
            for step in self.steps
            for slot in step.slots
            if not isinstance(slot, int) and slot.root.bound
        }
        return [root for root in roots if root not in self.bound]

    def memory(self, index: int, arena: Array) -> list[Array]:
        """What the slots of a step are given; all storages are bound."""
        found = []
        for slot, of in enumerate(self.steps[index].slots):
            if isinstance(of, int):
                begin = self.scratch[index, slot]
                found.append(arena[begin : begin + of])
            else:
                found.append(of.memory)
        return found

    def buffers(self, arena: Arena) -> dict[TensorStorage, Buffer]:
        """What the storages have in an arena, for Python that is about to look at them."""
        memory = arena.memory()
        return {
            storage: Buffer(memory[begin : begin + storage.nbytes])
            for storage, begin in self.offsets.items()
        }


def place(
    steps: Sequence[RecordedStep], inputs: Sequence[TensorStorage], outputs: Sequence[TensorStorage]
) -> Placement:
    """Find room for everything that steps touch.

    Args:
        steps: in the order in which they run.
        inputs, outputs: owners of the memory that each run brings.
    """
    found = arranged(steps, inputs, outputs)
    begins, nbytes = offsets([lifetime.piece for lifetime in found.ours])
    begin = dict(zip(found.ours, begins, strict=True))
    away = found.away
    return Placement(
        steps,
        [*inputs, *outputs],
        found.hosts,
        {storage: begin[t] for storage, t in found.lifetimes.of.items() if t not in away},
        {key: begin[t] for key, t in found.lifetimes.scratch.items()},
        nbytes,
        live_bytes([lifetime.piece for lifetime in found.ours]),
    )


@dataclass(frozen=True)
class Arranged:
    """Who needs memory when, and whose that is.

    Attributes:
        lifetimes: of all that has memory in the arena, or in an output.
        hosts: as for ``Placement``.
        away: those that have an output's memory.
        ours: those that have memory in the arena.
    """

    lifetimes: Lifetimes
    hosts: Mapping[TensorStorage, TensorStorage]
    away: Collection[Lifetime]
    ours: Sequence[Lifetime]


def arranged(
    steps: Sequence[RecordedStep], inputs: Sequence[TensorStorage], outputs: Sequence[TensorStorage]
) -> Arranged:
    """Find out for everything that steps touch when it is needed; arguments as for ``place``."""
    constants = {
        slot.root
        for step in steps
        for slot in step.slots
        if not isinstance(slot, int) and slot.root.bound
    }
    found = lifetimes(steps, constants | set(inputs), set(outputs))
    hosts = {
        storage: output
        for output in outputs
        if output in found.of
        for storage in found.of[output].storages
        if storage is not output
    }
    away = {found.of[output] for output in outputs if output in found.of}
    return Arranged(found, hosts, away, [one for one in found.distinct() if one not in away])
