"""In which sizes one plan is good, and what changes where it no longer is.

Sizes are gone through in order. What was chosen for the first of an interval is taken to the next
ones (``ChosenGraph``), as a session does. There its estimated time is compared with a bound that no
plan goes below (``optimizer/bound.py``) and, where that does not decide, with a plan that is chosen
for those sizes alone. An interval ends where the choices do not fit, or where such a plan takes
less by more than ``SLACK``. Nothing is recorded, and nothing runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field, replace

from optimizer.bound import excess, total_ns
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
    """Sizes that one plan is for, or that the network cannot have.

    Attributes:
        first, last: the ends, both of which were looked at.
        looked: at how many sizes.
        transforms: that the plan has.
        behind: which part of its estimated time the best plan may spare, at the worst of these
            sizes; None where a solver left it open.
        why: why the plan of the interval before is not for these.
        changes: what it chooses otherwise than that one.
        error: what such sizes end in; there is no plan.
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
    """The intervals of one open size.

    Args:
        sizes: the numbers to look at, ascending.
        graph_at: the simplified graph with that number in its place; a ``VTensorError`` says that
            it cannot be.
        options: how plans are made.
        advance: called with each number.

    Raises:
        InputError: plans of these options are made for their own sizes alone.
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
    return walk.found


class _Walk:
    """From size to size.

    Attributes:
        found: the intervals so far.
    """

    def __init__(
        self,
        graph_at: Callable[[int], Graph],
        options: Options,
    ) -> None:
        self.found: list[Interval] = []
        self._graph_at = graph_at
        self._options = options
        self._strategy: ChosenGraph | None = None

    def on(self, size: int) -> None:
        """Look at the next size."""
        try:
            self._plan(size)
        except VTensorError as error:
            self._cannot(size, f"{type(error).__name__}: {error}")

    def _cannot(self, size: int, text: str) -> None:
        if self.found and self.found[-1].error:
            self._longer(size)
        else:
            self.found.append(Interval(size, size, error=text))

    def _longer(self, size: int) -> Interval:
        last = self.found[-1]
        last.last, last.looked = size, last.looked + 1
        return last

    def _plan(self, size: int) -> None:
        """Take the plan over, or make one."""
        why = ""
        behind: float | None = 0.0
        taken: LoweredGraph | None = None
        own: LoweredGraph | None = None
        graph: Graph | None = None
        if self._strategy is not None:
            try:
                graph = self._graph_at(size)
                taken = self._strategy.on(graph)
            except ChoiceRefused as refused:
                why = str(refused)
        if taken is not None and graph is not None:
            behind = off = excess(taken, self._options.settings)
            if off > SLACK:
                own = self._own(graph)
                behind, saved = self._behind(taken, own)
                if saved > SLACK:
                    why, taken = f"a plan of its own takes {saved:.1%} less", None
        if taken is None:
            self._begin(size, own or self._own(self._graph_at(size)), why)
        elif self.found[-1].error:  # the same plan goes on behind sizes that cannot be
            self.found.append(Interval(size, size, transforms=_count(taken), behind=behind))
        else:
            last = self._longer(size)
            known = last.behind is not None and behind is not None
            last.behind = max(last.behind or 0.0, behind or 0.0) if known else None

    def _own(self, graph: Graph) -> LoweredGraph:
        options = self._options
        return optimise(resolved_of(graph, options), options.passes, options.settings)

    def _behind(self, taken: LoweredGraph, own: LoweredGraph) -> tuple[float | None, float]:
        """What the best plan may spare, if that is known; and what one of its own spares."""
        before, after = (total_ns(one, self._options.settings) for one in (taken, own))
        saved = (before - after) / before if before else 0.0
        gap = _gap(own)
        return (None if gap is None else max(0.0, saved) + gap), saved

    def _begin(self, size: int, own: LoweredGraph, why: str) -> None:
        changes: list[Difference] = []
        if self._strategy is not None:
            changes = _changes(*(Choices.of(one) for one in (self._strategy.chosen, own)))
        self._strategy = ChosenGraph.of(own)
        interval = Interval(size, size, 1, _count(own), _gap(own), why, changes)
        self.found.append(interval)


def _gap(graph: LoweredGraph) -> float | None:
    """How far a plan for its own sizes may be from the best; None where nothing was proven."""
    proof = graph.certificate
    if proof is None or proof.bound is None:
        return None
    return 0.0 if proof.status == "optimal" else proof.gap


def _count(graph: LoweredGraph) -> int:
    """How many Transforms run each time."""
    return sum(1 for _ in graph.transforms())


def _changes(before: Choices, after: Choices) -> list[Difference]:
    """What differs of all that runs each time."""
    ahead = {
        row.name
        for one in (before, after)
        for row in one.rows
        if isinstance(row, TransformNode) and row.input not in one.layouts
    }
    return [one for one in node_differences(before, after) if one.name not in ahead]
