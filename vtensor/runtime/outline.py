"""Graphs of a network for many sizes, each made at once from one of traced sizes.

An outline is the simplified graph of a network as it is read and rewritten once, with a trace of
what that did with sizes (``vtensor/language/trace.py``). For other sizes the trace's rows give all
sizes and the constants that depend on them, or say that the graph would be another one. What holds
no symbolic size is shared by all graphs of an outline.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, cast

from optimizer.computed import Computed, origin
from optimizer.originals import Originals, copied
from ptensor.stopping import go_on
from resolver.fitted import Fitted
from resolver.lowered import LoweredGraph
from resolver.proof import Proof
from resolver.strategy import Strategy
from vtensor.language.cached import cached_property
from vtensor.language.graph import Graph, Node
from vtensor.language.records import dataclass
from vtensor.language.symbolic_arrays import SymbolicArray
from vtensor.language.tensor import VTensor
from vtensor.language.trace import MARK, NotTraced, SymbolicSize, Trace, is_open, substituted

if TYPE_CHECKING:
    from vtensor.frontends.beside import Place

#: Strategies whose place in an outline is known.
FITTED = 16

#: The number that stands for the first size of an outline's trace, in keys; others follow. No size
#: of a network is so large.
CODED = 1 << 48


class Values(Protocol):
    """The values of a trace's places."""

    def __getitem__(self, place: int, /) -> Any:
        """Return the value of a place."""


class Coded:
    """The numbers that stand for the sizes of an outline's trace."""

    def __getitem__(self, place: int) -> int:
        return CODED + place


Sizes = Sequence[Any]


@dataclass(frozen=True)
class Sized:
    """A graph that an outline has made, for some open sizes."""

    graph: Graph
    outline: Outline
    given: Sizes

    def on(self, strategy: Strategy) -> LoweredGraph:
        """What was chosen, for the graph: as ``strategy.on(graph)`` has it, at once.

        Raises:
            StrategyRefused: as ``Strategy.on``.
        """
        return self.outline.lowered(strategy, self.graph)

    def proof(self, strategy: Strategy) -> Proof:
        """What was proved of a strategy's lowered graphs: it has been put on this graph."""
        return self.outline.fitted(strategy).proof


