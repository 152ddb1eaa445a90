"""Choices: the decisions for a network in some sizes, with the symbolic plan recorded for them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from libdesc.plugins import plugins_version
from vtensor.language.records import dataclass
from vtensor.runtime.planning.keys import PlanKey

if TYPE_CHECKING:
    from resolver.choice import ChosenGraph
    from vtensor.frontends.files.deferred_arrays import Place
    from vtensor.language.graph import Graph
    from vtensor.language.symbolic.rows import Known
    from vtensor.runtime.planning.symbolic_plan import SymbolicPlan

#: The most choices of an input kind, the last made ones: each serves a range of sizes.
MOST_CHOICES = 8


@dataclass(eq=False)
class Choice:
    """A choice for a network, made for some sizes.

    Attributes:
        key: the shapes, element types and layouts of the inputs that it was made for.
        provisional: True if it was made without times of this machine.
        applied: the simplifications of its graph, as (rule, name of the last node rewritten).
        symbolic: its symbolic plan; None if it can only be recorded for fixed sizes (on numbers).
        exact: True if it serves no other sizes.
        later: makes the symbolic plan of a choice recorded on numbers, for saving it; None if
            ``symbolic`` serves for that, or nothing can be saved.
        observed: places, in the model's files, of the arrays that were read to make the graph.
        decisions: the decisions by node; None for a choice from the cache that was not decoded yet.
        cached: True if it was read from the cache.
        saved: True if it is in the cache or cannot be saved.
        seconds: the time that planning took.
    """

    key: PlanKey
    provisional: bool
    applied: frozenset[tuple[str, str]]
    symbolic: SymbolicPlan | None = None
    exact: bool = False
    later: Callable[[], SymbolicPlan] | None = None
    observed: frozenset[Place] = frozenset()
    decisions: ChosenGraph | None = None
    cached: bool = False
    saved: bool = False
    seconds: float = 0.0

    def plan_for(self, open_sizes: Sequence[int], known: Known) -> SymbolicPlan | None:  # noqa: ARG002
        """Return the symbolic plan that may serve open sizes; None if the choice has none.

        Args:
            open_sizes: the open sizes of all inputs, in order.
            known: values of traces that were evaluated already; new ones are added.
        """
        return self.symbolic

    def of(self, graph: Graph) -> ChosenGraph | None:  # noqa: ARG002
        """Return the decisions for a graph of the network; None if they cannot be decoded."""
        return self.decisions

    def refuses(self, key: PlanKey) -> bool:
        """Return whether the choice is exact and was made for a key other than ``key``."""
        return self.exact and self.key != key


@dataclass(eq=False)
class InputKind:
    """The choices for inputs of one kind: equal in all but sizes.

    Ranks, element types, layouts and the values of inputs that decide shapes are the same.

    Attributes:
        choices: the last made first; provisional ones after measured ones.
        entries_read: how many of the kind's entries in the cache were read.
    """

    choices: list[Choice] = field(default_factory=list)
    entries_read: int = 0

    def add(self, choice: Choice) -> None:
        """Add a choice, and drop the oldest ones beyond ``MOST_CHOICES``.

        A measured choice that is not exact replaces the provisional ones. Exact choices are counted
        apart: they serve no other sizes and drop no choice that does.
        """
        if not choice.provisional and not choice.exact:
            self.choices[:] = [other for other in self.choices if not other.provisional]
        self.choices.insert(0, choice)
        alike = [other for other in self.choices if other.exact is choice.exact]
        for oldest in alike[MOST_CHOICES:]:
            self.choices.remove(oldest)

    def nearest(self, key: PlanKey) -> list[Choice]:
        """Return the choices that are not exact, ordered by the distance of their keys to a key."""
        choices = [choice for choice in self.choices if not choice.exact]
        return sorted(choices, key=lambda choice: choice.key.distance(key))


def kind_of(key: PlanKey) -> Hashable:
    """Return a value that is equal for keys of one input kind, as long as plug-ins stay the same.

    Keys of one kind differ only in sizes; the values of inputs that decide shapes are equal.
    """
    values = tuple(
        (port_key.name, port_key.value) for port_key in key.inputs if port_key.value is not None
    )
    return key.kind, values, plugins_version()
