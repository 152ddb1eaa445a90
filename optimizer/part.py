"""A product of which only slices are read is computed in slices: nothing is copied out of it.

    slice(f(x * w + b))  becomes  f(x * slice(w) + slice(b))

Queries, keys and values of an attention are made so: by one matrix of constants, whose columns are
reshaped, turned and cut. Which operators are linear in what, and which only rename, reshape or cut,
is their own declaration (the traits ``Linear`` and ``Structural``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from itertools import pairwise
from math import prod
from typing import Any

from libdesc.preferences import EVERY, Preferences
from optimizer.computed import Computed, Made, cut
from optimizer.readers import Readers
from vtensor.errors import VTensorError
from vtensor.language.dims import is_one
from vtensor.language.graph import Graph, Node
from vtensor.language.operators import OPERATORS, Context, info_of, label_of, run_compute
from vtensor.language.records import dataclass, replace
from vtensor.language.tensor import Option, VTensor
from vtensor.language.traits import Linear

#: A slice has at least so many columns: kernels for fewer are slower than a copy.
LEAST = 64


def part(graph: Graph, preferences: Preferences = EVERY) -> Graph:
    """The same network with every product in slices of which nothing but slices is read.

    Only products with a matrix of constants that nobody else reads; what lies between them and the
    slices changes names, sizes or single elements. A node that is pinned stays.

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
    made = replace(
        graph,
        values=dict(graph.values),
        constants=constants,
        nodes=dict(graph.nodes),
        merged=dict(graph.merged),
    )
    for chain in chains:
        work = _Parts(made, constants, chain)
        if work.made():
            work.replace()
    return made


def _pinned(preferences: Preferences, node: Node) -> bool:
    return preferences.pinned(node.name, info_of(node.op).name) is not None


@dataclass(frozen=True)
class _Chain:
    """A product, nodes one behind another, and the slices that alone read the last of them.

    Attributes:
        lead: the product.
        weights: the name of its matrix.
        between: the nodes behind it, in order.
        cuts: the slices, each with its begin and end.
        dims: the dim that is cut, in the value of the lead and of each node between.
    """

    lead: Node
    weights: str
    between: Sequence[Node]
    cuts: Mapping[str, tuple[Node, int, int]]
    dims: Sequence[str]

    @property
    def nodes(self) -> list[Node]:
        """All of them."""
        return [self.lead, *self.between, *(node for node, _, _ in self.cuts.values())]


def _chain(graph: Graph, lead: Node, readers: Readers) -> _Chain | None:
    """The chain behind a node; None where it is no such product, or more than slices are read."""
    weights, between = _weights(graph, lead, readers), list[Node]()
    if weights is None:
        return None
    value = lead.outputs[0]
    while (node := readers.only(value)) is not None and _passes(graph, node, value):
        between.append(node)
        value = node.outputs[0]
    cuts = {node.name: (node, *_range(graph, node)) for node in readers.of(value) if _cuts(node)}
    if len(cuts) < max(2, len(readers.of(value))):
        return None
    ops: list[Any] = [node.op for node, _, _ in cuts.values()]
    dims = {op.axes for op in ops}
    dim = _traced(graph, between, next(iter(dims))[0]) if len(dims) == 1 else []
    holding = [name for name in lead.inputs if dim and dim[0] in graph.values[name].dims]
    if holding != [weights]:  # a dim that the other factor has too is no column
        return None
    unit = graph.values[lead.outputs[0]].size(dim[0]) // graph.values[value].size(dim[-1])
    ranges = sorted((begin, end) for _, begin, end in cuts.values())
    disjoint = all(one[1] <= other[0] for one, other in pairwise(ranges))
    if not disjoint or any((end - begin) * unit < LEAST for begin, end in ranges):
        return None
    return _Chain(lead, weights, between, cuts, dim)


def _weights(graph: Graph, lead: Node, readers: Readers) -> str | None:
    """The matrix of constants that a node is linear in."""
    info = info_of(lead.op)
    linear = info.trait(Linear)
    roles = info.roles(len(lead.inputs), 0) if linear and len(lead.outputs) == 1 else ()
    for role, name in zip(roles, lead.inputs, strict=False):
        matrix = name in graph.constants and len(graph.values[name].dims) == 2
        if linear and role in linear.inputs and matrix and readers.only(name):
            return name
    return None


def _cuts(node: Node) -> bool:
    """A slice of neighbours along one dim."""
    op: Any = node.op
    return info_of(op).structural == "slice" and len(op.axes) == 1 and op.steps == (1,)


def _range(graph: Graph, node: Node) -> tuple[int, int]:
    """Where a slice begins and ends."""
    if not _cuts(node):
        return 0, 0
    op: Any = node.op
    size = graph.values[node.inputs[0]].size(op.axes[0])
    begin, end, _ = slice(op.starts[0], op.ends[0]).indices(size)
    return begin, max(begin, end)


def _passes(graph: Graph, node: Node, value: str) -> bool:
    """A node that a slice may pass: each of its elements is made of one of the value's."""
    info = info_of(node.op)
    if info.structural in ("rename", "reshape"):
        return True
    others = [name for name in node.inputs if name != value]
    alike = dict(graph.values[value].dims) == dict(graph.values[node.outputs[0]].dims)
    return info.elementwise and alike and all(name in graph.constants for name in others)


