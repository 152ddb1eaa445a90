"""Recording: run every invoker once and collect the library's steps.

The steps are data from then on: a run executes them in order. Calls that recording cannot tell
apart are recorded once. Constants are packed meanwhile, once
(``recording/packer.py``); all other values get their memory when all steps are known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from libdesc.noted import noting
from libdesc.transforms import LayoutChange, run_transform
from ptensor.buffer import Buffer, TensorStorage
from ptensor.evaluation import Evaluation, installed
from resolver.lowered import LoweredGraph, LoweredNode, OpNode, TransformNode, Value
from resolver.strategy import StrategyRefused
from vtensor.errors import ContractError, VTensorError
from vtensor.language.operators import run_compute
from vtensor.language.tensor import Option, VTensor
from vtensor.runtime.evaluations import (
    NormalEvaluation,
    RecipeEvaluation,
    RecordContext,
    RecordEvaluation,
    storage_of,
)
from vtensor.runtime.executor import Executor
from vtensor.runtime.recipe_keys import Key, Keys, Operand
from vtensor.runtime.recipes import Recipe, Recorded, Row
from vtensor.runtime.recording.packer import Packer
from vtensor.runtime.recording.packing_table import SOURCE, TARGET, ConstantRow, PackingStep
from vtensor.runtime.recording.weights import PlanWeights
from vtensor.runtime.steps import RecordedStep
from vtensor.runtime.uncopied import Division, division, uncopied

if TYPE_CHECKING:
    import numpy as np

    from ptensor.layout import Layout
    from vtensor.runtime.sized import Traced
    from vtensor.runtime.workspace import Workspace

    Record = Callable[[RecordEvaluation, Sequence[VTensor]], Recorded]


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
        self.storages: dict[str, TensorStorage] = {}
        for name in graph.inputs:
            value = graph.values[name]
            self.storages[name] = TensorStorage(value.dtype, value.dims, value.layout)
        several = _replay.threads() > 1
        expected = workspace.expected.pop() if several and workspace.expected else None
        if expected is not None and expected.lost:
            expected = None
        room_of = _room if expected is None else expected.room
        self.packed = PlanWeights(graph, constants, workspace.weights.packed, room_of)
        thread = expected.thread if expected is not None else _replay.Aside()
        #: Packs constants and compiles meanwhile, where there is a processor for that.
        self.packer = Packer(thread if several else None)
        early = self.packer.compile if several else None
        self.evaluation = RecordEvaluation(confirming, graph.inexact, early)
        #: Nodes that were chosen for other sizes and that their libraries do not take in these.
        self.refused: dict[str, str] = {}
        self._recipes = workspace.recipes
        self._keys = Keys(_replay.threads(), confirming, graph.inexact)
        self._before: Mapping[str, Row] = {}
        #: What nodes came to.
        self.rows: dict[str, Row] = {}
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
        self._before = self._recipes.begin(self._keys.plan)
        self._walk(progress)
        self._recipes.end(self._keys.plan, self.rows)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record inside the block. At its end all constants are packed, or, where it fails, nothing
        is packed any more.
        """
        try:
            yield
            self.packer.wait()
        finally:
            self.packer.close()  # call-backs live on, and what recorded them with them

    def _walk(self, progress: Callable[[str], None] | None = None) -> None:
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
            self.storages[value.name] = self.packed.given(value, self.packer)
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
        try:
            found = self._found(node, inputs, outputs)
        except VTensorError as why:
            if not self.evaluation.confirming:
                raise
            self._refuse(node, str(why))
            return
        self._take(node.outputs, found)

    def _found(
        self,
        node: LoweredNode,
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
    ) -> Recorded:
        """What a call comes to: by its recipe where it can have one, else by recording it."""
        row, operands = self._before.get(node.name), [*inputs, *outputs]
        if row is None or not row.fits(node, operands):
            key = self._key(node, operands)
            entry = self._recipes.find(key)
            if entry is None:
                recipe = self._sized(row, key, node, operands)
                if recipe is None:
                    recipe = self._recipe(key, node, inputs, outputs)
                entry = self._recipes.keep(key, recipe)
            kinds = [one._replace(storage=None) for one in operands]
            row = Row(node, kinds, key, entry)
        self.rows[node.name] = row
        if (recipe := self._recipes.use(row.entry)) is not None:
            storages = [one.storage for one in inputs if one.storage is not None]
            return recipe.on(node.name, row.key.names, storages, outputs)
        evaluation = self.evaluation.again(RecordEvaluation)
        with installed(evaluation):
            tensors = [one.tensor(one.storage) for one in inputs if one.storage]
            return _recording(node, outputs[-1].value)(evaluation, tensors)

    def _sized(
        self, before: Row | None, key: Key, node: LoweredNode, operands: Sequence[Operand]
    ) -> Recipe | None:
        """The recipe of a call by one without sizes, which may be made now; None without one."""
        if before is None or before.entry.recipe is None or not self._recipes.traces:
            return None
        from vtensor.runtime.sized import resized  # no start needs it

        count = len(node.inputs)

        def record(call: Traced) -> Recipe | None:
            return self._recipe(key, call.node, call.operands[:count], call.operands[count:])

        return resized(self._recipes, before, Row(node, operands, key, before.entry), record)

    def _key(self, node: LoweredNode, operands: Sequence[Operand]) -> Key:
        if isinstance(node, OpNode):
            return self._keys.operator(node, operands)
        return self._keys.transform(node.library, *operands)

    def _recipe(
        self,
        key: Key,
        node: LoweredNode,
        inputs: Sequence[Operand],
        outputs: Sequence[Operand],
    ) -> Recipe | None:
        """The recipe of a call; None where it has none."""
        own = [TensorStorage.stand_in(one.storage) for one in inputs if one.storage is not None]
        tensors = [one.tensor(storage) for one, storage in zip(inputs, own, strict=True)]
        evaluation = self.evaluation.again(RecipeEvaluation)
        with installed(evaluation):
            recorded = _recording(node, outputs[-1].value)(evaluation, tensors)
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
        self._take([node.output], self._found(node, [x], [y]))

    def _ahead(self, node: TransformNode) -> None:
        target = self.graph.values[node.output]
        storage = self.packed.find(target)
        if storage is None:
            row, given = self.packed.row(target), self.storages.get(node.input)
            with noting(self.packed.calls):
                step = packing_step(node, row, given)
            storage = self.packed.pack(row, step, self.packer, given)
        self.storages[node.output] = storage


