"""If only every second column of a result is read, compute only those columns.

    picks(relu(x * w + r))  becomes  relu(thinned(x * w) + slice(r))

``picks`` reads every second element, or every n-th, along some dims: a window of one element with
strides of 2 does. Where all readers of a value pick the same elements, the window that computes it
takes larger strides, and computes these alone. Element-wise nodes between the two then work on
fewer elements; their other operands are computed with larger strides too, or sliced.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache, partial

from libdesc.preferences import EVERY, Preferences
from libdesc.registry import ready
from optimizer.readers import Readers
from vtensor.errors import VTensorError
from vtensor.language.graph import Graph, Node
from vtensor.language.operators import OPERATORS, Context, info_of, label_of, run_compute
from vtensor.language.records import dataclass, replace
from vtensor.language.tensor import Option, VTensor
from vtensor.language.traits import Picks, Thins

Steps = Mapping[str, int]

#: How many element-wise nodes there may be between windows, one behind another.
DEPTH = 100


def thin(graph: Graph, preferences: Preferences = EVERY) -> Graph:
    """The same graph, in which values lack the elements that nobody reads.

    A value keeps all of them where it is an output, where no window computes it, or where more
    operands would have to be sliced than windows compute less.

    Args:
        graph: sealed; it is not changed.
        preferences: the libraries; where none of them cuts in native code, nothing is cut. A node
            that is pinned to one stays there.
    """
    made = replace(graph, values=dict(graph.values), nodes=dict(graph.nodes))
    readers, may_cut = Readers(made), cache(partial(_cutting, preferences))
    for value in reversed([name for node in graph.nodes.values() for name in node.outputs]):
        if (picked := _picked(made, readers.of(value))) is not None:
            steps, without = picked
            change = _Change(made, readers, steps, may_cut(graph.values[value].device))
            if change.made(value) and 0 < change.windows >= len(change.cuts):
                made.values.update(change.values)
                made.nodes = dict(change.order(without))
                readers = Readers(made)
    return made


def _cutting(preferences: Preferences, device: str) -> bool:
    """True where a library that may be used cuts without calling back into Python."""
    rows = ready().candidates(OPERATORS.structural("slice").name, device)
    return any(preferences.allows(info.library) and not info.python for _, info in rows)


def _picked(graph: Graph, nodes: Sequence[Node]) -> tuple[Steps, dict[str, Node]] | None:
    """The elements that all of some nodes read of their first input, and the nodes on those alone;
    None where one reads others, or every element.
    """
    without, found = dict[str, Node](), list[Steps]()
    for node in nodes:
        picks = info_of(node.op).trait(Picks)
        if picks is None or len({*node.inputs}) < len(node.inputs):
            return None
        picked = picks.steps(node.op, *(graph.values[name] for name in node.inputs))
        if picked is None:
            return None
        steps, op = picked
        found.append({dim: step for dim, step in steps.items() if step > 1})
        without[node.name] = replace(node, op=op, op_name=label_of(op))
    if not found or not found[0] or any(steps != found[0] for steps in found):
        return None
    return found[0], without


@dataclass
class _Change:
    """What becomes of a value and of those that it is made of.

    Attributes:
        graph, readers: as it is.
        steps: by dim, of the elements that are left.
        cutting: values that stay whole may be cut.
        values, nodes: those that change, by name.
        cuts: nodes that take the elements of values that stay whole, by those.
        windows: how many nodes have less to do.
    """

    graph: Graph
    readers: Readers
    steps: Steps
    cutting: bool
    values: dict[str, VTensor] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    cuts: dict[str, Node] = field(default_factory=dict)
    windows: int = 0

    def made(self, value: str, depth: int = 0) -> bool:
        """Let a value have fewer elements; False where what makes it cannot do so."""
        node = self.readers.maker(value)
        if node is None or len(node.outputs) > 1 or depth > DEPTH:
            return False
        info, given = info_of(node.op), [self.graph.values[name] for name in node.inputs]
        if (thins := info.trait(Thins)) is not None:
            op = thins.make(node.op, given[0], self.steps)
            self.nodes[node.name] = replace(node, op=op, op_name=label_of(op))
            self.windows += 1
            return self._computed(self.nodes[node.name])
        if not info.elementwise:
            return False
        inputs = tuple(self._operand(name, depth + 1) for name in node.inputs)
        if "" in inputs:
            return False
        self.nodes[node.name] = replace(node, inputs=inputs)
        return self._computed(self.nodes[node.name])

    def _operand(self, name: str, depth: int) -> str:
        """What an element-wise node reads instead of a value; empty where that cannot be."""
        dims = self.graph.values[name].dims
        if all(dims.get(dim, 1) == 1 for dim in self.steps):
            return name
        before = dict(self.values), dict(self.nodes), dict(self.cuts), self.windows
        if self.readers.only(name) is not None and self.made(name, depth):
            return name
        self.values, self.nodes, self.cuts, self.windows = before
        return self._cut(name)

    def _cut(self, name: str) -> str:
        """The elements of a value that are read, by a node of its own.

        Only where steps divide a dim: then libraries can see the elements as a part of the memory.
        """
        if name in self.cuts:
            return self.cuts[name].name
        whole = self.graph.values[name]
        axes = tuple(dim for dim in self.steps if whole.dims.get(dim, 1) > 1)
        ends, steps = tuple(map(whole.size, axes)), tuple(self.steps[dim] for dim in axes)
        if not self.cutting or any(end % step for end, step in zip(ends, steps, strict=True)):
            return ""
        op = OPERATORS.structural("slice").cls(axes, (0,) * len(axes), ends, steps)
        made = f"{name}:thin"
        while made in self.graph.values or made in self.values:
            made += "'"
        self.cuts[name] = Node(made, op, label_of(op), (name,), (made,))
        self._computed(self.cuts[name])
        return made

    def _computed(self, node: Node) -> bool:
        """Have the value of a node as it now is; False where it is not the one that is wanted."""
        given = [self.values.get(n) or self.graph.values[n] for n in node.inputs]
        try:
            [out] = run_compute(Context(node=node.name), node.op, given)
        except VTensorError:
            return False
        [name] = node.outputs
        self.values[name] = VTensor(out.dtype, out.dims, Option(name=name))
        whole = self.graph.values.get(name)
        wanted = whole and {d: -(-s // self.steps.get(d, 1)) for d, s in whole.dims.items()}
        return wanted is None or dict(out.dims) == wanted

    def order(self, others: Mapping[str, Node]) -> Iterator[tuple[str, Node]]:
        """All nodes, those that change and these others in their places.

        A cut comes as soon as it can: before windows that it may be fused behind as an operand.
        """
        given = (cut for name, cut in self.cuts.items() if self.readers.maker(name) is None)
        yield from ((cut.name, cut) for cut in given)
        for name, node in self.graph.nodes.items():
            yield name, self.nodes.get(name) or others.get(name) or node
            cuts = (self.cuts[value] for value in node.outputs if value in self.cuts)
            yield from ((cut.name, cut) for cut in cuts)
