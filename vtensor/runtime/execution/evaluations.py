"""Evaluations that run invokers to the end. One executes the steps of their library calls at once;
the others collect these steps for a plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from libdesc.dispatcher import DispatchContext, dispatcher, run_call
from libdesc.registry import ready
from ptensor.buffer import Buffer, TensorStorage
from ptensor.evaluation import Call, Decline, Evaluation, Mode, Step, installed
from resolver.evaluate import PartialEvaluation
from vtensor.errors import InputError, NativeError, VTensorError
from vtensor.language.operators import info_of
from vtensor.language.process.interrupts import pass_signals
from vtensor.language.records import dataclass, replace
from vtensor.language.tensor import VTensor
from vtensor.runtime.execution.executor import Executor
from vtensor.runtime.execution.parallel import side_by_side
from vtensor.runtime.execution.steps import Failure, RecordedStep

if TYPE_CHECKING:
    import numpy as np

Recording = TypeVar("Recording", bound="RecordEvaluation")

#: The fewest distinct steps that are compiled on several threads.
MIN_PARALLEL_STEPS = 4


def run_native(
    step: Step,
    memory: Sequence[np.ndarray[Any, Any]],
    node: str,
    reword: Callable[[str], str] = str,
) -> None:
    """Run a native step with the GIL released.

    Args:
        step: the step.
        memory: the memory of each slot.
        node: the name of the node, for error messages.
        reword: turns the step's own words into the message of an error that its operands caused.

    Raises:
        InputError: the step's operands are at fault.
        NativeError: the step failed otherwise.
    """
    try:
        Executor.run_step(step, memory)
    except (RuntimeError, ValueError, TypeError) as error:
        raise step_error(error, node, reword) from error


def step_error(error: Exception, node: str, reword: Callable[[str], str]) -> VTensorError:
    """Return the VTensorError for an error of a native step.

    It is an InputError if the step's operands are at fault, else a NativeError.

    Args:
        error: the step's error.
        node: the name of the node, for the message.
        reword: turns the text of ``error`` into the message of the InputError.
    """
    if getattr(error, "bad_input", False):
        return InputError(reword(str(error)))
    return NativeError(f"step of {node!r}: {error}")


class NormalEvaluation(Evaluation):
    """Evaluation that executes each step, and each invoker in Python, at once.

    Args:
        tolerance: the largest error that results may have. Above 0, approximate variants may run.
    """

    mode = Mode.NORMAL

    def __init__(self, tolerance: float = 0.0) -> None:
        self.tolerance = max(self.tolerance, tolerance)

    def emit(self, call: Call, step: Step, slots: Sequence[VTensor | int]) -> None:
        """Execute ``step`` now. ``slots`` are its operands, and for scratch the number of bytes to
        allocate.
        """
        memory = [
            Buffer.allocate(slot).memory if isinstance(slot, int) else storage_of(slot).memory
            for slot in slots
        ]
        run_native(step, memory, call.node, Failure.of(call))

    def share(self, call: Call, source: VTensor, target: VTensor) -> None:  # noqa: ARG002
        """Make ``target`` use the memory of ``source``."""
        storage_of(target).share(storage_of(source))

    def callback(self, call: Call, run: Callable[[], None]) -> None:  # noqa: ARG002
        """Call the invoker's Python function ``run`` now."""
        run()


