"""Ranges of one size that a plan serves well, and the changes at their ends.

Sizes are visited in ascending order. The choice for the first size of an interval is reused for the
next sizes (``ChosenGraph``), as a session does. At each of them its estimated time is compared with
a lower bound of every plan's time (``optimizer/choice/bound.py``) and, if the bound does not
decide, with a plan that is chosen for that size alone. An interval ends where the choice does not
fit, or where the plan of a size's own takes less by more than ``SLACK``. Nothing is recorded, and
nothing runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field, replace

from optimizer.choice.bound import excess, total_ns
from optimizer.pipeline import optimise
from resolver.choice import ChoiceRefused, ChosenGraph
from resolver.lock_choice import Choices
from resolver.lowered import LoweredGraph, TransformNode
from vtensor.errors import InputError, VTensorError
from vtensor.language.graph import Graph
from vtensor.language.records import dataclass
from vtensor.runtime.lock.diff import Difference, node_differences
from vtensor.runtime.planning.choosing import resolved_of
from vtensor.runtime.planning.options import Options, transferable
from vtensor.runtime.planning.refine import SLACK, TIME_LIMIT


@dataclass
class Interval:
    """A range of sizes with one plan, or of sizes that the network cannot have.

    The attributes are keys of the JSON that ``vtensor plan --sizes`` prints.

    Attributes:
        first, last: the smallest and the largest visited size.
        looked: the number of sizes that were visited.
        transforms: the number of Transforms in the plan.
        behind: the largest share (0 to 1) of the plan's estimated time that the best plan may save
            at one of these sizes; None if no bound was proven.
        why: why the plan of the interval before does not serve these sizes.
        changes: the differences between this interval's choice and that of the interval before.
        error: the error message if the network cannot have these sizes; empty if it can.
    """

    first: int
    last: int
    looked: int = 1
    transforms: int = 0
    behind: float | None = 0.0
    why: str = ""
    changes: list[Difference] = field(default_factory=list)
    error: str = ""


def intervals(
    sizes: Iterable[int],
    graph_at: Callable[[int], Graph],
    options: Options,
    advance: Callable[[int], None] = lambda _: None,
) -> list[Interval]:
    """Return the intervals of one open size.

    Args:
        sizes: the sizes to visit, ascending.
        graph_at: makes the simplified graph for a size; raises a ``VTensorError`` if the network
            cannot have it.
        options: the options of plans.
        advance: called with each size before it is visited.

    Raises:
        InputError: plans made with these options serve no sizes but their own.
    """
    if not transferable(options):
        raise InputError(
            "intervals are of plans by estimated time: give no --objective, no --tune, and a level "
            "that chooses all nodes together (--optimize all)"
        )
    solving = replace(options.settings, time_limit=TIME_LIMIT)
    walk = _Walk(graph_at, replace(options, settings=solving))
    for size in sizes:
        advance(size)
        walk.on(size)
    return walk.intervals


class _Walk:
    """A walk over sizes that extends the last interval or begins a new one.

    Attributes:
        intervals: the intervals so far.
    """

    def __init__(
        self,
        graph_at: Callable[[int], Graph],
        options: Options,
    ) -> None:
        self.intervals: list[Interval] = []
        self._graph_at = graph_at
        self._options = options
        self._decisions: ChosenGraph | None = None

    def on(self, size: int) -> None:
        """Extend the last interval by the next size, or begin a new interval with it."""
        try:
            self._plan(size)
        except VTensorError as error:
            self._cannot(size, f"{type(error).__name__}: {error}")

    def _cannot(self, size: int, text: str) -> None:
        if self.intervals and self.intervals[-1].error:
            self._longer(size)
        else:
            self.intervals.append(Interval(size, size, error=text))

    def _longer(self, size: int) -> Interval:
        last = self.intervals[-1]
        last.last, last.looked = size, last.looked + 1
        return last

    def _plan(self, size: int) -> None:
        """Reuse the last interval's plan for a size, or make a new one."""
        why = ""
        possible_saving: float | None = 0.0
        reused: LoweredGraph | None = None
        own_graph: LoweredGraph | None = None
        graph: Graph | None = None
        if self._decisions is not None:
            try:
                graph = self._graph_at(size)
                reused = self._decisions.on(graph)
            except ChoiceRefused as refused:
                why = str(refused)
        if reused is not None and graph is not None:
            possible_saving = bound_excess = excess(reused, self._options.settings)
            if bound_excess > SLACK:
                own_graph = self._own_plan(graph)
                possible_saving, saved = self._savings(reused, own_graph)
                if saved > SLACK:
                    why, reused = f"a plan of its own takes {saved:.1%} less", None
        if reused is None:
            self._begin(size, own_graph or self._own_plan(self._graph_at(size)), why)
        elif self.intervals[-1].error:  # the plan serves sizes before and after impossible ones
            self.intervals.append(
                Interval(size, size, transforms=_count(reused), behind=possible_saving)
            )
        else:
            last = self._longer(size)
            known = last.behind is not None and possible_saving is not None
            last.behind = max(last.behind or 0.0, possible_saving or 0.0) if known else None

    def _own_plan(self, graph: Graph) -> LoweredGraph:
        options = self._options
        return optimise(resolved_of(graph, options), options.passes, options.settings)

    def _savings(self, reused: LoweredGraph, own_graph: LoweredGraph) -> tuple[float | None, float]:
        """Return two shares of the reused plan's estimated time that other plans may save at the
        present size.

        Args:
            reused: the choice of the last interval, for the present size.
            own_graph: the choice that is made for the present size alone.

        Returns:
            The share that the best possible plan may save at most, None if no bound was proven; and
            the share that ``own_graph`` saves, below 0 if it is slower.
        """
        before, after = (
            total_ns(lowered, self._options.settings) for lowered in (reused, own_graph)
        )
        saved = (before - after) / before if before else 0.0
        gap = _gap(own_graph)
        return (None if gap is None else max(0.0, saved) + gap), saved

    def _begin(self, size: int, own_graph: LoweredGraph, why: str) -> None:
        changes: list[Difference] = []
        if self._decisions is not None:
            changes = _changes(
                *(Choices.of(lowered) for lowered in (self._decisions.chosen, own_graph))
            )
        self._decisions = ChosenGraph.of(own_graph)
        interval = Interval(size, size, 1, _count(own_graph), _gap(own_graph), why, changes)
        self.intervals.append(interval)


def _gap(graph: LoweredGraph) -> float | None:
    """Return the largest share of a plan's estimated time that the best plan may save, by the
    plan's certificate; None if no bound was proven.
    """
    proof = graph.certificate
    if proof is None or proof.bound is None:
        return None
    return 0.0 if proof.status == "optimal" else proof.gap


def _count(graph: LoweredGraph) -> int:
    """Return the number of Transforms that each run executes."""
    return sum(1 for _ in graph.transforms())


def _changes(before: Choices, after: Choices) -> list[Difference]:
    """Return the differences of two choices, without Transforms of constants, which run once."""
    ahead = {
        row.name
        for choices in (before, after)
        for row in choices.rows
        if isinstance(row, TransformNode) and row.input not in choices.layouts
    }
    return [row for row in node_differences(before, after) if row.name not in ahead]
