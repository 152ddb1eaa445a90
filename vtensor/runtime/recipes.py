"""Recipes: what recording a call came to, for all calls that recording cannot tell apart.

Networks repeat their layers, and most calls of a plan for other sizes are calls of the plan before.
A recipe is made on stand-ins for the call's operands, which show nothing but what is in its key; a
call that looks at values of constants, or that calls back into Python, has none. It holds native
steps and no memory: whoever follows it puts a plan's own storages in the place of the stand-ins.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from libdesc.registry import ready
from ptensor.buffer import TensorStorage
from resolver.lowered import OpNode, Value
from vtensor.language.exact import exact
from vtensor.language.forks import process_lock
from vtensor.language.tensor import Option, VTensor
from vtensor.runtime.steps import RecordedStep
from vtensor.runtime.uncopied import Division

#: Recipes that a session keeps, the last used ones: as many as oneDNN's primitives are kept.
KEPT = 1024

#: Guards the recipes of all sessions, for moments; whoever has it takes no other lock.
_keeping = process_lock(3)


class Recorded(NamedTuple):
    """What a call came to: its outputs, the steps that make them, and what it divides."""

    outputs: Sequence[TensorStorage]
    steps: Sequence[RecordedStep]
    division: Division | None


@dataclass(frozen=True, eq=False)
class Recipe:
    """What a call of this kind comes to, on stand-ins.

    Attributes:
        inputs: what stands for the operands that are given.
        recorded: the rest.
    """

    inputs: Sequence[TensorStorage]
    recorded: Recorded

    @classmethod
    def of(cls, inputs: Sequence[TensorStorage], recorded: Recorded) -> Recipe | None:
        """The recipe of what was recorded on stand-ins; None where that is not all it depends on.

        None also if steps touch what is no operand.
        """
        outputs, steps, _ = recorded
        known = {*inputs, *outputs}
        touched = {slot for step in steps for slot in step.slots if not isinstance(slot, int)}
        shared = {one.root for one in outputs}
        alone = all(one.root is one for one in inputs)
        looked = any(one.constant and not one.untouched for one in inputs)
        if looked or not alone or not touched | shared <= known:
            return None
        if any(step.native is None for step in steps):
            return None
        for one in inputs:
            one.forget()
        return cls(inputs, recorded)

    def on(self, node: str, inputs: Sequence[TensorStorage]) -> Recorded:
        """The same of another call, whose operands these are.

        Args:
            node: its name.
            inputs: storages of the kinds that the recipe was made for.
        """
        outputs, steps, division = self.recorded
        made = [TensorStorage.like(one) for one in outputs]
        found = dict(zip((*self.inputs, *outputs), (*inputs, *made), strict=True))
        for one, own in zip(outputs, made, strict=True):
            if (root := one.root) is not one:
                own.lie_in(found[root], one.begin)
        bound = {step: step.on(node, found) for step in steps}
        return Recorded(made, [*bound.values()], division and division.on(found, bound))


@dataclass(frozen=True, eq=False)
class Recipes:
    """The recipes of a session, by key; None is kept where there is none to be had."""

    _kept: OrderedDict[Hashable, Recipe | None] = field(default_factory=OrderedDict)

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, key: Hashable) -> tuple[bool, Recipe | None]:
        """Whether something is known under a key, and the recipe."""
        with _keeping:
            if key not in self._kept:
                return False, None
            self._kept.move_to_end(key)
            return True, self._kept[key]

    def keep(self, key: Hashable, recipe: Recipe | None) -> None:
        """Remember what is known; what was used longest ago goes."""
        dropped: list[Recipe | None] = []  # freed after the lock is
        with _keeping:
            self._kept[key] = recipe
            while len(self._kept) > KEPT:
                dropped.append(self._kept.popitem(last=False)[1])


class Operand(NamedTuple):
    """A value as a call takes it: what it is, how the call sees it, and its memory."""

    value: Value
    storage: TensorStorage

    @property
    def kind(self) -> Hashable:
        """What recording may depend on."""
        value, storage = self.value, self.storage
        return value.dtype, tuple(value.dims.items()), storage.layout, storage.constant

    def tensor(self, storage: TensorStorage) -> VTensor:
        """The operand with its own storage, or one that stands for that."""
        tensor = VTensor(self.value.dtype, self.value.dims, Option(name=self.value.name))
        tensor.storage = storage
        return tensor


class Keys:
    """Makes the keys of one plan's calls.

    Args:
        threads: for how many kernels are made.
        confirming, inexact: as for ``RecordEvaluation``.
    """

    def __init__(self, threads: int, confirming: bool, inexact: bool) -> None:
        self._plan = threads, confirming, inexact, ready().version

    def operator(self, node: OpNode, operands: Sequence[Operand]) -> Hashable:
        """All that a node's recording depends on; None where a parameter cannot be a key."""
        variant = node.variant
        return _hashed(
            (
                self._plan,
                exact(node.op),
                (*_behind(node),),
                (variant.library, variant.kernel, variant.reference, variant.inexact),
                variant.forms,
                tuple([one.kind for one in operands]),
            )
        )

    def transform(self, library: str, source: Operand, target: Value) -> Hashable:
        """The same of a Transform."""
        made = target.dtype, tuple(target.dims.items()), target.layout
        return self._plan, library, source.kind, made


def _behind(node: OpNode) -> Iterator[Hashable]:
    """What is fused behind a node, and which inputs of that are the value that it follows."""
    value = node.value
    for one in node.followers:
        yield exact(one.op), tuple([name == value for name in one.inputs])
        value = one.outputs[0]


def _hashed(key: Hashable) -> Hashable:
    try:
        hash(key)
    except TypeError:
        return None
    return key
