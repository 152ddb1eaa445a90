"""A symbolic plan: a recorded network as a program of its symbols.

A symbolic plan has several traces, each a list of rows: the graph's trace (all sizes of the graph,
and constants that depend on them), one for each kind of call (its native steps, and how much memory
they need), and the memory trace (byte counts and offsets). If a guard of one of them fails, or two
layouts no longer agree, the symbolic plan cannot be specialised for the sizes. A plan of fixed
sizes has no symbols, and its steps exist already.

The plan's numbers are the values of the memory trace and the numbers that depend on no size; each
is named by its place, an index among them (``slots.PlanNumbers``).
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
    """Calls of one kind on the same sizes.

    Attributes:
        rows: the trace of the call kind.
        size_places: for each symbol of the trace, the place of its size on the graph's trace.
        natives: the places of native steps on the trace of the call kind.
        nodes: names of the nodes that make the calls.
        took: seconds that evaluating the rows took; infinite if a guard failed.
    """

    rows: Rows
    size_places: Sequence[int]
    natives: Sequence[int]
    nodes: Sequence[str]
    took: float = 0.0


class SymbolicStep(NamedTuple):
    """A reference to a native step that depends on symbols.

    Attributes:
        source: the number of the call kind that makes the step; the first is 1.
        place: the step's place on the trace of that call kind.
        access: the use of each slot: "read", "write", both or "scratch".
    """

    source: int
    place: int
    access: tuple[str, ...]


class SymbolicValue(NamedTuple):
    """A value that runs bind or deliver, or a constant; its sizes are places of plan numbers."""

    name: str
    dtype: str
    dims: Dims
    layout: Layout
    constant: bool = False

    def value(self, numbers: Array) -> Value:
        """Return the value with numbers as sizes.

        Args:
            numbers: the plan's numbers, by place.
        """
        dims = sizes_of(self.dims, numbers)
        return Value(self.name, self.dtype, dims, self.layout, self.constant)

    def storage(self, numbers: Array) -> TensorStorage:
        """Return an unbound storage for the value, with numbers as sizes.

        Args:
            numbers: the plan's numbers, by place.
        """
        return TensorStorage(self.dtype, sizes_of(self.dims, numbers), self.layout)

    @property
    def form(self) -> Hashable:
        """The layout without names of dims; constants of one array and one form share memory."""
        return unnamed(str(self.layout), [dim for dim, _ in self.dims])


class SymbolicOutput(NamedTuple):
    """An output of runs.

    Attributes:
        alias: the name under which it is delivered.
        end: its type, dims and layout.
        binding: the index of the memory that holds it, among inputs, then the plan's own outputs;
            None if a constant holds it.
        constant: the constant that holds it; None if ``binding`` is given.
    """

    alias: str
    end: SymbolicValue
    binding: int | None
    constant: TensorStorage | None = None


class SymbolicConstant(NamedTuple):
    """A constant whose elements depend on symbols.

    Attributes:
        region: its index among the plan's constants.
        place: the place of its array on the graph's trace.
        end: its type, dims and layout.
    """

    region: int
    place: int
    end: SymbolicValue


def unnamed(layout: str, dims: Iterable[str]) -> tuple[str, tuple[str, ...]]:
    """Return a layout whose dims are renamed ``d0``, ``d1``, ..., and the new names.

    A layout without spaces between its dims stays unchanged, with its names. Two values whose
    results are equal have the same memory layout.

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
        dims: dims, and the places of their sizes.
        numbers: the plan's numbers, by place.
    """
    return {dim: int(numbers[place]) for dim, place in dims}


class Traces(NamedTuple):
    """The recording of a symbolic plan, for saving it.

    Attributes:
        outer: the trace of native calls that depend on no symbol.
        graph: the lowered graph on symbols.
        weights: the graph's packed constants.
        alone: the names of nodes whose calls may have read the elements of constants.
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
        calls: call kinds. A source of values is a number: 0 is the graph's trace, n the trace of
            the n-th call kind.
        sources: for each symbol of the memory trace, its source and its place on that trace.
        memory: the rows of the memory trace.
        numbers: the places of the plan's numbers.
        steps: native steps, or references to those that depend on symbols.
        slots: where the steps' operands are in memory.
        held: the places of the byte counts of memory that a plan holds throughout, for the budget.
        live: the pieces of its arena, for the budget.
        guards: pairs of layouts that must place elements alike.
        inputs, own, outputs: the values that runs bind, allocate and deliver.
        regions: the memory of constants; empty arrays for those that depend on symbols.
        symbolic: the constants that depend on symbols.
        packed: the object that keeps the memory of constants alive.
        proven: True if the choice is proven the best for all sizes.
        traces: the recording, for saving; None for a cached plan, whose slots are checked whenever
            it is specialised.
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
            open_sizes: the numbers of the open sizes, in the order of the symbols.
            workspace: the arena, weights and executors that plans share.
            known: the values of traces that were evaluated already, also of other symbolic plans;
                new ones are added.
            nodes: makes the plan's nodes on their first inspection.

        Returns:
            The plan; None if a guard fails, or if constants, inputs, outputs and live values alone
            exceed the memory budget.

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
        """Return the names of nodes whose libraries decline open sizes, without compiling any step.

        Empty for a plan from the cache, which has no names, and if a guard of the graph fails.

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
        """Return the values of each source (the graph's trace, then call kinds), by place.

        Args:
            sizes: the values of the graph's trace.
            known: the values of evaluated traces, in which all guards of call kinds hold.
        """
        return [sizes, *(known[asked] or [] for asked in self._row_keys(sizes))]

    def _memory_numbers(self, values: Sequence[Sequence[Any]]) -> Array | None:
        """Return the plan's numbers, by place; None if a guard fails or layouts differ.

        Args:
            values: the values of each source (the graph's trace, then call kinds), by place.
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
        """Evaluate all kinds of calls and compile their steps, on several threads.

        Args:
            sizes: the values of the graph's trace, by place.
            known: the values of evaluated traces; new ones are added.
            workspace: has the threads.

        Returns:
            True if all guards hold; False if one fails, which leaves later kinds unevaluated.
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
        """Return whether the two layouts of each guard place elements alike, for these numbers."""
        try:
            return all(
                addresses(left, dims) == addresses(right, dims)
                for left, right, places in self.guards
                if (dims := sizes_of(places, numbers)) is not None
            )
        except UnsoundPlanError:
            return False

    def _same_access(self, natives: Sequence[object]) -> bool:
        """Return whether native steps read and write the same slots as the recorded steps."""
        rows = {
            (id(native), stand.access): native
            for native, stand in zip(natives, self.steps, strict=True)
            if type(stand) is SymbolicStep
        }
        return all(described(native)[1] == access for (_, access), native in rows.items())

    def _regions(self, sizes: Sequence[Any], numbers: Array) -> Sequence[Array]:
        """Return the memory of each constant; constants of equal array and form share it.

        Args:
            sizes: the values of the graph's trace, by place.
            numbers: the plan's numbers, by place.
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
        known: receives the values of the rows; None if a guard fails.
        calls: the call kinds, by rows and sizes.
        key: the rows and sizes of the call kind to evaluate.

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
