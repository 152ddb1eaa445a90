"""Values in f16 or bf16 are computed in f32 where that type has no native kernel.

    f(x)  becomes  cast(f(cast(x)))

Libraries declare the element types of their kernels, and which of these the processor has. A node
without a kernel in the narrow type, but with one in f32, is *wide*: it reads and makes f32. Nodes
that have both are wide if that saves conversions: a minimum cut decides, whatever the sizes are.
Then no node is preceded and followed by a conversion without need. A cast between the narrow type
and f32 disappears if both sides are f32; values are then rounded less often than in the given
graph. Constants are widened when they are read, exactly. A note on each conversion names a node
without a narrow kernel.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple

from libdesc.dispatcher import has_kernel
from libdesc.preferences import EVERY, Preferences
from optimizer.constants.computed import Computed, in_type, origin
from optimizer.constants.originals import Original, Originals
from ptensor.background_work import checkpoint
from vtensor.errors import VTensorError
from vtensor.language.graph import Graph, Node
from vtensor.language.operators import OPERATORS, Context, info_of, label_of, run_compute
from vtensor.language.records import dataclass, replace
from vtensor.language.symbolic.symbolic_arrays import SymbolicArray
from vtensor.language.tensor import Option, VTensor
from vtensor.language.traits import VIEWS

#: The element types that are widened, and the type that they become.
NARROW = ("f16", "bf16")
WIDE = "f32"

#: The two sides of the cut, as names that no node has.
WIDE_SIDE, NARROW_SIDE = "\0wide", "\0narrow"

#: As how many conversions one counts of a value that is computed of constants alone: it is as
#: large as weights are, and saves conversions of at most two operands around them.
WEIGHTS = 3

#: More conversions than any graph has.
_ENDLESS = 1 << 30


def widen(graph: Graph, preferences: Preferences = EVERY) -> Graph:
    """Return the same network with nodes in f32 that have no native kernel in a narrower float.

    Inputs, outputs and values that a run asks for keep their types. A graph whose nodes all have
    native kernels is returned as it is.

    Args:
        graph: sealed; it is not changed.
        preferences: the allowed libraries. A pinned node is wide if its library has only a wide
            kernel; a pinned cast stays.
    """
    if all(value.dtype not in NARROW for value in graph.values.values()):
        return graph
    if not (wide := _wide_nodes(graph, preferences)):
        return graph
    constants = graph.constants
    origins = constants.origins() if isinstance(constants, Originals) else constants
    return Retyping(graph, Originals(origins), wide).run()


def _wide_nodes(graph: Graph, preferences: Preferences) -> dict[str, str]:
    """Return, by name of each wide node, a note that names a node without a narrow kernel near it.

    Casts between a narrow type and f32 are among the wide nodes.
    """
    touching = {node.name: node for node in graph.nodes.values() if any(_narrow_of(graph, node))}
    barred = {"f16"} if preferences.wide else set[str]()
    native = {
        name: has_kernel(name, node.op, *operands_of(graph, node), preferences)
        and (bool(info_of(node.op).structural) or barred.isdisjoint(_types(graph, node)))
        for name, node in touching.items()
    }
    if all(native.values()):
        return {}
    sides = {
        name: side
        for name, node in touching.items()
        if (side := _side(graph, node, native[name], preferences)) is not None
    }
    linked = _linked(graph, touching, sides)
    sides |= {name: NARROW_SIDE for name in touching if name not in linked}
    links = {link.value: link for link in _links(graph, touching, sides)}
    wide = with_followers(touching, sides, links, fewest(links.values(), WIDE_SIDE, NARROW_SIDE))
    return {
        name: _note(graph, touching[linked[name]])
        for name in touching
        if sides.get(name, name) in wide
    }


def _types(graph: Graph, node: Node) -> Iterator[str]:
    """Yield the element types of a node's operands."""
    return (graph.values[name].dtype for name in (*node.inputs, *node.outputs))


def _note(graph: Graph, node: Node) -> str:
    """Return the note on conversions that are there because of a node without a narrow kernel."""
    narrow = graph.values[next(_narrow_of(graph, node))].dtype
    return (
        f"{node.op_name} {node.name} is computed in {WIDE}: "
        f"no library of the session has a native {narrow} kernel for it on this processor"
    )


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


def _narrow_of(graph: Graph, node: Node) -> Iterator[str]:
    """Yield the names of a node's operands that have a narrow type, each once."""
    names = dict.fromkeys((*node.inputs, *node.outputs))
    return (name for name in names if graph.values[name].dtype in NARROW)


def operands_of(graph: Graph, node: Node) -> tuple[list[VTensor], list[VTensor]]:
    """Return a node's inputs and its outputs."""
    inputs, outputs = node.inputs, node.outputs
    return [graph.values[name] for name in inputs], [graph.values[name] for name in outputs]


def _changes_width(graph: Graph, node: Node) -> bool:
    """Return whether a node is a cast between a narrow type and f32."""
    types = {*_types(graph, node)}
    return info_of(node.op).structural == "cast" and WIDE in types and types <= {WIDE, *NARROW}


