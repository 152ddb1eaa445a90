"""Recipes: what recording a call came to, for all calls that recording cannot tell apart.

Networks repeat their layers, and most calls of a plan for other sizes are calls of the plan before.
A recipe is made on stand-ins for the call's operands, which show nothing but what is in its key; a
call that looks at values of constants, or that calls back into Python, has none. It holds native
steps and no memory: whoever follows it puts a plan's own storages in the place of the stand-ins.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ptensor.buffer import TensorStorage
from resolver.lowered import LoweredNode
from vtensor.language.forks import process_lock
from vtensor.language.records import dataclass
from vtensor.runtime.recipe_keys import Key, Operand
from vtensor.runtime.steps import RecordedStep
from vtensor.runtime.uncopied import Division

if TYPE_CHECKING:
    from libdesc.native_trace import NativeTrace
    from vtensor.language.trace import Rows
    from vtensor.runtime.outline import Values

#: How many plans are made until a recipe goes that none of them used. A session keeps about as
#: many, and they have the native steps, too.
PLANS = 8

#: Guards the recipes of all sessions, for moments; whoever has it takes no other lock.
_keeping = process_lock(3)


class Recorded(NamedTuple):
    """What a call came to: its outputs, the steps that make them, and what it divides."""

    outputs: Sequence[TensorStorage]
    steps: Sequence[RecordedStep]
    division: Division | None


@dataclass(frozen=True, eq=False)
class Recipe:
    """What calls of one key come to, on stand-ins.

    Attributes:
        inputs: what stands for the operands that are given.
        recorded: the rest.
        names: the dims that were made up, in the order of the key's.
    """

    inputs: Sequence[TensorStorage]
    recorded: Recorded
    names: tuple[str, ...]

    @classmethod
    def of(
        cls,
        key: Key,
        inputs: Sequence[TensorStorage],
        outputs: Sequence[Operand],
        recorded: Recorded,
    ) -> Recipe | None:
        """The recipe of what was recorded on stand-ins; None where the key does not say it all.

        Args:
            key: of the call.
            inputs: the stand-ins.
            outputs: what the call was to make.
            recorded: what it came to.
        """
        made, steps, _ = recorded
        known = {*inputs, *made}
        touched = {slot for step in steps for slot in step.slots if not isinstance(slot, int)}
        touched |= {one.root for one in made}
        kinds = [(one.dtype, [*one.extents.items()], one.layout) for one in made]
        if (
            not touched <= known
            or any(step.native is None for step in steps)
            or any(one.constant and not one.untouched for one in inputs)
            or any(one.root is not one for one in inputs)
            or kinds != [(v.dtype, [*v.dims.items()], layout) for v, layout, *_ in outputs]
        ):
            return None
        for one in inputs:
            one.forget()
        return cls(inputs, recorded, key.names)

    def on(
        self,
        node: str,
        names: tuple[str, ...],
        inputs: Sequence[TensorStorage],
        outputs: Sequence[Operand],
    ) -> Recorded:
        """The same of another call of the key.

        Args:
            node: its name.
            names: the dims that were made up for it.
            inputs: the operands' memory.
            outputs: what it makes.
        """
        templates, steps, division = self.recorded
        rows = zip(templates, outputs, strict=True)
        made = [TensorStorage.like(one, to.value.dims, to.layout) for one, to in rows]
        found = dict(zip((*self.inputs, *templates), (*inputs, *made), strict=True))
        for one, own in zip(templates, made, strict=True):
            if (root := one.root) is not one:
                own.lie_in(found[root], one.begin)
        renamed = tuple(zip(self.names, names, strict=True))
        bound = {step: step.on(node, found, renamed) for step in steps}
        return Recorded(made, [*bound.values()], division and division.on(found, bound))


class Sized(Protocol):
    """What calls of a key without sizes come to (``SizedRecipe``)."""

    trace: NativeTrace
    rows: Rows

    def at(self, sizes: Sequence[int], operands: Sequence[Operand]) -> Recipe | None:
        """The recipe for sizes; None where it would be another."""

    def on(self, numbers: Values, told: Sequence[int], operands: Sequence[Operand]) -> Recipe:
        """The recipe with the values of the trace's places."""


