"""The simplified graph of a network on symbols: made once, then evaluated for sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from optimizer.constants.computed import Computed, origin
from optimizer.constants.originals import Originals, copied
from vtensor.language.graph import Graph, Node
from vtensor.language.symbolic.rows import Known, evaluated
from vtensor.language.symbolic.symbolic_arrays import SymbolicArray
from vtensor.language.symbolic.trace import (
    MARK,
    NotTraced,
    SymbolicSize,
    Trace,
    is_open,
    substituted,
)
from vtensor.language.tensor import VTensor

if TYPE_CHECKING:
    from vtensor.frontends.files.deferred_arrays import Place


class SymbolicGraph:
    """A simplified graph whose open sizes are symbols of a trace.

    Args:
        graph: the sealed graph.
        trace: the trace of its sizes, and of constants that depend on sizes.
        observed: the places, in the model's files, of the arrays whose values were read to make the
            graph.

    Attributes:
        trace: the trace.
        rows: the rows of the trace after its end: a program that is evaluated for other sizes.

    Raises:
        NotTraced: the trace failed; or names of values or nodes, or functions that compute
            constants, depend on sizes.
    """

    def __init__(
        self, graph: Graph, trace: Trace, observed: frozenset[Place] = frozenset()
    ) -> None:
        if trace.failed:
            raise NotTraced(trace.failed)
        names = (*graph.values, *graph.nodes, *(node.op_name for node in graph.nodes.values()))
        if any(MARK in name for name in names):
            raise NotTraced("sizes are in names")
        self._graph, self.observed = graph, observed
        self._values = {name: value for name, value in graph.values.items() if is_open(value.dims)}
        self._nodes = {name: node for name, node in graph.nodes.items() if is_open(node.op)}
        self._offers = [
            lead
            for lead, offered in graph.offers.items()
            if any(node.name in self._nodes for node in offered)
        ]
        arrays = _symbolic_arrays(graph.constants)
        self._places = {name: array.place for name, array in arrays.items()}
        self.trace, self.rows = trace, trace.rows()

    def values(self, open_sizes: Sequence[int], known: Known) -> Sequence[Any] | None:
        """Evaluate the trace for open sizes and return its values; a value's place on the trace is
        its index.

        Returns None if a guard fails.

        Args:
            open_sizes: the values of the open sizes, in order.
            known: the values of traces that were evaluated earlier. Newly evaluated ones are added.
        """
        return evaluated(self.rows, open_sizes, known)

    def graph(self, values: Sequence[Any]) -> Graph:
        """Return the graph with numbers in place of its symbolic sizes.

        Args:
            values: the values of the trace, as the method ``values`` returns them.
        """
        graph = self.on(lambda size: values[size.place])
        constants = cast("MutableMapping[str, Any]", self.constants(values))
        return replace(graph, constants=constants)

    def constants(self, values: Sequence[Any]) -> Mapping[str, Any]:
        """Return the constants by name. Those that depend on sizes are taken from ``values``.

        Args:
            values: the values of the trace, as the method ``values`` returns them.
        """
        arrays = {name: values[place] for name, place in self._places.items()}
        return _with_arrays(self._graph.constants, arrays)

    def is_symbolic(self, constant: str) -> bool:
        """Return whether the elements of a constant depend on symbolic sizes."""
        constants = self._graph.constants
        return constant in constants and isinstance(origin(constants, constant)[0], SymbolicArray)

    def array_place(self, constant: str) -> int:
        """Return the place, on the trace, of the array of a constant that depends on sizes.

        Raises:
            NotTraced: a pass changes the array, so that the trace does not have the constant's
                elements.
        """
        array, change = origin(self._graph.constants, constant)
        if not isinstance(array, SymbolicArray) or change is not None:
            raise NotTraced("a constant that depends on sizes is changed by a pass")
        return array.place

    def on(self, number: Callable[[SymbolicSize], Any]) -> Graph:
        """Return the graph with other sizes in place of its symbolic ones. Its constants stay as
        they are.

        Args:
            number: returns the new size for a symbolic one: a number or a size of another trace.
        """
        graph = self._graph
        values = {
            name: VTensor.as_known(value.dtype, substituted(dict(value.dims), number), value.option)
            for name, value in self._values.items()
        }
        nodes = {
            name: Node(name, substituted(node.op, number), node.op_name, node.inputs, node.outputs)
            for name, node in self._nodes.items()
        }
        offers = {
            lead: tuple(nodes.get(offered.name, offered) for offered in graph.offers[lead])
            for lead in self._offers
        }
        return replace(
            graph,
            values={**graph.values, **values},
            nodes={**graph.nodes, **nodes},
            offers={**graph.offers, **offers},
        )


def _symbolic_arrays(constants: Mapping[str, Any]) -> dict[str, SymbolicArray]:
    """Return the constants whose elements depend on symbolic sizes, by name.

    Raises:
        NotTraced: a pass computes a constant with a function that depends on symbolic sizes.
    """
    if isinstance(constants, Computed):
        if any(is_open(applied.key) for applied in constants.functions):
            raise NotTraced("a constant is cut by sizes")
        arrays, rows = _symbolic_arrays(constants.given), constants.more
    else:
        arrays = {}
        rows = constants.origins() if isinstance(constants, Originals) else constants
    return arrays | {
        name: array for name, array in rows.items() if isinstance(array, SymbolicArray)
    }


def _with_arrays(constants: Mapping[str, Any], arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return ``constants`` with the arrays of ``arrays`` in place of those of equal name."""
    if not arrays:
        return constants
    if isinstance(constants, Computed):
        return constants.over(_with_arrays(constants.given, arrays), arrays)
    replaced = copied(constants)
    replaced.update((name, array) for name, array in arrays.items() if name in constants)
    return replaced