def _side(graph: Graph, node: Node, native: bool, preferences: Preferences) -> str | None:
    """Return the side of a node with narrow operands; None if it may take either.

    A node that only moves elements of constants is narrow: wide constants would take more memory.

    Args:
        graph, node: the graph and the node.
        native: True if the node has a native kernel in its narrow type.
        preferences: the allowed libraries.
    """
    info = info_of(node.op)
    if info.structural == "cast" and preferences.pinned(node.name, info.name):
        return NARROW_SIDE
    if _changes_width(graph, node):
        return WIDE_SIDE
    moved = [name for name in _narrow_of(graph, node) if name in node.inputs]
    if info.structural and moved and all(name in graph.constants for name in moved):
        return NARROW_SIDE
    op, [inputs, outputs] = _wide_op(graph, node), operands_of(graph, node)
    inputs, outputs = [*map(_widened, inputs)], [*map(_widened, outputs)]
    try:
        made = run_compute(Context(node=node.name), op, inputs)
    except VTensorError:
        return NARROW_SIDE
    if [value.dtype for value in made] != [value.dtype for value in outputs]:
        return NARROW_SIDE  # a parameter decides the type
    if native == has_kernel(node.name, op, inputs, outputs, preferences):
        return None
    return NARROW_SIDE if native else WIDE_SIDE


def _widened(value: VTensor) -> VTensor:
    """Return a new value in f32 for a narrow one, else the value itself."""
    if value.dtype not in NARROW:
        return value
    return VTensor.as_known(WIDE, dict(value.dims), value.option)


def _wide_op(graph: Graph, node: Node) -> object:
    """Return the operator of a node in f32: another one for a cast to a narrow type."""
    if info_of(node.op).structural == "cast" and graph.values[node.outputs[0]].dtype in NARROW:
        return OPERATORS.structural("cast").cls(WIDE)
    return node.op


class Link(NamedTuple):
    """A value that may be converted and is no constant, as an edge of the cut.

    Attributes:
        value: its name.
        maker: the side or the name of the node that makes it.
        readers: the sides or names of the nodes that read it.
        weight: as how many conversions a conversion of it counts.
    """

    value: str
    maker: str
    readers: Sequence[str]
    weight: int = 1

    def cost(self, chosen: Collection[str]) -> int:
        """Return as how many conversions the value counts if the nodes in ``chosen`` are on one
        side, and all others on the other.
        """
        apart = any((reader in chosen) != (self.maker in chosen) for reader in self.readers)
        return self.weight * apart


def _links(graph: Graph, touching: Mapping[str, Node], sides: Mapping[str, str]) -> Iterator[Link]:
    """Yield a link for each narrow value that is read and is no constant.

    Args:
        graph: the graph; its inputs and outputs are on the narrow side.
        touching: the nodes with narrow operands, by name.
        sides: the sides of the nodes that cannot choose.
    """
    makers, readers = dict[str, str](), defaultdict[str, list[str]](list)
    weights = set[str]()
    for name, node in touching.items():
        makers |= dict.fromkeys(node.outputs, sides.get(name, name))
        if all(value in graph.constants or value in weights for value in node.inputs):
            weights.update(node.outputs)
        for value in node.inputs:
            readers[value].append(sides.get(name, name))
    for value in graph.outputs.values():
        readers[value].append(NARROW_SIDE)
    for value, names in readers.items():
        if graph.values[value].dtype in NARROW and value not in graph.constants:
            weight = WEIGHTS if value in weights else 1
            yield Link(value, makers.get(value, NARROW_SIDE), names, weight)


def _linked(
    graph: Graph, touching: Mapping[str, Node], sides: Mapping[str, str]
) -> Mapping[str, str]:
    """Return, for each node that narrow values link to nodes without a narrow kernel, the nearest.

    Arguments are as for ``_links``. Casts that change the width, and narrow nodes, end the search.
    """
    near = defaultdict[str, list[str]](list)
    for name, node in touching.items():
        for value in _narrow_of(graph, node):
            near[value].append(name)
    work = [
        name
        for name, side in sides.items()
        if side == WIDE_SIDE and not _changes_width(graph, touching[name])
    ]
    linked = {name: name for name in work}
    for name in work:
        for value in _narrow_of(graph, touching[name]):
            for other in near[value] if value not in graph.constants else ():
                if other not in linked:
                    linked[other] = linked[name]
                    work += [] if other in sides else [other]
    return linked


def fewest(links: Iterable[Link], chosen: str, others: str) -> set[str]:
    """Return the fewest nodes for the side ``chosen`` that cause the fewest conversions, with the
    name of that side.

    They are a side of a minimum cut, found by augmenting paths. networkx has one too, but each
    first start of such a model would import it, which takes longer than all of this pass.

    Args:
        links: the edges of the cut.
        chosen, others: the names of the two sides.
    """
    room: dict[object, dict[object, int]] = defaultdict(lambda: defaultdict(int))
    for link in links:
        up, down = (link.value, "widened"), (link.value, "narrowed")
        room[up][link.maker] = room[link.maker][down] = link.weight
        for reader in link.readers:
            room[reader][up] = room[down][reader] = _ENDLESS
    while True:
        before: dict[object, object] = {chosen: None}
        found = [*before]
        for place in found:
            for to in [to for to, left in room[place].items() if left and to not in before]:
                before[to] = place
                found.append(to)
            if others in before:
                break
        else:
            return {place for place in found if isinstance(place, str)}
        place = others
        while (parent := before[place]) is not None:
            room[parent][place] -= 1
            room[place][parent] += 1
            place = parent


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
    types: Collection[str] = NARROW
    target: str = WIDE
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
        values, op = self.graph.values, _wide_op(self.graph, node)
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
