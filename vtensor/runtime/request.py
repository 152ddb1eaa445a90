"""A request: a plan, and what is asked of it. Every run is one, and every run is three steps.

``fed`` says what the inputs' memory is, or ``Feed`` where they have to be looked at; ``run`` finds
memory for the outputs and replays the plan on both; ``arrays`` or ``results`` hands the outputs
over. What does not change from run to run is worked out when the request is made, so that a run
with arrays of the same kinds enters few Python functions, none of them an input's or an output's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ptensor.buffer import ALIGNMENT, count_allocations
from ptensor.layout import Layout
from vtensor.language.dtype import numpy_dtype
from vtensor.runtime.delivery import Array, Delivery, Result, deliver, places
from vtensor.runtime.feeds import Feed
from vtensor.runtime.keys import PlanKey
from vtensor.runtime.plan import Conversion, Plan

#: The memory of a run, inputs first, and the outputs that are in memory of their own there.
Ran = tuple[list[Array], frozenset[str]]

#: By the name of an input or output.
Copies = dict[str, Conversion]


def copies(feeds: Mapping[str, Feed], results: Sequence[Result]) -> Copies:
    """What a run had to copy: inputs in layouts that no plan takes, outputs that had to move."""
    found = {
        name: Conversion.of_copy(f"input {name}", feed.part)
        for name, feed in feeds.items()
        if feed.copied
    }
    return found | {
        one.name: Conversion.of_copy(f"output {one.name}", one.part)
        for one in results
        if one.copied
    }


@dataclass(frozen=True)
class PlainOutput:
    """An output as NumPy sees the memory that it was made in.

    Attributes:
        binding: which of a run's bindings it is.
        dtype: element type.
        shape: in memory.
        axes: in presentation order.
    """

    binding: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    axes: tuple[int, ...]

    @classmethod
    def of(cls, one: Delivery, inputs: int) -> PlainOutput | None:
        """None for an input's or a constant's memory, or a layout with blocks."""
        value, layout = one.value, one.value.layout
        if one.binding is None or one.binding < inputs or layout != Layout.plain(layout.dims):
            return None
        axes = tuple(layout.dims.index(dim) for dim in value.dims)
        shape = layout.physical_shape(value.dims)
        return cls(one.binding, numpy_dtype(value.dtype), shape, axes)


@dataclass(frozen=True)
class Request:
    """A plan, the outputs that are wanted of it, and what arrays it takes as they are.

    Attributes:
        plan: whose.
        names: of the outputs, in order.
        every: they are all that the network has.
        inputs: name, shape and element type of each; None where inputs lie otherwise than declared
            or decide shapes: those are looked at in each run.
        sizes: of the outputs' own memories, in bytes.
        deliveries: of the outputs, in order.
        placed: the outputs that are made in memory of their own, and in no other's.
        plain_outputs: the outputs as NumPy sees them; None where one has to be copied or unpacked.
    """

    plan: Plan
    names: list[str]
    every: bool
    inputs: tuple[tuple[str, tuple[int, ...], np.dtype[Any]], ...] | None
    sizes: tuple[int, ...]
    deliveries: tuple[Delivery, ...] = field(repr=False)
    placed: frozenset[str] = field(repr=False)
    plain_outputs: tuple[PlainOutput, ...] | None = field(repr=False)

    @classmethod
    def of(cls, plan: Plan, key: PlanKey, wanted: Sequence[str], every: bool) -> Request:
        """The request for these outputs of a plan; later runs reuse it."""
        values, rows = plan.graph.values, key.inputs
        plain = all(r.value is None and r.layout == Layout.plain(values[r.name].dims) for r in rows)
        inputs = tuple((row.name, row.shape, numpy_dtype(row.dtype)) for row in rows)
        deliveries = tuple(plan.deliveries[name] for name in wanted)
        found = [PlainOutput.of(one, len(plan.graph.inputs)) for one in deliveries]
        plain_outputs = tuple(one for one in found if one is not None)
        direct = len({one.binding for one in plain_outputs}) == len(wanted)
        first = {one.memory: one.name for one in reversed(deliveries) if one.memory in plan.own}
        return cls(
            plan,
            list(wanted),
            every,
            inputs if plain else None,
            plan.own_sizes,
            deliveries,
            frozenset(first.values()),
            plain_outputs if direct else None,
        )

    def fed(
        self, outputs: Sequence[str] | None, inputs: Mapping[str, object]
    ) -> list[Array] | None:
        """The memory of plain arrays that are taken as they are; None if these are others."""
        if self.inputs is None or type(inputs) is not dict or len(inputs) != len(self.inputs):
            return None
        if not self.every if outputs is None else type(outputs) is not list:
            return None
        if outputs is not None and outputs != self.names:
            return None
        memory: list[Array] = []
        for name, shape, dtype in self.inputs:
            array = inputs.get(name)
            if type(array) is not np.ndarray or array.shape != shape or array.dtype != dtype:
                return None
            flags = array.flags
            if not (flags.c_contiguous and flags.aligned):
                return None
            memory.append(array)
        return memory

    def run(
        self,
        fed: Sequence[Array],
        given: Mapping[str, Array] | None = None,
        times: Array | None = None,
        one_by_one: bool = False,
    ) -> Ran:
        """Run the plan on memory of inputs, and on memory that is found for outputs.

        Args:
            fed: dense arrays, as the plan takes them.
            given: arrays to write outputs to, by name; they fit. The last step writes there where
                the array lies as the plan delivers and overlaps no input.
            times, one_by_one: as for ``Plan.replay``.

        Raises:
            NativeError: a library failed; what ``given`` holds then is unspecified.
            MemoryError: there is none for the outputs.
        """
        bindings, placed = [*fed], self.placed
        if given:
            found = places(self.plan.own, self.deliveries, given, fed)
            placed = found.names
            bindings += found.memory
        else:
            count_allocations(len(self.sizes))
            for nbytes in self.sizes:  # as ``fresh``, which is a call each
                raw = np.empty(nbytes + ALIGNMENT, np.uint8)
                begin = -raw.__array_interface__["data"][0] % ALIGNMENT
                bindings.append(raw[begin : begin + nbytes])
        self.plan.replay(bindings, times, one_by_one)
        return bindings, placed

    def arrays(self, ran: Ran) -> list[Array]:
        """The outputs of a run that was given no arrays for them."""
        if self.plain_outputs is None:
            return [result.array() for result in self.results(ran)]
        bindings, _ = ran
        return [
            bindings[one.binding].view(one.dtype).reshape(one.shape).transpose(one.axes)
            for one in self.plain_outputs
        ]

    def results(self, ran: Ran, given: Mapping[str, Array] | None = None) -> list[Result]:
        """The outputs of a run, and which of them are copies."""
        bindings, placed = ran
        return deliver(self.deliveries, bindings, placed, given or {})
