"""A symbolic plan: a recorded network as a program of its symbols.

A symbolic plan has several traces. A trace is a list of rows, each of which computes a value:

- the graph's trace has all sizes of the graph, and constants that depend on them;
- for each kind of call, a trace has the native steps of the call, and how much memory they need;
- the memory trace has byte counts and offsets.

The plan cannot be specialised for sizes for which a guard of a trace fails, or for which two
layouts that were equal differ. A plan of fixed sizes has no symbols, and its steps exist already.

The plan's numbers are the values of the memory trace, and the numbers that depend on no size. The
plan refers to a number by its place, an index among all numbers (``slots.PlanNumbers``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ptensor.buffer import TensorStorage
from ptensor.layout import Layout
from resolver.addresses import addresses
from resolver.values import Value
from vtensor.errors import UnsoundPlanError
from vtensor.language.records import dataclass
from vtensor.language.symbolic.rows import REFUSALS, Asked, Known, Rows, evaluated
from vtensor.language.tensor import VTensor
from vtensor.runtime.execution.delivery import Delivery
from vtensor.runtime.execution.parallel import all_of
from vtensor.runtime.execution.plan import Nodes, Plan, PlanPorts

if TYPE_CHECKING:
    from libdesc.native_trace import NativeTrace
    from resolver.lowered import LoweredGraph
    from vtensor.runtime.planning.slots import Pieces, PlanNumbers, Slots
    from vtensor.runtime.recording.workspace import Workspace

Array = np.ndarray[Any, Any]

#: The name of a dim in a layout.
_NAME = re.compile(r"[A-Za-z_]\w*")

#: Dims, and the places of their sizes among a plan's numbers.
Dims = Sequence[tuple[str, int]]

#: Two layouts that have to place the elements of a value alike, and the dims of the value.
LayoutGuard = tuple[str, str, Dims]


@dataclass(eq=False)
class CallsOfKind:
    """The calls of one kind in a symbolic plan: equal in all that their recording depends on, and
    on the same sizes.

    Attributes:
        rows: the trace of the call kind.
        size_places: for each symbol of that trace, the place on the graph's trace of the size that
            it stands for.
        natives: the places of the calls' native steps on the trace of the call kind.
        nodes: names of the nodes that make the calls.
        took: the seconds that evaluating the rows and compiling the steps took the last time;
            infinite if a guard failed.
    """

    rows: Rows
    size_places: Sequence[int]
    natives: Sequence[int]
    nodes: Sequence[str]
    took: float = 0.0


class SymbolicStep(NamedTuple):
    """A reference to a native step that depends on symbols.

    A call kind is a set of equal calls, which are recorded once, on a trace of their own.

    Attributes:
        source: the number of the call kind that makes the step, counted from 1.
        place: the index of the step on the trace of that call kind.
        access: the use of each slot: "read", "write", both or "scratch".
    """

    source: int
    place: int
    access: tuple[str, ...]


class SymbolicValue(NamedTuple):
    """An input, output or constant of a symbolic plan. Its sizes are places of the plan's
    numbers.
    """

    name: str
    dtype: str
    dims: Dims
    layout: Layout
    constant: bool = False

    def value(self, numbers: Array) -> Value:
        """Return the value with numbers as sizes.

        Args:
            numbers: the values of the plan's numbers (``PlanNumbers``) for some sizes; a number's
                place is its index.
        """
        dims = sizes_of(self.dims, numbers)
        return Value(self.name, self.dtype, dims, self.layout, self.constant)

    def storage(self, numbers: Array) -> TensorStorage:
        """Return an unbound storage for the value, with numbers as sizes.

        Args:
            numbers: the values of the plan's numbers (``PlanNumbers``) for some sizes; a number's
                place is its index.
        """
        return TensorStorage(self.dtype, sizes_of(self.dims, numbers), self.layout)

    @property
    def form(self) -> Hashable:
        """The layout without the names of its dims. Constants made of one array in equal forms
        share memory.
        """
        return unnamed(str(self.layout), [dim for dim, _ in self.dims])


class SymbolicOutput(NamedTuple):
    """An output of runs.

    Attributes:
        alias: the name under which it is delivered.
        end: the output's type, dims and layout.
        binding: the index of the output's memory: the inputs come first, then the memory that a run
            allocates for outputs. None if the output is a constant.
        constant: the storage of the constant that is the output; None if ``binding`` is given.
    """

    alias: str
    end: SymbolicValue
    binding: int | None
    constant: TensorStorage | None = None


class SymbolicConstant(NamedTuple):
    """A constant whose elements depend on symbols.

    Attributes:
        region: the constant's index among the plan's constants.
        place: the place of the constant's array on the graph's trace.
        end: the constant's type, dims and layout.
    """

    region: int
    place: int
    end: SymbolicValue


def unnamed(layout: str, dims: Iterable[str]) -> tuple[str, tuple[str, ...]]:
    """Return a layout with its dims renamed to ``d0``, ``d1``, ..., and the new names of the dims.

    A layout without spaces between its dims is returned unchanged, with the old names. If the
    results for two values are equal, both values have the same layout in memory.

    Args:
        layout: the text of the layout.
        dims: the names of the value's dims, in order.

    >>> unnamed("B D21 D6", ["D6", "B", "D21"]), unnamed("NHWC", "NCHW")
    (('d1 d2 d0', ('d0', 'd1', 'd2')), ('NHWC', ('N', 'C', 'H', 'W')))
    """
    names = {name: f"d{place}" for place, name in enumerate(dims)}
    if " " not in layout:
        return layout, tuple(names)
    order, *encoding = layout.partition(":")
    by_place = _NAME.sub(lambda match: names.get(match[0], match[0]), order)
    return "".join((by_place, *encoding)), tuple(names.values())


def sizes_of(dims: Dims, numbers: Array) -> dict[str, int]:
    """Return the size of each dim.

    Args:
        dims: the dims, each with the place of its size among the plan's numbers.
        numbers: the values of the plan's numbers (``PlanNumbers``) for some sizes; a number's place
            is its index.
    """
    return {dim: int(numbers[place]) for dim, place in dims}


class Traces(NamedTuple):
    """The recording of a symbolic plan, for saving it.

    Attributes:
        outer: the trace of native calls that depend on no symbol.
        graph: the lowered graph on symbols.
        weights: the graph's packed constants.
        alone: the names of the nodes whose calls have no call kind, since they may have read the
            elements of constants.
    """

    outer: NativeTrace
    graph: LoweredGraph
    weights: Any
    alone: frozenset[str]


@dataclass(eq=False)
class SymbolicPlan:
    """A recorded network as a program of its symbols.

    Attributes:
        sizes: the rows of the graph's trace.
        calls: the call kinds. A trace is named by its source number: 0 is the graph's trace, n that
            of the n-th call kind.
        sources: for each symbol of the memory trace: the source number of the trace that its value
            comes from, and the value's place there.
        memory: the rows of the memory trace.
        numbers: the plan's numbers and their places.
        steps: native steps, or references to those that depend on symbols.
        slots: where the steps' operands are in memory.
        held: the places of byte counts: of the memory that a plan needs from begin to end. They are
            compared with the memory budget.
        live: the pieces of the plan's arena, for the same comparison.
        guards: pairs of layouts of a value. For the sizes at hand, both have to place the elements
            alike.
        inputs, own, outputs: the values that runs bind, allocate and deliver.
        regions: the memory of each constant; an empty array for a constant that depends on symbols.
        symbolic: the constants that depend on symbols.
        packed: the object that keeps the memory of constants alive.
        proven: True if the choice is proven to be the best for all sizes.
        overflows: True if a node computes in f16.
        traces: the recording, from which the plan is saved. None for a plan from the cache; its
            slots are checked whenever it is specialised.
    """

    sizes: Rows
    calls: Sequence[CallsOfKind]
    sources: Sequence[tuple[int, int]]
    memory: Rows
    numbers: PlanNumbers
    steps: Sequence[object]
    slots: Slots
    held: Array
    live: Pieces
    guards: Sequence[LayoutGuard]
    inputs: Sequence[SymbolicValue]
    own: Sequence[SymbolicValue]
    outputs: Sequence[SymbolicOutput]
    regions: Sequence[Array]
    symbolic: Sequence[SymbolicConstant]
    packed: object
    proven: bool
    overflows: bool
    traces: Traces | None = None

    def specialise(
        self,
        open_sizes: Sequence[int],
        workspace: Workspace,
        known: Known,
        nodes: Callable[[], Nodes],
    ) -> Plan | None:
        """Evaluate the plan for open sizes.

        Args:
            open_sizes: the values of the open sizes, in the order of the symbols.
            workspace: the arena, weights and executors that plans share.
            known: the values of traces that were evaluated already, also of other symbolic plans;
                new ones are added.
            nodes: makes the nodes of the returned plan when they are first inspected.

        Returns:
            The plan; None if a guard fails, if a native step uses its slots otherwise than the
            recorded one, or if constants, inputs, outputs and live values alone exceed the memory
            budget.

        Raises:
            BudgetError: the plan's arena, weights and outputs exceed the memory budget.
        """
        sizes = evaluated(self.sizes, open_sizes, known)
        if sizes is None:
            return None
        if not self._evaluate_calls(sizes, known, workspace):
            return None
        values = self._values(sizes, known)
        numbers = self._memory_numbers(values)
        if numbers is None:
            return None
        needs = int(numbers[self.held].sum()) + self.live.live(numbers)
        if needs > workspace.max_bytes:
            return None
        natives = [
            values[step.source][step.place] if type(step) is SymbolicStep else step
            for step in self.steps
        ]
        if not self._same_access(natives):
            return None
        regions = self._regions(sizes, numbers)
        if self.traces is None:
            self.slots.check_room(natives, numbers)
        steps, nbytes = self.slots.placed(natives, numbers)
        live, brought = self.slots.pieces.live(numbers), self._ports(numbers)
        return Plan(brought, steps, nbytes, live, regions, self.packed, workspace, nodes)

    def serves(self, open_sizes: Sequence[int], known: Known) -> bool:
        """Return whether all guards hold for open sizes, without compiling any step.

        Args:
            open_sizes: the numbers of the open sizes, in the order of the symbols.
            known: the values of traces that were evaluated already; new ones are added.
        """
        sizes = evaluated(self.sizes, open_sizes, known)
        if sizes is None:
            return False
        if any(evaluated(*key, known) is None for key in self._row_keys(sizes)):
            return False
        return self._memory_numbers(self._values(sizes, known)) is not None

    def declined(self, open_sizes: Sequence[int], known: Known) -> frozenset[str]:
        """Return the names of the nodes whose libraries decline their calls for open sizes. No step
        is compiled.

        Empty if a guard of the graph fails. A plan from the cache has no names of nodes, so the
        result is empty for it, too.

        Args:
            open_sizes: the numbers of the open sizes, in the order of the symbols.
            known: the values of traces that were evaluated already; new ones are added.
        """
        sizes = evaluated(self.sizes, open_sizes, known)
        if sizes is None:
            return frozenset()
        rows = zip(self.calls, self._row_keys(sizes), strict=True)
        failed = [calls for calls, asked in rows if evaluated(*asked, known) is None]
        return frozenset(name for calls in failed for name in calls.nodes)

    def _values(self, sizes: Sequence[Any], known: Known) -> list[Sequence[Any]]:
        """Return the values of the graph's trace, then those of the trace of each call kind. A
        value's place is its index.

        Args:
            sizes: the values of the graph's trace.
            known: the values of traces that were evaluated. The guards of all call kinds hold in
                them.
        """
        return [sizes, *(known[asked] or [] for asked in self._row_keys(sizes))]

    def _memory_numbers(self, values: Sequence[Sequence[Any]]) -> Array | None:
        """Return what the plan's numbers (``PlanNumbers``) are for some sizes, in their order.

        Returns None if a guard of the memory trace fails, or if two layouts that were equal differ.

        Args:
            values: the values of the graph's trace, then those of each call kind.
        """
        on_trace = self.memory.run([values[source][place] for source, place in self.sources])
        if on_trace is None:
            return None
        numbers = self.numbers.at(on_trace)
        return numbers if self._layouts_hold(numbers) else None

    def _row_keys(self, sizes: Sequence[Any]) -> list[Asked]:
        return [
            (calls.rows, tuple([sizes[place] for place in calls.size_places]))
            for calls in self.calls
        ]

    def _evaluate_calls(self, sizes: Sequence[Any], known: Known, workspace: Workspace) -> bool:
        """Evaluate the trace of each call kind, and compile the steps that it makes, on several
        threads.

        Args:
            sizes: the values of the graph's trace, by place.
            known: the values of traces that were evaluated earlier. Newly evaluated ones are added.
            workspace: the workspace, which has the threads.

        Returns:
            True if all guards hold. False if one fails; further call kinds are then not evaluated.
        """
        asked = [*zip(self.calls, self._row_keys(sizes), strict=True)]
        new = {key: calls for calls, key in asked if key not in known}
        order = sorted(new, key=lambda key: -new[key].took)  # failed ones first, then slow ones
        expected_s = sum(calls.took for calls in new.values())
        ask = partial(_evaluate_and_compile, known, new)
        return all(known.get(key, ()) is not None for _, key in asked) and all_of(
            ask, order, workspace.executor, workspace.lanes.threads, expected_s
        )

    def _layouts_hold(self, numbers: Array) -> bool:
        """Return whether both layouts of each pair in ``guards`` place elements alike, for sizes
        taken from ``numbers``.
        """
        try:
            return all(
                addresses(left, dims) == addresses(right, dims)
                for left, right, places in self.guards
                if (dims := sizes_of(places, numbers)) is not None
            )
        except UnsoundPlanError:
            return False

    def _same_access(self, natives: Sequence[object]) -> bool:
        """Return whether the native steps ``natives`` read and write the same slots as the steps
        that were recorded.
        """
        rows = {
            (id(native), stand.access): native
            for native, stand in zip(natives, self.steps, strict=True)
            if type(stand) is SymbolicStep
        }
        return all(described(native)[1] == access for (_, access), native in rows.items())

    def _regions(self, sizes: Sequence[Any], numbers: Array) -> Sequence[Array]:
        """Return the memory of each constant. Constants made of one array in equal forms share
        their memory.

        Args:
            sizes: the values of the graph's trace, by place.
            numbers: the values of the plan's numbers (``PlanNumbers``) for some sizes; a number's
                place is its index.
        """
        if not self.symbolic:
            return self.regions
        regions, memory_of = [*self.regions], dict[Hashable, Array]()
        for region, place, end in self.symbolic:
            key = id(sizes[place]), end.form
            if key not in memory_of:
                tensor = VTensor(end.dtype, sizes_of(end.dims, numbers))
                storage = TensorStorage.of_array(sizes[place], tensor, end.layout, constant=True)
                memory_of[key] = storage.buffer.memory
            regions[region] = memory_of[key]
        return regions

    def _ports(self, numbers: Array) -> PlanPorts:
        """Return the inputs, own memory and outputs of the plan with numbers as sizes."""
        own_storages = [end.storage(numbers) for end in self.own]
        bound = [*(end.storage(numbers) for end in self.inputs), *own_storages]
        deliveries = {}
        for alias, end, binding, constant in self.outputs:
            memory = bound[binding] if binding is not None else constant
            assert memory is not None, "an output that is not bound is a constant"
            deliveries[alias] = Delivery(alias, end.value(numbers), memory, binding)
        return PlanPorts([end.value(numbers) for end in self.inputs], own_storages, deliveries)


def _evaluate_and_compile(known: Known, calls: Mapping[Asked, CallsOfKind], key: Asked) -> bool:
    """Evaluate the rows of a call kind and compile its steps.

    Args:
        known: receives the values of the rows under ``key``; None if a guard fails or a step cannot
            be compiled.
        calls: the call kinds, each by the rows of its trace and its sizes.
        key: the key in ``calls`` of the call kind to evaluate.

    Returns:
        True if all guards hold and the library compiles the steps.
    """
    begun, (rows, numbers) = perf_counter(), key
    values = rows.run(numbers)
    try:
        for place in calls[key].natives if values is not None else ():
            described(values[place] if values is not None else None)
    except REFUSALS:  # the library does not compile the step
        values = None
    known[key] = values
    calls[key].took = inf if values is None else perf_counter() - begun
    return values is not None


def described(native: Any) -> tuple[str, tuple[str, ...]]:
    """Compile a native step; return the name of its kernel and the access to each slot.

    An access is "read", "write", both or "scratch".
    """
    from vtensor.runtime import _replay

    description = _replay.describe(native)
    return str(description["kernel"]), tuple(access for _, _, access in description["slots"])
