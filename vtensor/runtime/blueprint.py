"""Plans for other sizes from a drawing: no node of a network is looked at any more.

A blueprint is a plan whose sizes are open. Three kinds of tapes say what they come to: the
outline's (all sizes of the graph), one for each kind of call (its native steps, and how much memory
they need), and its own (what lies where in whose memory). Where a question on one of them has
another answer than before, or one of the checker's has, there is no plan from it; then one is made
node by node, which says what is wrong, if anything is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from libdesc.calls import CallTape
from ptensor.buffer import Buffer, TensorStorage
from ptensor.stopping import go_on
from resolver.check import addresses
from vtensor.errors import UnsoundPlanError
from vtensor.language.open_arrays import NotTraced
from vtensor.language.tape import Tape, TracedSize
from vtensor.language.tensor import VTensor
from vtensor.runtime.all_of import all_of
from vtensor.runtime.drawing import Class, Drawing, Given, Opened, Stand, described
from vtensor.runtime.drawn import Brought, DrawnPlan, Full
from vtensor.runtime.evaluations import compile_step
from vtensor.runtime.needed import needed
from vtensor.runtime.open_slots import Numbers, Pieces, Slots
from vtensor.runtime.plan import Ends, Plan
from vtensor.runtime.plan_bytes import held, pieces
from vtensor.runtime.record import changed
from vtensor.runtime.steps import RecordedStep

if TYPE_CHECKING:
    from resolver.strategy import Strategy
    from vtensor.runtime.outline import Sized
    from vtensor.runtime.workspace import Workspace

Array = np.ndarray[Any, Any]

#: Stands for memory that is not there yet.
_NONE: Array = np.empty(0, np.uint8)

#: The name of a dim in a layout.
_NAME = re.compile(r"[A-Za-z_]\w*")

#: What the checker asked: whether two layouts are one of dims whose sizes are at these places.
Asked = tuple[str, str, tuple[tuple[str, int], ...]]

#: A tape, and what it is asked of.
Asking = tuple[CallTape, tuple[int, ...]]

#: What tapes have said of sizes.
Known = dict[Asking, Sequence[Any] | None]


class Blueprint:
    """A strategy on an outline, drawn.

    Args:
        sized, strategy: the strategy has been put on this graph, and checked there.
        workspace: what plans share.

    Raises:
        NotTraced, VTensorError: it cannot be drawn.
    """

    def __init__(
        self,
        sized: Sized,
        strategy: Strategy,
        workspace: Workspace,
    ) -> None:
        outline = sized.outline
        fitted, now = outline.fitted(strategy), outline.sizes(sized.given)
        if now is None:
            raise NotTraced("the outline does not hold for these sizes")
        self.outline, self.strategy = outline, strategy
        tape, numbers = Tape(), Numbers()
        self._rows: list[tuple[Given, int]] = []
        self._sizes = Given(tape, now, self._rows)
        graph, coded, own = (
            fitted.made(one)
            for one in (outline.without_arrays(self._sizes), outline.coded, sized.graph)
        )
        go_on()
        if not fitted.holds(graph.values):
            raise NotTraced("layouts are equal in other sizes only")
        constants = sized.graph.constants
        drawing = Drawing(graph, coded, own, self._sizes, constants, outline.is_open, workspace)
        drawing.draw()
        self._classes, self.packed = drawing.classes, drawing.packed
        self._ends = Ends.of(graph, drawing.storages)
        if any(one.memory in drawing.opened for one in self._ends.deliveries.values()):
            raise NotTraced("a constant that depends on sizes is delivered")
        for step in drawing.evaluation.steps:
            if step.native is not None and not _stands(step):
                compile_step(step)
        self._steps = needed(drawing.evaluation.steps, self._ends.outputs)
        if any(step.callback is not None for step in self._steps):
            raise NotTraced("steps call back")
        self._slots = Slots.of(self._steps, self._ends, numbers)
        #: Of each tape, the places of steps.
        self._natives = {which.tape: set[int]() for which in self._classes}
        tapes = {which.given: which.tape for which in self._classes}
        for native in self._slots.natives:
            if type(native) is Stand:
                self._natives[tapes[native.given]].add(native.place)
        rows = [*enumerate(self._slots.constants)]
        #: The memory of constants, and those that are made anew for sizes.
        self._memory = [_NONE if one in drawing.opened else one.buffer.memory for _, one in rows]
        self._anew = [(i, drawing.opened[one]) for i, one in rows if one in drawing.opened]
        self._inputs = [graph.values[name] for name in graph.inputs]
        self._held = numbers.places([one.nbytes for one in held(graph)])
        self._live = Pieces.of([*pieces(graph)], numbers)
        self._asked = set[Asked]()
        for name, *layouts in fitted.proof.questions:
            dims = graph.values[name].dims
            made = [unnamed(text, dims) for text in layouts]
            if made[0][1] != made[1][1]:  # in one of them, dims have their names
                made = [(text, tuple(dims)) for text in layouts]
            [one, names], [other, _] = made
            if one != other:
                places = map(numbers.place, dims.values())
                self._asked.add((one, other, tuple(zip(names, places, strict=True))))
        self._numbers, self._run = numbers, tape.run
        go_on()
        self._run([which.now[place] for which, place in self._rows])  # compiled now: nobody waits
        #: What was chosen is proven the best for all sizes.
        self.proven = graph.certificate is not None

    def plan(
        self, given: Sequence[int], workspace: Workspace, full: Full, known: Known
    ) -> Plan | None:
        """The plan for open sizes; None where it would be another, or is none.

        Args:
            given: of the outline.
            workspace: as for the blueprint.
            full: makes the same plan node by node, for whoever looks at its nodes.
            known: what tapes of calls have said, also to other blueprints for the same sizes.

        Raises:
            BudgetError: it needs more memory than the workspace may have.
        """
        sizes = self.outline.sizes(given)
        told = None if sizes is None else self._told(sizes, known, workspace)
        if sizes is None or told is None:
            return None
        on_tape = self._run([told[which][place] for which, place in self._rows])
        if on_tape is None:
            return None
        numbers = self._numbers.at(on_tape)
        needs = int(numbers[self._held].sum()) + self._live.live(numbers)
        constants = self.outline.constants(sizes)
        if constants is None or needs > workspace.max_bytes or not self._sound(numbers):
            return None
        natives = [
            told[one.given][one.place] if type(one) is Stand else one for one in self._slots.natives
        ]
        if not self._alike(natives):
            return None
        steps, nbytes = self._slots.placed(natives, numbers)
        at = partial(_at, numbers)
        regions = self._constants(constants, at)
        return DrawnPlan(self._brought(at), steps, nbytes, regions, self.packed, workspace, full)

    def _told(
        self, sizes: Sequence[int], known: Known, workspace: Workspace
    ) -> dict[Given, Sequence[Any]] | None:
        """What all tapes but the blueprint's own say; the steps that they give are compiled."""
        rows = [*zip(self._classes, self._asking(sizes), strict=True)]
        new = {key: one for one, key in rows if key not in known}
        order = sorted(new, key=lambda key: -new[key].took)  # first who says no, then who is slow
        takes = sum(one.took for one in new.values())
        ask = partial(self._ask, known, new)
        every = all(known.get(key, ()) is not None for _, key in rows)
        every = every and all_of(ask, order, workspace.executor, workspace.lanes.threads, takes)
        told = {one.given: numbers for one, key in rows if (numbers := known.get(key)) is not None}
        return {self._sizes: sizes, **told} if every else None

    def refusing(self, given: Sequence[int], workspace: Workspace, known: Known) -> frozenset[str]:
        """The operators that libraries do not take as they were drawn, for open sizes of which
        there is no plan; none where that is not known.

        Args:
            given, workspace, known: as for ``plan``.
        """
        if (sizes := self.outline.sizes(given)) is None:
            return frozenset()
        rows = [*zip(self._classes, self._asking(sizes), strict=True)]
        new = {key: one for one, key in rows if key not in known}

        def ask(key: Asking) -> bool:
            self._ask(known, new, key)
            return True

        all_of(ask, [*new], workspace.executor, workspace.lanes.threads)
        names = {name for one, key in rows if known[key] is None for name in one.nodes}
        operators = {node.name for node in self.strategy.chosen.operators}
        return frozenset(names if names <= operators else ())

    def _asking(self, sizes: Sequence[int]) -> list[Asking]:
        return [(one.tape, tuple([sizes[place] for place in one.sizes])) for one in self._classes]

    def _ask(self, known: Known, classes: Mapping[Asking, Class], key: Asking) -> bool:
        """Note what a tape says, and compile its steps; whether it says anything."""
        begun, numbers = perf_counter(), _asked(*key)
        places = self._natives[key[0]] if numbers is not None else ()
        if numbers is not None and any(_access(numbers[one]) is None for one in places):
            numbers = None
        known[key], no = numbers, numbers is None
        classes[key].took = inf if no else perf_counter() - begun
        return not no

    def _sound(self, numbers: Array) -> bool:
        """What the checker asks of sizes has the same answers."""
        try:
            for one, other, places in self._asked:
                dims = {dim: int(numbers[place]) for dim, place in places}
                if addresses(one, dims) != addresses(other, dims):
                    return False
        except UnsoundPlanError:
            return False
        return True

    def _alike(self, natives: Sequence[object]) -> bool:
        """The steps are compiled, and do with their slots what those did that were drawn."""
        rows = {
            (id(one), step.code.access): one
            for one, step in zip(natives, self._steps, strict=True)
            if _stands(step)
        }
        return all(_access(one) == access for (_, access), one in rows.items())

    def _constants(self, constants: Mapping[str, Array], at: At) -> list[Array]:
        """The memory of constants; layers share what they compute of sizes alike."""
        made = dict[Hashable, Array]()
        found = [*self._memory]
        for place, opened in self._anew:
            array, value = constants[opened.value.name], opened.value
            made[id(array)] = array  # and stays, so that no other has its address
            changes = [
                (node.library, *unnamed(str(after.layout), after.dims))
                for node, after in opened.changes
            ]
            key = id(array), *unnamed(str(value.layout), value.dims), *changes
            if key not in made:
                made[key] = _memory(opened, array, at)
            found[place] = made[key]
        return found

    def _brought(self, at: At) -> Brought:
        """What runs bring, and what they deliver."""
        ends = self._ends
        own = {
            one: TensorStorage(one.dtype, at(one.extents), one.layout)
            for one in (*ends.inputs, *ends.own)
        }
        return Brought(
            [replace(one, dims=at(one.dims)) for one in self._inputs],
            [own[one] for one in ends.own],
            {
                alias: replace(
                    one,
                    value=replace(one.value, dims=at(one.value.dims)),
                    memory=own.get(one.memory, one.memory),
                )
                for alias, one in ends.deliveries.items()
            },
        )


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


