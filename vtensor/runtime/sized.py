"""Recipes without sizes: a call recorded once on traced sizes, for all sizes of which that holds.

Which sizes are open is what differs between a call and that of the same node in the plan before:
places that had one number, and have another, are one size. All else is in the key as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, cast

from libdesc.native_trace import Foreign, NativeTrace
from libdesc.tracing import TRACER, tracing
from ptensor.buffer import TensorStorage
from resolver.lowered import LoweredNode, OpNode, TransformNode, Value
from vtensor.errors import VTensorError
from vtensor.language.exact import exact
from vtensor.language.graph import Node
from vtensor.language.interrupts import MALFORMED, pass_signals
from vtensor.language.records import dataclass
from vtensor.language.trace import Rows, SymbolicSize
from vtensor.runtime.outline import Values
from vtensor.runtime.recipe_keys import Key, Operand
from vtensor.runtime.recipes import Recipe, Recipes, Recorded, Row
from vtensor.runtime.steps import Failure, RecordedStep

#: How often a call is traced, whose guards keep failing or of which nothing can be noted, while
#: somebody waits for a plan.
TRIES = 3

#: A number before, and now.
Pair = tuple[int, int]


@dataclass(frozen=True)
class _Open:
    """The place of an open size in a key."""

    place: int


_OPEN = [_Open(place) for place in range(64)]


class NotAlike(VTensorError):
    """Two calls differ in more than numbers."""


def opened(old: Key, new: Key) -> tuple[Hashable, list[Pair]] | None:
    """What two keys have in common but for numbers, and these; None where they differ in more."""
    pairs: dict[Pair, int] = {}
    if not isinstance(old.parts, tuple) or not isinstance(new.parts, tuple):
        return None
    plan, way, kinds, *ops = new.parts
    plan_before, way_before, kinds_before, *ops_before = old.parts
    if (plan_before, way_before) != (plan, way) or len(kinds) != len(kinds_before):
        return None
    try:
        rows = []
        for one, before in zip(kinds, kinds_before, strict=True):
            if one[:2] != before[:2] or one[3:] != before[3:]:
                return None
            rows.append((one[0], one[1], _opened(before[2], one[2], pairs), *one[3:]))
        others = _opened(tuple(ops_before), tuple(ops), pairs)
    except NotAlike:
        return None
    return ((plan, way, tuple(rows), others), [*pairs]) if len(pairs) <= len(_OPEN) else None


def _opened(old: Hashable, new: Hashable, pairs: dict[Pair, int]) -> Hashable:
    if type(old) is int and type(new) is int:
        if old == new:
            return new
        place = pairs.setdefault((old, new), len(pairs))
        return _OPEN[min(place, len(_OPEN) - 1)]
    if old == new:
        return new
    if type(old) is tuple and type(new) is tuple and len(old) == len(new):
        return tuple([_opened(a, b, pairs) for a, b in zip(old, new, strict=True)])
    raise NotAlike("they differ in more than numbers")


@dataclass(eq=False)
class SizedRecipe:
    """What calls of a key without sizes come to, on stand-ins of symbolic sizes."""

    trace: NativeTrace
    rows: Rows
    recipe: Recipe

    def now(self, operands: Sequence[Operand]) -> Recipe:
        """The recipe for the sizes with which it was made, asked for once."""
        numbers = self.trace.values
        made = _at(self, numbers, _told(numbers), operands)
        self.trace.forget()
        return made

    def at(self, sizes: Sequence[int], operands: Sequence[Operand]) -> Recipe | None:
        """The recipe for other sizes; None where it would be another, or a library refuses."""
        numbers = self.rows.run(sizes)
        return None if numbers is None else self.on(numbers, _told(numbers), operands)

    def on(self, numbers: Values, told: Sequence[int], operands: Sequence[Operand]) -> Recipe:
        """The recipe with the values of the trace's places, of sizes and natives alike.

        Args:
            numbers: by place.
            told: the sizes among them, for messages.
            operands: the call's, of these sizes.
        """
        return _at(self, numbers, told, operands)


def _told(numbers: Sequence[Any]) -> list[int]:
    """The sizes; natives need not stay."""
    return [one if type(one) is int else 0 for one in numbers]


def _at(
    sized: SizedRecipe, numbers: Values, told_sizes: Sequence[int], operands: Sequence[Operand]
) -> Recipe:
    """A recipe with numbers in the place of what is on a trace."""

    def number(size: int) -> int:
        return numbers[size.place] if type(size) is SymbolicSize else size

    recipe = sized.recipe
    made, steps, division = recipe.recorded
    own = [TensorStorage.like(one.storage) for one in operands if one.storage is not None]
    ends = []
    for one, to in zip(made, operands[len(own) :], strict=True):
        ends.append(TensorStorage.like(one, to.value.dims, to.layout))
        ends[-1].nbytes = number(one.nbytes)
    found = dict(zip((*recipe.inputs, *made), (*own, *ends), strict=True))
    for one, end in zip(made, ends, strict=True):
        if (root := one.root) is not one:
            end.lie_in(found[root], number(one.begin))
    done: dict[RecordedStep, RecordedStep] = {}
    for step in steps:
        native, told = step.native, step.told
        if type(native) is Foreign and native.trace is sized.trace:
            native = numbers[cast("int", native.where)]
        if isinstance(told, Failure):
            told = Failure(told.op_name, told.node, told.rows, told.renamed, told_sizes)
        slots = tuple([found[s] if isinstance(s, TensorStorage) else number(s) for s in step.slots])
        over = {found[one]: [found[x] for x in row] for one, row in step.replaces.items()}
        done[step] = RecordedStep(step.node, step.library, "", native, slots, None, over, told)
    if division is not None:
        parts = [(part, number(begin)) for part, begin in division.parts]
        division = replace(division, parts=parts).on(found, done)
    return Recipe(own, Recorded(ends, [*done.values()], division), recipe.names)


class Traced:
    """A call with symbolic sizes in the place of those that differ from another of its node.

    Args:
        node, operands: the call.
        before, others: the other one.
        pairs: the numbers that differ, as ``opened`` found them.
        outer: the trace of native calls that depend on none of them.

    Raises:
        NotAlike: they differ in more.
    """

    def __init__(
        self,
        node: LoweredNode,
        operands: Sequence[Operand],
        before: LoweredNode,
        others: Sequence[Operand],
        pairs: Sequence[Pair],
        outer: NativeTrace,
    ) -> None:
        self.trace = NativeTrace(outer)
        self._sizes = {pair: self.trace.size(pair[1]) for pair in pairs}
        self.node = self._node(before, node)
        rows = zip(others, operands, strict=True)
        self.operands = [self._operand(other, one) for other, one in rows]

    def _operand(self, other: Operand, one: Operand) -> Operand:
        dims = self._dims(other.value, one.value)
        value = Value(one.value.name, one.value.dtype, dims, one.value.layout, one.value.constant)
        storage = one.storage
        if storage is not None:
            storage = TensorStorage.stand_in(storage)
            storage.extents = dict(dims)
            storage.nbytes = storage.layout.nbytes(dims, storage.dtype)
        return Operand(value, one.layout, one.known, storage)

    def _dims(self, other: Value, one: Value) -> Mapping[str, int]:
        rows = zip(one.dims.items(), other.dims.values(), strict=True)
        return {dim: self._size(old, new) for (dim, new), old in rows}

    def _size(self, old: int, new: int) -> int:
        if old == new:
            return new
        if (old, new) not in self._sizes:
            raise NotAlike("a number is in no key")
        return self._sizes[old, new]

    def _node(self, old: LoweredNode, new: LoweredNode) -> LoweredNode:
        if isinstance(new, TransformNode) or not isinstance(old, OpNode):
            return new
        if len(old.followers) != len(new.followers):
            raise NotAlike("other operators follow")
        behind = [
            Node(b.name, self._value(a.op, b.op), b.op_name, b.inputs, b.outputs)
            for a, b in zip(old.followers, new.followers, strict=True)
        ]
        return replace(new, op=self._value(old.op, new.op), followers=tuple(behind))

    def _value(self, old: Any, new: Any) -> Any:
        if old is new:
            return new
        if type(old) is not type(new):
            raise NotAlike("of other types")
        if type(new) is int:
            return self._size(old, new)
        if type(new) is tuple and len(old) == len(new):
            return tuple([self._value(a, b) for a, b in zip(old, new, strict=True)])
        if is_dataclass(new) and hasattr(new, "__dict__"):
            kind: Any = type(new)
            made = kind.__new__(kind)
            for one in fields(new):
                made.__dict__[one.name] = self._value(
                    getattr(old, one.name), getattr(new, one.name)
                )
            return made
        if exact(old) != exact(new):
            raise NotAlike("a parameter is another")
        return new


def resized(
    recipes: Recipes, before: Row, now: Row, record: Callable[[Traced], Recipe | None]
) -> Recipe | None:
    """The recipe of a call by one without sizes; None where there is none to be had.

    Args:
        recipes: those of the session.
        before, now: the node in the plan before, and in this.
        record: makes a recipe of a call with traced sizes.
    """
    if (found := opened(before.key, now.key)) is None:
        return None
    key, pairs = found
    known, sizes = recipes.known(key), [number for _, number in pairs]
    for one in known.recipes:
        if (recipe := one.at(sizes, now.operands)) is not None:
            return recipe
    made = traced(recipes, key, before, now, pairs, record)
    return None if made is None else made.now(now.operands)


def traced(
    recipes: Recipes,
    key: Hashable,
    before: Row,
    now: Row,
    pairs: Sequence[Pair],
    record: Callable[[Traced], Recipe | None],
    limited: bool = True,
) -> SizedRecipe | None:
    """What a call comes to in all sizes for which that holds; None where nothing can be said.

    Args:
        recipes: those of the session.
        key: the call's, without sizes.
        before, now: the call with other numbers, and with its own.
        pairs: both numbers, of each place where they differ.
        record: makes a recipe of a call with traced sizes.
        limited: nothing is said of a call that was traced ``TRIES`` times. Who draws has no other
            way.
    """
    known = recipes.known(key)
    if limited:
        if known.tries >= TRIES:
            return None
        known.tries += 1
    outer = cast("NativeTrace | None", TRACER.get()) or recipes.constants()
    made = _traced(before, now, pairs, record, outer)
    if made is not None and not made.trace.pinned:
        known.recipes.append(made)
    return made


def _traced(
    before: Row,
    now: Row,
    pairs: Sequence[Pair],
    record: Callable[[Traced], Recipe | None],
    outer: NativeTrace,
) -> SizedRecipe | None:
    try:
        call = Traced(now.node, now.operands, before.node, before.operands, pairs, outer)
        with tracing(call.trace):
            recipe = record(call)
    except MemoryError:
        raise
    except MALFORMED as why:  # it is recorded on numbers then, and tells
        pass_signals(why)
        return None
    if recipe is None or call.trace.failed:
        return None
    natives = [step.native for step in recipe.recorded.steps]
    if any(type(one) is not Foreign for one in natives):
        return None
    return SizedRecipe(call.trace, call.trace.rows(), recipe)
