"""Plans for other sizes from a drawing: no node of a network is looked at any more.

A blueprint is an open program that was drawn of a strategy on an outline. Where it says that there
is no plan of it, one is made node by node, which says what is wrong, if anything is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from libdesc.noted import noting
from ptensor.buffer import Buffer, TensorStorage
from ptensor.stopping import go_on
from vtensor.language.open_arrays import NotTraced
from vtensor.language.tape import Tape, TracedSize
from vtensor.language.tensor import VTensor
from vtensor.runtime import drawing as drawn
from vtensor.runtime.all_of import all_of
from vtensor.runtime.drawing import Class, Drawing, Given, Opened
from vtensor.runtime.evaluations import compile_step
from vtensor.runtime.needed import needed
from vtensor.runtime.open_program import (
    OUTLINE,
    Asked,
    Asking,
    Calls,
    Delivered,
    End,
    OpenProgram,
    Stand,
    Told,
    says,
    unnamed,
)
from vtensor.runtime.open_slots import Numbers, Pieces, Slots
from vtensor.runtime.plan import Ends
from vtensor.runtime.plan_bytes import held, pieces
from vtensor.runtime.record import packing_step
from vtensor.runtime.recording.packer import Packer
from vtensor.runtime.recording.packing_table import ConstantRow
from vtensor.runtime.steps import RecordedStep

if TYPE_CHECKING:
    from resolver.fitted import Fitted
    from resolver.strategy import Strategy
    from resolver.values import Value
    from vtensor.runtime.drawing_notes import DrawingNotes
    from vtensor.runtime.outline import Sized
    from vtensor.runtime.recording.weights import PlanWeights
    from vtensor.runtime.workspace import Workspace

Array = np.ndarray[Any, Any]

#: Stands for memory that is not there yet.
_NONE: Array = np.empty(0, np.uint8)


class Blueprint(OpenProgram):
    """A strategy on an outline, drawn.

    Args:
        sized, strategy: the strategy has been put on this graph, and checked there.
        workspace: what plans share.
        notes: what notes how it is made, for other processes.

    Attributes:
        notes: as given.
        graph: what was drawn; its sizes are on the program's tape, and none may be computed now.
        tape: the program's.
        recorded: what those of its nodes came to that depend on no size.
        constants: in the order of the regions that they are.
        opened: those that are made anew for sizes, by their places among them.

    Raises:
        NotTraced, VTensorError: it cannot be drawn.
    """

    packed: PlanWeights

    def __init__(
        self,
        sized: Sized,
        strategy: Strategy,
        workspace: Workspace,
        notes: DrawingNotes | None = None,
    ) -> None:
        self.notes = notes
        self.outline, self.strategy, self.sizes = sized.outline, strategy, sized.outline.sizes
        self.numbers, self.tape = Numbers(), Tape()
        fitted, sizes = self.outline.fitted(strategy), self._given(sized)
        drawing = _drawing(sized, fitted, sizes, workspace, notes)
        self.graph, self.packed, self.recorded = drawing.graph, drawing.packed, drawing.rows
        self.factors = self.packed.factors
        ends = Ends.of(self.graph, drawing.storages)
        if any(one.memory in drawing.opened for one in ends.deliveries.values()):
            raise NotTraced("a constant that depends on sizes is delivered")
        steps = _steps(drawing, ends)
        self.slots = Slots.of(steps, ends, self.numbers)
        sources = {sizes: OUTLINE, **{one.given: at for at, one in enumerate(drawing.classes, 1)}}
        self.natives = [_stand(step, sources) for step in steps]
        self.calls = self._calls(drawing.classes)
        self.constants, opened = self.slots.constants, drawing.opened
        self.memory = [_NONE if one in opened else one.buffer.memory for one in self.constants]
        self.opened = [(at, opened[one]) for at, one in enumerate(self.constants) if one in opened]
        self._lying = [_lying(one) for _, one in self.opened]
        self.inputs = [self.end_of(self.graph.values[name]) for name in self.graph.inputs]
        self.own = [_end_of(one, self.numbers) for one in ends.own]
        self.outputs = self._outputs(ends)
        self.held = self.numbers.places([one.nbytes for one in held(self.graph)])
        self.live = Pieces.of([*pieces(self.graph)], self.numbers)
        self.asked = self._asked(fitted.proof.questions)
        self.proven = self.graph.certificate is not None
        self.run, self.rows = self.tape.run, [(sources[one], place) for one, place in sizes.rows]
        go_on()
        self.run([one.now[place] for one, place in sizes.rows])  # compiled: nobody waits

    def _given(self, sized: Sized) -> Given:
        """The sizes of the outline, for the program's tape.

        Raises:
            NotTraced: it has none for these.
        """
        now = self.outline.sizes(sized.given)
        if now is None:
            raise NotTraced("the outline does not hold for these sizes")
        return Given(self.tape, now, [])

    def _calls(self, classes: Sequence[Class]) -> list[Calls]:
        """Kinds of calls, with those of their native steps that the plan has."""
        places = [set[int]() for _ in classes]
        for native in self.natives:
            if type(native) is Stand:
                places[native.source - 1].add(native.place)
        return [
            Calls(one.tape, one.sizes, natives, one.nodes)
            for one, natives in zip(classes, places, strict=True)
        ]

    def _outputs(self, ends: Ends) -> list[Delivered]:
        """What runs deliver."""
        return [
            Delivered(
                alias,
                self.end_of(one.value),
                one.binding,
                one.memory if one.binding is None else None,
            )
            for alias, one in ends.deliveries.items()
        ]

    def _asked(self, questions: Iterable[tuple[str, str, str]]) -> list[Asked]:
        """What the checker asked, once each: layouts whose dims go by their places."""
        asked = set[Asked]()
        for name, *layouts in questions:
            dims = self.graph.values[name].dims
            made = [unnamed(text, dims) for text in layouts]
            if made[0][1] != made[1][1]:  # in one of them, dims have their names
                made = [(text, tuple(dims)) for text in layouts]
            [one, names], [other, _] = made
            if one != other:
                at = map(self.numbers.place, dims.values())
                asked.add((one, other, tuple(zip(names, at, strict=True))))
        return [*asked]

    def end_of(self, value: Value) -> End:
        """A value of the graph."""
        dims = [(dim, self.numbers.place(size)) for dim, size in value.dims.items()]
        return End(value.name, value.dtype, dims, value.layout, value.constant)

    def refusing(self, given: Sequence[int], workspace: Workspace, known: Told) -> frozenset[str]:
        """The operators that libraries do not take as they were drawn, for open sizes of which
        there is no plan; none where that is not known.

        Args:
            given, workspace, known: as for ``plan``.
        """
        if (sizes := self.outline.sizes(given)) is None:
            return frozenset()
        rows = [*zip(self.calls, self._asking(sizes), strict=True)]
        new = {key: one for one, key in rows if key not in known}

        def ask(key: Asking) -> bool:
            self._ask(known, new, key)
            return True

        all_of(ask, [*new], workspace.executor, workspace.lanes.threads)
        return self._operators(one for one, key in rows if known[key] is None)

    def declining(self, given: Sequence[int]) -> frozenset[str]:
        """The same, of libraries that decline before anything is compiled: nobody is to have a plan
        for these sizes now.
        """
        sizes = self.outline.sizes(given)
        rows = zip(self.calls, self._asking(sizes) if sizes is not None else (), strict=False)
        return self._operators(one for one, key in rows if says(*key) is None)

    def _operators(self, calls: Iterable[Calls]) -> frozenset[str]:
        """The operators that have these calls; none where some are no operator's."""
        names = {name for one in calls for name in one.nodes}
        operators = {node.name for node in self.strategy.chosen.operators}
        return frozenset(names if names <= operators else ())

    def _regions(self, sizes: Sequence[int], numbers: Array) -> Sequence[Array] | None:
        """The memory of constants; layers share what they compute of sizes alike."""
        constants = self.outline.constants(sizes)
        if constants is None or not self.opened:
            return None if constants is None else self.memory
        at = partial(_at, numbers)
        made = dict[Hashable, Array]()
        found = [*self.memory]
        for (place, opened), lying in zip(self.opened, self._lying, strict=True):
            array = constants[opened.value.name]
            made[id(array)] = array  # and stays, so that no other has its address
            key = id(array), lying
            if key not in made:
                made[key] = _memory(opened, array, at, self.factors)
            found[place] = made[key]
        return found


