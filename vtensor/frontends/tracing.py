"""The symbolic graph of a model: its graph for symbolic sizes.

Nodes are read as for fixed sizes; a constant that depends on sizes is a ``SymbolicArray``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from libdesc.tracing import pure_function, pure_name
from optimizer.constants.originals import Original
from vtensor.errors import ModelError
from vtensor.frontends.builder import NamedNetwork, attributes_of
from vtensor.frontends.defined import defined_outputs, local_of
from vtensor.frontends.expansion import facts_of
from vtensor.frontends.folding import Facts, infer_node
from vtensor.frontends.functions import spellings_of
from vtensor.frontends.naming import Names
from vtensor.frontends.network import Network, NetworkNode
from vtensor.frontends.reader import Reader
from vtensor.frontends.rebuild import Rebuilder
from vtensor.frontends.tensors import Array
from vtensor.language.dtype import from_numpy
from vtensor.language.graph import Graph
from vtensor.language.records import dataclass, replace
from vtensor.language.spelling import Ahead
from vtensor.language.symbolic.symbolic_arrays import (
    MOST_HELD,
    Computes,
    StoredArray,
    SymbolicArray,
    as_it_is,
)
from vtensor.language.symbolic.trace import NotTraced, SymbolicSize, Trace, is_open, number_of
from vtensor.language.tensor import Option, VTensor

#: Largest number of elements of an array whose elements are traced.
MAX_TRACED_ELEMENTS = 16


def traced_graph(
    earlier: NamedNetwork,
    shapes: Mapping[str, Sequence[int]],
    known: tuple[Mapping[str, Array], Mapping[str, Sequence[int]]],
    reference: bool,
    outputs: Mapping[str, Names],
    trace: Trace,
) -> Graph:
    """Return the graph of a network for symbolic sizes, with the dim names of an earlier graph.

    Args:
        earlier, reference, outputs: the arguments of ``rebuilt``.
        shapes: sizes of every input; open sizes are symbols of the trace.
        known: the values of inputs as for ``rebuilt``; and, for those with symbolic elements, their
            elements.
        trace: the trace; rows are added to it.

    Raises:
        Exception: of any kind, if something differs from ``earlier`` or cannot be traced.
    """
    numbers = {name: tuple(map(number_of, shape)) for name, shape in shapes.items()}
    values, elements = known
    facts = facts_of(earlier.network, numbers, values)
    arrays: Any = facts.arrays
    for name, row in elements.items():
        symbols = np.array(row, object).reshape(values[name].shape)
        arrays[name] = SymbolicArray(trace, values[name].shape, values[name], as_it_is, (), symbols)
    facts.made.update((name, tuple(s)) for name, s in shapes.items() if name not in facts.arrays)
    for name, shape in shapes.items():
        if name in facts.arrays and any(type(size) is SymbolicSize for size in shape):
            raise NotTraced(f"{name} is a constant of open sizes")
    named = replace(earlier, facts=facts)
    return _Traced(named, reference, earlier.facts, trace).build(outputs)


class _Traced(Rebuilder):
    """A builder of a graph on symbolic sizes.

    It takes the arguments of ``Rebuilder``, then the trace of the symbolic sizes.
    """

    def __init__(self, named: NamedNetwork, reference: bool, before: Facts, trace: Trace) -> None:
        super().__init__(named, reference, before)
        self._trace = trace
        self._open: dict[tuple[str, Names], list[tuple[SymbolicArray, VTensor]]] = {}
        self._stored: dict[int, StoredArray] = {}

    def _fold(self, node: NetworkNode) -> None:
        """Compute a node that is known before a run.

        If the result depends on sizes, it is a ``SymbolicArray``, with rows in the trace.
        """
        inputs = [*map(self._known_input, node.proto.input)]
        if node.label == "Shape":
            self._set_output(node, self._sizes(node))
        elif any(isinstance(array, SymbolicArray) for array in inputs):
            self._set_output(node, self._symbolic_output(node, inputs))
        else:
            super()._fold(node)

    def _known_input(self, name: str) -> Any:
        """Return the array of a node's input, a SymbolicArray if it depends on sizes; None if
        unknown.

        Reading an array marks it as one whose values may have decided a size. Arrays of floats are
        read without that mark, since floats decide no size.
        """
        held = self._facts.arrays.origins().get(name)
        if isinstance(held, Original) and held.dtype.kind == "f":
            return held.now()
        return self._facts.arrays.get(name)

    def _sizes(self, node: NetworkNode) -> Any:
        """Return the output of a ``Shape`` node: an array, or a SymbolicArray if a size is
        symbolic.
        """
        [name] = node.proto.input
        sizes = self._facts.sizes(name)
        if sizes is None:
            raise ModelError(f"{name} has no sizes yet")
        read = attributes_of(node, self._network)
        sizes = sizes[read("start", None) : read("end", None)]
        sample = np.array([number_of(size or 0) for size in sizes], np.int64)
        if not any(type(size) is SymbolicSize for size in sizes):
            return sample
        return SymbolicArray(
            self._trace, sample.shape, sample, as_it_is, (), np.array(sizes, object)
        )

    def _symbolic_output(self, node: NetworkNode, given: Sequence[Any]) -> SymbolicArray:
        """Return the only output of a node, some of whose inputs depend on sizes.

        Args:
            node: the node.
            given: its inputs, each an array or a SymbolicArray.

        Raises:
            NotTraced: the node has several outputs or leaves an optional input out. Or the output
                that is computed for the current sizes has another shape than the operator says.
        """
        if len(node.outputs) != 1 or "" in node.proto.input:
            raise NotTraced(f"{node.described} leaves an input out, or has several outputs")
        ahead, read = _ahead(node), attributes_of(node, self._network)
        arrays = [array.sample if isinstance(array, SymbolicArray) else array for array in given]
        traced, function = False, partial(_folded, self._network, node)
        if ahead is not None and not ahead.only_traced:
            traced, function = ahead.traced, partial(ahead.compute, read)
        sample = np.asarray(function(*arrays))
        computes = None if ahead is None else _row_function(node, ahead, read)
        if computes is not None and ahead is not None and ahead.only_traced:
            result = agreeing(computes, arrays, sample)
            computes, sample = (None, sample) if result is None else (computes, result)
        elements = self._elements(function, given, sample) if traced else None
        shape = sample.shape if elements is not None else self._output_shape(node, given, sample)
        if tuple(map(number_of, shape)) != sample.shape:
            raise NotTraced(f"{node.described} is of another shape than was foreseen")
        sources = [*map(self._source, node.proto.input, given)]
        made = SymbolicArray(self._trace, shape, sample, computes or function, sources, elements)
        sizes = sample.dtype.kind == "i" and sample.size <= MAX_TRACED_ELEMENTS
        # Comparing symbolic sizes with numbers would add guards, which no other size fulfils.
        return made.with_elements() if sizes and not is_open(shape) else made

    def _source(self, name: str, given: Any) -> Any:
        """Return what a row of the trace has as its argument for a node's input ``name``.

        For an array of the model, this is a ``StoredArray``, which refers to the model's array and
        holds the elements only if they take at most MOST_HELD bytes; else ``given``.

        Args:
            name: the input's name.
            given: the input, an array or a SymbolicArray.
        """
        held = self._facts.arrays.origins().get(name)
        if not isinstance(held, Original):
            return given
        stored = self._stored.get(id(held))
        if stored is None:
            array = given if given.nbytes <= MOST_HELD else None
            stored = self._stored[id(held)] = StoredArray(held, array)
        return stored

    def _elements(
        self,
        made: Callable[..., Array],
        given: Sequence[Any],
        sample: Array,
    ) -> Any:
        """Return the elements of a node's output as symbolic sizes, or None if they cannot be
        traced.

        Args:
            made: computes the output from arrays of the inputs' elements.
            given: the inputs, each an array or a SymbolicArray.
            sample: the output for the current sizes.

        Raises:
            NotTraced: an element does not fit into the output's element type.
        """
        if sample.size > MAX_TRACED_ELEMENTS or sample.dtype.kind != "i":
            return None
        rows = [row.elements if isinstance(row, SymbolicArray) else row for row in given]
        if any(row is None or row.dtype.kind not in "iO" for row in rows):
            return None
        elements = np.empty(sample.shape, object)
        elements[...] = made(*rows)
        kind: Any = sample.dtype
        least, most = np.iinfo(kind).min, np.iinfo(kind).max
        if kind != np.int64 and not all(least <= row <= most for row in elements.flat):
            raise NotTraced("a size is beyond the type that it is cast to")
        return elements

    def _output_shape(
        self, node: NetworkNode, given: Sequence[Any], sample: Array
    ) -> tuple[int, ...]:
        """Return the shape of a node's output as the operator computes it; its sizes may be
        symbolic.

        Args:
            node: the node.
            given: its inputs, each an array or a SymbolicArray.
            sample: its output for the current sizes.

        Raises:
            NotTraced: no ``Spelling`` reads the node.
        """
        if node.label == "Range":
            start, limit, delta = (bound.item() for bound in given)
            return (max(-((start - limit) // delta), 0),)
        [output] = node.outputs
        self._facts.made[output] = sample.shape  # dim names depend on its rank
        local = local_of(self._network, node, self._facts)
        for spelling in spellings_of(node):
            reader = Reader(
                node, node.opset, local, _Described(self._facts), attributes_of(node, self._network)
            )
            read, order = spelling.read(reader), reader.output_names(0)
            value = read if isinstance(read, VTensor) else read[0]
            return tuple(reader.ordered(value, order, order).dims.values())
        raise NotTraced(f"{node.described} has no sizes")

    def _set_output(self, node: NetworkNode, array: Any) -> None:
        """Set a node's only output as a constant; raise ModelError if it exceeds the budget."""
        [name] = node.outputs
        self._facts.nbytes += array.nbytes
        if self._facts.nbytes > self._network.max_bytes:
            raise ModelError(f"{name} is beyond the budget")
        if not isinstance(array, SymbolicArray):
            self._facts.know(name, array)
            return
        arrays: Any = self._facts.arrays
        arrays[name] = array
        self._facts.static.add(name)

    def _constant(self, name: str, array: Any, dims: Names) -> VTensor:
        """Return the graph's constant of value ``name`` with the dims ``dims``.

        The first call adds it to the graph.

        Args:
            name: the value.
            array: its array, ``Original`` or SymbolicArray.
            dims: names of its axes.
        """
        if not isinstance(array, SymbolicArray):
            return super()._constant(name, array, dims)
        uses = self._open.setdefault((name, dims), [])
        for other, value in uses:
            if other.shape == array.shape:
                return value
        free = name if name not in self._graph.values else self._taken.free(name)
        sizes = dict(zip(dims, array.shape, strict=True))
        value = VTensor(from_numpy(array.dtype), sizes, Option(name=free))
        self._graph.values[free] = value
        constants: MutableMapping[str, Any] = self._graph.constants
        constants[free] = array
        uses.append((array, value))
        return value


