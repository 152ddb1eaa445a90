"""Sizes at which a guard of planning fails that held for the size before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eval.reshaped import Feeds, resized
from eval.shapes import Axes, axes_of
from optimizer.pipeline import pass_names, simplify
from vtensor.benchmark.report import Case
from vtensor.language.symbolic.trace import Trace
from vtensor.runtime.planning.keys import PlanKey
from vtensor.runtime.planning.source import Source


def named_sizes(feeds: Feeds, axes: Axes) -> dict[str, int]:
    """Return the sizes of arrays, by their names in the model."""
    return {
        symbol: feeds[name].shape[int(axis)]
        for name, named in axes.items()
        for axis, symbol in named.items()
    }


def borders(
    source: Source, feeds: Feeds, axes: Axes, symbol: str, sizes: Iterable[int], most: int
) -> list[int]:
    """Return the sizes on both sides of each border, of one name, the others as they are.

    Planning is traced with the first size. Where a guard of the trace fails for a size, there is a
    border between it and the size before, and planning is traced with it from there on.

    Args:
        source: the network; it has made a graph.
        feeds, axes: its inputs, and the names of their sizes.
        symbol: the name.
        sizes: the sizes to try, in order.
        most: how many borders are looked for.
    """
    beside: dict[int, None] = {}
    trace, before, crossed = None, None, 0
    for size in sizes:
        shapes = {name: array.shape for name, array in resized(feeds, axes, {symbol: size}).items()}
        if trace is None or trace.run(source.open_sizes(shapes, {})) is None:
            after = _trace(source, shapes)
            if before is not None and not (trace is None and after is None):
                beside |= {before: None, size: None}
                crossed += 1
            trace = after
        if crossed == most:
            break
        before = size
    return [*beside]


def at_borders(given: Case, sizes: Iterable[int], most: int = 1 << 30) -> list[Feeds]:
    """Return feeds for all sizes at borders, of one name after the other."""
    axes, numbers = axes_of(given), [*sizes]
    source = Source(given.model, True, 1 << 32, None)
    source.graph({name: array.shape for name, array in given.feeds.items()}, {})
    return [
        resized(given.feeds, axes, {symbol: size})
        for symbol in named_sizes(given.feeds, axes)
        for size in borders(source, given.feeds, axes, symbol, numbers, most)
    ]


def _trace(source: Source, shapes: Mapping[str, tuple[int, ...]]) -> Trace | None:
    """Return the trace of planning for these shapes; None if the network does not take them."""
    trace = Trace()
    try:
        graph = source.traced(PlanKey.of_shapes(source.inputs, shapes, {}, {}), trace)
        assert graph is not None, "the source has made no graph yet"
        simplify(graph, pass_names("all"))
    except Exception:  # of any kind, as in ``Outlines``: sizes are no numbers here
        return None
    return None if trace.failed else trace
