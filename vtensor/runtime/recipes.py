"""Recipes: what recording a call came to, for all calls that recording cannot tell apart.

Networks repeat their layers, and most calls of a plan for other sizes are calls of the plan before.
A recipe is made on stand-ins for the call's operands, which show nothing but what is in its key; a
call that looks at values of constants, or that calls back into Python, has none. It holds native
steps and no memory: whoever follows it puts a plan's own storages in the place of the stand-ins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ptensor.buffer import TensorStorage
from vtensor.language.forks import process_lock
from vtensor.runtime.recipe_keys import Key, Operand
from vtensor.runtime.steps import RecordedStep
from vtensor.runtime.uncopied import Division

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


@dataclass(eq=False, slots=True)
class _Entry:
    """A recipe, None where there is none to be had, and the plan that used it last."""

    recipe: Recipe | None
    plan: int


class Recipes:
    """The recipes of a session by key: those of its last plans."""

    def __init__(self) -> None:
        self._kept: dict[Key, _Entry] = {}
        self._plan = 0

    def __len__(self) -> int:
        return len(self._kept)

    def begin(self) -> None:
        """Another plan is recorded: what none of the last ones has used goes."""
        with _keeping:
            self._plan += 1
            oldest = self._plan - PLANS
            old = [key for key, entry in self._kept.items() if entry.plan <= oldest]
            dropped = [self._kept.pop(key) for key in old]
        del dropped  # after the lock is free

    def find(self, key: Key) -> tuple[bool, Recipe | None]:
        """Whether something is known of a key, and the recipe, if there can be one."""
        if key.parts is None:
            return True, None
        if (found := self._kept.get(key)) is None:
            return False, None
        found.plan = self._plan
        return True, found.recipe

    def keep(self, key: Key, recipe: Recipe | None) -> None:
        """Remember what is known of a key."""
        with _keeping:
            self._kept[key] = _Entry(recipe, self._plan)
