"""Recording: run every invoker once, collect the library's steps, and give every value its memory.

The steps are data from then on: a run executes them in order. Constants are transformed here, once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from libdesc.dispatcher import DispatchContext, dispatcher, run_call
from libdesc.routine import reference_kernel
from libdesc.transforms import LayoutChange, run_transform
from ptensor.buffer import Buffer, TensorStorage
from ptensor.evaluation import Call, Decline, Evaluation, Mode, Step, installed
from ptensor.pages import give_back
from resolver.extended import ExtendedGraph, OpNode, TransformNode, Value
from vtensor.errors import (
    ContractError,
    InputError,
    NativeError,
)
from vtensor.operators import info_of, run_compute
from vtensor.tensor import Option, VTensor

if TYPE_CHECKING:
    import numpy as np

    from ptensor.layout import Layout


class Scratch:
    """Working memory of steps; those of a plan share one buffer, as big as the largest needs."""

    def __init__(self) -> None:
        self.nbytes = 0
        self.buffer: Buffer | None = None

    def reserve(self, nbytes: int) -> None:
        """Make sure that the buffer will be at least this large."""
        self.nbytes = max(self.nbytes, nbytes)

    def memory(self, nbytes: int) -> np.ndarray[Any, Any]:
        """The first bytes of the buffer."""
        if self.buffer is None or self.buffer.nbytes < self.nbytes:
            self.buffer = Buffer.allocate(self.nbytes)
        return self.buffer.memory[:nbytes]


@dataclass(frozen=True, eq=False)
class RecordedStep:
    """One thing that a run does: a native step on these operands, or a call back into Python.

    Attributes:
        node: the node of the extended graph that it belongs to.
        library: whose code runs.
        kernel: the library's name for its implementation; ``python`` for a call-back.
        native: the step, or None for a call-back.
        slots: storages, and sizes in bytes of scratch slots.
        callback: what to call, or None for a native step.
    """

    node: str
    library: str
    kernel: str
    native: Step | None
    slots: tuple[TensorStorage | int, ...]
    callback: Callable[[], None] | None = None

    @property
    def is_reference(self) -> bool:
        """The library has nothing better than its reference code for this."""
        return reference_kernel(self.kernel)


def execute(step: RecordedStep, scratch: Scratch) -> None:
    """Run one recorded step.

    Raises:
        NativeError: the library failed, or a buffer does not fit its slot.
    """
    if step.callback is not None:
        with installed(NormalEvaluation(scratch)):
            step.callback()
        return
    assert step.native is not None
    memory = [
        scratch.memory(slot) if isinstance(slot, int) else slot.buffer.memory[: slot.nbytes]
        for slot in step.slots
    ]
    run_native(step.native, memory, step.node)


def run_native(step: Step, memory: Sequence[np.ndarray[Any, Any]], node: str) -> None:
    """Hand a native step its memory and run it, the GIL released."""
    from vtensor.runtime import _replay

    try:
        _replay.execute(step, memory)
    except (RuntimeError, ValueError, TypeError) as error:
        raise NativeError(f"step of {node!r}: {error}") from error


class NormalEvaluation(Evaluation):
    """Evaluation that executes each step as it comes; call-back steps run in it."""

    mode = Mode.NORMAL

    def __init__(self, scratch: Scratch | None = None) -> None:
        self.scratch = scratch or Scratch()

    def emit(self, call: Call, step: Step, slots: Sequence[VTensor | int]) -> None:
        """Execute the step now."""
        for slot in slots:
            if isinstance(slot, int):
                self.scratch.reserve(slot)
        memory = [
            self.scratch.memory(slot) if isinstance(slot, int) else _storage(slot).buffer.memory
            for slot in slots
        ]
        run_native(step, memory, call.node)

    def share(self, call: Call, source: VTensor, target: VTensor) -> None:  # noqa: ARG002
        """Let the target look at the source's memory."""
        _storage(target).share(_storage(source))

    def callback(self, call: Call, run: Callable[[], None]) -> None:  # noqa: ARG002
        """Not needed: the invoker runs in place."""
        run()


class RecordEvaluation(Evaluation):
    """Evaluation that collects steps."""

    mode = Mode.RECORD

    def __init__(self) -> None:
        self.steps: list[RecordedStep] = []
        self.scratch = Scratch()

    def emit(self, call: Call, step: Step, slots: Sequence[VTensor | int]) -> None:
        """Keep the step and the memory of its operands."""
        from vtensor.runtime import _replay

        try:
            kernel = str(_replay.describe(step)["kernel"])
        except (ValueError, TypeError) as error:
            raise NativeError(f"step of {call.node!r}: {error}") from error
        kept: list[TensorStorage | int] = []
        for slot in slots:
            if isinstance(slot, int):
                self.scratch.reserve(slot)
                kept.append(slot)
            else:
                kept.append(_storage(slot))
        self.steps.append(RecordedStep(call.node, call.library, kernel, step, tuple(kept)))

    def share(self, call: Call, source: VTensor, target: VTensor) -> None:  # noqa: ARG002
        """The target's memory is the source's, in every run."""
        _storage(target).share(_storage(source))

    def callback(self, call: Call, run: Callable[[], None]) -> None:
        """Keep the invoker itself; it runs in a scope of its own each time.

        Where no output has an element there is nothing to run.
        """
        if all(_storage(output).nbytes == 0 for output in call.outputs):
            return

        def again() -> None:
            fresh = Call(
                call.node,
                call.op,
                call.op_name,
                call.library,
                call.device,
                call.inputs,
                call.outputs,
                call.roles,
                NormalEvaluation(self.scratch),
                call.python,
                call.decision,
                place=call.place,
            )
            try:
                run_call(fresh, run)
            except Decline as why:
                raise fresh.misuse(f"declines during a run: {why}", at=call.place) from None
            except InputError as error:
                raise InputError(call.failure(str(error))) from error

        self.steps.append(RecordedStep(call.node, call.library, "python", None, (), again))


