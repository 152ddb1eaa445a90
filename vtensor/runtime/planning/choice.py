"""The choices of a session: what was decided for some sizes, and the symbolic plan made of it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from libdesc.plugins import plugins_version
from vtensor.language.records import dataclass
from vtensor.runtime.planning.keys import PlanKey

if TYPE_CHECKING:
    from resolver.choice import ChosenGraph
    from vtensor.frontends.deferred_arrays import Place
    from vtensor.language.graph import Graph
    from vtensor.runtime.planning.symbolic_plan import Known, SymbolicPlan

#: Choices that are kept for inputs of one kind, the last made ones: each serves a range of sizes.
MOST_CHOICES = 8


@dataclass(eq=False)
class Choice:
    """What was decided for a network in some sizes.

    Attributes:
        key: what it was made for.
        provisional: it was made without times of this machine.
        applied: where rules were applied to the graph that it is of.
        symbolic: the plan recorded of it; None where it can only be recorded on numbers.
        exact: it holds for no other sizes.
        later: makes the symbolic plan of one that was recorded on numbers, for saving it.
        observed: where arrays are whose values were looked at to make the graph.
        strategy: what was decided; None of a choice from the cache that nobody has read so far.
        cached: it was read from the cache.
        saved: it is in the cache, or cannot be.
        seconds: how long planning took when it was made.
    """

    key: PlanKey
    provisional: bool
    applied: frozenset[tuple[str, str]]
    symbolic: SymbolicPlan | None = None
    exact: bool = False
    later: Callable[[], SymbolicPlan] | None = None
    observed: frozenset[Place] = frozenset()
    strategy: ChosenGraph | None = None
    cached: bool = False
    saved: bool = False
    seconds: float = 0.0

    def plan_for(self, given: Sequence[int], known: Known) -> SymbolicPlan | None:  # noqa: ARG002
        """Return the symbolic plan that may serve open sizes; None where there is none.

        Args:
            given: the sizes.
            known: what rows have come to; it grows.
        """
        return self.symbolic

    def of(self, graph: Graph) -> ChosenGraph | None:  # noqa: ARG002
        """Return what was decided, for a graph of the network; None where it cannot be read."""
        return self.strategy

    def refuses(self, key: PlanKey) -> bool:
        """Return whether it holds for no such inputs."""
        return self.exact and self.key != key


@dataclass(eq=False)
class InputKind:
    """What is known for inputs of one kind: the same ranks, layouts and deciding values.

    Attributes:
        choices: the last made first; provisional ones come after others.
        saved_choices: choices of the cache that are not read yet; None before the first look-up.
    """

    choices: list[Choice] = field(default_factory=list)
    saved_choices: Iterator[Choice] | None = None

    def add(self, choice: Choice) -> None:
        """Keep a choice; a measured one takes the place of the provisional ones."""
        if not choice.provisional:
            self.choices[:] = [one for one in self.choices if not one.provisional]
        self.choices.insert(0, choice)
        del self.choices[MOST_CHOICES:]

    def nearest(self, key: PlanKey) -> list[Choice]:
        """Return choices that may be hints for inputs, the nearest sizes first."""
        choices = [one for one in self.choices if not one.exact]
        return sorted(choices, key=lambda one: one.key.distance(key))


def kind_of(key: PlanKey) -> Hashable:
    """Return what keys have in common that differ in sizes alone, on the libraries of now."""
    values = tuple((one.name, one.value) for one in key.inputs if one.value is not None)
    return key.kind, values, plugins_version()
