"""Plans for other sizes from a drawing: no node of a network is looked at any more.

A blueprint is an open program that was drawn of a strategy on an outline. Where it says that there
is no plan of it, one is made node by node, which says what is wrong, if anything is.
"""

from __future__ import annotations

import re
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
from vtensor.runtime.drawing import Drawing, Given, Opened
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
)
from vtensor.runtime.open_slots import Numbers, Pieces, Slots
from vtensor.runtime.plan import Ends
from vtensor.runtime.plan_bytes import held, pieces
from vtensor.runtime.products import of_products
from vtensor.runtime.recipes import Recipes
from vtensor.runtime.record import changed
from vtensor.runtime.steps import RecordedStep

if TYPE_CHECKING:
    from libdesc.script import Script
    from resolver.strategy import Strategy
    from resolver.values import Value
    from vtensor.runtime.outline import Sized
    from vtensor.runtime.packed import PackedWeights
    from vtensor.runtime.workspace import Workspace

Array = np.ndarray[Any, Any]

#: Stands for memory that is not there yet.
_NONE: Array = np.empty(0, np.uint8)

#: The name of a dim in a layout.
_NAME = re.compile(r"[A-Za-z_]\w*")


class Blueprint(OpenProgram):
    """A strategy on an outline, drawn.

    Args:
        sized, strategy: the strategy has been put on this graph, and checked there.
        workspace: what plans share.
        script: notes what is called, for other processes; nothing is taken of what the session's
            plans have recorded then.

    Attributes:
        graph: what was drawn; its sizes are on the program's tape, and none may be computed now.
        tape: the program's.
        recorded: what those of its nodes came to that depend on no size.
        constants: in the order of the regions that they are.
        opened: those that depend on sizes, by their places among them.

    Raises:
        NotTraced, VTensorError: it cannot be drawn.
    """

    packed: PackedWeights

    def __init__(
        self,
        sized: Sized,
        strategy: Strategy,
        workspace: Workspace,
        script: Script | None = None,
    ) -> None:
        outline = sized.outline
        fitted, now = outline.fitted(strategy), outline.sizes(sized.given)
        if now is None:
            raise NotTraced("the outline does not hold for these sizes")
        self.outline, self.strategy, self.sizes = outline, strategy, outline.sizes
        tape, numbers, given_rows = Tape(), Numbers(), list[tuple[Given, int]]()
        given_sizes = Given(tape, now, given_rows)
        graph, coded, own = (
            fitted.made(one)
            for one in (outline.without_arrays(given_sizes), outline.coded, sized.graph)
        )
        go_on()
        if not fitted.holds(graph.values):
            raise NotTraced("layouts are equal in other sizes only")
        constants = sized.graph.constants
        recipes = workspace.recipes if script is None else Recipes()
        given = (graph, coded, own, given_sizes, constants, outline.is_open, workspace, recipes)
        with nullcontext() if script is None else noting(script):
            drawing = Drawing(*given)
            drawing.draw()
        self._factors = of_products(graph)
        self.packed, self.tape, self.recorded = drawing.packed, tape, drawing.rows
        ends = Ends.of(graph, drawing.storages)
        if any(one.memory in drawing.opened for one in ends.deliveries.values()):
            raise NotTraced("a constant that depends on sizes is delivered")
        for step in drawing.evaluation.steps:
            if step.native is not None and not _stands(step):
                compile_step(step)
        steps = needed(drawing.evaluation.steps, ends.outputs)
        if any(step.callback is not None for step in steps):
            raise NotTraced("steps call back")
        self.slots = Slots.of(steps, ends, numbers)
        sources = {which.given: place for place, which in enumerate(drawing.classes, 1)}
        sources[given_sizes] = OUTLINE
        self.natives = [_stand(step, sources) for step in steps]
        places = [set[int]() for _ in drawing.classes]
        for native in self.natives:
            if type(native) is Stand:
                places[native.source - 1].add(native.place)
        self.calls = [
            Calls(one.tape, one.sizes, natives, one.nodes)
            for one, natives in zip(drawing.classes, places, strict=True)
        ]
        self.constants = self.slots.constants
        #: The memory of constants, and those that are made anew for sizes.
        self.memory = [
            _NONE if one in drawing.opened else one.buffer.memory for one in self.constants
        ]
        self.opened = [
            (place, drawing.opened[one])
            for place, one in enumerate(self.constants)
            if one in drawing.opened
        ]
        self.inputs = [_end(graph.values[name], numbers) for name in graph.inputs]
        self.own = [_end_of(one, numbers) for one in ends.own]
        self.outputs = [
            Delivered(
                alias,
                _end(one.value, numbers),
                one.binding,
                one.memory if one.binding is None else None,
            )
            for alias, one in ends.deliveries.items()
        ]
        self.held = numbers.places([one.nbytes for one in held(graph)])
        self.live = Pieces.of([*pieces(graph)], numbers)
        asked = set[Asked]()
        for name, *layouts in fitted.proof.questions:
            dims = graph.values[name].dims
            made = [unnamed(text, dims) for text in layouts]
            if made[0][1] != made[1][1]:  # in one of them, dims have their names
                made = [(text, tuple(dims)) for text in layouts]
            [one, names], [other, _] = made
            if one != other:
                at = map(numbers.place, dims.values())
                asked.add((one, other, tuple(zip(names, at, strict=True))))
        self.asked = [*asked]
        self.numbers, self.run, self.graph = numbers, tape.run, graph
        self.rows = [(sources[which], place) for which, place in given_rows]
        go_on()
        self.run([which.now[place] for which, place in given_rows])  # compiled: nobody waits
        self.proven = graph.certificate is not None

    def end_of(self, value: Value) -> End:
        """A value of the graph."""
        return _end(value, self.numbers)

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
        names = {name for one, key in rows if known[key] is None for name in one.nodes}
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
        for place, opened in self.opened:
            array, value = constants[opened.value.name], opened.value
            made[id(array)] = array  # and stays, so that no other has its address
            changes = [
                (node.library, *unnamed(str(after.layout), after.dims))
                for node, after in opened.changes
            ]
            key = id(array), *unnamed(str(value.layout), value.dims), *changes
            if key not in made:
                made[key] = _memory(opened, array, at, self._factors)
            found[place] = made[key]
        return found


def unnamed(layout: str, dims: Iterable[str]) -> tuple[str, tuple[str, ...]]:
    """A layout, and the names of dims in it, which are their places where it has each by itself:
    memory lies alike where these are equal.

    >>> unnamed("B D21 D6", ["D6", "B", "D21"]), unnamed("NHWC", "NCHW")
    (('d1 d2 d0', ('d0', 'd1', 'd2')), ('NHWC', ('N', 'C', 'H', 'W')))
    """
    names = {name: f"d{place}" for place, name in enumerate(dims)}
    if " " not in layout:
        return layout, tuple(names)
    order, *encoding = layout.partition(":")
    told = _NAME.sub(lambda found: names.get(found[0], found[0]), order)
    return "".join((told, *encoding)), tuple(names.values())


def _end(value: Value, numbers: Numbers) -> End:
    dims = [(dim, numbers.place(size)) for dim, size in value.dims.items()]
    return End(value.name, value.dtype, dims, value.layout, value.constant)


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
        room, factor = Buffer.allocate(after.nbytes), after.name in factors
        made, _ = changed(node, value, made, after, room, factor)
        value = after
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