def _asked(tape: CallTape, sizes: Sequence[int]) -> Sequence[Any] | None:
    """What a call comes to; None where that is not known."""
    try:
        return tape.run(sizes)
    except MemoryError:
        raise
    except Exception:  # whatever a library says of what is asked in vain
        return None


def _access(native: object) -> tuple[str, ...] | None:
    """What a step does with its slots, once it is compiled; None where its library does not."""
    try:
        return described(native)[1]
    except MemoryError:
        raise
    except Exception:  # of a library, or of an author's step
        return None


def _memory(opened: Opened, array: Array, at: At) -> Array:
    """The memory of a constant that depends on sizes."""
    value = replace(opened.value, dims=at(opened.value.dims))
    tensor = VTensor(value.dtype, value.dims)
    made = TensorStorage.of_array(array, tensor, value.layout, constant=True)
    for node, target in opened.changes:
        after = replace(target, dims=at(target.dims))
        made, _ = changed(node, value, made, after, Buffer.allocate(after.nbytes))
        value = after
    return made.buffer.memory


def _stands(step: RecordedStep) -> bool:
    """Its native step is another one for each choice of sizes."""
    native: object = step.native
    return type(native) is Stand


#: Dims by name, with numbers in the place of what is on a tape.
At = Callable[[Mapping[str, int]], dict[str, int]]


def _at(numbers: Array, dims: Mapping[str, int]) -> dict[str, int]:
    return {
        dim: int(numbers[size.place]) if type(size) is TracedSize else size
        for dim, size in dims.items()
    }
