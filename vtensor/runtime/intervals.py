"""In which sizes one plan is good, and what changes where it no longer is.

Sizes are gone through in order. What was chosen for the first of an interval is taken to the next
ones (``Strategy``), as a session does. There its estimated time is compared with a bound that no
plan goes below (``optimizer/bound.py``) and, where that does not decide, with a plan that is chosen
for those sizes alone. An interval ends where the choices do not fit, or where such a plan takes
less by more than ``SLACK``. Nothing is recorded, and nothing runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from functools import partial

from optimizer.bound import excess, total_ns
from optimizer.pipeline import optimise
from ptensor.layout import Layout
from resolver.choices import Choices
from resolver.lowered import LoweredGraph, TransformNode
from resolver.strategy import Strategy, StrategyRefused
from vtensor.errors import InputError, VTensorError
from vtensor.language.graph import Graph
from vtensor.language.records import dataclass
from vtensor.runtime.feeds import Array
from vtensor.runtime.keys import InputKey, PlanKey
from vtensor.runtime.lock_diff import Difference, node_differences
from vtensor.runtime.options import Options, transferable
from vtensor.runtime.outline import Sized
from vtensor.runtime.outlines import Outlines
from vtensor.runtime.own_plan import SLACK, TIME_LIMIT
from vtensor.runtime.planning import resolved_of, simplified
from vtensor.runtime.source import Source

#: Where rules were applied to graphs of earlier sizes.
Applied = frozenset[tuple[str, str]]


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
    sized_at: Callable[[int, Applied], Sized | None] = lambda *_: None,
    advance: Callable[[int], None] = lambda _: None,
) -> list[Interval]:
    """The intervals of one open size.

    Args:
        sizes: the numbers to look at, ascending.
        graph_at: the network with that number in its place; a ``VTensorError`` says that it cannot
            be.
        options: how plans are made.
        sized_at: its simplified graph where that of other sizes says it at once, given where rules
            were applied to those (``Outlined``).
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
    walk = _Walk(graph_at, sized_at, replace(options, settings=solving))
    for size in sizes:
        advance(size)
        walk.on(size)
    return walk.found


class Outlined:
    """Simplified graphs of a model for other sizes, made at once as a session's are.

    Args:
        source: the model; it has made a graph before any is asked for.
        options: how plans are made.
    """

    def __init__(self, source: Source, options: Options) -> None:
        self._source, self._options = source, options
        self._outlines = Outlines(source)

    def at(
        self, shapes: Mapping[str, tuple[int, ...]], known: Mapping[str, Array], applied: Applied
    ) -> Sized | None:
        """The graph for inputs of these shapes; None where it has to be made otherwise.

        Args:
            shapes: by input.
            known: values of inputs that decide shapes.
            applied: where rules are looked for.
        """
        rows = []
        for port in self._source.inputs:
            dims = port.of_rank(len(shapes[port.name])).dims
            layout = self._options.entry.get(port.name, Layout.plain(dims))
            value = known[port.name].tobytes() if port.name in known else None
            rows.append(InputKey(port.name, shapes[port.name], port.dtype, layout, value))
        simplify = partial(simplified, options=self._options, only=applied)
        return self._outlines.graph(PlanKey(tuple(rows)), simplify, applied)


class _Walk:
    """From size to size.

    Attributes:
        found: the intervals so far.
    """

    def __init__(
        self,
        graph_at: Callable[[int], Graph],
        sized_at: Callable[[int, Applied], Sized | None],
        options: Options,
    ) -> None:
        self.found: list[Interval] = []
        self._graph_at, self._sized_at = graph_at, sized_at
        self._options = options
        self._strategy: Strategy | None = None
        self._applied = Applied()

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

    def _graph(self, size: int) -> Graph:
        """The graph as a plan of its own has it."""
        graph = simplified(self._graph_at(size), self._options)
        self._applied |= {*graph.applied}
        return graph

    def _taken(self, strategy: Strategy, size: int) -> tuple[LoweredGraph, Graph]:
        """What was chosen for others, on the graph of these.

        Raises:
            StrategyRefused: it does not fit.
        """
        if (sized := self._sized_at(size, self._applied)) is not None:
            return sized.on(strategy), sized.graph
        graph = self._graph(size)
        return strategy.on(graph), graph

    def _plan(self, size: int) -> None:
        """Take the plan over, or make one."""
        why = ""
        behind: float | None = 0.0
        taken: LoweredGraph | None = None
        own: LoweredGraph | None = None
        graph: Graph | None = None
        if self._strategy is not None:
            try:
                taken, graph = self._taken(self._strategy, size)
            except StrategyRefused as refused:
                why = str(refused)
        if taken is not None and graph is not None:
            behind = off = excess(taken, self._options.settings)
            if off > SLACK:
                own = self._own(graph)
                behind, saved = self._behind(taken, own)
                if saved > SLACK:
                    why, taken = f"a plan of its own takes {saved:.1%} less", None
        if taken is None:
            self._begin(size, own or self._own(self._graph(size)), why)
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
        self._strategy = Strategy.of(own)
        made = Interval(size, size, 1, _count(own), _gap(own), why, changes)
        self.found.append(made)


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