@dataclass(eq=False, slots=True)
class Known:
    """What is known of calls of one key without sizes (``vtensor/runtime/sized.py``).

    Attributes:
        recipes: what gives those of other sizes.
        tries: how often one was to be made.
        plan: the number of the plan that asked last.
    """

    recipes: list[Sized] = field(default_factory=list)
    tries: int = 0
    plan: int = 0


@dataclass(eq=False, slots=True)
class Entry:
    """What is known of calls of one key.

    Attributes:
        recipe: None where there is none to be had.
        plan: the number of the plan that used it last.
    """

    recipe: Recipe | None
    plan: int = 0


class Row(NamedTuple):
    """What a node of the last plan came to: the same node of the same values comes to it again."""

    node: LoweredNode
    operands: Sequence[Operand]
    key: Key
    entry: Entry

    def fits(self, node: LoweredNode, operands: Sequence[Operand]) -> bool:
        """Whether this is all the same, without looking into it."""
        return self.node is node and all(
            one.value is other.value and one.known == other.known
            for one, other in zip(self.operands, operands, strict=True)
        )


class Recipes:
    """The recipes of a session by key: those of its last plans.

    Attributes:
        traces: calls whose sizes alone are others are traced: it takes longer, for all sizes to
            come.
    """

    def __init__(self) -> None:
        self.traces = True
        self._kept: dict[Key, Entry] = {}
        self._sized: dict[Hashable, Known] = {}
        self._plan = 0
        self._rows: tuple[Hashable, Mapping[str, Row]] = (None, {})
        self._constants: NativeTrace | None = None

    def __len__(self) -> int:
        return len(self._kept)

    def begin(self, kind: Hashable) -> Mapping[str, Row]:
        """Another plan is recorded: what none of the last ones has used goes.

        Args:
            kind: what plans have in common whose nodes come to the same.

        Returns:
            What the nodes of the plan before came to, by name.
        """
        self._constants = None
        with _keeping:
            self._plan += 1
            oldest = self._plan - PLANS
            old = [key for key, entry in self._kept.items() if entry.plan <= oldest]
            dropped = [self._kept.pop(key) for key in old]
            past = [key for key, known in self._sized.items() if known.plan <= oldest]
            without = [self._sized.pop(key) for key in past]
        del dropped, without  # after the lock is free
        before, rows = self._rows
        return rows if before == kind else {}

    def constants(self) -> NativeTrace:
        """Return the trace of the plan's native calls that depend on no size."""
        from libdesc.native_trace import NativeTrace  # a plan of fixed sizes needs none

        if self._constants is None:
            self._constants = NativeTrace()
        return self._constants

    def end(self, kind: Hashable, rows: Mapping[str, Row]) -> None:
        """The plan is recorded."""
        self._rows = kind, rows

    @property
    def last(self) -> Mapping[str, Row]:
        """What the nodes of the last plan came to, by name."""
        return self._rows[1]

    def find(self, key: Key) -> Entry | None:
        """What is known of a key; of one that cannot be compared, that there is no recipe."""
        return Entry(None) if key.parts is None else self._kept.get(key)

    def keep(self, key: Key, recipe: Recipe | None) -> Entry:
        """Remember what is known of a key."""
        entry = Entry(recipe, self._plan)
        with _keeping:
            self._kept[key] = entry
        return entry

    def known(self, key: Hashable) -> Known:
        """What is known of a key without sizes, which the plan uses that is recorded."""
        with _keeping:
            known = self._sized.setdefault(key, Known())
        known.plan = self._plan
        return known

    def adopt(self, other: Recipes) -> None:
        """Know what was recorded elsewhere, of which nothing is known here."""
        with _keeping:
            for key, entry in other._kept.items():
                self._kept.setdefault(key, Entry(entry.recipe, self._plan))
            for kind, known in other._sized.items():
                own = self._sized.setdefault(kind, Known())
                own.plan = self._plan
                own.recipes = own.recipes or [*known.recipes]

    def use(self, entry: Entry) -> Recipe | None:
        """The recipe, which the plan uses that is recorded."""
        entry.plan = self._plan
        return entry.recipe