def _folded(network: Network, node: NetworkNode, *given: Array) -> Array:
    """Return the only output of a node, computed from the arrays of its inputs.

    Raises:
        VTensorError, KeyError: it cannot be computed from these arrays.
    """
    facts = Facts()
    for name, array in zip(node.proto.input, given, strict=True):
        facts.know(name, array)
    infer_node(network, node, facts, defined_outputs)
    return facts.arrays[node.outputs[0]]


#: Largest difference that may come from another order of summation, as a multiple of the rounding
#: error of the array's largest element.
ROUNDINGS = 4

#: Types of attribute values that rows of a trace can hold.
_ROW_TYPES = (str, int, float, bool, type(None))


def _row_function(node: NetworkNode, ahead: Ahead, read: Any) -> Computes | None:
    """Return the function that a row of the trace calls to compute a node, such that it can be
    saved.

    None if ``ahead`` has no name under which a later process finds it again, or an attribute of the
    node is neither number nor text.

    Args:
        node: the node.
        ahead: the function that computes it before a run.
        read: returns an attribute's value, or the default.
    """
    attributes = {a.name: read(a.name, None) for a in node.proto.attribute}
    values = [row if type(row) is list else [row] for row in attributes.values()]
    plain = all(isinstance(element, _ROW_TYPES) for row in values for element in row)
    return Computes(ahead.compute, attributes) if plain and pure_name(ahead.compute) else None