def _traced(graph: Graph, between: Sequence[Node], dim: str) -> list[str]:
    """The dim that is cut, from the lead's value on; empty where it is none of its dims, or inner.

    A reshape keeps the order of elements: neighbours along a dim are neighbours along a dim of the
    input before which as many elements lie, if its size is a multiple.
    """
    found = [dim]
    for node in reversed(between):
        before, after = (graph.values[name].dims for name in (node.inputs[0], node.outputs[0]))
        if info_of(node.op).structural == "rename":
            op: Any = node.op
            old = {new: old for old, new in op.names}
            found.insert(0, old.get(found[0], found[0]))
        elif info_of(node.op).structural == "reshape":
            place = list(after).index(found[0])
            ahead = prod([*after.values()][:place])
            rows = reversed([row for row in _ahead(before) if not is_one(before[row[0]])])
            old_dim = next((dim for dim, ahead_of in rows if ahead_of == ahead), "")
            if not old_dim or before[old_dim] % after[found[0]]:
                return []
            found.insert(0, old_dim)
        else:
            found.insert(0, found[0])
    return found


def _ahead(dims: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Each dim with how many combinations there are of those before it."""
    count = 1
    for dim, size in dims.items():
        yield dim, count
        count *= size


@dataclass
class _Parts:
    """What becomes of a chain: a chain for each slice.

    Attributes:
        graph, constants: to be changed.
        chain: what is replaced.
        nodes, values, sources: new nodes in order, new values, and the constants that new ones are
            parts of, with the dim and the range.
    """

    graph: Graph
    constants: Computed
    chain: _Chain
    nodes: list[Node] = field(default_factory=list)
    values: dict[str, VTensor] = field(default_factory=dict)
    sources: dict[str, tuple[str, int, slice]] = field(default_factory=dict)

    def made(self) -> bool:
        """Make all parts; False where an operator does not take one."""
        try:
            return all(
                self._part(number, *cut) for number, cut in enumerate(self.chain.cuts.values())
            )
        except VTensorError:
            return False

    def _part(self, number: int, cut: Node, begin: int, end: int) -> bool:
        """The chain of one slice; its last value is the slice's."""
        value, chain = "", self.chain
        row = [chain.lead, *chain.between]
        for node, dim in zip(row, chain.dims, strict=True):
            whole = self.graph.values[node.outputs[0]].size(dim)
            unit = whole // self.graph.values[cut.inputs[0]].size(chain.dims[-1])
            taken = slice(begin * unit, end * unit)
            first = node is chain.lead
            cut_too = {chain.weights} if first else self.graph.constants.keys()
            inputs = [
                self._constant(name, dim, taken, whole)
                if name in cut_too
                else (name if first else value)
                for name in node.inputs
            ]
            op: Any = node.op
            if info_of(op).structural == "reshape":
                sizes = self.graph.values[node.outputs[0]].dims
                pairs = tuple(
                    (d, s if d != dim else taken.stop - taken.start) for d, s in sizes.items()
                )
                op = OPERATORS.structural("reshape").cls(pairs)
            name = node.name if number == 0 else self._free(f"{node.name}:{number}")
            value = cut.outputs[0] if node is row[-1] else self._free(f"{node.outputs[0]}:{number}")
            given = [self.values.get(n) or self.graph.values[n] for n in inputs]
            [out] = run_compute(Context(node=name), op, given)
            self.values[value] = VTensor(out.dtype, out.dims, Option(name=value))
            self.nodes.append(Node(name, op, label_of(op), tuple(inputs), (value,)))
        wanted, found = self.graph.values[value], self.values[value]
        return (wanted.dtype, [*wanted.dims.items()]) == (found.dtype, [*found.dims.items()])

    def _constant(self, name: str, dim: str, taken: slice, whole: int) -> str:
        """A constant's part along a dim; the constant where it has no such dim, or repeats it."""
        value = self.graph.values[name]
        if value.dims.get(dim, 1) != whole or whole == 1:
            return name
        short = f"{name}[{taken.start}:{taken.stop}]"
        sizes = {**value.dims, dim: taken.stop - taken.start}
        self.values[short] = VTensor(value.dtype, sizes, Option(name=short))
        self.sources[short] = name, list(value.dims).index(dim), taken
        return short

    def replace(self) -> None:
        """Put the parts in the chain's place."""
        graph, lead = self.graph, self.chain.lead
        gone = dict.fromkeys(node.name for node in self.chain.nodes)
        order = dict[str, Node]()
        for name, node in graph.nodes.items():
            if name == lead.name:
                order.update({one.name: one for one in self.nodes})
            elif name not in gone:
                order[name] = node
        graph.nodes.clear()
        graph.nodes.update(order)
        graph.values.update(self.values)
        graph.merged.update({name: lead.name for name in gone if name not in order})
        for name, (source, axis, taken) in self.sources.items():
            key = axis, taken.start, taken.stop
            made = Made(partial(cut, taken=key), key, taken=key)
            self.constants.derive(name, source, made)

    def _free(self, name: str) -> str:
        while name in self.graph.values or name in self.graph.nodes or name in self.values:
            name += "'"
        return name