def _storage(tensor: VTensor) -> TensorStorage:
    storage = tensor.storage
    assert isinstance(storage, TensorStorage), f"{tensor!r} has no memory"
    return storage


@dataclass
class RecordContext(DispatchContext):
    """The context of a node being recorded: outputs get their memory before the invoker runs."""

    def dispatch(self, op: object, inputs: Sequence[VTensor], outputs: Sequence[VTensor]) -> None:
        """Allocate the outputs in their decided layouts, then dispatch."""
        assert self.decision is not None, "only what is resolved is recorded"
        layouts = self.decision.layouts[len(inputs) :]
        for value, layout in zip(outputs, layouts, strict=True):
            value.storage = TensorStorage.allocate(value, layout)
        dispatcher(info_of(op).name, self.device)(self, op, inputs, outputs)


class Recorder:
    """Records an extended graph: steps in order, and the memory of every value."""

    def __init__(self, graph: ExtendedGraph, constants: Mapping[str, np.ndarray[Any, Any]]) -> None:
        self.graph = graph
        self.evaluation = RecordEvaluation()
        self.storages: dict[str, TensorStorage] = {}
        for name in graph.inputs:
            value = graph.values[name]
            self.storages[name] = TensorStorage(value.dtype, value.dims, value.layout)
        for value in graph.values.values():
            if value.name in constants:
                tensor = VTensor(value.dtype, value.dims)
                self.storages[value.name] = TensorStorage.of_array(
                    constants[value.name], tensor, value.layout, constant=True
                )

    def record(self, progress: Callable[[str], None] | None = None) -> None:
        """Record every node; what only changes a constant's layout is executed here and now."""
        with installed(self.evaluation):
            for node in self.graph.nodes:
                if progress is not None:
                    progress(node.name)
                if isinstance(node, OpNode):
                    self._operator(node)
                elif self.graph.values[node.input].constant:
                    self._ahead(node)
                else:
                    self._transform(node, self.evaluation)

    def _tensor(self, value: Value, layout: Layout) -> VTensor:
        """A value as an operand: its memory, seen in the layout decided for the operand."""
        tensor = VTensor(value.dtype, value.dims, Option(name=value.name))
        storage = self.storages[value.name]
        if storage.layout != layout:  # equal on these extents, spelled otherwise
            seen = TensorStorage(value.dtype, value.dims, layout, constant=storage.constant)
            seen.share(storage)
            storage = seen
        tensor.storage = storage
        return tensor

    def _operator(self, node: OpNode) -> None:
        decision = node.decision
        inputs = [
            self._tensor(self.graph.values[name], layout)
            for name, layout in zip(node.inputs, decision.layouts, strict=False)
        ]
        ctx = RecordContext(node=node.name, names=node.outputs, decision=decision)
        before = len(self.evaluation.steps)
        outputs = run_compute(ctx, node.op, inputs)
        self._written(f"{node.op_name} {node.name!r}, {decision.library} invoker", before, outputs)
        for value in outputs:
            self.storages[value.name] = _storage(value)

    def _written(self, what: str, before: int, outputs: Sequence[VTensor]) -> None:
        """See that the steps since ``before`` touch every output: else a run delivers garbage.

        Raises:
            ContractError: none does, and the output is no other value's memory either.
        """
        steps = self.evaluation.steps[before:]
        if any(step.callback is not None for step in steps):
            return  # Python is free to write what it likes
        touched = {id(s.root) for step in steps for s in step.slots if not isinstance(s, int)}
        for value in outputs:
            storage = _storage(value)
            if storage.nbytes and storage.root is storage and id(storage) not in touched:
                raise ContractError(
                    f"{what}: after lib_tagger no step writes the output {value.name!r}; "
                    "call the library, or share an input's memory"
                )

    def _transform(self, node: TransformNode, evaluation: Evaluation) -> None:
        source, target = self.graph.values[node.input], self.graph.values[node.output]
        x = self._tensor(source, source.layout)
        y = VTensor(target.dtype, target.dims, Option(name=target.name))
        storage = TensorStorage.allocate(y, target.layout)
        y.storage = storage
        change = LayoutChange(source.layout, target.layout)
        before = len(self.evaluation.steps)
        run_transform(node.name, node.library, x, y, change, evaluation)
        if evaluation is self.evaluation:
            self._written(f"Transform {node.name!r}, {node.library} transformer", before, [y])
        self.storages[node.output] = storage

    def _ahead(self, node: TransformNode) -> None:
        with installed(NormalEvaluation(self.evaluation.scratch)) as _:
            self._transform(node, NormalEvaluation(self.evaluation.scratch))
        self.storages[node.output].constant = True
        give_back(self.storages[node.input].buffer.memory)