class RecordEvaluation(Evaluation):
    """Evaluation that collects the steps of calls, to be run later as a plan.

    Args:
        confirming: True if the variants come from a choice for other sizes. Each invoker in Python
            is then asked whether it accepts its call.
        inexact: True if approximate variants are among the recorded ones.
        early: called with each native step when it is added, to begin compiling its kernel early;
            None if only ``compiled`` compiles steps.
    """

    mode = Mode.RECORD
    #: True if the call calls back into Python, so that its steps serve no other call.
    python = False

    def __init__(
        self,
        confirming: bool = False,
        inexact: bool = False,
        early: Callable[[Step], None] | None = None,
    ) -> None:
        self.early = early
        self.steps: list[RecordedStep] = []
        self.confirming = confirming
        self.inexact = inexact
        self.tolerance = max(self.tolerance, float(inexact))

    def empty_copy(self, kind: type[Recording]) -> Recording:
        """Return an evaluation of class ``kind`` with the settings of this one and no steps."""
        return kind(self.confirming, self.inexact, self.early)

    def emit(self, call: Call, step: Step, slots: Sequence[VTensor | int]) -> None:
        """Add ``step`` with the storages of its operands, not compiled yet.

        Args:
            call: the call that the step belongs to.
            step: the native step.
            slots: the operands of the step, and for scratch the number of bytes.
        """
        slots_of_step = tuple(slot if isinstance(slot, int) else storage_of(slot) for slot in slots)
        replaces = _replaceable(call)
        if self.early is not None:
            self.early(step)
        self.steps.append(
            RecordedStep(
                call.node, call.library, "", step, slots_of_step, None, replaces, Failure.of(call)
            )
        )

    def compiled(self, threads: int) -> list[RecordedStep]:
        """Compile the collected steps and return them with the names of their kernels.

        Args:
            threads: the most threads that compile.

        Raises:
            NativeError: a step is invalid, or its library cannot compile it.
        """
        new = [step for step in self.steps if step.native is not None and not step.kernel]
        distinct = [*{step.code: step for step in new}.values()]
        if threads == 1 or len(distinct) < MIN_PARALLEL_STEPS or self.early is not None:
            for step in distinct:
                compile_step(step)
        else:
            side_by_side(compile_step, distinct, threads)
        done = {step: replace(step, kernel=step.code.kernel) for step in new}
        return [done.get(step, step) for step in self.steps]

    def taken(self) -> list[RecordedStep]:
        """Return the collected steps and remove them from this evaluation.

        The steps refer to the evaluation, so that keeping them here would be a reference cycle.
        """
        steps, self.steps = self.steps, []
        return steps

    def share(self, call: Call, source: VTensor, target: VTensor) -> None:  # noqa: ARG002
        """Make ``target`` use the memory of ``source`` in every run."""
        storage_of(target).share(storage_of(source))

    def callback(self, call: Call, run: Callable[[], None]) -> None:
        """Add a step that calls the invoker's Python function ``run`` again in each run of the
        plan.

        No step is added if all outputs of ``call`` have no elements.
        """
        if all(storage_of(output).nbytes == 0 for output in call.outputs):
            return

        def rerun(evaluation: Evaluation | None = None) -> None:
            fresh = _with_evaluation(call, evaluation or NormalEvaluation(self.tolerance))
            try:
                with installed(fresh.evaluation):
                    run_call(fresh, run)
            except Decline as why:
                raise fresh.misuse(f"declines during a run: {why}", at=call.place) from None
            except InputError as error:
                raise InputError(call.failure(str(error))) from error

        if self.confirming:
            rerun(PartialEvaluation(self.tolerance > 0))
        slots = tuple(map(storage_of, call.operands))
        self.steps.append(RecordedStep(call.node, call.library, "python", None, slots, rerun))


def compile_step(step: RecordedStep) -> None:
    """Compile a native step, unless a step with the same ``code`` is compiled already.

    Raises:
        NativeError: the step is invalid, or its library cannot compile it.
    """
    from vtensor.runtime import _replay

    if step.code.kernel:
        return
    try:
        description = _replay.describe(step.native)
        step.code.access = tuple(access for _, _, access in description["slots"])
        step.code.kernel = str(description["kernel"])
    except (ValueError, TypeError) as error:
        raise NativeError(f"step of {step.node!r}: {error}") from error
    except (VTensorError, MemoryError):
        raise
    except Exception as error:  # from its library or an author's step
        pass_signals(error)
        raise NativeError(step.reword(f"its step cannot be made: {error}")) from error


def _with_evaluation(call: Call, evaluation: Evaluation) -> Call:
    """Return a copy of ``call`` whose evaluation is ``evaluation``."""
    return Call(
        call.node,
        call.op,
        call.op_name,
        call.library,
        call.device,
        call.inputs,
        call.outputs,
        call.roles,
        evaluation,
        call.python,
        call.variant,
        place=call.place,
        posted=call.posted,
        followers=call.followers,
    )


def _replaceable(call: Call) -> dict[TensorStorage, list[TensorStorage]]:
    """Return the storages of inputs that a call's step may overwrite with the call's first output.

    The invoker declares these inputs. The only key is the storage of that output; the dict is empty
    if the invoker declares no such inputs.
    """
    info = ready().invokers.get((call.op_name, call.library, call.device))
    if info is None or not info.inplace:
        return {}
    allowed = [
        storage_of(tensor)
        for role, tensor in zip(call.roles, call.inputs, strict=False)
        if role in info.inplace
    ]
    return {storage_of(call.outputs[0]): allowed}


def storage_of(tensor: VTensor) -> TensorStorage:
    storage = tensor.storage
    assert isinstance(storage, TensorStorage), f"{tensor!r} has no memory"
    return storage


@dataclass
class RecordContext(DispatchContext):
    """The context in which an operator node is recorded.

    The outputs of the node get the layouts of the node's variant.
    """

    def dispatch(self, op: object, inputs: Sequence[VTensor], outputs: Sequence[VTensor]) -> None:
        """Give the outputs storages in the variant's layouts, then call the variant's library."""
        assert self.variant is not None, "only resolved nodes are recorded"
        self.retype(outputs)
        layouts = self.variant.layouts[-len(outputs) :]
        for value, layout in zip(outputs, layouts, strict=True):
            value.storage = TensorStorage(value.dtype, value.dims, layout)
        dispatcher(info_of(op).name, self.device)(self, op, inputs, outputs)


class KindEvaluation(RecordEvaluation):
    """Evaluation that collects the steps of one call, to serve all calls of the same kind (equal in
    all that recording depends on).
    """

    def callback(self, call: Call, run: Callable[[], None]) -> None:  # noqa: ARG002
        """Note, by setting ``python`` to True, that the call calls back into Python.

        Its steps then serve no other call, so that the call has no kind.
        """
        self.python = True
