"""A checker of placements: it goes through the steps, and each reads what was written for it.

Each cache line of memory has the name of the value that it holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ptensor.buffer import ALIGNMENT, TensorStorage
from vtensor.runtime import _replay
from vtensor.runtime.execution.steps import RecordedStep
from vtensor.runtime.recording.placement import Placement

Lines = np.ndarray[Any, Any]

#: The owner of memory, the first byte and the number of bytes; None is scratch.
Part = tuple[TensorStorage, int, int] | None
#: For each slot: its owner, the part, the lines, and what is done with them.
Accesses = list[tuple[Any, Part, Lines, str]]


class Simulation:
    """The memory of a plan while its steps run.

    Attributes:
        faults: reads of another value than the step's, and writes over a value that it reads.
    """

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self.faults: list[str] = []
        self._arena = np.full(-(-placement.nbytes // ALIGNMENT), -1)
        self._bound = {root: np.full(_lines(root.nbytes), -1) for root in placement.bound}
        self._names: dict[object, int] = {}
        self._written: set[Part] = set()

    def run(self, inputs: int) -> list[str]:
        """Go through all steps; so many first owners of bound memory are inputs."""
        given, outputs = self.placement.bound[:inputs], self.placement.bound[inputs:]
        for root in given:
            self._write(root, self._bound[root], (root, 0, root.nbytes))
        for index, step in enumerate(self.placement.steps):
            self._step(index, step)
        for root in outputs:
            self._read("the caller", root, self._bound[root])
        return self.faults

    def _step(self, index: int, step: RecordedStep) -> None:
        accesses = list(self._accesses(index, step))
        # a value is new to its first step, which may make zeros of anything: x < x
        new = {part for _, part, _, access in accesses if access == "write"} - self._written
        for root, part, lines, access in accesses:
            if "read" in access and part not in new:
                self._read(f"step {index} of {step.node}", root, lines)
        for root, part, lines, access in accesses:
            if access != "read":
                self._check_apart(step, root, lines, accesses)
                self._write(root, lines, part)

    def _accesses(self, index: int, step: RecordedStep) -> Iterator[tuple[Any, Part, Lines, str]]:
        """Yield accesses; a call-back writes operands in which nothing is yet, and reads others."""
        known = _replay.describe(step.native)["slots"] if step.native is not None else ()
        for slot, of in enumerate(step.slots):
            if isinstance(of, int):
                begin = self.placement.scratch[index, slot]
                yield (index, slot), None, self._within(begin, of), "scratch"
            elif (lines := self._place(of.root)) is not None:
                first, part = of.begin // ALIGNMENT, (of.root, of.begin, of.nbytes)
                lines = lines[first : first + _lines(of.nbytes)]
                there = part in self._written or (lines == self._name(of.root)).all()
                unknown = "read" if there else "write"
                yield of.root, part, lines, known[slot][2] if known else unknown

    def _place(self, root: TensorStorage) -> Lines | None:
        """Return the lines of an owner's memory; None for a constant's."""
        root = self.placement.hosts.get(root, root)
        if root in self.placement.offsets:
            return self._within(self.placement.offsets[root], root.nbytes)
        return self._bound.get(root)

    def _within(self, begin: int, nbytes: int) -> Lines:
        if begin % ALIGNMENT or begin + nbytes > self.placement.nbytes:
            self.faults.append(f"{nbytes} bytes at {begin} of {self.placement.nbytes}")
        first = begin // ALIGNMENT
        return self._arena[first : first + _lines(nbytes)]

    def _read(self, who: str, root: TensorStorage, lines: Lines) -> None:
        if root.nbytes and (lines != self._name(root)).any():
            self.faults.append(f"{who} reads what is no longer there, or not yet")

    def _write(self, what: Any, lines: Lines, part: Part) -> None:
        lines[...] = self._name(what)
        self._written.add(part)

    def _check_apart(self, step: RecordedStep, what: Any, lines: Lines, accesses: Accesses) -> None:
        """Check that a step writes apart from all else that it touches.

        An operand that it may replace is an exception, if it reads it in one order.
        """
        seen = [slot for slot in step.slots if not isinstance(slot, int)]
        allowed = {
            operand.root
            for target, operands in step.replaces.items()
            if target.root is what
            for operand in operands
            if {id(slot) for slot in seen if slot.root is operand.root} == {id(operand)}
        }
        for other, _, place, _ in accesses:
            if other != what and other not in allowed and np.shares_memory(lines, place):
                self.faults.append(f"a step of {step.node} writes over what it uses")

    def _name(self, what: Any) -> int:
        return self._names.setdefault(what, len(self._names))


def _lines(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT)


def faults(placement: Placement, inputs: int) -> list[str]:
    """Return what is wrong with a placement; so many first owners of bound memory are inputs."""
    return Simulation(placement).run(inputs)