class Outline:
    """A simplified graph of symbolic sizes.

    Args:
        graph: sealed; sizes in it are symbolic.
        trace: theirs, which is closed.

    Raises:
        NotTraced: sizes may be where they are not found.
    """

    def __init__(self, graph: Graph, trace: Trace) -> None:
        names = *graph.values, *graph.nodes, *(one.op_name for one in graph.nodes.values())
        if any(MARK in name for name in names):
            raise NotTraced("sizes are in names")
        self._graph = graph
        self._values = {
            name: (value, dict(value.dims))
            for name, value in graph.values.items()
            if is_open(value.dims)
        }
        go_on()
        self._nodes = {
            name: (node, node.op) for name, node in graph.nodes.items() if is_open(node.op)
        }
        substituted([op for _, op in self._nodes.values()], lambda size: size.value)
        self._offers = [
            lead
            for lead, behind in graph.offers.items()
            if any(one.name in self._nodes for one in behind)
        ]
        self._arrays = _open_arrays(graph.constants)
        self._places = {name: array.place for name, array in self._arrays.items()}
        if trace.failed:
            raise NotTraced(trace.failed)
        #: All sizes and constants, as a program of the open sizes.
        self.rows = trace.rows()
        self._fitted: dict[Strategy, Fitted] = {}
        #: What was drawn of strategies (``Blueprint``); None of those that cannot be.
        self.drawn: dict[Strategy, Any] = {}
        #: Where arrays are that were looked at to make it, or may have been.
        self.looked_at: Set[Place] = frozenset()

    def sizes(self, given: Sizes) -> Sizes | None:
        """Return the values of all places, for other open sizes; None where the graph would be
        another.

        Args:
            given: the numbers of the trace's symbols, in the same order.
        """
        return self.rows.run(given)

    def graph(self, given: Sizes) -> Graph | None:
        """The graph for other sizes, sealed; None where it would be another.

        Args:
            given: as for ``sizes``.
        """
        sizes = self.sizes(given)
        if sizes is None:
            return None
        return replace(
            self.without_arrays(sizes),
            constants=cast("MutableMapping[str, Any]", self.constants(sizes)),
        )

    def constants(self, sizes: Sizes) -> Mapping[str, Any]:
        """Return the constants, of which some are among the values of a run (``sizes``)."""
        arrays = {name: sizes[place] for name, place in self._places.items()}
        return _with_arrays(self._graph.constants, arrays)

    def place_of(self, constant: str) -> int | None:
        """Return the place of a constant that depends on sizes; None where passes change it
        further.
        """
        array, more = origin(self._graph.constants, constant)
        return array.place if isinstance(array, SymbolicArray) and more is None else None

    def is_open(self, constant: str) -> bool:
        """Whether the values of a constant depend on sizes."""
        return isinstance(origin(self._graph.constants, constant)[0], SymbolicArray)

    def without_arrays(self, sizes: Values) -> Graph:
        """The graph for all sizes, in which constants that depend on them have no values."""
        graph = self._graph

        def number(size: SymbolicSize) -> Any:
            return sizes[size.place]

        values = {
            name: VTensor.as_known(one.dtype, _dims(dims, sizes), one.option)
            for name, (one, dims) in self._values.items()
        }
        nodes = {
            name: Node(name, substituted(op, number), one.op_name, one.inputs, one.outputs)
            for name, (one, op) in self._nodes.items()
        }
        offers = {
            lead: tuple(nodes.get(one.name, one) for one in graph.offers[lead])
            for lead in self._offers
        }
        return replace(
            graph,
            values={**graph.values, **values},
            nodes={**graph.nodes, **nodes},
            offers={**graph.offers, **offers},
        )

    @cached_property
    def coded(self) -> Graph:
        """The graph with numbers that stand for sizes."""
        return self.without_arrays(Coded())

    def lowered(self, strategy: Strategy, graph: Graph) -> LoweredGraph:
        """What was chosen, for a graph that was made here.

        Raises:
            StrategyRefused: as ``Strategy.on``.
        """
        fitted = self._fitted.get(strategy)
        found = fitted.on(graph) if fitted is not None else None
        if found is None:
            found = strategy.on(graph)
            if len(self._fitted) >= FITTED:
                oldest = next(iter(self._fitted))
                del self._fitted[oldest]
                self.drawn.pop(oldest, None)
            self._fitted[strategy] = Fitted(strategy, found, self._values, self._nodes)
        return found

    def fitted(self, strategy: Strategy) -> Fitted:
        """A strategy's place here: it has been put on a graph that was made here."""
        return self._fitted[strategy]


def _dims(dims: Mapping[str, Any], sizes: Values) -> dict[str, int]:
    """Return dims with numbers in the place of symbolic sizes."""
    return {
        dim: sizes[size.place] if type(size) is SymbolicSize else size for dim, size in dims.items()
    }


def _open_arrays(constants: Mapping[str, Any]) -> dict[str, SymbolicArray]:
    """The constants whose values depend on sizes.

    Raises:
        NotTraced: what a pass computes of a constant does.
    """
    if isinstance(constants, Computed):
        for made in constants.functions:
            if is_open(made.key):
                raise NotTraced("a constant is cut by sizes")
        given = constants.given
    else:
        given = constants
    found = {} if given is constants else _open_arrays(given)
    rows: Mapping[str, Any] = constants
    if isinstance(constants, Computed):
        rows = constants.more
    elif isinstance(constants, Originals):
        rows = constants.origins()
    return found | {name: one for name, one in rows.items() if isinstance(one, SymbolicArray)}


def _with_arrays(constants: Mapping[str, Any], arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same constants, but for these."""
    if not arrays:
        return constants
    if isinstance(constants, Computed):
        return constants.over(_with_arrays(constants.given, arrays), arrays)
    found = copied(constants)
    found.update((name, one) for name, one in arrays.items() if name in constants)
    return found
