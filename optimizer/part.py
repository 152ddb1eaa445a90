"""A product of which only slices are read is computed in slices, so that no slice is copied out.

    slice(f(x * w + b))  becomes  f(x * slice(w) + slice(b))

Exporters compute the queries, keys and values of an attention by one product with a matrix of
constants. Its result is then reshaped, transposed and sliced. Operators declare that they are
linear in an operand, or that they only rename, reshape or slice (the traits ``Linear`` and
``Structural``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from itertools import pairwise
from math import prod
from typing import Any

from libdesc.preferences import EVERY, Preferences
from optimizer.constants.computed import Computed, Made, cut
from optimizer.readers import Readers
from vtensor.errors import VTensorError
from vtensor.language.dims import is_one
from vtensor.language.graph import Graph, Node
from vtensor.language.operators import OPERATORS, Context, info_of, label_of, run_compute
from vtensor.language.records import dataclass, replace
from vtensor.language.tensor import Option, VTensor
from vtensor.language.traits import Linear

#: The least number of columns of each slice: kernels for fewer are slower than a copy.
MIN_COLUMNS = 64


def part(graph: Graph, preferences: Preferences = EVERY) -> Graph:
    """Return the same network in which products are computed slice by slice, if only slices of them
    are read.

    One factor of such a product is a matrix of constants that no other node reads. The nodes
    between product and slices rename, reshape or are element-wise. If one of these nodes is pinned,
    the product stays as it is.

    Args:
        graph: sealed; it is not changed.
        preferences: which nodes are pinned.
    """
    readers = Readers(graph)
    chains = [chain for lead in graph.nodes.values() if (chain := _chain(graph, lead, readers))]
    chains = [chain for chain in chains if not any(_pinned(preferences, n) for n in chain.nodes)]
    if not chains:
        return graph
    constants = Computed(graph.constants)
    sliced = replace(
        graph,
        values=dict(graph.values),
        constants=constants,
        nodes=dict(graph.nodes),
        merged=dict(graph.merged),
    )
    for chain in chains:
        work = _Parts(sliced, constants, chain)
        if work.build():
            work.replace()
    return sliced


def _pinned(preferences: Preferences, node: Node) -> bool:
    return preferences.pinned(node.name, info_of(node.op).name) is not None


@dataclass(frozen=True)
class _SlicedProduct:
    """A product, the nodes after it, and the slices that are the only readers of the last node.

    Attributes:
        lead: the product.
        weights: the name of its matrix of constants.
        between: the nodes between product and slices, in order.
        cuts: the slices by name: (node, begin, end) with the range of the slice.
        dims: the names of the sliced dim: in the output of the product, then in the output of each
            node between.
    """

    lead: Node
    weights: str
    between: Sequence[Node]
    cuts: Mapping[str, tuple[Node, int, int]]
    dims: Sequence[str]

    @property
    def nodes(self) -> list[Node]:
        """The product, the nodes between and the slices."""
        return [self.lead, *self.between, *(node for node, _, _ in self.cuts.values())]


def _chain(graph: Graph, lead: Node, readers: Readers) -> _SlicedProduct | None:
    """Return the chain from the product ``lead`` to its slices, if it can be computed in slices.

    Returns None in these cases:

    - ``lead`` is no product with a constant matrix;
    - fewer than two slices, or something else than slices along one dim of that matrix, read the
      last value;
    - two slices overlap, or one has fewer than ``MIN_COLUMNS`` columns.
    """
    weights, between = _weights(graph, lead, readers), list[Node]()
    if weights is None:
        return None
    value = lead.outputs[0]
    while (node := readers.only(value)) is not None and _passes(graph, node, value):
        between.append(node)
        value = node.outputs[0]
    cuts = {
        node.name: (node, *_range(graph, node)) for node in readers.of(value) if _is_slice(node)
    }
    if len(cuts) < max(2, len(readers.of(value))):
        return None
    ops: list[Any] = [node.op for node, _, _ in cuts.values()]
    dims = {op.axes for op in ops}
    dim = _traced(graph, between, next(iter(dims))[0]) if len(dims) == 1 else []
    holding = [name for name in lead.inputs if dim and dim[0] in graph.values[name].dims]
    if holding != [weights]:  # a dim of the other factor is no column of the matrix
        return None
    unit = graph.values[lead.outputs[0]].size(dim[0]) // graph.values[value].size(dim[-1])
    ranges = sorted((begin, end) for _, begin, end in cuts.values())
    disjoint = all(first[1] <= second[0] for first, second in pairwise(ranges))
    if not disjoint or any((end - begin) * unit < MIN_COLUMNS for begin, end in ranges):
        return None
    return _SlicedProduct(lead, weights, between, cuts, dim)


def _weights(graph: Graph, lead: Node, readers: Readers) -> str | None:
    """Return the name of a constant matrix in which ``lead`` is linear and that no other node
    reads.

    Returns None if there is no such matrix.
    """
    info = info_of(lead.op)
    linear = info.trait(Linear)
    roles = info.roles(len(lead.inputs), 0) if linear and len(lead.outputs) == 1 else ()
    for role, name in zip(roles, lead.inputs, strict=False):
        matrix = name in graph.constants and len(graph.values[name].dims) == 2
        if linear and role in linear.inputs and matrix and readers.only(name):
            return name
    return None


def _is_slice(node: Node) -> bool:
    """Return whether a node is a slice with stride 1 along one dim."""
    op: Any = node.op
    return info_of(op).structural == "slice" and len(op.axes) == 1 and op.steps == (1,)


def _range(graph: Graph, node: Node) -> tuple[int, int]:
    """Return the begin and end of a slice along its dim, neither beyond the size of the dim.

    Returns (0, 0) if the node is no slice with stride 1 along one dim.
    """
    if not _is_slice(node):
        return 0, 0
    op: Any = node.op
    size = graph.values[node.inputs[0]].size(op.axes[0])
    begin, end, _ = slice(op.starts[0], op.ends[0]).indices(size)
    return begin, max(begin, end)


def _passes(graph: Graph, node: Node, value: str) -> bool:
    """Return whether a slice of the output of ``node`` may be replaced by a slice of its input
    ``value``.

    For that, each element of the output may depend on only one element of that input.
    """
    info = info_of(node.op)
    if info.structural in ("rename", "reshape"):
        return True
    others = [name for name in node.inputs if name != value]
    alike = dict(graph.values[value].dims) == dict(graph.values[node.outputs[0]].dims)
    return info.elementwise and alike and all(name in graph.constants for name in others)


def _traced(graph: Graph, between: Sequence[Node], dim: str) -> list[str]:
    """Return the names of the sliced dim: in the output of the product, then in the output of each
    node of ``between``.

    Empty if no dim of the product's output corresponds to the sliced one. A reshape keeps the order
    of elements. So a dim of its output corresponds to a dim of its input if the dims before it have
    the same product of sizes in both. The size in the input must be a multiple of the size in the
    output.

    Args:
        graph: the graph.
        between: the nodes between the product and the slices, in order.
        dim: the name of the sliced dim in the last output.
    """
    names = [dim]
    for node in reversed(between):
        before, after = (graph.values[name].dims for name in (node.inputs[0], node.outputs[0]))
        if info_of(node.op).structural == "rename":
            op: Any = node.op
            old = {new: old for old, new in op.names}
            names.insert(0, old.get(names[0], names[0]))
        elif info_of(node.op).structural == "reshape":
            place = list(after).index(names[0])
            count = prod([*after.values()][:place])
            rows = [row for row in _outer_counts(before) if not is_one(before[row[0]])]
            old_dim = next((dim for dim, outer in reversed(rows) if outer == count), "")
            if not old_dim or before[old_dim] % after[names[0]]:
                return []
            names.insert(0, old_dim)
        else:
            names.insert(0, names[0])
    return names


def _outer_counts(dims: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Yield (dim, product of the sizes of all dims before it) for each dim."""
    count = 1
    for dim, size in dims.items():
        yield dim, count
        count *= size


