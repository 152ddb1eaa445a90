"""Recording: run every invoker once and collect the library's steps.

The steps are data from then on: a run executes them in order. Constants are transformed here, once;
all other values get their memory when all steps are known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from libdesc.dispatcher import DispatchContext, dispatcher, run_call
from libdesc.registry import ready
from libdesc.transforms import LayoutChange, run_transform
from ptensor.buffer import Buffer, TensorStorage
from ptensor.evaluation import Call, Decline, Evaluation, Mode, Step, installed
from resolver.evaluate import PartialEvaluation
from resolver.lowered import LoweredGraph, OpNode, TransformNode, Value
from resolver.strategy import StrategyRefused
from vtensor.errors import ContractError, InputError, NativeError, VTensorError
from vtensor.language.operators import info_of, run_compute
from vtensor.language.tensor import Option, VTensor
from vtensor.runtime.executor import Executor
from vtensor.runtime.recipe_keys import Key, Keys, Operand
from vtensor.runtime.recipes import Recipe, Recorded
from vtensor.runtime.steps import Failure, RecordedStep
from vtensor.runtime.uncopied import Division, division, uncopied
from vtensor.runtime.weights import PackedWeights

if TYPE_CHECKING:
    import numpy as np

    from ptensor.layout import Layout
    from vtensor.runtime.workspace import Workspace

    Record = Callable[["RecordEvaluation", Sequence[VTensor]], Recorded]

Recording = TypeVar("Recording", bound="RecordEvaluation")

#: Fewer steps than this are compiled where they are.
FEW = 4


def run_native(
    step: Step, memory: Sequence[np.ndarray[Any, Any]], node: str, told: Callable[[str], str] = str
) -> None:
    """Hand a native step its memory and run it, the GIL released; ``told`` as in RecordedStep."""
    try:
        Executor.run_step(step, memory)
    except (RuntimeError, ValueError, TypeError) as error:
        raise step_error(error, node, told) from error


def step_error(error: Exception, node: str, told: Callable[[str], str]) -> VTensorError:
    """The typed error of a native step that failed: InputError where what it was given is wrong."""
    if getattr(error, "bad_input", False):
        return InputError(told(str(error)))
    return NativeError(f"step of {node!r}: {error}")


class NormalEvaluation(Evaluation):
    """Evaluation that executes each step as it comes; call-back steps run in it."""

    mode = Mode.NORMAL

    def __init__(self, tolerance: float = 0.0) -> None:
        self.tolerance = max(self.tolerance, tolerance)

    def emit(self, call: Call, step: Step, slots: Sequence[VTensor | int]) -> None:
        """Execute the step now."""
        memory = [
            Buffer.allocate(slot).memory if isinstance(slot, int) else _storage(slot).memory
            for slot in slots
        ]
        run_native(step, memory, call.node, Failure.of(call))

    def share(self, call: Call, source: VTensor, target: VTensor) -> None:  # noqa: ARG002
        """Let the target look at the source's memory."""
        _storage(target).share(_storage(source))

    def callback(self, call: Call, run: Callable[[], None]) -> None:  # noqa: ARG002
        """Not needed: the invoker runs in place."""
        run()


