"""The simplified graphs that plans are made of: made on symbols, and put into sizes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from vtensor.language.imported import logger
from vtensor.language.rows import REFUSALS
from vtensor.language.trace import NotTraced, Trace
from vtensor.runtime.planning.choice import kind_of
from vtensor.runtime.planning.keys import PlanKey
from vtensor.runtime.planning.options import Options
from vtensor.runtime.planning.source import Source
from vtensor.runtime.planning.symbolic_plan import Known

if TYPE_CHECKING:
    from vtensor.frontends.deferred_arrays import Place
    from vtensor.language.graph import Graph
    from vtensor.runtime.planning.symbolic_graph import SymbolicGraph

#: Symbolic graphs that are kept for inputs of one kind, the last used ones.
MOST_NETWORKS = 4

#: Kinds of inputs of which there are symbolic graphs.
KINDS = 8

#: How many graphs of one kind may not be traced before none is tried: sizes may be impossible.
TRIES = 3

_log = logger(__name__)


class SimplifiedNetwork:
    """The simplified graph that a plan is made of.

    Attributes:
        graph: for the key's sizes.
        symbolic: the same on symbols; None where it cannot be traced, or has none.
        given: the open sizes.
        observed: where arrays are whose values were looked at to make it.
    """

    def __init__(
        self,
        graph: Graph,
        symbolic: SymbolicGraph | None,
        given: Sequence[int],
        observed: frozenset[Place],
    ) -> None:
        self.graph, self.symbolic = graph, symbolic
        self.given, self.observed = given, observed


class Networks:
    """Makes the simplified graph of a network for each choice of its open sizes.

    One thread at a time may use it.

    Args:
        source: what graphs are made from.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._graphs: dict[Hashable, list[SymbolicGraph]] = {}
        self._failures: dict[Hashable, int] = {}

    def of(self, key: PlanKey, options: Options, known: Known) -> SimplifiedNetwork:
        """Return the simplified graph for a key, of a symbolic graph where there is one.

        Args:
            key: input shapes, element types and layouts.
            options: how it is simplified.
            known: what rows have come to; it grows.
        """
        from vtensor.runtime.planning.choosing import simplified

        given, kind = self._source.open_sizes(key.shapes, key.known), kind_of(key)
        self._graphs[kind] = graphs = self._graphs.pop(kind, [])
        if len(self._graphs) > KINDS:
            del self._graphs[next(iter(self._graphs))]
        for symbolic in [*graphs] if given else ():
            values = symbolic.values(given, known)
            if values is not None:
                _use(graphs, symbolic)
                return SimplifiedNetwork(symbolic.graph(values), symbolic, given, symbolic.observed)
        if given and self._failures.get(kind, 0) < TRIES:
            traced = self._traced(key, options, given, known)
            if traced is not None and traced.symbolic is not None:
                _use(graphs, traced.symbolic)
                return traced
            self._failures[kind] = self._failures.get(kind, 0) + 1
        graph = simplified(self._source.graph(key.shapes, key.known, key.inner), options)
        return SimplifiedNetwork(graph, None, given, self._source.observed)

    def _traced(
        self, key: PlanKey, options: Options, given: Sequence[int], known: Known
    ) -> SimplifiedNetwork | None:
        """Make the graph on symbols; None where that cannot be done."""
        from vtensor.runtime.planning.choosing import simplified
        from vtensor.runtime.planning.symbolic_graph import SymbolicGraph

        trace = Trace()
        try:
            graph = self._source.traced(key.shapes, key.known, key.inner, trace)
            simple = None if graph is None else simplified(graph, options)
            if simple is None:
                return None
            symbolic = SymbolicGraph(simple, trace, self._source.observed)
            values = symbolic.values(given, known)
        except (NotTraced, *REFUSALS) as why:  # sizes are no numbers here, which few expect
            _log.debug("the sizes of %s are not traced: %s", key.shapes, why)
            return None
        if values is None:
            return None
        return SimplifiedNetwork(symbolic.graph(values), symbolic, given, symbolic.observed)


def _use(graphs: list[SymbolicGraph], graph: SymbolicGraph) -> None:
    """Keep a graph as the last used one of its kind."""
    if graph in graphs:
        graphs.remove(graph)
    graphs.insert(0, graph)
    del graphs[MOST_NETWORKS:]