def _lying(opened: Opened) -> Hashable:
    """How a constant lies: two that are equal in this, and of one array, have the same memory."""
    value = opened.value
    changes = [
        (node.library, *unnamed(str(after.layout), after.dims)) for node, after in opened.changes
    ]
    return *unnamed(str(value.layout), value.dims), *changes


def _drawing(
    sized: Sized, fitted: Fitted, sizes: Given, workspace: Workspace, notes: DrawingNotes | None
) -> Drawing:
    """A strategy drawn on an outline; arguments as for ``Blueprint``.

    Raises:
        NotTraced, VTensorError: it cannot be.
    """
    outline = sized.outline
    graph, coded, own = (
        fitted.made(one) for one in (outline.without_arrays(sizes), outline.coded, sized.graph)
    )
    go_on()
    if not fitted.holds(graph.values):
        raise NotTraced("layouts are equal in other sizes only")
    constants = sized.graph.constants
    recipes = workspace.recipes if notes is None else notes.recipes
    given = graph, coded, own, sizes, constants, outline.is_open, workspace, recipes
    with nullcontext() if notes is None else noting(notes.script):
        drawing = Drawing(*given)
        drawing.draw()
    return drawing


def _steps(drawing: Drawing, ends: Ends) -> Sequence[RecordedStep]:
    """The steps that the outputs need.

    Raises:
        NotTraced: one of them calls back.
    """
    for step in drawing.evaluation.steps:
        if step.native is not None and not _stands(step):
            compile_step(step)
    steps = needed(drawing.evaluation.steps, ends.outputs)
    if any(step.callback is not None for step in steps):
        raise NotTraced("steps call back")
    return steps