class RecordEvaluation(Evaluation):
    """Evaluation that collects steps.

    Args:
        confirming: variants come from a plan for other sizes, and are confirmed first.
        inexact: there are inexact ones among them.
    """

    mode = Mode.RECORD
    #: It is for a recipe, and the call has none, since it calls back into Python.
    python = False

    def __init__(self, confirming: bool = False, inexact: bool = False) -> None:
        self.steps: list[RecordedStep] = []
        self.confirming = confirming
        self.inexact = inexact
        self.tolerance = max(self.tolerance, float(inexact))

    def again(self, kind: type[Recording]) -> Recording:
        """Another one, of nothing yet."""
        return kind(self.confirming, self.inexact)

    def emit(self, call: Call, step: Step, slots: Sequence[VTensor | int]) -> None:
        """Keep the step and the storages of its operands; it is compiled with all others."""
        kept = tuple(slot if isinstance(slot, int) else _storage(slot) for slot in slots)
        replaces = _replaceable(call)
        self.steps.append(
            RecordedStep(call.node, call.library, "", step, kept, None, replaces, Failure.of(call))
        )

    def compiled(self, threads: int) -> list[RecordedStep]:
        """The steps with their kernels, which so many threads compile.

        Raises:
            NativeError: a step is none, or its library cannot compile it.
        """
        new = [step for step in self.steps if step.native is not None and not step.kernel]
        several = [*{step.code: step for step in new}.values()]
        if threads == 1 or len(several) < FEW:
            for step in several:
                _compile(step)
        else:
            with ThreadPoolExecutor(threads) as pool:
                [*pool.map(_compile, several)]
        done = {step: replace(step, kernel=step.code.kernel) for step in new}
        return [done.get(step, step) for step in self.steps]

    def taken(self) -> list[RecordedStep]:
        """The steps, which are the caller's now: they refer to this, which must not keep them."""
        steps, self.steps = self.steps, []
        return steps

    def share(self, call: Call, source: VTensor, target: VTensor) -> None:  # noqa: ARG002
        """The target's memory is the source's, in every run."""
        _storage(target).share(_storage(source))

    def callback(self, call: Call, run: Callable[[], None]) -> None:
        """Keep the invoker itself; it runs in a scope of its own each time.

        Where no output has an element there is nothing to run.
        """
        if all(_storage(output).nbytes == 0 for output in call.outputs):
            return

        def again(evaluation: Evaluation | None = None) -> None:
            fresh = _anew(call, evaluation or NormalEvaluation(self.tolerance))
            try:
                with installed(fresh.evaluation):
                    run_call(fresh, run)
            except Decline as why:
                raise fresh.misuse(f"declines during a run: {why}", at=call.place) from None
            except InputError as error:
                raise InputError(call.failure(str(error))) from error

        if self.confirming:
            again(PartialEvaluation(self.tolerance > 0))
        slots = tuple(map(_storage, call.operands))
        self.steps.append(RecordedStep(call.node, call.library, "python", None, slots, again))


def _compile(step: RecordedStep) -> None:
    """Compile a native step, unless another one of the same recipe has been."""
    from vtensor.runtime import _replay

    if step.code.kernel:
        return
    try:
        about = _replay.describe(step.native)
        step.code.access = tuple(access for _, _, access in about["slots"])
        step.code.kernel = str(about["kernel"])
    except (ValueError, TypeError) as error:
        raise NativeError(f"step of {step.node!r}: {error}") from error
    except (VTensorError, MemoryError):
        raise
    except Exception as error:  # of its library, or of an author's step
        raise NativeError(step.told(f"its step cannot be made: {error}")) from error


def _anew(call: Call, evaluation: Evaluation) -> Call:
    """A call once more, in another evaluation."""
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
    """The operands over which the first output of a call may be written, as its invoker says."""
    info = ready().invokers.get((call.op_name, call.library, call.device))
    if info is None or not info.inplace:
        return {}
    allowed = [
        _storage(tensor)
        for role, tensor in zip(call.roles, call.inputs, strict=False)
        if role in info.inplace
    ]
    return {_storage(call.outputs[0]): allowed}


def _storage(tensor: VTensor) -> TensorStorage:
    storage = tensor.storage
    assert isinstance(storage, TensorStorage), f"{tensor!r} has no memory"
    return storage


#: Constants of so many bytes are worth all threads when they are packed.
LARGE = 1 << 20


@dataclass
class RecordContext(DispatchContext):
    """The context of a node being recorded: outputs lie as decided, in memory still to be found."""

    def dispatch(self, op: object, inputs: Sequence[VTensor], outputs: Sequence[VTensor]) -> None:
        """Give the outputs storages in their decided layouts, then dispatch."""
        assert self.variant is not None, "only what is resolved is recorded"
        layouts = self.variant.layouts[-len(outputs) :]
        for value, layout in zip(outputs, layouts, strict=True):
            value.storage = TensorStorage(value.dtype, value.dims, layout)
        dispatcher(info_of(op).name, self.device)(self, op, inputs, outputs)


class RecipeEvaluation(RecordEvaluation):
    """Evaluation that collects the steps of one call on stand-ins."""

    def callback(self, call: Call, run: Callable[[], None]) -> None:  # noqa: ARG002
        """There is nothing to keep for other calls."""
        self.python = True


