"""The recorder: it runs the invoker of each node once and records the library's steps.

The sizes of the lowered graph may be numbers or symbols; the same code records both. Calls of one
kind are recorded once (``call_kinds.py``). All native calls go through traces, so that a recording
can be saved, and evaluated for other sizes. Constants are packed once, while the graph is recorded.
All other values get their memory when all steps are known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from libdesc.native_trace import Foreign, NativeTrace
from libdesc.tracing import tracing
from libdesc.transforms import LayoutChange, run_transform
from optimizer.constants.computed import Computed
from ptensor.buffer import Buffer, TensorStorage
from ptensor.evaluation import Evaluation, installed
from resolver.choice import ChoiceRefused
from resolver.lowered import LoweredGraph, LoweredNode, OpNode, TransformNode, Value
from vtensor.errors import ContractError, VTensorError
from vtensor.language.operators import run_compute
from vtensor.language.process.imported import logger
from vtensor.language.records import dataclass
from vtensor.language.symbolic.rows import REFUSALS, Known, evaluated
from vtensor.language.symbolic.trace import NotTraced, SymbolicSize, Trace
from vtensor.language.tensor import Option, VTensor
from vtensor.runtime.execution.evaluations import (
    KindEvaluation,
    NormalEvaluation,
    RecordContext,
    RecordEvaluation,
    storage_of,
)
from vtensor.runtime.execution.executor import Executor
from vtensor.runtime.execution.steps import RecordedStep, StepRef
from vtensor.runtime.recording.aliasing import Division, division, uncopied
from vtensor.runtime.recording.call_kinds import (
    CallKind,
    CallUse,
    Key,
    Keys,
    Recorded,
    RecordedOperand,
    Symbolic,
)
from vtensor.runtime.recording.packer import Packer
from vtensor.runtime.recording.packing_table import SOURCE, TARGET, ConstantRow, PackingStep
from vtensor.runtime.recording.weights import PlanWeights

if TYPE_CHECKING:
    import numpy as np

    from ptensor.layout import Layout
    from vtensor.runtime.recording.workspace import Workspace

    Record = Callable[[RecordEvaluation, Sequence[VTensor]], Recorded]

_log = logger(__name__)

#: The source number tells from which trace a value comes: 0 is the graph's trace; the traces of
#: call kinds have the numbers after it.
GRAPH = 0


class MemoryTrace(Trace):
    """The memory trace of a symbolic plan. Its symbols stand for sizes of the graph and for byte
    counts of call kinds.

    Attributes:
        sources: for each symbol, the value that it stands for: the source number of a trace
            (``GRAPH`` for the graph's, n for that of the n-th call kind), and the value's place on
            that trace.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sources: list[tuple[int, int]] = []
        self._numbers: dict[tuple[int, int], SymbolicSize] = {}
        self._origins: dict[int, int] = {}

    def number(self, source: int, place: int, value: int) -> SymbolicSize:
        """Return the symbol of this trace that stands for a value of another trace.

        Args:
            source, place: the source number of the other trace, and the place of the value on it.
            value: the present number of that value.
        """
        known = self._numbers.get((source, place))
        if known is None:
            known = self._numbers[source, place] = self.size(value)
            self.sources.append((source, place))
            self._origins[known.place] = place
        return known

    def origin(self, size: SymbolicSize) -> int:
        """Return the place, on the graph's trace or a call kind's, of the value that a symbol
        stands for.

        Raises:
            NotTraced: the size is no symbol but was computed on this trace.
        """
        if size.place not in self._origins:
            raise NotTraced("a size of the graph is computed while it is recorded")
        return self._origins[size.place]


@dataclass(eq=False)
class TracedKind:
    """A call kind in a symbolic plan.

    Attributes:
        use: the call kind in this plan.
        size_places: for each symbol of the kind, the place of its size on the graph's trace.
    """

    use: CallUse
    size_places: Sequence[int]


@dataclass(frozen=True)
class DeferredConstant:
    """A constant whose elements depend on symbols.

    Attributes:
        value: its name, dims and layout.
        changes: the Transforms that change the constant before a run, in order, each with its
            output.
    """

    value: Value
    changes: tuple[tuple[TransformNode, Value], ...] = ()


class Recorder:
    """A recorder of a lowered graph: it makes the graph's steps and the storages of its values.

    Args:
        graph: the checked and optimised graph; its sizes may be symbols of a memory trace.
        constants: arrays of the graph's constants by name.
        workspace: holds constants and call kinds of the session's other plans.
        confirming: True if the variants come from a choice for other sizes. Libraries are then
            asked again whether they accept their nodes.
        memory: the trace of the graph's sizes; None if they are numbers.
        known: the values of traces that were evaluated earlier. Newly evaluated ones are added.
        symbolic: names of the values whose elements depend on symbols.

    Attributes:
        kinds: the uses of call kinds that depend on symbols, in the order of their source numbers.
        symbolic: the constants that depend on symbols, by storage.
        alone: the names of the nodes whose calls have no call kind and are recorded by themselves.
        outer: the trace of native calls that depend on no symbol.
    """

    def __init__(
        self,
        graph: LoweredGraph,
        constants: Mapping[str, np.ndarray[Any, Any]],
        workspace: Workspace,
        confirming: bool = False,
        memory: MemoryTrace | None = None,
        known: Known | None = None,
        symbolic: Collection[str] = (),
    ) -> None:
        from vtensor.runtime import _replay

        self._without = frozenset(
            name for name in symbolic if graph.values[name].constant and name in constants
        )
        if self._without:
            constants = ConstantsWithout(constants, self._without)
        self.graph = graph
        self.constants = constants
        self.storages: dict[str, TensorStorage] = {}
        for name in graph.inputs:
            value = graph.values[name]
            self.storages[name] = TensorStorage(value.dtype, value.dims, value.layout)
        has_threads = _replay.threads() > 1
        expected = workspace.expected.pop() if has_threads and workspace.expected else None
        if expected is not None and expected.lost:
            expected = None
        room_of = _room if expected is None else expected.room
        self.packed = PlanWeights(graph, constants, workspace.weights.packed, room_of)
        thread = expected.thread if expected is not None else _replay.Aside()
        #: Packs and compiles concurrently if the session has several threads.
        self.packer = Packer(thread if has_threads else None)
        early = self.packer.compile if has_threads else None
        self.evaluation = RecordEvaluation(confirming, graph.inexact, early)
        #: Nodes that their libraries decline as chosen, with the reason.
        self.refused: dict[str, str] = {}
        self._memory, self._known = memory, {} if known is None else known
        self._call_kinds = workspace.kinds
        self.outer = self._call_kinds.outer()
        self._keys = Keys(_replay.threads(), graph.inexact)
        self._uses: dict[tuple[Key, tuple[int, ...]], CallUse | None] = {}
        self.kinds: list[TracedKind] = []
        self.symbolic: dict[TensorStorage, DeferredConstant] = {}
        self.alone: set[str] = set()
        self._divisions: list[Division] = []
        #: By name of a constant, the number of nodes and outputs that have not yet read it.
        self._readers = Counter(
            name
            for names in (*(node.inputs for node in graph.nodes), graph.outputs.values())
            for name in names
            if graph.values[name].constant and name in constants
        )

    def record(self, progress: Callable[[str], None] | None = None) -> None:
        """Record every node; the Transforms of constants are executed at once.

        Args:
            progress: called with each node's name before it is recorded.

        Raises:
            ChoiceRefused: libraries do not confirm a choice for other sizes.
            NotTraced: a call cannot be recorded on symbols.
            VTensorError: a node cannot be recorded.
        """
        for node in self.graph.nodes:
            if progress is not None:
                progress(node.name)
            if isinstance(node, OpNode):
                self._operator(node)
            elif self.graph.values[node.input].constant:
                self._ahead(node)
            else:
                self._transform(node)
            for name in node.inputs:
                if name in self._readers:
                    self._readers[name] -= 1
                    if not self._readers[name]:
                        self.storages.pop(name, None)  # steps hold the memory that they read
        values = [self.graph.values[name] for name in self.graph.outputs.values()]
        lasting = {self._storage(value).root for value in values}
        for why in self.refused.values():
            raise ChoiceRefused(why, self.refused)
        lasting |= {self.storages[name] for name in self.graph.inputs}
        self.evaluation.steps = uncopied(self.evaluation.steps, self._divisions, lasting)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record inside the block, and wait at its end until all constants are packed.

        If the block fails, packing stops.
        """
        try:
            yield
            self.packer.wait()
        finally:
            self.packer.close()  # call-backs keep the recorder, and so the packer, alive

    def _storage(self, value: Value) -> TensorStorage:
        """Return the storage of a value. The storage of a constant is made when it is first
        requested.
        """
        if value.name not in self.storages:
            if value.name in self._without:
                storage = self._deferred(value, DeferredConstant(value))
            else:
                storage = self.packed.unpacked(value, self.packer)
            self.storages[value.name] = storage
        return self.storages[value.name]

    def _deferred(self, value: Value, constant: DeferredConstant) -> TensorStorage:
        """Return a storage for a constant whose elements depend on symbols, after some Transforms.

        Reading its elements raises NotTraced.

        Args:
            value: the name, type, dims and layout of the constant after the Transforms.
            constant: the constant before them, and the Transforms.
        """
        tensor = VTensor(value.dtype, value.dims)
        storage = TensorStorage.deferred(_no_values, tensor, value.layout)
        self.symbolic[storage] = constant
        return storage

    def _operand(self, value: Value, layout: Layout) -> RecordedOperand:
        """Return a value as the operand of a call, in the layout that the call's variant has for
        it.

        Args:
            value: the value.
            layout: that layout. It equals the layout of the value, but its text may differ.
        """
        storage = self._storage(value)
        if storage.layout != layout:  # another spelling of an equal layout
            alias = TensorStorage(value.dtype, value.dims, layout, constant=storage.constant)
            alias.share(storage)
            storage = alias
        return RecordedOperand(value, layout, storage.constant, storage)

    def _operator(self, node: OpNode) -> None:
        values, layouts = self.graph.values, node.variant.layouts
        inputs = [
            self._operand(values[x], layout)
            for x, layout in zip(node.inputs, layouts, strict=False)
        ]
        outputs = [
            RecordedOperand(values[name], layout)
            for name, layout in zip(node.outputs, layouts[len(inputs) :], strict=True)
        ]
        try:
            recorded = self._call(node, inputs, outputs)
        except VTensorError as why:
            if not self.evaluation.confirming:
                raise
            self._refuse(node, str(why))
            return
        self._take(node.outputs, recorded)
        if recorded.outputs and not node.followers:
            storages = [operand.storage for operand in inputs if operand.storage is not None]
            divided = division(node.op, storages, recorded.outputs[0], recorded.steps)
            self._divisions += [divided] if divided else []

    def _call(
        self,
        node: LoweredNode,
        inputs: Sequence[RecordedOperand],
        outputs: Sequence[RecordedOperand],
    ) -> Recorded:
        """Return the recording of a call: its call kind's, or one of its own if it has no kind.

        Args:
            node, inputs, outputs: the call.

        Raises:
            NotTraced: the call depends on symbols and has no kind.
            VTensorError: the library declines the call.
        """
        key = self._keys.of(node, [*inputs, *outputs])
        place = key, tuple([size.place for size in key.symbols])
        if key.parts is not None and place not in self._uses:
            symbolic = self._symbolic_use if key.symbols else self._use
            self._uses[place] = symbolic(key, node, inputs, outputs)
        use = self._uses.get(place)
        if use is not None:
            storages = [operand.storage for operand in inputs if operand.storage is not None]
            return use.on(node.name, key.names, storages, outputs)
        if key.symbols:
            raise NotTraced(f"{node.name} cannot be recorded on symbolic sizes")
        self.alone.add(node.name)
        evaluation = self.evaluation.empty_copy(RecordEvaluation)
        with installed(evaluation), tracing(self.outer):
            tensors = [operand.tensor(operand.storage) for operand in inputs if operand.storage]
            return _recording(node, outputs[-1].value)(evaluation, tensors)

    def _use(
        self,
        key: Key,
        node: LoweredNode,
        inputs: Sequence[RecordedOperand],
        outputs: Sequence[RecordedOperand],
    ) -> CallUse | None:
        """Return this plan's use of the kind of a call without symbols; None if it has no kind.

        A new kind is recorded and added to the session's.

        Args:
            key: the call's key.
            node, inputs, outputs: the call.
        """
        known = self._call_kinds.of(key)
        if known:
            [kind] = known[:1]
        else:
            kind = self._kind(key, node, inputs, outputs, self.outer)
            self._call_kinds.add(key, kind)
        return None if kind is None else CallUse(kind)

    def _symbolic_use(
        self,
        key: Key,
        node: LoweredNode,
        inputs: Sequence[RecordedOperand],
        outputs: Sequence[RecordedOperand],
    ) -> CallUse | None:
        """Return this plan's use of a call kind with symbols whose guards hold for the present
        sizes.

        If the key has no such kind, a new one is recorded. Returns None if the call cannot be
        recorded on symbols.

        Args:
            key: the call's key.
            node, inputs, outputs: the call.
        """
        assert self._memory is not None, "symbols are on a trace"
        memory, numbers = self._memory, [size.value for size in key.symbols]
        values: Sequence[Any] | None = None
        for kind in self._call_kinds.of(key):
            if kind is not None and kind.trace is not None:
                values = evaluated(kind.trace.rows(), numbers, self._known)
                if values is not None:
                    break
        else:
            kind = self._traced_kind(key, node, [*inputs, *outputs], len(inputs), numbers)
            if kind is None or kind.trace is None:
                return None
            values = kind.trace.values
        assert kind is not None, "a kind was found or recorded"
        source = len(self.kinds) + 1

        def number(size: Any) -> Any:
            if type(size) is not SymbolicSize:
                return size
            return memory.number(source, size.place, values[size.place])

        def native(step: Any) -> Any:
            if type(step) is not Foreign or step.trace is not kind.trace:
                return step
            place = step.where
            assert isinstance(place, int), "a row has made it"
            return StepRef(source, place, values[place])

        use = CallUse(kind, values, number, native)
        self.kinds.append(TracedKind(use, [memory.origin(size) for size in key.symbols]))
        return use

    def _traced_kind(
        self,
        key: Key,
        node: LoweredNode,
        operands: Sequence[RecordedOperand],
        count: int,
        numbers: Sequence[int],
    ) -> CallKind | None:
        """Record a call on symbols of its own and return its call kind; None if it cannot be
        recorded so.

        Args:
            key: the call's key.
            node, operands: the call; its outputs follow its inputs.
            count: the number of inputs among ``operands``.
            numbers: the present value of each symbol of the key.

        Raises:
            VTensorError: the library declines the call on the present sizes.
        """
        call = Symbolic(key, node, operands, numbers, self.outer)
        operands_on_trace = call.operands
        try:
            kind = self._kind(
                key, call.node, operands_on_trace[:count], operands_on_trace[count:], call.trace
            )
        except REFUSALS as why:
            _log.debug("%s is not recorded on symbols: %r", node.name, why)
            now = Symbolic(key, node, operands, numbers, self.outer, now=True)
            inputs, outputs = now.operands[:count], now.operands[count:]
            self._kind(key, now.node, inputs, outputs, self.outer)  # raises if the library declines
            return None
        if kind is None or call.trace.failed:
            _log.debug("%s is not recorded on symbols: %s", node.name, call.trace.failed)
            return None
        if not call.trace.pinned:
            self._call_kinds.add(key, kind)
        return kind

    def _kind(
        self,
        key: Key,
        node: LoweredNode,
        inputs: Sequence[RecordedOperand],
        outputs: Sequence[RecordedOperand],
        trace: NativeTrace,
    ) -> CallKind | None:
        """Record a call on stand-ins and return its kind; None if it has none.

        Args:
            key: the call's key.
            node, inputs, outputs: the call.
            trace: the trace for its native calls.
        """
        stand_ins = [
            TensorStorage.stand_in(operand.storage)
            for operand in inputs
            if operand.storage is not None
        ]
        tensors = [
            operand.tensor(storage) for operand, storage in zip(inputs, stand_ins, strict=True)
        ]
        evaluation = self.evaluation.empty_copy(KindEvaluation)
        with installed(evaluation), tracing(trace):
            recorded = _recording(node, outputs[-1].value)(evaluation, tensors)
        if evaluation.python:
            return None
        return CallKind.of(
            key, stand_ins, outputs, recorded, None if trace is self.outer else trace
        )

    def _take(self, names: Sequence[str], recorded: Recorded) -> None:
        """Add the steps of a node to those of the graph, and the storages of the node's outputs to
        those of the graph's values.

        Args:
            names: the names of the outputs.
            recorded: the recording.
        """
        self.evaluation.steps += recorded.steps
        self.storages |= zip(names, recorded.outputs, strict=False)

    def _refuse(self, node: OpNode, why: str) -> None:
        """Note that a library declines a node in the variant that was chosen, and why. Recording
        then goes on.

        The outputs of the node get storages that no step writes.
        """
        self.refused[node.name] = why
        for name in node.outputs:
            value = self.graph.values[name]
            self.storages[name] = TensorStorage(value.dtype, value.dims, value.layout)

    def _transform(self, node: TransformNode) -> None:
        source, target = self.graph.values[node.input], self.graph.values[node.output]
        x, y = self._operand(source, source.layout), RecordedOperand(target, target.layout)
        self._take([node.output], self._call(node, [x], [y]))

    def _is_symbolic(self, node: TransformNode) -> bool:
        """Return whether the constant that a Transform reads depends on symbols."""
        return node.input in self._without or self.storages.get(node.input) in self.symbolic

    def _ahead(self, node: TransformNode) -> None:
        """Execute a Transform of a constant: pack the constant that it makes.

        If the elements of its input depend on symbols, the Transform is only noted, to be executed
        for each combination of sizes.
        """
        source, target = self.graph.values[node.input], self.graph.values[node.output]
        before = self.symbolic.get(self._storage(source)) if self._is_symbolic(node) else None
        if before is not None:
            constant = DeferredConstant(before.value, (*before.changes, (node, target)))
            self.storages[node.output] = self._deferred(target, constant)
            return
        storage = self.packed.find(target)
        if storage is None:
            row, input_storage = self.packed.row(target), self.storages.get(node.input)
            with tracing(self.packed.calls):
                step = packing_step(node, row, input_storage)
            storage = self.packed.pack(row, step, self.packer, input_storage)
        self.storages[node.output] = storage


class ConstantsWithout(Computed):
    """The constants of a graph (``constants``) except those named in ``without``."""

    def __init__(self, constants: Mapping[str, Any], without: frozenset[str]) -> None:
        super().__init__(constants)
        self._without = without

    def __contains__(self, name: object) -> bool:
        return name not in self._without and super().__contains__(name)


def _no_values() -> NoReturn:
    raise NotTraced("the values of a constant that depends on sizes decide something")


def _room(nbytes: int) -> np.ndarray[Any, Any]:
    """Return new memory of ``nbytes`` for constants."""
    from vtensor.runtime import _replay

    return _replay.Arena(nbytes).memory()


def packing_step(
    node: TransformNode, row: ConstantRow, input_storage: TensorStorage | None = None
) -> PackingStep:
    """Return the packing step of a constant, from the steps that a library records for a Transform.

    It has a native step if there is only one; otherwise a Python function that runs all of them.

    Args:
        node: the Transform that makes the constant.
        row: the constant's row of the packing table.
        input_storage: the storage that the packing step reads; None to read the source array of
            ``row``, the constant's row of the packing table.

    Raises:
        VTensorError: the library declines the Transform.
    """
    if input_storage is None:
        input_storage = TensorStorage.deferred(
            row.read, row.step_input.tensor(), row.step_input.layout
        )
    evaluation = RecordEvaluation()
    with nullcontext() if row.is_large else Executor.alone(), installed(evaluation):
        x = RecordedOperand(row.step_input, row.step_input.layout).tensor(input_storage)
        recorded = _transformed(node, row.value, evaluation, [x])
    names = {input_storage: SOURCE, recorded.outputs[0]: TARGET}
    for step in recorded.steps:
        slots = [slot if isinstance(slot, int) else names.get(slot, "") for slot in step.slots]
        is_alone = len(recorded.steps) == 1 and step.native is not None
        if is_alone and sorted(slot for slot in slots if isinstance(slot, str)) == [SOURCE, TARGET]:
            return PackingStep(step.native, slots, node.name, step.reword)
    return PackingStep(None, (), node.name, run=partial(_packed_here, node, row))


def _packed_here(
    node: TransformNode, row: ConstantRow, input_storage: TensorStorage, room: Buffer
) -> None:
    """Run a Transform of a constant on the calling thread.

    Args:
        node: the Transform.
        row: the constant's row of the packing table.
        input_storage, room: the input, and the memory for the output.
    """
    value, evaluation = row.value, NormalEvaluation()
    storage = TensorStorage(value.dtype, value.dims, value.layout, room)
    x = RecordedOperand(row.step_input, row.step_input.layout).tensor(input_storage)
    with installed(evaluation):
        _change(node, x, value, storage, evaluation)


def _recording(node: LoweredNode, last_output: Value) -> Record:
    """Return the function that records a node.

    Args:
        node: the node.
        last_output: the last output of the node; a Transform has no other.
    """
    if isinstance(node, OpNode):
        return partial(_recorded, node)
    return partial(_transformed, node, last_output)


def _recorded(node: OpNode, evaluation: RecordEvaluation, inputs: Sequence[VTensor]) -> Recorded:
    """Record an operator node, with its followers, on its library; return outputs and steps.

    Args:
        node: the node.
        evaluation: collects the steps.
        inputs: the inputs of the node, and of its followers.
    """
    operands, followers = node.split(inputs)
    ctx = RecordContext(
        node=node.name, names=node.outputs, variant=node.variant, followers=followers
    )
    outputs = [*map(storage_of, run_compute(ctx, node.op, operands))]
    steps = evaluation.taken()
    if not evaluation.python:
        what = f"{node.op_name} {node.name!r}, {node.variant.library} invoker"
        _check_outputs(what, steps, node.outputs, outputs)
    return Recorded(outputs, steps)


def _transformed(
    node: TransformNode, target: Value, evaluation: RecordEvaluation, inputs: Sequence[VTensor]
) -> Recorded:
    """Record a Transform on its library; return its output and steps.

    Args:
        node: the Transform.
        target: the type, dims and layout of its output.
        evaluation: collects the steps.
        inputs: its only input.
    """
    storage = TensorStorage(target.dtype, target.dims, target.layout)
    _change(node, inputs[0], target, storage, evaluation)
    steps = evaluation.taken()
    if not evaluation.python:
        what = f"Transform {node.name!r}, {node.library} transformer"
        _check_outputs(what, steps, node.outputs, [storage])
    return Recorded([storage], steps)


def _change(
    node: TransformNode, x: VTensor, target: Value, storage: TensorStorage, evaluation: Evaluation
) -> None:
    y = VTensor(target.dtype, target.dims, Option(name=target.name))
    y.storage = storage
    source = storage_of(x).layout
    run_transform(node.name, node.library, x, y, LayoutChange(source, target.layout), evaluation)


def _check_outputs(
    what: str,
    steps: Sequence[RecordedStep],
    names: Sequence[str],
    outputs: Sequence[TensorStorage],
) -> None:
    """Check that the steps of a call touch every output. Otherwise a run would deliver arbitrary
    memory.

    Args:
        what: the node and its library, as text for the error message.
        steps: the steps.
        names, outputs: the names and storages of the outputs.

    Raises:
        ContractError: no step touches an output that has memory of its own.
    """
    if any(step.callback is not None for step in steps):
        return  # a call-back may write any memory
    touched = {id(s.root) for step in steps for s in step.slots if not isinstance(s, int)}
    for name, storage in zip(names, outputs, strict=False):
        if storage.nbytes and storage.root is storage and id(storage) not in touched:
            raise ContractError(
                f"{what}: after lib_tagger no step writes the output {name!r}; "
                "call the library, or share an input's memory"
            )
