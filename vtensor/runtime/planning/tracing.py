"""Recording of choices on symbolic sizes, and assembly of what was recorded to symbolic plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ptensor.buffer import TensorStorage
from resolver.guards import layout_pairs, put, transform_guards
from resolver.lowered import LoweredGraph, Value
from vtensor.language.symbolic.rows import Known
from vtensor.language.symbolic.trace import NotTraced, Rows, SymbolicSize, Trace
from vtensor.runtime.execution.plan import Ends
from vtensor.runtime.execution.steps import RecordedStep, StepRef
from vtensor.runtime.planning.slots import Pieces, PlanNumbers, Slots
from vtensor.runtime.planning.symbolic_plan import (
    CallsOfKind,
    LayoutGuard,
    SymbolicConstant,
    SymbolicOutput,
    SymbolicPlan,
    SymbolicStep,
    SymbolicValue,
    Traces,
    unnamed,
)
from vtensor.runtime.recording.live_steps import needed
from vtensor.runtime.recording.plan_bytes import held, pieces
from vtensor.runtime.recording.recorder import GRAPH, MemoryTrace, Recorder

if TYPE_CHECKING:
    from vtensor.runtime.planning.options import Options
    from vtensor.runtime.planning.symbolic_graph import SymbolicGraph
    from vtensor.runtime.recording.workspace import Workspace

Array = np.ndarray[Any, Any]

#: Stands for the memory of a constant that depends on sizes: it is allocated for each combination
#: of sizes.
_NONE: Array = np.empty(0, np.uint8)


class _GraphSizes:
    """A function that returns the symbol of the memory trace for a size of the graph's trace.

    Args:
        memory: the memory trace. A symbol is added to it for each new size.
        values: the values of the graph's trace for the present sizes; a value's place is its index.
    """

    def __init__(self, memory: MemoryTrace, values: Sequence[Any]) -> None:
        self._memory, self._values = memory, values

    def __call__(self, size: SymbolicSize) -> SymbolicSize:
        return self._memory.number(GRAPH, size.place, self._values[size.place])


def traced_plan(
    network: SymbolicGraph,
    open_sizes: Sequence[int],
    lowered: LoweredGraph,
    options: Options,
    workspace: Workspace,
    known: Known,
    *,
    confirming: bool = False,
) -> SymbolicPlan:
    """Record a choice on the symbols of a graph; return its symbolic plan.

    Args:
        network: the simplified graph on symbols.
        open_sizes: the sizes that the choice was made for, and is recorded on.
        lowered: the checked choice for these sizes.
        options, workspace: the options of plans, and the memory that plans share.
        known: the values of traces that were evaluated already; those for these sizes are added.
        confirming: True asks libraries again whether they accept their nodes.

    Raises:
        NotTraced: a node or a constant cannot be recorded on symbols.
        ChoiceRefused: libraries do not confirm the choice.
        VTensorError: a node cannot be recorded.
    """
    values = network.values(open_sizes, known)
    if values is None:
        raise NotTraced("the graph's guards do not hold for these sizes")
    memory = MemoryTrace()
    graph = put(lowered, network.on(_GraphSizes(memory, values)))
    for name, layout, agrees in transform_guards(lowered):
        value = graph.values[name]
        if value.layout.same(layout.normalized(value.dtype), value.dims) != agrees:
            raise NotTraced("layouts are equal in other sizes only")
    recorder = Recorder(
        graph,
        network.constants(values),
        workspace,
        confirming=confirming,
        memory=memory,
        known=known,
        symbolic=[name for name in graph.values if network.is_symbolic(name)],
    )
    with recorder.recording():
        recorder.record(options.progress)
        compiled = recorder.evaluation.compiled(workspace.lanes.threads)
        ends = Ends.of(graph, recorder.storages)
        steps = needed(compiled, ends.outputs)
    if any(step.callback is not None for step in steps):
        raise NotTraced("steps call back")
    plan = _plan(network.rows, network.array_place, recorder, memory, ends, steps)
    plan.guards = _guards(lowered, graph, plan.numbers, options)
    known[plan.sizes, tuple(open_sizes)] = [*values]
    for calls, kind in zip(plan.calls, recorder.kinds, strict=True):
        numbers = tuple([values[place] for place in calls.size_places])
        known[calls.rows, numbers] = [*kind.use.values]
    return plan


def plan_of_numbers(
    recorder: Recorder, ends: Ends, steps: Sequence[RecordedStep], open_sizes: Sequence[int]
) -> SymbolicPlan:
    """Return the symbolic plan of a recording for fixed sizes. It can be specialised for no other
    sizes.

    Args:
        recorder: the recorder, after its recording.
        ends: the memory of inputs and outputs.
        steps: the recorded steps on which the outputs depend.
        open_sizes: the values of the open sizes in the recording, in order; empty for a model of
            fixed sizes.
    """
    trace = Trace()
    for size in open_sizes:
        trace.size(size).pinned()
    return _plan(trace.rows(), _no_place, recorder, MemoryTrace(), ends, steps)


def _no_place(constant: str) -> int:
    raise NotTraced(f"{constant} depends on no symbol")


def _plan(
    sizes: Rows,
    array_place: Callable[[str], int],
    recorder: Recorder,
    memory: MemoryTrace,
    ends: Ends,
    steps: Sequence[RecordedStep],
) -> SymbolicPlan:
    """Return the symbolic plan of a recording, without its layout guards.

    Args:
        sizes: the rows of the graph's trace.
        array_place: returns the place, on the graph's trace, of a constant that depends on sizes.
        recorder: the recorder, after its recording.
        memory: the memory trace.
        ends: the memory of inputs and outputs.
        steps: the recorded steps on which the outputs depend.
    """
    graph, numbers = recorder.graph, PlanNumbers()
    slots = Slots.of(steps, ends, numbers)
    symbolic, regions = list[SymbolicConstant](), list[Array]()
    for region, storage in enumerate(slots.constants):
        constant = recorder.symbolic.get(storage)
        if constant is None:
            regions.append(storage.buffer.memory)
            continue
        value = constant.changes[-1][1] if constant.changes else constant.value
        if not _same_elements(constant.value, value):
            raise NotTraced("a constant that depends on sizes has other elements")
        place = array_place(constant.value.name)
        symbolic.append(SymbolicConstant(region, place, _end(value, numbers)))
        regions.append(_NONE)
    outputs = [
        SymbolicOutput(
            alias, _end(delivery.value, numbers), delivery.binding, _constant(delivery, recorder)
        )
        for alias, delivery in ends.deliveries.items()
    ]
    kinds = [kind.use.kind.trace for kind in recorder.kinds if kind.use.kind.trace is not None]
    natives = [set[int]() for _ in range(len(kinds) + 1)]
    for step in steps:
        if isinstance(step.native, StepRef):
            natives[step.native.source].add(step.native.place)
    calls = [
        CallsOfKind(trace.rows(), kind.size_places, sorted(natives[source]), kind.use.nodes)
        for source, (kind, trace) in enumerate(zip(recorder.kinds, kinds, strict=True), 1)
    ]
    live = Pieces.of([*pieces(graph)], numbers)
    held_sizes = numbers.places([value.nbytes for value in held(graph)])
    inputs = [_end(graph.values[name], numbers) for name in graph.inputs]
    own = [_memory_end(storage, numbers) for storage in ends.own]
    return SymbolicPlan(
        sizes,
        calls,
        memory.sources,
        memory.rows(),
        numbers,
        [_reference(step) for step in steps],
        slots,
        held_sizes,
        live,
        (),
        inputs,
        own,
        outputs,
        regions,
        symbolic,
        recorder.packed,
        graph.certificate is not None,
        graph.overflows,
        Traces(recorder.outer, graph, recorder.packed, frozenset(recorder.alone)),
    )


def _reference(step: RecordedStep) -> object:
    """Return the native step of a recorded step; if it depends on symbols, the reference to it
    instead.
    """
    native = step.native
    if not isinstance(native, StepRef):
        return native
    return SymbolicStep(native.source, native.place, step.code.access)


def _constant(delivery: Any, recorder: Recorder) -> TensorStorage | None:
    """Return the storage of the constant that is delivered as an output; None if the output is no
    constant.

    Raises:
        NotTraced: the constant depends on sizes.
    """
    if delivery.binding is not None:
        return None
    if delivery.memory in recorder.symbolic:
        raise NotTraced("a constant that depends on sizes is delivered")
    memory: TensorStorage = delivery.memory
    return memory


def _end(value: Value, numbers: PlanNumbers) -> SymbolicValue:
    dims = [(dim, numbers.place(size)) for dim, size in value.dims.items()]
    return SymbolicValue(value.name, value.dtype, dims, value.layout, value.constant)


def _memory_end(memory: TensorStorage, numbers: PlanNumbers) -> SymbolicValue:
    dims = [(dim, numbers.place(size)) for dim, size in memory.extents.items()]
    return SymbolicValue("", memory.dtype, dims, memory.layout)


def _same_elements(value: Value, other: Value) -> bool:
    """Return whether two values have equal element types, dims and encodings.

    The orders of dims in their layouts may differ.
    """
    kinds = [
        (operand.dtype, [*operand.dims], operand.layout.encoding) for operand in (value, other)
    ]
    return kinds[0] == kinds[1]


def _guards(
    lowered: LoweredGraph, graph: LoweredGraph, numbers: PlanNumbers, options: Options
) -> list[LayoutGuard]:
    """Return the layout guards of a choice: each pair of layouts that the checker found equal for
    its sizes, once.

    Pairs that are equal for all sizes are left out.

    Args:
        lowered: the choice, with numbers as sizes.
        graph: the same choice, with symbols as sizes.
        numbers: the plan's numbers. The sizes of the guards' dims are added to them.
        options: the options of plans, with the layouts of inputs and outputs.
    """
    guards = dict[LayoutGuard, None]()
    for name, *texts in layout_pairs(lowered, options.entry, options.delivery):
        dims: Mapping[str, int] = graph.values[name].dims
        rows = [unnamed(text, dims) for text in texts]
        if rows[0][1] != rows[1][1]:  # ``unnamed`` has renamed one only
            rows = [(text, tuple(dims)) for text in texts]
        [left, names], [right, _] = rows
        if left != right:
            places = map(numbers.place, dims.values())
            guards[left, right, tuple(zip(names, places, strict=True))] = None
    return [*guards]
