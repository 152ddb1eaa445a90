"""A request: a plan, and what is asked of it. Every run is one, and every run is three steps.

``fed`` says what the inputs' memory is, or ``Feed`` where they have to be looked at; ``run`` finds
memory for the outputs (the caller's where ``own`` or ``places`` finds that it will do), and replays
the plan on both; ``arrays`` or ``results`` hands the outputs over. What does not change from run to
run is worked out when the request is made. Where all are plain arrays, ``direct`` is the three in
one call (``direct.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from ptensor.buffer import fresh
from vtensor.language.cached import cached_property
from vtensor.language.records import dataclass
from vtensor.runtime.execution.delivery import Array, Delivery, Result, deliver, places
from vtensor.runtime.execution.direct import Direct
from vtensor.runtime.execution.fast_io import FastInput, FastOutput
from vtensor.runtime.execution.plan import Conversion, Plan
from vtensor.storage.inputs import Feed

if TYPE_CHECKING:
    from vtensor.runtime.planning.keys import PlanKey

#: The memory of a run, inputs first, the outputs that are in memory of their own there, and whether
#: the plan may answer: where numbers are not finite, a strict one does.
Ran = tuple[list[Array], frozenset[str], bool]

#: By the name of an input or output.
Copies = dict[str, Conversion]

#: What is kept of a run: its plan, and what it copied.
LastRun = tuple[Plan, Copies]


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


@dataclass(frozen=True, eq=False)
class Request:
    """A plan, the outputs that are wanted of it, and what arrays it takes as they are.

    Attributes:
        plan: whose.
        key: what the plan is made for.
        names: of the outputs, in order.
        every: they are all that the network has.
        inputs: what each is taken as; None where one decides shapes: it is looked at in each run.
        sizes: of the outputs' own memories, in bytes.
        deliveries: of the outputs, in order.
        placed: the outputs that are made in memory of their own, and in no other's.
        fast_outputs: the outputs as NumPy sees them; None where one has to be copied or unpacked.
    """

    plan: Plan
    key: PlanKey
    names: list[str]
    every: bool
    inputs: tuple[FastInput, ...] | None
    sizes: tuple[int, ...]
    deliveries: tuple[Delivery, ...] = field(repr=False)
    placed: frozenset[str] = field(repr=False)
    fast_outputs: tuple[FastOutput, ...] | None = field(repr=False)

    @classmethod
    def of(cls, plan: Plan, key: PlanKey, wanted: Sequence[str], every: bool) -> Request:
        """The request for these outputs of a plan; later runs reuse it."""
        is_fast = all(row.value is None for row in key.inputs)
        inputs = tuple(map(FastInput.of, plan.inputs))
        deliveries = tuple(plan.deliveries[name] for name in wanted)
        found = [FastOutput.of(one, len(plan.inputs)) for one in deliveries]
        fast_outputs = tuple(one for one in found if one is not None)
        direct = len({one.binding for one in fast_outputs}) == len(wanted)
        own = {*plan.own}
        first = {one.memory: one.name for one in reversed(deliveries) if one.memory in own}
        return cls(
            plan,
            key,
            list(wanted),
            every,
            inputs if is_fast else None,
            plan.own_sizes,
            deliveries,
            frozenset(first.values()),
            fast_outputs if direct else None,
        )

    @cached_property
    def direct(self) -> Direct | None:
        """The same in one call; None where one of a run's arrays is no plain one."""
        inputs, outputs = self.inputs, self.fast_outputs
        if inputs is None or outputs is None or self.plan.calls_back:
            return None
        if any(one.order is not None for one in inputs):
            return None
        return Direct(self.plan, self.names, self.every, inputs, outputs)

    def like(self, other: Request) -> bool:
        """Whether both ask the same of the same plan."""
        return self.plan is other.plan and self.names == other.names

    def fed(
        self, outputs: Sequence[str] | None, inputs: Mapping[str, object]
    ) -> list[Array] | None:
        """The memory of what is taken as it lies; None if this is another request, or somebody has
        to look closer.
        """
        if self.inputs is None or type(inputs) is not dict or len(inputs) != len(self.inputs):
            return None
        if not self.every if outputs is None else type(outputs) is not list:
            return None
        if outputs is not None and outputs != self.names:
            return None
        found: list[Array] = []
        for row in self.inputs:
            memory = row.memory(inputs.get(row.name))
            if memory is None:
                return None
            found.append(memory)
        return found

    def own(self, out: object, fed: Sequence[Array]) -> dict[int, Array] | None:
        """The memory of the arrays that outputs are written to, by binding; None if somebody has to
        look closer.
        """
        if not out and (out is None or type(out) is dict):
            return {}
        if type(out) is not dict or self.fast_outputs is None:
            return None
        found: dict[int, Array] = {}
        for name, array in out.items():
            if self.names.count(name) != 1:
                return None
            one = self.fast_outputs[self.names.index(name)]
            memory = one.memory(array)
            if memory is None or not self.plan.held_ranges.is_disjoint(memory):
                return None
            if any(np.may_share_memory(memory, other) for other in (*fed, *found.values())):
                return None
            found[one.binding] = memory
        return found

    def run(
        self,
        fed: Sequence[Array],
        given: Mapping[str, Array] | None = None,
        times: Array | None = None,
        one_by_one: bool = False,
        own: Mapping[int, Array] | None = None,
    ) -> Ran:
        """Run the plan on memory of inputs, and on memory that is found for outputs.

        Args:
            fed: dense arrays, as the plan takes them.
            given: arrays to write outputs to, by name; they fit. The last step writes there where
                the array lies as the plan delivers and overlaps no input.
            times, one_by_one: as for ``Plan.replay``.
            own: memory for some of the outputs, by binding, as ``self.own`` finds it.

        Raises:
            NativeError: a library failed; what ``given`` holds then is unspecified.
            MemoryError: there is none for the outputs.
        """
        bindings, placed = [*fed], self.placed
        if given:
            found = places(self.plan.own, self.deliveries, given, fed)
            placed = found.names
            bindings += found.memory
        elif own:
            sizes = enumerate(self.sizes, len(fed))
            bindings += [own[at] if at in own else fresh(nbytes) for at, nbytes in sizes]
        else:
            bindings += map(fresh, self.sizes)
        return bindings, placed, self.plan.replay(bindings, times, one_by_one)

    def arrays(self, ran: Ran, out: Mapping[str, Any] | None = None) -> list[Array]:
        """The outputs of a run whose memory was ``own``, or found for all."""
        if self.fast_outputs is None:
            return [result.array() for result in self.results(ran)]
        bindings, *_ = ran
        made = [
            bindings[one.binding].view(one.dtype).reshape(one.shape).transpose(one.axes)
            for one in self.fast_outputs
        ]
        if not out:
            return made
        return [out.get(name, one) for name, one in zip(self.names, made, strict=True)]

    def results(self, ran: Ran, given: Mapping[str, Array] | None = None) -> list[Result]:
        """The outputs of a run, and which of them are copies."""
        bindings, placed, _ = ran
        return deliver(self.deliveries, bindings, placed, given or {})
