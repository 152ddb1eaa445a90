"""The short way through a run: nothing is looked up that the run before has found.

It is taken for plain arrays of the shapes that the last plan is for; whatever else is given goes
the long way, which checks and explains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptensor.buffer import ALIGNMENT
from ptensor.layout import Layout
from vtensor.language.dtype import numpy_dtype
from vtensor.runtime.delivery import Array, Delivery, Result
from vtensor.runtime.feeds import Feed
from vtensor.runtime.plan import Conversion, Plan

#: What a plan is made for. Of each input: name, shape, element type, layout; and where the value
#: decides shapes, its bytes.
Row = tuple[str, tuple[int, ...], str, Layout, bytes | None]
Key = tuple[Row, ...]

#: By the name of an input or output.
Copies = dict[str, Conversion]


def copies(feeds: Mapping[str, Feed], results: Sequence[Result]) -> Copies:
    """What a run had to copy: inputs that lie as no plan takes them, outputs that had to move."""
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
class Handed:
    """An output as NumPy sees the memory that it was made in.

    Attributes:
        own: which of the outputs' own memories it is.
        dtype: element type.
        shape: in memory.
        axes: in presentation order.
    """

    own: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    axes: tuple[int, ...]

    @classmethod
    def of(cls, one: Delivery, inputs: int) -> Handed | None:
        """None for an input's or a constant's memory, or a layout with blocks."""
        value, layout = one.value, one.value.layout
        if one.binding is None or one.binding < inputs or layout != Layout.plain(layout.dims):
            return None
        axes = tuple(layout.dims.index(dim) for dim in value.dims)
        shape = layout.physical_shape(value.dims)
        return cls(one.binding - inputs, numpy_dtype(value.dtype), shape, axes)


@dataclass(frozen=True)
class Ready:
    """A plan, and what the arrays must be that it can run on at once.

    Attributes:
        plan: whose.
        names: of the outputs, in order.
        every: they are all that the network has.
        inputs: name, shape and element type of each.
        sizes: of the outputs' own memories, in bytes.
        outputs: in order.
    """

    plan: Plan
    names: list[str]
    every: bool
    inputs: tuple[tuple[str, tuple[int, ...], np.dtype[Any]], ...]
    sizes: tuple[int, ...]
    outputs: tuple[Handed, ...]

    @classmethod
    def of(cls, plan: Plan, key: Key, wanted: Sequence[str], every: bool) -> Ready | None:
        """None where inputs lie otherwise than declared or decide shapes, or outputs are copied."""
        rows = []
        for name, shape, dtype, layout, value in key:
            if value is not None or layout != Layout.plain(plan.graph.values[name].dims):
                return None
            rows.append((name, shape, numpy_dtype(dtype)))
        handed = [Handed.of(plan.deliveries[name], len(rows)) for name in wanted]
        outputs = tuple(one for one in handed if one is not None)
        if len(outputs) < len(wanted) or len({one.own for one in outputs}) < len(wanted):
            return None
        return cls(plan, list(wanted), every, tuple(rows), plan.own_sizes, outputs)

    def run(
        self,
        outputs: Sequence[str] | None,
        inputs: Mapping[str, object],
        times: Array | None = None,
    ) -> list[Array] | None:
        """The outputs; None if these are not the arrays that it is ready for.

        ``times`` is as for ``Plan.replay``.

        Few Python functions are entered, none of them an input's or an output's.

        Raises:
            NativeError: a library failed.
            MemoryError: there is none for the outputs.
        """
        if type(inputs) is not dict or len(inputs) != len(self.inputs):
            return None
        if not self.every if outputs is None else type(outputs) is not list:
            return None
        if outputs is not None and outputs != self.names:
            return None
        bindings: list[Array] = []
        for name, shape, dtype in self.inputs:
            array = inputs.get(name)
            if type(array) is not np.ndarray or array.shape != shape or array.dtype != dtype:
                return None
            flags = array.flags
            if not (flags.c_contiguous and flags.aligned):
                return None
            bindings.append(array)
        made: list[Array] = []
        for nbytes in self.sizes:  # as ``fresh``, which is a call each
            raw = np.empty(nbytes + ALIGNMENT, np.uint8)
            begin = -raw.__array_interface__["data"][0] % ALIGNMENT
            made.append(raw[begin : begin + nbytes])
        bindings += made
        self.plan.replay(bindings, times)
        return [
            made[one.own].view(one.dtype).reshape(one.shape).transpose(one.axes)
            for one in self.outputs
        ]
