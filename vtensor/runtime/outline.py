"""Graphs of a network for many sizes, each made at once from one of traced sizes.

An outline is the simplified graph of a network as it is read and rewritten once, with a tape of
what that did with sizes (``vtensor/language/tape.py``). For other sizes the tape says all sizes, or
that the graph would be another one. What holds no open size is shared by all graphs of an outline.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, MutableMapping, Sequence, Set
from dataclasses import fields, is_dataclass, replace
from functools import cached_property
from types import BuiltinFunctionType, FunctionType, MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from optimizer.computed import Computed, origin
from optimizer.originals import Originals, copied
from ptensor.layout import Layout
from ptensor.stopping import go_on
from resolver.fitted import Fitted
from resolver.lowered import LoweredGraph
from resolver.proof import Proof
from resolver.strategy import Strategy
from vtensor.language.graph import Graph, Node
from vtensor.language.open_arrays import NotTraced, OpenArray
from vtensor.language.records import dataclass
from vtensor.language.tape import MARK, Tape, Told, TracedSize
from vtensor.language.tensor import VTensor

if TYPE_CHECKING:
    from vtensor.frontends.beside import Place

#: Strategies whose place in an outline is known.
FITTED = 16

#: What no size can be hidden in.
_PLAIN = (bool, float, complex, bytes, type, enum.Enum, Layout, np.dtype, np.generic)
_FUNCTIONS = (FunctionType, BuiltinFunctionType)

#: The number that stands for the first size on an outline's tape, in keys; others follow. No size
#: of a network is so large.
CODED = 1 << 48


class Coded:
    """The numbers that stand for the sizes on an outline's tape."""

    def __getitem__(self, place: int) -> int:
        return CODED + place


Sizes = Sequence[int]

