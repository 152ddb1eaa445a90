"""Nodes change to another element type where that takes the least time, conversions counted.

    f(x)  becomes  cast(f(cast(x)))

The simplifications ``widen`` and ``narrow`` share this: a minimum cut divides the nodes into two
sides, and those of one side then change. Each value that both sides use is converted once. Times
are estimates by the rates and speeds that libraries declare, so that each machine with the same
instructions divides alike. An open size counts as a typical number, not as that of the first run:
plans for other sizes are made of the same graph.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field
from itertools import pairwise
from typing import Any, NamedTuple

from libdesc.dispatcher import kernels
from optimizer.choice.estimate import Estimate
from optimizer.constants.computed import Computed, in_type, origin
from optimizer.constants.originals import Original, Originals
from ptensor.background_work import checkpoint
from vtensor.language.graph import Graph, Node
from vtensor.language.operators import OPERATORS, info_of, label_of
from vtensor.language.records import dataclass, replace
from vtensor.language.symbolic.symbolic_arrays import SymbolicArray
from vtensor.language.symbolic.trace import substituted, typical_of
from vtensor.language.tensor import Option, VTensor
from vtensor.language.traits import VIEWS

#: The two sides of the cut, as names that no node has.
WIDE_SIDE, NARROW_SIDE = "\0wide", "\0narrow"

#: More nanoseconds than any run takes.
_ENDLESS = 1 << 62


class Link(NamedTuple):
    """A value that may be converted and is no constant, as an edge of the cut.

    Attributes:
        value: its name.
        maker: the side or the name of the node that makes it.
        readers: the sides or names of the nodes that read it.
        weight: the estimated nanoseconds of its conversion.
    """

    value: str
    maker: str
    readers: Sequence[str]
    weight: int

    def cost(self, chosen: Collection[str]) -> int:
        """Return the estimated nanoseconds of the value's conversion if the nodes in ``chosen`` are
        on one side, and all others on the other.
        """
        apart = any((reader in chosen) != (self.maker in chosen) for reader in self.readers)
        return self.weight * apart


def fewest(links: Iterable[Link], gains: Mapping[str, int], chosen: str, others: str) -> set[str]:
    """Return the nodes that are on the side ``chosen`` for the least time, with the name of that
    side; of several such sets, the one with the fewest nodes.

    They are a side of a minimum cut, found by Dinic's algorithm. networkx has one too, but each
    first start of such a model would import it, which takes longer than all of this pass.

    Args:
        links: the edges of the cut.
        gains: how many nanoseconds faster a node is on the side ``chosen``; negative if it is
            faster on the other side.
        chosen, others: the names of the two sides.

    Source: E. A. Dinic, "Algorithm for solution of a problem of maximum flow in a network with
    power estimation", Soviet Math. Doklady 11, 1970.
    """
    room: dict[object, dict[object, int]] = defaultdict(lambda: defaultdict(int))
    for link in links:
        up, down = (link.value, "widened"), (link.value, "narrowed")
        room[up][link.maker] += link.weight
        room[link.maker][down] += link.weight
        for reader in link.readers:
            room[reader][up] = room[down][reader] = _ENDLESS
    for name, gain in gains.items():
        source, sink = (chosen, name) if gain > 0 else (name, others)
        room[source][sink] += abs(gain)
    while True:
        distance: dict[object, int] = {chosen: 0}
        found: list[object] = [chosen]
        for place in found:
            for to in [to for to, left in room[place].items() if left and to not in distance]:
                distance[to] = distance[place] + 1
                found.append(to)
        if others not in distance:
            return {place for place in found if isinstance(place, str)}
        _block(room, distance, chosen, others)


def _block(
    room: Mapping[object, dict[object, int]],
    distance: Mapping[object, int],
    source: object,
    sink: object,
) -> None:
    """Send as much as fits along shortest paths, until each of them is full.

    Args:
        room: how much more may pass from one place to another; changed.
        distance: by place, its distance from the source.
        source, sink: the ends of the paths.
    """
    ahead = {
        place: [to for to in room[place] if distance.get(to) == distance[place] + 1]
        for place in distance
    }
    path = [source]
    while path:
        place = path[-1]
        if place == sink:
            pairs = [*pairwise(path)]
            amount = min(room[one][other] for one, other in pairs)
            for one, other in pairs:
                room[one][other] -= amount
                room[other][one] += amount
            path = [source]
            continue
        while ahead[place] and not room[place][ahead[place][-1]]:
            ahead[place].pop()
        if ahead[place]:
            path.append(ahead[place][-1])
        else:
            path.pop()
            if path:
                ahead[path[-1]].pop()


def fastest(
    estimate: Estimate,
    node: Node,
    op: object,
    inputs: Sequence[VTensor],
    outputs: Sequence[VTensor],
    written: Sequence[VTensor] | None = None,
) -> int | None:
    """Return the estimated nanoseconds of a node's fastest native kernel; None if there is none.

    An open size counts as ``TYPICAL``, since the decision holds for all sizes. A node that
    libraries fuse, or that moves elements, counts 0 in every type.

    Args:
        estimate: declared rates, and the libraries that may be used.
        node: the node, for preferences.
        op, inputs, outputs: the call, in the types that are of interest.
        written: the outputs in the types that memory gets; None if these are the same.
    """
    able = kernels(node.name, op, inputs, outputs, estimate.preferences)
    info = info_of(op)
    if info.light or info.structural:
        return 0 if any(True for _ in able) else None
    operands = (inputs, outputs if written is None else written)
    numbers = [[_numbered(value) for value in values] for values in operands]
    call = substituted(op, typical_of)
    return min((estimate.call(library, call, *numbers) for library in able), default=None)


def conversion(estimate: Estimate, value: VTensor, *types: str) -> int:
    """Return the estimated nanoseconds of a conversion of a value between two types."""
    return estimate.conversion(_numbered(value).num_elements, *types)


def _numbered(value: VTensor) -> VTensor:
    """Return a value with typical numbers in place of symbolic sizes."""
    return VTensor.as_known(value.dtype, substituted(dict(value.dims), typical_of), value.option)


def with_followers(
    nodes: Mapping[str, Node],
    sides: Mapping[str, str],
    links: Mapping[str, Link],
    chosen: set[str],
    views: bool = True,
) -> set[str]:
    """Add to ``chosen`` the element-wise and structural nodes that follow nodes in it, if that
    causes no conversion, and return it. Libraries fuse such a node into the node before it.

    Args:
        nodes: the nodes that may be chosen, by name, in topological order.
        sides: the sides of the nodes that cannot choose.
        links: the edges of the cut, by value.
        chosen: the nodes on one side, with the name of that side.
        views: True adds also nodes that only give memory other dims.
    """
    for name, node in nodes.items():
        info, operands = info_of(node.op), dict.fromkeys((*node.inputs, *node.outputs))
        if name in sides or not (info.elementwise or info.structural):
            continue
        if info.structural in VIEWS and not views:
            continue
        near = [links[value] for value in operands if value in links]
        after = all(links[value].maker in chosen for value in node.inputs if value in links)
        if after and sum(link.cost(chosen | {name}) - link.cost(chosen) for link in near) <= 0:
            chosen.add(name)
    return chosen


def operands_of(graph: Graph, node: Node) -> tuple[list[VTensor], list[VTensor]]:
    """Return a node's inputs and its outputs."""
    inputs, outputs = node.inputs, node.outputs
    return [graph.values[name] for name in inputs], [graph.values[name] for name in outputs]


