"""Delivery of outputs: where a plan writes each output, and the array that the caller gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ptensor.buffer import ArrayStorage, Buffer, TensorStorage, fresh
from ptensor.layout import Layout
from ptensor.parts import Part
from resolver.values import Value
from vtensor.errors import InputError
from vtensor.language.dtype import from_numpy
from vtensor.language.records import dataclass
from vtensor.language.tensor import Option, VTensor

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Result:
    """An output of a run.

    Attributes:
        name: the output's name.
        dtype: element type.
        part: the output's memory, with its layout. No other value uses that memory, unless the
            output was copied from it to ``into``.
        into: the caller's array that holds the output; None if none was given.
        copied: True if the output was copied from where the plan wrote it: the caller's array has
            another layout or overlaps an input, or the memory belongs to an input, a constant or
            another output.
    """

    name: str
    dtype: str
    part: Part
    into: Array | None
    copied: bool

    def array(self) -> Array:
        """Return the elements as an array, with axes in the order of the network's dims."""
        if self.into is not None:
            return self.into
        return self.part.logical(list(self.part.extents), self.dtype)

    def tensor(self) -> VTensor:
        """Return a VTensor on the memory of ``part``."""
        part = self.part
        tensor = VTensor(self.dtype, part.extents, Option(name=self.name))
        tensor.storage = ArrayStorage(part.array, part.extents, part.layout)
        return tensor


def handed_on(name: str, array: Array, into: Array | None) -> Result:
    """Return an array as an output of a run, copied to the caller's array if there is one.

    Raises:
        InputError: the caller's array has another shape.
    """
    if into is not None:
        if into.shape != array.shape:
            raise InputError(f"out {name!r} is {into.shape}, and the output is {array.shape}")
        np.copyto(into, array)
    dims = {f"D{axis}": size for axis, size in enumerate(array.shape)}
    part = Part(np.asarray(array, order="C"), Layout.plain(dims), dims)
    return Result(name, from_numpy(array.dtype), part, into, copied=into is not None)


@dataclass(frozen=True)
class Delivery:
    """An output of a plan.

    Attributes:
        name: the output's name.
        value: the output's type, dims and layout.
        memory: the storage that owns the output's memory.
        binding: the index of the output's memory among the arrays that a run binds; None if the
            output is a constant.
    """

    name: str
    value: Value
    memory: TensorStorage
    binding: int | None

    def part(self, bindings: Sequence[Array]) -> Part:
        """Return the output's memory after a run, with its layout and dims.

        Args:
            bindings: the arrays that the run bound.
        """
        value = self.value
        buffer = self.memory.buffer if self.binding is None else Buffer.wrap(bindings[self.binding])
        storage = TensorStorage(value.dtype, value.dims, value.layout, buffer)
        return Part(storage.data(), value.layout, value.dims)

    def fitting(self, array: Array, inputs: Sequence[Array]) -> Array | None:
        """Return the bytes of an array if a plan can write the output directly to it, else None.

        The array must have the layout of the output and overlap no input.

        Args:
            array: the caller's array for the output.
            inputs: the memory of the inputs.
        """
        dims, layout = list(self.value.dims), self.value.layout
        if layout != Layout.plain(layout.dims) or not array.flags.aligned:
            return None
        if any(np.may_share_memory(array, source) for source in inputs):
            return None
        in_order = array.transpose([dims.index(dim) for dim in layout.dims])
        return in_order.reshape(-1).view(np.uint8) if in_order.flags.c_contiguous else None

    def elements(self, bindings: Sequence[Array]) -> Array:
        """Return the output's elements after a run, with axes in the order of the network's dims.

        Args:
            bindings: the arrays that the run bound.
        """
        return self.part(bindings).logical(list(self.value.dims), self.value.dtype)

    def overwritten(self, bindings: Sequence[Array], into: Mapping[str, Array]) -> bool:
        """Return whether writing the other outputs to their arrays would change this output.

        Args:
            bindings: the arrays that the run bound.
            into: the caller's arrays for outputs, by name of the output.
        """
        memory = self.part(bindings).array
        return any(np.may_share_memory(memory, into[name]) for name in into if name != self.name)

    def result(self, bindings: Sequence[Array], placed: bool, into: Array | None) -> Result:
        """Return the delivered output.

        Args:
            bindings: the arrays that the run bound.
            placed: True if the plan wrote the output to its final memory.
            into: the caller's array for the output, or None. If it is None and ``placed`` is False,
                the result holds a copy.
        """
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
    """Return the results of a run, and write outputs to the caller's arrays.

    An output that has to be copied is read before any array is written, if writing the other
    outputs to their arrays would change it.

    Args:
        wanted: the outputs in order; an output may be repeated.
        bindings: the arrays that the run bound.
        placed: names of the outputs that the plan wrote to their final memory.
        into: the caller's arrays for outputs, by name of the output.
    """
    uncopied, results, writes = set(placed), list[Result](), list[tuple[Array, Array]]()
    for delivery in wanted:
        name = delivery.name
        results.append(delivery.result(bindings, name in uncopied, into.get(name)))
        if name in into and name not in uncopied:
            elements = delivery.elements(bindings)
            copied = delivery.overwritten(bindings, into)
            writes.append((into[name], elements.copy() if copied else elements))
        uncopied.discard(name)  # a repeated output is a copy
    for target, elements in writes:
        np.copyto(target, elements)
    return results


@dataclass(frozen=True)
class Places:
    """The memory that a run writes its outputs to.

    Attributes:
        memory: an array of bytes for each storage that the run allocates for outputs.
        names: the names of the outputs that the plan writes to their final memory, so that they
            need no copy.
    """

    memory: Sequence[Array]
    names: frozenset[str]


def places(
    own: Sequence[TensorStorage],
    wanted: Sequence[Delivery],
    into: Mapping[str, Array],
    inputs: Sequence[Array],
) -> Places:
    """Choose the memory of each output of a run.

    It is the caller's array if the plan can write the output directly to it, else new memory.

    Args:
        own: the storages that the run allocates for outputs.
        wanted: the outputs to deliver.
        into: the caller's arrays, by name of the output.
        inputs: the memory of the inputs, which must not be overwritten.
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