#: Makes a value anew of the sizes on a tape.
Remake = Callable[[Told], Any]


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
    """A simplified graph of traced sizes.

    Args:
        graph: sealed; sizes in it are traced.
        tape: theirs.

    Raises:
        NotTraced: sizes may be where they are not found.
    """

    def __init__(self, graph: Graph, tape: Tape) -> None:
        if tape.failed:
            raise NotTraced(tape.failed)
        if _marked([*graph.values, *graph.nodes, *(one.op_name for one in graph.nodes.values())]):
            raise NotTraced("sizes are in names")
        self._graph, self._tape = graph, tape
        self._values = {
            name: (one, _remake(dict(one.dims)))
            for name, one in graph.values.items()
            if not _is_plain(one.dims)
        }
        go_on()
        self._nodes = {
            name: (one, _remake(one.op))
            for name, one in graph.nodes.items()
            if not _is_plain(one.op)
        }
        self._offers = [
            lead
            for lead, behind in graph.offers.items()
            if any(one.name in self._nodes for one in behind)
        ]
        self._arrays = _open_arrays(graph.constants)
        self._fitted: dict[Strategy, Fitted] = {}
        #: What was drawn of strategies (``Blueprint``); None of those that cannot be.
        self.drawn: dict[Strategy, Any] = {}
        #: Where arrays are that were looked at to make it, or may have been.
        self.looked_at: Set[Place] = frozenset()

    def sizes(self, given: Sizes) -> Sizes | None:
        """All sizes, for other open ones; None where the graph would be another.

        Args:
            given: those that were put on the tape, in the same order.
        """
        return self._tape.run(given)

    def graph(self, given: Sizes) -> Graph | None:
        """The graph for other sizes, sealed; None where it would be another.

        Args:
            given: as for ``sizes``.
        """
        sizes = self.sizes(given)
        constants = None if sizes is None else self.constants(sizes)
        if sizes is None or constants is None:
            return None
        return replace(
            self.without_arrays(sizes),
            constants=cast("MutableMapping[str, Any]", constants),
        )

    def constants(self, sizes: Sizes) -> Mapping[str, Any] | None:
        """The constants for all sizes; None where one would be of another shape or type."""
        try:
            done: dict[int, Any] = {}
            arrays = {name: one.at(sizes, done) for name, one in self._arrays.items()}
        except NotTraced:
            return None
        return _with_arrays(self._graph.constants, arrays)

    @property
    def tape(self) -> Tape:
        """What says all sizes."""
        return self._tape

    def open_array(self, constant: str) -> OpenArray | None:
        """A constant whose values depend on sizes, as it is computed; None where passes change it
        further.
        """
        array, more = origin(self._graph.constants, constant)
        return array if isinstance(array, OpenArray) and more is None else None

    def is_open(self, constant: str) -> bool:
        """Whether the values of a constant depend on sizes."""
        return isinstance(origin(self._graph.constants, constant)[0], OpenArray)

    def without_arrays(self, sizes: Told) -> Graph:
        """The graph for all sizes, in which constants that depend on them have no values."""
        graph = self._graph
        values = {
            name: VTensor.as_known(one.dtype, dims(sizes), one.option)
            for name, (one, dims) in self._values.items()
        }
        nodes = {
            name: Node(name, op(sizes), one.op_name, one.inputs, one.outputs)
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


def _marked(texts: Sequence[str]) -> bool:
    """The text of a traced size is in one of these."""
    return any(MARK in text for text in texts)


def _is_plain(value: Any) -> bool:
    """No open size is in a value.

    Raises:
        NotTraced: it is of a kind that may hide one.
    """
    if type(value) is TracedSize:
        return False
    if isinstance(value, str):
        if _marked([value]):
            raise NotTraced("sizes are in a text")
        return True
    if value is None or type(value) is int or isinstance(value, (*_PLAIN, *_FUNCTIONS)):
        return True
    if isinstance(value, (tuple, list, frozenset, set)):
        return all(map(_is_plain, value))
    if isinstance(value, (dict, MappingProxyType)):
        return all(map(_is_plain, value.values()))
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return True
    if is_dataclass(value):
        return all(_is_plain(getattr(value, one.name)) for one in fields(value))
    raise NotTraced(f"a {type(value).__name__} may hold sizes")


def _remake(value: Any) -> Remake:
    """What makes a value of other sizes.

    Raises:
        NotTraced: it is of a kind that nothing here makes.
    """
    if type(value) is TracedSize:
        place = value.place
        return lambda sizes: sizes[place]
    if _is_plain(value):
        return lambda _: value
    if type(value) is tuple:
        parts = [*map(_remake, value)]
        return lambda sizes: tuple([part(sizes) for part in parts])
    if type(value) is dict:
        rows = [(key, _remake(one)) for key, one in value.items()]
        return lambda sizes: {key: one(sizes) for key, one in rows}
    if is_dataclass(value) and hasattr(value, "__dict__"):
        return _remake_parameters(value)
    raise NotTraced(f"a {type(value).__name__} holds sizes")


def _remake_parameters(op: Any) -> Remake:
    """What makes an operator with other sizes: its parameters were checked on the tape."""
    kind: Any = type(op)
    rows = [(one.name, getattr(op, one.name)) for one in fields(op)]
    fixed = {name: one for name, one in rows if _is_plain(one)}
    others = [(name, _remake(one)) for name, one in rows if name not in fixed]

    def make(sizes: Told) -> Any:
        made = kind.__new__(kind)
        made.__dict__.update(fixed)
        made.__dict__.update([(name, one(sizes)) for name, one in others])
        return made

    return make


def _open_arrays(constants: Mapping[str, Any]) -> dict[str, OpenArray]:
    """The constants whose values depend on sizes.

    Raises:
        NotTraced: what a pass computes of a constant does.
    """
    if isinstance(constants, Computed):
        for made in constants.functions:
            if not _is_plain(made.key):
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
    return found | {name: one for name, one in rows.items() if isinstance(one, OpenArray)}


def _with_arrays(constants: Mapping[str, Any], arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same constants, but for these."""
    if not arrays:
        return constants
    if isinstance(constants, Computed):
        return constants.over(_with_arrays(constants.given, arrays), arrays)
    found = copied(constants)
    found.update((name, one) for name, one in arrays.items() if name in constants)
    return found