def retyped_op(graph: Graph, node: Node, types: Collection[str], target: str) -> object:
    """Return the operator of a node that changes from ``types`` to the type ``target``: another
    one for a cast to one of ``types``.
    """
    if info_of(node.op).structural == "cast" and graph.values[node.outputs[0]].dtype in types:
        return OPERATORS.structural("cast").cls(target)
    return node.op


@dataclass
class Retyping:
    """A graph some of whose nodes are being changed to another element type, node by node.

    Attributes:
        graph: the graph; new values are added to it.
        constants: its constants; new ones are added.
        chosen: by name of each node that changes, the note on conversions at that node.
        types: the element types that become ``target`` in these nodes.
        target: the new element type.
        kept: (node, value) for each operand that keeps its type in a node that changes.
        twins: by name of a value, the name of the same value in ``target``.
        same: by name of a value whose cast is left out, the name of the value read in its place.
        nodes: the nodes of the new graph, in order.
        notes: why each new conversion is there, by its name.
    """

    graph: Graph
    constants: Originals | Computed
    chosen: Mapping[str, str]
    types: Collection[str]
    target: str
    kept: Collection[tuple[str, str]] = frozenset()
    twins: dict[str, str] = field(default_factory=dict)
    same: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def run(self) -> Graph:
        """Return the new graph."""
        given = self.graph
        self.graph = replace(given, values=dict(given.values), constants=self.constants)
        others = [node for node in given.nodes.values() if node.name not in self.chosen]
        needed = {*given.outputs.values(), *(name for node in others for name in node.inputs)}
        for node in given.nodes.values():
            checkpoint()
            if node.name not in self.chosen:
                self._put(node, tuple(self.same.get(name, name) for name in node.inputs))
            elif info_of(node.op).structural == "cast":
                self._cast(node, needed)
            else:
                self._compute(node, needed)
        return replace(self.graph, nodes=self.nodes, notes={**given.notes, **self.notes})

    def _put(self, node: Node, inputs: tuple[str, ...]) -> None:
        """Add a node with other inputs."""
        self.nodes[node.name] = node if inputs == node.inputs else replace(node, inputs=inputs)

    def _compute(self, node: Node, needed: Collection[str]) -> None:
        """Add a node that changes, and conversions back of its outputs in ``needed``."""
        values, op = self.graph.values, retyped_op(self.graph, node, self.types, self.target)
        inputs = tuple(
            name if (node.name, name) in self.kept else self._twin(name, node)
            for name in node.inputs
        )
        outputs, restored = list(node.outputs), dict[str, VTensor]()
        for index, name in enumerate(node.outputs):
            if (value := values[name]).dtype not in self.types or (node.name, name) in self.kept:
                continue
            if name in needed:
                restored[name], outputs[index] = value, self._free(f"{name}:{self.target}")
            self.twins[name] = outputs[index]
            self._value(outputs[index], value)
        label = label_of(op)
        self.nodes[node.name] = replace(
            node, op=op, op_name=label, inputs=inputs, outputs=tuple(outputs)
        )
        for name, value in restored.items():
            self._convert(f"{name}:{value.dtype}", self.twins[name], name, node)

    def _cast(self, node: Node, needed: Collection[str]) -> None:
        """Add a cast that changes, or leave it out if its input and its output are the same now."""
        [given], [made] = node.inputs, node.outputs
        types = [self.graph.values[name].dtype for name in (given, made)]
        if not {*types} <= {self.target, *self.types}:
            self._compute(node, needed)
        elif types[1] in self.types:
            self.twins[made] = self._twin(given, node)
            if made in needed:
                self._put(node, (self.twins[made],))
        elif given not in self.twins and given not in self.constants:
            self._put(node, node.inputs)
            self.twins[given] = made
        else:
            self.same[made] = self._twin(given, node)
            if made in self.graph.outputs.values():
                op = OPERATORS.structural("identity").cls()
                inputs = (self.same[made],)
                self.nodes[node.name] = replace(node, op=op, op_name=label_of(op), inputs=inputs)

    def _twin(self, name: str, reader: Node) -> str:
        """Return the name of a value in the new type; a constant or conversion is added if it is
        needed.

        Args:
            name: the value's name.
            reader: the node that changes and reads the value.
        """
        value = self.graph.values[name]
        if value.dtype not in self.types:
            return self.same.get(name, name)
        if name not in self.twins:
            twin = self.twins[name] = self._free(f"{name}:{self.target}")
            self._value(twin, value)
            if name not in self.constants or not self._constant(twin, name):
                self._convert(twin, name, twin, reader)
        return self.twins[name]

    def _constant(self, twin: str, name: str) -> bool:
        """Add the constant ``twin``: the constant ``name`` in the new type. Return False if it has
        to be converted in each run.
        """
        array: Any = origin(self.constants, name)[0]
        if isinstance(self.constants, Computed):
            if isinstance(array, SymbolicArray):
                return False
            self.constants.derive(twin, name, in_type(self.target))
        else:
            if not isinstance(array, (Original, SymbolicArray)):
                array = Original(array)
            self.constants.put(twin, array.in_f32())
        return True

    def _value(self, name: str, value: VTensor) -> None:
        """Add a value with the dims of another one, in the new type."""
        option = Option(name=name)
        self.graph.values[name] = VTensor.as_known(self.target, dict(value.dims), option)

    def _convert(self, name: str, source: str, target: str, end: Node) -> None:
        """Add a node that converts the value ``source`` to the type of ``target`` and makes it.

        Args:
            name: the new node's name, unless it is taken.
            source, target: the names of both values.
            end: the node that changes, which makes ``source`` or reads ``target``.
        """
        dtype = self.graph.values[target].dtype
        op, name = OPERATORS.structural("cast").cls(dtype), self._free(name, target)
        self.nodes[name] = Node(name, op, label_of(op), (source,), (target,))
        self.notes[name] = self.chosen[end.name]

    def _free(self, name: str, own: str = "") -> str:
        """Return ``name``, with apostrophes added until only the value ``own`` may have it."""
        taken = self.graph.nodes, self.graph.values, self.nodes
        while name != own and any(name in names for names in taken):
            name += "'"
        return name
