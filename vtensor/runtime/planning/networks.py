"""The simplified graphs of a session.

A graph is simplified once with symbols in place of its open sizes. It is then evaluated for each
combination of sizes.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from vtensor.language.process.imported import logger
from vtensor.language.symbolic.rows import REFUSALS, Known
from vtensor.language.symbolic.trace import NotTraced, Trace
from vtensor.runtime.planning.choice import kind_of
from vtensor.runtime.planning.keys import PlanKey
from vtensor.runtime.planning.options import Options
from vtensor.runtime.planning.source import Source

if TYPE_CHECKING:
    from vtensor.frontends.files.deferred_arrays import Place
    from vtensor.language.graph import Graph
    from vtensor.runtime.planning.symbolic_graph import SymbolicGraph

#: The most symbolic graphs of an input kind, the last used ones.
MAX_GRAPHS = 4

#: The most input kinds with symbolic graphs, the last used ones.
MAX_KINDS = 8

#: The number of failures after which graphs of an input kind are no longer traced. A few may fail
#: only because single sizes are invalid.
MAX_TRACING_FAILURES = 3

_log = logger(__name__)


class SimplifiedNetwork:
    """The simplified graph that a plan is made of.

    Attributes:
        graph: the graph for the sizes of the plan's key.
        symbolic: the graph with symbols as sizes; None if it cannot be traced, or has no open
            sizes.
        open_sizes: the values that the key has for the open sizes, in order.
        observed: places, in the model's files, of the arrays that were read to make the graph.
    """

    def __init__(
        self,
        graph: Graph,
        symbolic: SymbolicGraph | None,
        open_sizes: Sequence[int],
        observed: frozenset[Place],
    ) -> None:
        self.graph, self.symbolic = graph, symbolic
        self.open_sizes, self.observed = open_sizes, observed


class Networks:
    """The simplified graphs of a network, one for each combination of its open sizes.

    One thread at a time may use it.

    Args:
        source: the graph or model of the session.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._graphs: dict[Hashable, list[SymbolicGraph]] = {}
        self._failures: dict[Hashable, int] = {}

    def of(self, key: PlanKey, options: Options, known: Known) -> SimplifiedNetwork:
        """Return the simplified graph for the sizes of a key.

        It is evaluated from a symbolic graph whose guards hold: one that exists, else a new one. If
        the graph cannot be traced on symbols, it is simplified for these sizes alone.

        Args:
            key: input shapes, element types and layouts.
            options: the session's options, with the passes that simplify the graph.
            known: the values of traces that were evaluated earlier. Newly evaluated ones are added.
        """
        from vtensor.runtime.planning.choosing import simplified

        open_sizes, kind = self._source.open_of(key), kind_of(key)
        self._graphs[kind] = graphs = self._graphs.pop(kind, [])
        if len(self._graphs) > MAX_KINDS:
            del self._graphs[next(iter(self._graphs))]
        for symbolic in [*graphs] if open_sizes else ():
            values = symbolic.values(open_sizes, known)
            if values is not None:
                _use(graphs, symbolic)
                return SimplifiedNetwork(
                    symbolic.graph(values), symbolic, open_sizes, symbolic.observed
                )
        if open_sizes and self._failures.get(kind, 0) < MAX_TRACING_FAILURES:
            traced = self._traced(key, options, open_sizes, known)
            if traced is not None and traced.symbolic is not None:
                _use(graphs, traced.symbolic)
                return traced
            self._failures[kind] = self._failures.get(kind, 0) + 1
        graph = simplified(self._source.graph(key.shapes, key.known, key.inner), options)
        return SimplifiedNetwork(graph, None, open_sizes, self._source.observed)

    def _traced(
        self, key: PlanKey, options: Options, open_sizes: Sequence[int], known: Known
    ) -> SimplifiedNetwork | None:
        """Return the simplified graph of a new trace; None if the graph cannot be traced.

        Args:
            key, options: the plan's key and the session's options.
            open_sizes: the values that the key has for the open sizes, in order.
            known: the values of traces that were evaluated earlier. Newly evaluated ones are added.
        """
        from vtensor.runtime.planning.choosing import simplified
        from vtensor.runtime.planning.symbolic_graph import SymbolicGraph

        trace = Trace()
        try:
            graph = self._source.traced(key, trace)
            simple = None if graph is None else simplified(graph, options)
            if simple is None:
                return None
            symbolic = SymbolicGraph(simple, trace, self._source.observed)
            values = symbolic.values(open_sizes, known)
        except (NotTraced, *REFUSALS) as why:  # code may expect sizes to be numbers
            _log.debug("the sizes of %s are not traced: %s", key.shapes, why)
            return None
        if values is None:
            return None
        return SimplifiedNetwork(symbolic.graph(values), symbolic, open_sizes, symbolic.observed)


def _use(graphs: list[SymbolicGraph], graph: SymbolicGraph) -> None:
    """Move ``graph`` to the front of ``graphs``, the symbolic graphs of one input kind.

    The least recently used graphs beyond ``MAX_GRAPHS`` are dropped.
    """
    if graph in graphs:
        graphs.remove(graph)
    graphs.insert(0, graph)
    del graphs[MAX_GRAPHS:]