@dataclass
class _Parts:
    """The replacement of a chain by one chain for each slice.

    Attributes:
        graph: the graph, changed by ``replace``.
        constants: its constants.
        chain: the product, its slices and the nodes between, which are replaced.
        nodes: the new nodes, in order.
        values: the new values by name.
        sources: by name of a new constant: (the constant of which it is a part, the axis, the range
            along it).
    """

    graph: Graph
    constants: Computed
    chain: _SlicedProduct
    nodes: list[Node] = field(default_factory=list)
    values: dict[str, VTensor] = field(default_factory=dict)
    sources: dict[str, tuple[str, int, slice]] = field(default_factory=dict)

    def build(self) -> bool:
        """Build the new chain of nodes for each slice.

        Returns False if an operator refuses its operands, or if a result differs from the slice's
        output in type or dims.
        """
        try:
            return all(
                self._part(number, *cut) for number, cut in enumerate(self.chain.cuts.values())
            )
        except VTensorError:
            return False

    def _part(self, number: int, cut: Node, begin: int, end: int) -> bool:
        """Build the new chain of nodes for one slice. Return whether its result has the type and
        dims of the slice's output.

        Args:
            number: the index of the slice. The nodes for the first slice keep their names.
            cut: the slice.
            begin, end: the range of the slice.
        """
        value, chain = "", self.chain
        row = [chain.lead, *chain.between]
        for node, dim in zip(row, chain.dims, strict=True):
            whole = self.graph.values[node.outputs[0]].size(dim)
            unit = whole // self.graph.values[cut.inputs[0]].size(chain.dims[-1])
            span = slice(begin * unit, end * unit)
            first = node is chain.lead
            cut_too = {chain.weights} if first else self.graph.constants.keys()
            inputs = [
                self._constant(name, dim, span, whole)
                if name in cut_too
                else (name if first else value)
                for name in node.inputs
            ]
            op: Any = node.op
            if info_of(op).structural == "reshape":
                sizes = self.graph.values[node.outputs[0]].dims
                pairs = tuple(
                    (d, s if d != dim else span.stop - span.start) for d, s in sizes.items()
                )
                op = OPERATORS.structural("reshape").cls(pairs)
            name = node.name if number == 0 else self._free(f"{node.name}:{number}")
            value = cut.outputs[0] if node is row[-1] else self._free(f"{node.outputs[0]}:{number}")
            operands = [self.values.get(n) or self.graph.values[n] for n in inputs]
            [out] = run_compute(Context(node=name), op, operands)
            self.values[value] = VTensor(out.dtype, out.dims, Option(name=value))
            self.nodes.append(Node(name, op, label_of(op), tuple(inputs), (value,)))
        wanted, result = self.graph.values[value], self.values[value]
        return (wanted.dtype, [*wanted.dims.items()]) == (result.dtype, [*result.dims.items()])

    def _constant(self, name: str, dim: str, span: slice, whole: int) -> str:
        """Add a part of a constant, the range ``span`` along a dim, and return the name of that
        part.

        If the constant does not vary along the dim (it is broadcast), return its own name.

        Args:
            name: the constant.
            dim: the dim.
            span: the range of indices of the part.
            whole: the dim's size in the value that is computed in parts.
        """
        value = self.graph.values[name]
        if value.dims.get(dim, 1) != whole or whole == 1:
            return name
        short = f"{name}[{span.start}:{span.stop}]"
        sizes = {**value.dims, dim: span.stop - span.start}
        self.values[short] = VTensor(value.dtype, sizes, Option(name=short))
        self.sources[short] = name, list(value.dims).index(dim), span
        return short

    def replace(self) -> None:
        """Put the new chains into the graph in place of the chain."""
        graph, lead = self.graph, self.chain.lead
        removed = dict.fromkeys(node.name for node in self.chain.nodes)
        order = dict[str, Node]()
        for name, node in graph.nodes.items():
            if name == lead.name:
                order.update({new.name: new for new in self.nodes})
            elif name not in removed:
                order[name] = node
        graph.nodes.clear()
        graph.nodes.update(order)
        graph.values.update(self.values)
        graph.merged.update({name: lead.name for name in removed if name not in order})
        for name, (source, axis, span) in self.sources.items():
            key = axis, span.start, span.stop
            function = Made(partial(cut, taken=key), key, taken=key)
            self.constants.derive(name, source, function)

    def _free(self, name: str) -> str:
        """Return ``name``, with apostrophes added until no node or value has the name."""
        while name in self.graph.values or name in self.graph.nodes or name in self.values:
            name += "'"
        return name
