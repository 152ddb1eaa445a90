"""A request: a plan and the names of the outputs wanted of it. A run executes a request in three
phases.

1. ``fed`` finds the memory of inputs that can be used in place; otherwise ``Feed`` converts them.
2. ``run`` takes memory for the outputs, and runs the plan. The memory is the caller's arrays if
  ``own`` or ``places`` can use them, else new.
3. ``arrays`` or ``results`` delivers the outputs.

Facts that hold for all runs are computed when the request is made. If all arrays are plain,
``direct`` does the three phases in one native call (``direct.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from ptensor.buffer import fresh
from vtensor.language.cached import cached_property
from vtensor.language.dtype import numpy_dtype
from vtensor.language.records import dataclass
from vtensor.language.tensor import VTensor
from vtensor.runtime.execution.delivery import Array, Delivery, Result, deliver, places
from vtensor.runtime.execution.direct import DirectRequest
from vtensor.runtime.execution.fast_io import FastInput, FastOutput
from vtensor.runtime.execution.plan import Conversion, Plan
from vtensor.storage.inputs import Feed

if TYPE_CHECKING:
    from vtensor.runtime.planning.keys import PlanKey

#: The most requests that a session remembers for inputs of the same shapes and deciding values.
MAX_REQUESTS = 8

#: A finished run: the arrays that it bound (inputs first); the names of the outputs that the plan
#: wrote to their final memory; and False if a number was not finite, so that the strict plan must
#: repeat the run.
Ran = tuple[list[Array], frozenset[str], bool]

#: The copies of a run, by name of the input or output.
Copies = dict[str, Conversion]

#: An input whose value decides shapes: its name, and the array's element type, shape and bytes.
Known = tuple[str, np.dtype[Any], tuple[int, ...], bytes]

#: The session's record of its last run: the plan and the copies.
LastRun = tuple[Plan, Copies]


def copies(feeds: Mapping[str, Feed], results: Sequence[Result]) -> Copies:
    """Return the copies of inputs and outputs that a run makes, by name of the input or output.

    Args:
        feeds: the inputs, by name. An input is a copy if its memory could not be used in place.
        results: the outputs.
    """
    moved = {
        name: Conversion.of_copy(f"input {name}", feed.part)
        for name, feed in feeds.items()
        if feed.copied
    }
    return moved | {
        result.name: Conversion.of_copy(f"output {result.name}", result.part)
        for result in results
        if result.copied
    }


@dataclass(frozen=True, eq=False)
class Request:
    """A plan, the outputs wanted of it, and the conditions for runs without conversions.

    Attributes:
        plan: the plan.
        key: the shapes, types and layouts that the plan is made for.
        names: the names of the wanted outputs, in order.
        every: True if ``names`` are all outputs of the network.
        inputs: for each input of the plan, the conditions under which it is taken in place.
        known: the inputs whose values decide shapes: name, element type, shape and bytes.
        sizes: the bytes that a run allocates for each storage in ``plan.own``.
        deliveries: the wanted outputs, in order.
        placed: the names of the outputs that the plan writes to memory of their own: shared with no
            input, no constant and no earlier wanted output.
        fast_outputs: the wanted outputs as NumPy arrays on the memory that the plan writes; None if
            one of them must be copied or has blocks.
    """

    plan: Plan
    key: PlanKey
    names: list[str]
    every: bool
    inputs: tuple[FastInput, ...]
    known: tuple[Known, ...]
    sizes: tuple[int, ...]
    deliveries: tuple[Delivery, ...] = field(repr=False)
    placed: frozenset[str] = field(repr=False)
    fast_outputs: tuple[FastOutput, ...] | None = field(repr=False)

    @classmethod
    def of(cls, plan: Plan, key: PlanKey, wanted: Sequence[str], every: bool) -> Request:
        """Return the request for outputs of a plan; later runs reuse it.

        Args:
            plan, key: the plan and its key.
            wanted: the names of the outputs, in order.
            every: True if ``wanted`` are all outputs of the network.
        """
        inputs = tuple(map(FastInput.of, plan.inputs))
        known = tuple(
            (row.name, numpy_dtype(row.dtype), row.shape, row.value)
            for row in key.inputs
            if row.value is not None
        )
        deliveries = tuple(plan.deliveries[name] for name in wanted)
        fast_or_none = [FastOutput.of(delivery, len(plan.inputs)) for delivery in deliveries]
        fast_outputs = tuple(output for output in fast_or_none if output is not None)
        direct = len({output.binding for output in fast_outputs}) == len(wanted)
        owners = {*plan.own}
        first = {
            delivery.memory: delivery.name
            for delivery in reversed(deliveries)
            if delivery.memory in owners
        }
        return cls(
            plan,
            key,
            list(wanted),
            every,
            inputs,
            known,
            plan.own_sizes,
            deliveries,
            frozenset(first.values()),
            fast_outputs if direct else None,
        )

    @cached_property
    def direct(self) -> DirectRequest | None:
        """The request as a single native call; None if the plan calls back into Python, an input
        is not in C order, or an output must be copied or has blocks.
        """
        inputs, outputs = self.inputs, self.fast_outputs
        if outputs is None or self.plan.calls_back:
            return None
        if any(row.order is not None for row in inputs):
            return None
        return DirectRequest(self.plan, self.names, self.every, inputs, outputs, self.known)

    @cached_property
    def fits(self) -> dict[Any, Any]:
        """What of the plan changes from turn to turn of a loop, by what the loop carries; None
        where the plan does not fit.
        """
        return {}

    def like(self, other: Request) -> bool:
        """Return whether ``other`` wants the same outputs of the same plan."""
        return self.plan is other.plan and self.names == other.names

    def fed(
        self, outputs: Sequence[str] | None, inputs: Mapping[str, object]
    ) -> list[Array] | None:
        """Return the memory of each input, if the plan can use all of them in place.

        Returns None if the run asks for other outputs than the request, an input must be converted
        or is wrong, or one that decides shapes has another value.

        Args:
            outputs: the names that the run asks for; None is all outputs.
            inputs: the arrays of the run, by name.
        """
        if type(inputs) is not dict or len(inputs) != len(self.inputs) + len(self.known):
            return None
        if not self.every if outputs is None else type(outputs) is not list:
            return None
        if outputs is not None and outputs != self.names:
            return None
        for name, dtype, shape, value in self.known:
            array = inputs.get(name)
            if type(array) is not np.ndarray or array.dtype != dtype or array.shape != shape:
                return None
            if array.tobytes() != value:
                return None
        memories: list[Array] = []
        for row in self.inputs:
            memory = row.memory(inputs.get(row.name))
            if memory is None:
                return None
            memories.append(memory)
        return memories

    def own(self, out: object, fed: Sequence[Array]) -> dict[int, Array] | None:
        """Return the memory of the caller's arrays for outputs.

        A key is the index of that memory among the arrays that the run binds. Returns None if the
        plan cannot write directly to one of the arrays, so that it must be copied to, or is wrong.

        Args:
            out: the caller's arrays, by name of the output; None or empty for none.
            fed: the memory of the inputs.
        """
        if not out and (out is None or type(out) is dict):
            return {}
        if type(out) is not dict or self.fast_outputs is None:
            return None
        memories: dict[int, Array] = {}
        for name, array in out.items():
            if self.names.count(name) != 1:
                return None
            output = self.fast_outputs[self.names.index(name)]
            memory = output.memory(array)
            if memory is None or not self.plan.held_ranges.is_disjoint(memory):
                return None
            if any(np.may_share_memory(memory, other) for other in (*fed, *memories.values())):
                return None
            memories[output.binding] = memory
        return memories

    def run(
        self,
        fed: Sequence[Array],
        into: Mapping[str, Array] | None = None,
        times: Array | None = None,
        one_by_one: bool = False,
        own: Mapping[int, Array] | None = None,
    ) -> Ran:
        """Run the plan on the inputs' memory and on memory chosen for the outputs.

        Args:
            fed: the inputs as dense arrays in the plan's layouts.
            into: checked arrays for outputs, by name. The plan writes directly to an array that has
                the plan's layout and overlaps no input.
            times: receives the begin and the end of each step, in nanoseconds; None measures
                nothing.
            one_by_one: True runs each step from Python, to find a faulty step.
            own: memory for some of the outputs, as ``self.own`` returns it.

        Raises:
            NativeError: a library failed; the contents of ``into`` are then unspecified.
            MemoryError: there is no memory for the outputs.
        """
        bindings, placed = [*fed], self.placed
        if into:
            places_found = places(self.plan.own, self.deliveries, into, fed)
            placed = places_found.names
            bindings += places_found.memory
        elif own:
            sizes = enumerate(self.sizes, len(fed))
            bindings += [own[at] if at in own else fresh(nbytes) for at, nbytes in sizes]
        else:
            bindings += map(fresh, self.sizes)
        return bindings, placed, self.plan.replay(bindings, times, one_by_one)

    def arrays(self, ran: Ran, out: Mapping[str, Any] | None = None) -> list[Array]:
        """Return the outputs, in order, of a run that was given no ``into``.

        Args:
            ran: the finished run.
            out: the caller's arrays by name of the output, if their memory was the argument ``own``
                of the run.
        """
        if self.fast_outputs is None:
            return [result.array() for result in self.results(ran)]
        bindings, *_ = ran
        delivered = [
            bindings[output.binding].view(output.dtype).reshape(output.shape).transpose(output.axes)
            for output in self.fast_outputs
        ]
        if not out:
            return delivered
        return [out.get(name, array) for name, array in zip(self.names, delivered, strict=True)]

    def results(self, ran: Ran, into: Mapping[str, Array] | None = None) -> list[Result]:
        """Return the outputs of a run, in order, and write to ``into`` those not yet there.

        Args:
            ran: the finished run.
            into: the caller's arrays, by name of the output.
        """
        bindings, placed, _ = ran
        return deliver(self.deliveries, bindings, placed, into or {})


class Requests:
    """The requests that a session remembers, by the shapes of inputs and the values that decide."""

    def __init__(self) -> None:
        self._of: dict[Hashable, list[Request]] = {}
        self._known: tuple[str, ...] = ()  # the inputs whose values decide shapes

    def like(self, inputs: object) -> Sequence[Request]:
        """Return the requests for such inputs, the most recent first."""
        return self._of.get(self._key(inputs), ())

    def put(self, inputs: object, request: Request, most: int, held: Callable[..., bool]) -> None:
        """Make a request the most recent one for such inputs.

        Args:
            inputs: the arrays, by name.
            request: the request.
            most: for more kinds of inputs than these, requests whose plans are not held are
                forgotten.
            held: returns whether the session holds a plan, given its key and the plan.
        """
        known = tuple(name for name, *_ in request.known)
        if not {*known} <= {*self._known}:
            self._of, self._known = {}, known
        key = self._key(inputs)
        others = (other for other in self._of.get(key, ()) if not other.like(request))
        found = [request, *(other for other in others if held(other.key, other.plan))]
        self._of[key] = found[:MAX_REQUESTS]
        if len(self._of) > most:
            kept = {
                key: [row for row in rows if held(row.key, row.plan)]
                for key, rows in [*self._of.items()]
            }
            self._of = {key: rows for key, rows in kept.items() if rows}

    def _key(self, inputs: object) -> Hashable:
        """Return the shapes of arrays and tensors, sorted by name, then the bytes of values that
        decide.
        """
        if type(inputs) is not dict:
            return None
        shapes: list[Hashable] = [
            row.shape
            if type(row) is np.ndarray
            else tuple(row.dims.values())
            if isinstance(row, VTensor)
            else None
            for row in map(inputs.get, sorted(inputs, key=str))
        ]
        for name in self._known:
            array = inputs.get(name)
            shapes.append(array.tobytes() if type(array) is np.ndarray else None)
        return tuple(shapes)
