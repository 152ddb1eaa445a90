"""Choices: the planner's decisions for a network in some sizes.

With a choice comes the symbolic plan that was recorded for it.
"""

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

#: The most choices that are kept for an input kind, the last made ones. Each serves a range of
#: sizes.
MOST_CHOICES = 8


@dataclass(eq=False)
class Choice:
    """A choice for a network, made for some sizes.

    Attributes:
        key: the shapes, element types and layouts of the inputs for which the choice was made.
        provisional: True if it was made without times of this machine.
        applied: the rewrite rules applied to its graph, as (rule, name of the last node that the
            rule replaced).
        symbolic: its symbolic plan; None if the choice can only be recorded for fixed sizes.
        exact: True if the choice may be used only for the sizes of ``key``.
        later: makes a symbolic plan, for saving, of a choice that was recorded for fixed sizes;
            None if the choice has ``symbolic``, or no plan of it can be saved.
        observed: places, in the model's files, of the arrays that were read to make the graph.
        decisions: the decisions by node; None for a choice from the cache that was not decoded yet.
        cached: True if it was read from the cache.
        saved: True if it is in the cache or cannot be saved.
        locked: True if it is that of a lock file; it then serves all sizes for which its guards
            hold.
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
    locked: bool = False
    seconds: float = 0.0

    def plan_for(self, open_sizes: Sequence[int], known: Known) -> SymbolicPlan | None:  # noqa: ARG002
        """Return the symbolic plan that may serve open sizes; None if the choice has none.

        Args:
            open_sizes: the open sizes of all inputs, in order.
            known: the values of traces that were evaluated earlier. Newly evaluated ones are added.
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
    """The choices for inputs of one kind. Inputs of one kind differ only in sizes.

    Their ranks, element types and layouts are equal, and so are the values of inputs that decide
    shapes.

    Attributes:
        choices: the choices in the order in which they are tried: the last added first, then those
            read from the cache for all sizes.
        entries_read: the number of cache entries for this input kind that were read so far;
            ``MOST_CHOICES`` once there are no more.
    """

    choices: list[Choice] = field(default_factory=list)
    entries_read: int = 0

    def add(self, choice: Choice) -> None:
        """Add a choice, and drop the oldest choices beyond ``MOST_CHOICES``.

        A measured choice that is not exact replaces all provisional ones. Exact choices are counted
        by themselves, so that they drop no choice that may serve other sizes.
        """
        if not choice.provisional and not choice.exact:
            self.choices[:] = [other for other in self.choices if not other.provisional]
        self.choices.insert(0, choice)
        alike = [other for other in self.choices if other.exact is choice.exact]
        for oldest in alike[MOST_CHOICES:]:
            self.choices.remove(oldest)

    def nearest(self, key: PlanKey) -> list[Choice]:
        """Return the choices that are not exact, those whose keys are nearest to ``key`` first."""
        choices = [choice for choice in self.choices if not choice.exact]
        return sorted(choices, key=lambda choice: choice.key.distance(key))


def kind_of(key: PlanKey) -> Hashable:
    """Return the input kind of a key: a value that is equal for keys that differ only in sizes.

    The values of inputs that decide shapes are compared too, without their open elements, which
    count as sizes. The value changes when plug-ins are
    registered.
    """
    return key.kind, key.closed_values, plugins_version()