class Recorder:
    """Records a lowered graph: steps in order, and the storages of values.

    Args:
        graph: checked and optimised.
        constants: arrays of the graph's constants by name.
        workspace: has what the session's other plans have packed and recorded already.
        confirming: as for ``RecordEvaluation``.
    """

    def __init__(
        self,
        graph: LoweredGraph,
        constants: Mapping[str, np.ndarray[Any, Any]],
        workspace: Workspace,
        confirming: bool = False,
    ) -> None:
        from vtensor.runtime import _replay

        self.graph = graph
        self.constants = constants
        self.evaluation = RecordEvaluation(confirming, graph.inexact)
        self.storages: dict[str, TensorStorage] = {}
        for name in graph.inputs:
            value = graph.values[name]
            self.storages[name] = TensorStorage(value.dtype, value.dims, value.layout)
        self.packed: PackedWeights = workspace.weights.of_plan(graph, constants)
        #: Nodes that were chosen for other sizes and that their libraries do not take in these.
        self.refused: dict[str, str] = {}
        self._recipes = workspace.recipes
        self._recipes.begin()
        self._keys = Keys(_replay.threads(), confirming, graph.inexact)
        self._divisions: list[Division] = []
        #: How often a constant is still to be read; outputs once more than that.
        self._readers = Counter(
            name
            for names in (*(node.inputs for node in graph.nodes), graph.outputs.values())
            for name in names
            if graph.values[name].constant and name in constants
        )

    def record(self, progress: Callable[[str], None] | None = None) -> None:
        """Record every node; what only changes a constant's layout is executed here and now.

        Raises:
            StrategyRefused: libraries do not confirm what was chosen for other sizes.
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
                        self.storages.pop(name, None)  # steps keep what they read
        values = [self.graph.values[name] for name in self.graph.outputs.values()]
        kept = {self._storage(value).root for value in values}
        for why in self.refused.values():
            raise StrategyRefused(why, self.refused)
        kept |= {self.storages[name] for name in self.graph.inputs}
        self.evaluation.steps = uncopied(self.evaluation.steps, self._divisions, kept)

    def _storage(self, value: Value) -> TensorStorage:
        """A value's storage; that of a constant is made when it is first asked for."""
        if value.name not in self.storages:
            self.storages[value.name] = self.packed.find(value) or TensorStorage.of_array(
                self.constants[value.name],
                VTensor(value.dtype, value.dims),
                value.layout,
                constant=True,
            )
        return self.storages[value.name]

    def _operand(self, value: Value, layout: Layout) -> Operand:
        """A value as an operand: its memory, seen in the layout decided for the operand."""
        storage = self._storage(value)
        if storage.layout != layout:  # equal on these extents, spelled otherwise
            seen = TensorStorage(value.dtype, value.dims, layout, constant=storage.constant)
            seen.share(storage)
            storage = seen
        return Operand(value, layout, storage.constant, storage)

    def _operator(self, node: OpNode) -> None:
        values, layouts = self.graph.values, node.variant.layouts
        inputs = [
            self._operand(values[x], one) for x, one in zip(node.inputs, layouts, strict=False)
        ]
        outputs = [
            Operand(values[name], layout)
            for name, layout in zip(node.outputs, layouts[len(inputs) :], strict=True)
        ]
        key = self._keys.operator(node, [*inputs, *outputs])
        try:
            found = self._found(key, node.name, inputs, outputs, partial(_recorded, node))
        except VTensorError as why:
            if not self.evaluation.confirming:
                raise
            self._refuse(node, str(why))
            return
        self._take(node.outputs, found)

    def _found(
        self,
        key: Key,
        node: str,
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
        record: Record,
    ) -> Recorded:
        """What a call comes to: by its recipe where it can have one, else by recording it."""
        known, recipe = self._recipes.find(key)
        if not known:
            recipe = self._recipe(key, inputs, outputs, record)
            self._recipes.keep(key, recipe)
        if recipe is not None:
            storages = [one.storage for one in inputs if one.storage is not None]
            return recipe.on(node, key.names, storages, outputs)
        evaluation = self.evaluation.again(RecordEvaluation)
        with installed(evaluation):
            return record(evaluation, [one.tensor(one.storage) for one in inputs if one.storage])

    def _recipe(
        self, key: Key, inputs: Sequence[Operand], outputs: Sequence[Operand], record: Record
    ) -> Recipe | None:
        """The recipe of a call; None where it has none."""
        own = [TensorStorage.stand_in(one.storage) for one in inputs if one.storage is not None]
        tensors = [one.tensor(storage) for one, storage in zip(inputs, own, strict=True)]
        evaluation = self.evaluation.again(RecipeEvaluation)
        with installed(evaluation):
            recorded = record(evaluation, tensors)
        return None if evaluation.python else Recipe.of(key, own, outputs, recorded)

    def _take(self, names: Sequence[str], found: Recorded) -> None:
        """Go on with what a node came to."""
        self.evaluation.steps += found.steps
        self._divisions += [found.division] if found.division else []
        self.storages |= zip(names, found.outputs, strict=False)

    def _refuse(self, node: OpNode, why: str) -> None:
        """Note that a node cannot be as it is; those behind it are looked at all the same."""
        self.refused[node.name] = why
        for name in node.outputs:
            value = self.graph.values[name]
            self.storages[name] = TensorStorage(value.dtype, value.dims, value.layout)

    def _transform(self, node: TransformNode) -> None:
        source, target = self.graph.values[node.input], self.graph.values[node.output]
        x, y = self._operand(source, source.layout), Operand(target, target.layout)
        key, record = self._keys.transform(node.library, x, y), partial(_transformed, node, target)
        self._take([node.output], self._found(key, node.name, [x], [y], record))

    def _ahead(self, node: TransformNode) -> None:
        source, target = self.graph.values[node.input], self.graph.values[node.output]
        if (packed := self.packed.find(target)) is not None:
            self.storages[node.output] = packed  # for another plan
            return
        x = Operand(source, source.layout)
        storage = TensorStorage(target.dtype, target.dims, target.layout)
        storage.bind(self.packed.room(target))
        evaluation, small = NormalEvaluation(), target.nbytes < LARGE
        with Executor.alone() if small else nullcontext(), installed(evaluation):
            _change(node, x.tensor(self._storage(source)), target, storage, evaluation)
        storage.constant = True
        self.storages[node.output] = storage
        self.packed.keep(target, storage)


