"""The order in which dims are presented changes behind element-wise nodes, not before them.

    f(order(x), c)  becomes  order(f(x, c))

Dims meet by name, so that an element-wise node does not mind; but a change of order, of which
exporters make many, hides from other simplifications what is behind a node. A constant in such a
node is turned to the order of the other operands, whatever its sizes are: a graph for other sizes
is then the same.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field
from functools import partial
from typing import Any

from libdesc.preferences import EVERY, Preferences
from optimizer.computed import Computed, Made, origin
from optimizer.originals import Original
from vtensor.language.graph import Graph, Node
from vtensor.language.operators import OPERATORS, Context, info_of, label_of, run_compute
from vtensor.language.records import dataclass, replace
from vtensor.language.symbolic_arrays import SymbolicArray, turned
from vtensor.language.tensor import Option, VTensor


def order(graph: Graph, preferences: Preferences = EVERY) -> Graph:  # noqa: ARG001
    """The same network with changes of order as late as they can be.

    Args:
        graph: sealed; it is not changed.
        preferences: not asked: no node changes what it computes.
    """
    constants = Computed(graph.constants)
    made = replace(graph, values=dict(graph.values), constants=constants, nodes=dict(graph.nodes))
    work = _Work(made, constants)
    for node in graph.nodes.values():
        work.take(node)
    return replace(made, nodes=work.read()) if work.changed else graph


@dataclass
class _Work:
    """A graph that is being changed, node by node.

    Attributes:
        constants: the graph's.
        source: by value, what it is under another order.
        nodes: those that stand, in order.
        changed: whether any node is another.
    """

    graph: Graph
    constants: Computed
    source: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    changed: bool = False

    def take(self, node: Node) -> None:
        """Take the next node over, perhaps in front of a change of order."""
        names = getattr(node.op, "names", ())
        kind = info_of(node.op).structural
        if kind == "rename" and len(names) and all(old == new for old, new in names):
            self.source[node.outputs[0]] = self.source.get(node.inputs[0], node.inputs[0])
        elif info_of(node.op).elementwise and not self.source.keys().isdisjoint(node.inputs):
            self._late(node)
            return
        self.nodes[node.name] = node

    def read(self) -> dict[str, Node]:
        """The nodes without the changes of order that nobody reads any more."""
        wanted, kept = set(self.graph.outputs.values()), list[Node]()
        for node in reversed(self.nodes.values()):
            if node.outputs[0] not in self.source or node.outputs[0] in wanted:
                wanted |= {*node.inputs}
                kept.append(node)
        return {node.name: node for node in reversed(kept)}

    def _late(self, node: Node) -> None:
        """A node on its operands as they were before, and the change of order behind it."""
        values, constants = self.graph.values, self.constants
        computed = [self.source.get(name, name) for name in node.inputs if name not in constants]
        dims = dict.fromkeys(dim for name in computed for dim in values[name].dims)
        inputs = tuple(self._operand(name, dims) for name in node.inputs)
        [out] = run_compute(Context(node=node.name), node.op, [values[name] for name in inputs])
        [value] = node.outputs
        if [*out.dims] == [*values[value].dims]:
            self.nodes[node.name] = replace(node, inputs=inputs)
        else:
            inner = self._free(f"{value}:late")
            values[inner] = VTensor(out.dtype, out.dims, Option(name=inner))
            self.nodes[node.name] = replace(node, inputs=inputs, outputs=(inner,))
            op = OPERATORS.structural("rename").cls(tuple((dim, dim) for dim in values[value].dims))
            last = self._free(f"{node.name}:order")
            self.nodes[last] = Node(last, op, label_of(op), (inner,), (value,))
            self.source[value] = inner
        self.changed = True

    def _operand(self, name: str, dims: Collection[str]) -> str:
        """A value before its change of order; a constant in the order of these dims."""
        value = self.graph.values[name]
        if name not in self.constants:
            return self.source.get(name, name)
        own = [*value.dims]
        places = [own.index(dim) for dim in (*dims, *own) if dim in own]
        axes = tuple(dict.fromkeys(places))
        if axes == tuple(range(len(own))):
            return name
        other = f"{name}:{' '.join(own[axis] for axis in axes)}"
        if other not in self.graph.values:
            sizes = {own[axis]: value.dims[own[axis]] for axis in axes}
            self.graph.values[other] = VTensor(value.dtype, sizes, Option(name=other))
            array: Any
            array, change = origin(self.constants, name)
            if isinstance(array, Original) and change is None:
                self.constants[other] = array.turned(axes)
            elif isinstance(array, SymbolicArray) and change is None:
                array = array.in_order(axes)
                self.constants[other] = array
            else:
                turn = partial(turned, axes=axes)
                self.constants.derive(other, name, Made(turn, ("turned", axes)))
        return other

    def _free(self, name: str) -> str:
        while name in self.graph.values or name in self.graph.nodes:
            name += "'"
        return name