def _end_of(memory: TensorStorage, numbers: Numbers) -> End:
    dims = [(dim, numbers.place(size)) for dim, size in memory.extents.items()]
    return End("", memory.dtype, dims, memory.layout)


def _stand(step: RecordedStep, sources: Mapping[Given, int]) -> object:
    """A step that depends on no size, or what stands for one that does."""
    native: Any = step.native
    if not _stands(step):
        return native
    return Stand(sources[native.given], native.place, step.code.access)


def _memory(opened: Opened, array: Array, at: At, factors: frozenset[str]) -> Array:
    """The memory of a constant that depends on sizes."""
    value = replace(opened.value, dims=at(opened.value.dims))
    tensor = VTensor(value.dtype, value.dims)
    made = TensorStorage.of_array(array, tensor, value.layout, constant=True)
    for node, target in opened.changes:
        after = replace(target, dims=at(target.dims))
        row = ConstantRow(array, (), value, after, after.name in factors)
        step, room = packing_step(node, row, made), Buffer.allocate(after.nbytes)
        made, value = Packer().pack(row, step, room, made), after
    return made.buffer.memory


def _stands(step: RecordedStep) -> bool:
    """Its native step is another one for each choice of sizes."""
    native: object = step.native
    return type(native) is drawn.Stand


#: Dims by name, with numbers in the place of what is on a tape.
At = Callable[[Mapping[str, int]], dict[str, int]]


def _at(numbers: Array, dims: Mapping[str, int]) -> dict[str, int]:
    return {
        dim: int(numbers[size.place]) if type(size) is TracedSize else size
        for dim, size in dims.items()
    }