def agreeing(function: Computes, arrays: Sequence[Array], sample: Array) -> Array | None:
    """Return a function's result for ``arrays``; None if it does not agree with ``sample``.

    The last bits of floats may differ, since the function may sum in another order.
    """
    try:
        result = np.asarray(function(*arrays))
    except (TypeError, ValueError):
        return None
    if (result.dtype, result.shape) != (sample.dtype, sample.shape):
        return None
    if result.tobytes() == sample.tobytes():
        return result
    if result.dtype.kind != "f" or not np.isfinite(sample).all():
        return None
    bound = ROUNDINGS * float(np.finfo(sample.dtype.name).eps) * np.abs(sample).max(initial=0)
    apart = np.abs(np.subtract(result, sample, dtype=np.float64))
    return result if (apart <= bound).all() else None


def _ahead(node: NetworkNode) -> Ahead | None:
    """Return the function that computes a node before a run, or None if its operator has none."""
    if node.label == "Range":  # VTensor lacks the operator: its result is always known ahead
        return Ahead(pure_function("ops._elements:Range"))
    return next((s.ahead for s in spellings_of(node) if s.ahead is not None), None)


@dataclass(eq=False)
class _Described:
    """The ``Values`` for reading a node of which only the sizes of the output are needed."""

    facts: Facts

    def origin(self, name: str) -> Any:
        """Return the array, ``Original`` or SymbolicArray of constant ``name``.

        None for a SymbolicArray whose elements are not traced, that is, are not known as symbolic
        sizes.
        """
        origin: Any = self.facts.arrays.origins().get(name)
        late = isinstance(origin, SymbolicArray) and origin.elements is None
        return None if late else origin

    def data(self, name: str) -> VTensor:
        """Return a VTensor of a constant whose elements are not traced: its type and sizes."""
        array = self.facts.arrays.origin(name)
        dims = {f"D{axis}": size for axis, size in enumerate(array.shape)}
        return VTensor(from_numpy(array.dtype), dims, Option(name=name))

    def need(self, name: str) -> None:
        """Raise NotTraced: the node's sizes depend on elements that are not traced."""
        raise NotTraced(f"the elements of {name} decide a shape")

    def renamed(self, _value: VTensor, _names: Names) -> VTensor | None:
        """Return None: no Rename was added before this node."""
        return None