def _recorded(node: OpNode, evaluation: RecordEvaluation, inputs: Sequence[VTensor]) -> Recorded:
    """What an operator comes to on its library."""
    own, followers = node.split(inputs)
    ctx = RecordContext(
        node=node.name, names=node.outputs, variant=node.variant, followers=followers
    )
    outputs = [*map(_storage, run_compute(ctx, node.op, own))]
    steps = evaluation.taken()
    if not evaluation.python:
        what = f"{node.op_name} {node.name!r}, {node.variant.library} invoker"
        _check_written(what, steps, node.outputs, outputs)
    divided = None
    if outputs and not followers:
        divided = division(node.op, [*map(_storage, own)], outputs[0], steps)
    return Recorded(outputs, steps, divided)


def _transformed(
    node: TransformNode, target: Value, evaluation: RecordEvaluation, inputs: Sequence[VTensor]
) -> Recorded:
    """What a Transform comes to on its library."""
    storage = TensorStorage(target.dtype, target.dims, target.layout)
    _change(node, inputs[0], target, storage, evaluation)
    steps = evaluation.taken()
    if not evaluation.python:
        what = f"Transform {node.name!r}, {node.library} transformer"
        _check_written(what, steps, node.outputs, [storage])
    return Recorded([storage], steps, None)


def _change(
    node: TransformNode, x: VTensor, target: Value, storage: TensorStorage, evaluation: Evaluation
) -> None:
    y = VTensor(target.dtype, target.dims, Option(name=target.name))
    y.storage = storage
    source = _storage(x).layout
    run_transform(node.name, node.library, x, y, LayoutChange(source, target.layout), evaluation)


def _check_written(
    what: str,
    steps: Sequence[RecordedStep],
    names: Sequence[str],
    outputs: Sequence[TensorStorage],
) -> None:
    """See that a call's steps touch every output: else a run delivers garbage.

    Raises:
        ContractError: none does, and the output is no other value's memory either.
    """
    if any(step.callback is not None for step in steps):
        return  # Python is free to write what it likes
    touched = {id(s.root) for step in steps for s in step.slots if not isinstance(s, int)}
    for name, storage in zip(names, outputs, strict=False):
        if storage.nbytes and storage.root is storage and id(storage) not in touched:
            raise ContractError(
                f"{what}: after lib_tagger no step writes the output {name!r}; "
                "call the library, or share an input's memory"
            )
