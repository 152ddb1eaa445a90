"""How outputs reach the caller: in whose memory they are made, and what is handed over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ptensor.buffer import ArrayStorage, Buffer, TensorStorage, fresh
from ptensor.layout import Layout
from ptensor.parts import Part
from resolver.values import Value
from vtensor.language.records import dataclass
from vtensor.language.tensor import Option, VTensor

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Result:
    """An output of a run.

    Attributes:
        name: what it is delivered under.
        dtype: element type.
        part: its memory, which nothing else uses.
        into: the caller's array that has it; None if none was given.
        copied: it was written elsewhere first: the caller's array lies otherwise or overlaps an
            input, or the memory is an input's, a constant's or another output's too.
    """

    name: str
    dtype: str
    part: Part
    into: Array | None
    copied: bool

    def array(self) -> Array:
        """The elements in presentation order."""
        if self.into is not None:
            return self.into
        return self.part.logical(list(self.part.extents), self.dtype)

    def tensor(self) -> VTensor:
        """A VTensor on the same memory."""
        part = self.part
        tensor = VTensor(self.dtype, part.extents, Option(name=self.name))
        tensor.storage = ArrayStorage(part.array, part.extents, part.layout)
        return tensor


@dataclass(frozen=True)
class Delivery:
    """An output of a plan.

    Attributes:
        name: what it is delivered under.
        value: how it lies.
        memory: the storage that owns its memory.
        binding: which of a run's bindings that is; None where it is a constant's.
    """

    name: str
    value: Value
    memory: TensorStorage
    binding: int | None

    def part(self, bindings: Sequence[Array]) -> Part:
        """The output in the memory of a run."""
        value = self.value
        buffer = self.memory.buffer if self.binding is None else Buffer.wrap(bindings[self.binding])
        storage = TensorStorage(value.dtype, value.dims, value.layout, buffer)
        return Part(storage.data(), value.layout, value.dims)

    def fitting(self, array: Array, inputs: Sequence[Array]) -> Array | None:
        """An array as plain memory if it lies exactly as the output, apart from inputs; or None."""
        dims, layout = list(self.value.dims), self.value.layout
        if layout != Layout.plain(layout.dims) or not array.flags.aligned:
            return None
        if any(np.may_share_memory(array, one) for one in inputs):
            return None
        seen = array.transpose([dims.index(dim) for dim in layout.dims])
        return seen.reshape(-1).view(np.uint8) if seen.flags.c_contiguous else None

    def elements(self, bindings: Sequence[Array]) -> Array:
        """The output's elements as they are now, in presentation order."""
        return self.part(bindings).logical(list(self.value.dims), self.value.dtype)

    def overwritten(self, bindings: Sequence[Array], into: Mapping[str, Array]) -> bool:
        """Whether writing other outputs to these arrays would change this one."""
        mine = self.part(bindings).array
        return any(np.may_share_memory(mine, into[name]) for name in into if name != self.name)

    def result(self, bindings: Sequence[Array], placed: bool, into: Array | None) -> Result:
        """What is handed over: memory that was made for it, or a copy."""
        part = self.part(bindings)
        if into is None and not placed:
            part = replace(part, array=part.array.copy())
        return Result(self.name, self.value.dtype, part, into, copied=not placed)


def deliver(
    wanted: Sequence[Delivery],
    bindings: Sequence[Array],
    placed: frozenset[str],
    into: Mapping[str, Array],
) -> list[Result]:
    """Hand over the outputs of a run.

    All that writing to the caller's arrays could change is read before any of them is written.

    Args:
        wanted: the outputs, in order; one may be asked for twice.
        bindings: the memory of the run.
        placed: the outputs that were made where they are to be.
        into: the caller's arrays, by name.
    """
    here, results, writes = set(placed), list[Result](), list[tuple[Array, Array]]()
    for one in wanted:
        name = one.name
        results.append(one.result(bindings, name in here, into.get(name)))
        if name in into and name not in here:
            elements = one.elements(bindings)
            copied = one.overwritten(bindings, into)
            writes.append((into[name], elements.copy() if copied else elements))
        here.discard(name)  # asked for again, it is a copy
    for target, elements in writes:
        np.copyto(target, elements)
    return results


@dataclass(frozen=True)
class Places:
    """Memory for the outputs of a run.

    Attributes:
        memory: a binding for each output that has memory of its own.
        names: the outputs that will be there, and nowhere else.
    """

    memory: Sequence[Array]
    names: frozenset[str]


def places(
    own: Sequence[TensorStorage],
    wanted: Sequence[Delivery],
    into: Mapping[str, Array],
    inputs: Sequence[Array],
) -> Places:
    """Memory for all outputs: the caller's where the last step can write there, else fresh.

    Args:
        own: the storages whose memory it is.
        wanted: the outputs that are asked for.
        into: arrays for them, by name.
        inputs: what must not be overwritten.
    """
    memory: dict[TensorStorage, Array] = {}
    names = set()
    for output in wanted:
        if output.memory not in own or output.memory in memory:
            continue  # an input's memory, a constant's, or another output's
        name = output.name
        array = output.fitting(into[name], inputs) if name in into else fresh(output.memory.nbytes)
        if array is not None:
            memory[output.memory] = array
            names.add(name)
    rows = [memory[root] if root in memory else fresh(root.nbytes) for root in own]
    return Places(rows, frozenset(names))