def _room(nbytes: int) -> np.ndarray[Any, Any]:
    """Memory for constants."""
    from vtensor.runtime import _replay

    return _replay.Arena(nbytes).memory()


def packing_step(
    node: TransformNode, row: ConstantRow, given: TensorStorage | None = None
) -> PackingStep:
    """Return what packs a constant: one native step, or the library's Python.

    Args:
        node: the Transform.
        row: the constant.
        given: what the step reads, if that is in memory.

    Raises:
        VTensorError: the library does not take it.
    """
    if given is None:
        given = TensorStorage.deferred(row.read, row.given.tensor(), row.given.layout)
    evaluation = RecordEvaluation()
    with nullcontext() if row.is_large else Executor.alone(), installed(evaluation):
        x = Operand(row.given, row.given.layout).tensor(given)
        recorded = _transformed(node, row.value, evaluation, [x])
    names = {given: SOURCE, recorded.outputs[0]: TARGET}
    for step in recorded.steps:
        slots = [one if isinstance(one, int) else names.get(one, "") for one in step.slots]
        is_alone = len(recorded.steps) == 1 and step.native is not None
        if is_alone and sorted(one for one in slots if isinstance(one, str)) == [SOURCE, TARGET]:
            return PackingStep(step.native, slots, node.name, step.told)
    return PackingStep(None, (), node.name, run=partial(_packed_here, node, row))


def _packed_here(node: TransformNode, row: ConstantRow, given: TensorStorage, room: Buffer) -> None:
    """Transform a constant step by step, as its library does it."""
    value, evaluation = row.value, NormalEvaluation()
    storage = TensorStorage(value.dtype, value.dims, value.layout, room)
    x = Operand(row.given, row.given.layout).tensor(given)
    with installed(evaluation):
        _change(node, x, value, storage, evaluation)


def _recording(node: LoweredNode, made: Value) -> Record:
    """What records a node, the last of whose outputs is this."""
    if isinstance(node, OpNode):
        return partial(_recorded, node)
    return partial(_transformed, node, made)


def _recorded(node: OpNode, evaluation: RecordEvaluation, inputs: Sequence[VTensor]) -> Recorded:
    """What an operator comes to on its library."""
    own, followers = node.split(inputs)
    ctx = RecordContext(
        node=node.name, names=node.outputs, variant=node.variant, followers=followers
    )
    outputs = [*map(storage_of, run_compute(ctx, node.op, own))]
    steps = evaluation.taken()
    if not evaluation.python:
        what = f"{node.op_name} {node.name!r}, {node.variant.library} invoker"
        _check_written(what, steps, node.outputs, outputs)
    divided = None
    if outputs and not followers:
        divided = division(node.op, [*map(storage_of, own)], outputs[0], steps)
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
    source = storage_of(x).layout
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
