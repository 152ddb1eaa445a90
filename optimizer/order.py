"""The order in which dims are presented changes behind element-wise nodes, not before them.

    f(order(x), c)  becomes  order(f(x, c))

Dims meet by name, so that an element-wise node does not mind; but a change of order, of which
exporters make many, hides from other simplifications what is behind a node. A constant in such a
node loses the dims of size 1 that it repeats: they name an order, too.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import field

from libdesc.preferences import EVERY, Preferences
from optimizer.computed import Computed
from vtensor.language.graph import Graph, Node
from vtensor.language.operators import OPERATORS, Context, info_of, label_of, run_compute
from vtensor.language.records import dataclass, replace
from vtensor.language.tensor import Option, VTensor


def order(graph: Graph, preferences: Preferences = EVERY) -> Graph:  # noqa: ARG001
    """The same network with changes of order as late as they can be.

    Args:
        graph: sealed; it is not changed.
        preferences: not asked: no node changes what it computes.
    """
    made = replace(
        graph,
        values=dict(graph.values),
        constants=Computed(graph.constants),
        nodes=dict(graph.nodes),
    )
    work = _Work(made)
    for node in graph.nodes.values():
        work.take(node)
    return replace(made, nodes=work.read()) if work.changed else graph


@dataclass
class _Work:
    """A graph that is being changed, node by node.

    Attributes:
        source: by value, what it is under another order.
        nodes: those that stand, in order.
        changed: whether any node is another.
    """

    graph: Graph
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
        values, constants = self.graph.values, self.graph.constants
        computed = [values[name].dims for name in node.inputs if name not in constants]
        inputs = tuple(self._operand(name, set().union(*computed)) for name in node.inputs)
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

    def _operand(self, name: str, dims: Set[str]) -> str:
        """A value before its change of order; a constant without what it repeats of these dims."""
        value, array = self.graph.values[name], self.graph.constants.get(name)
        kept = {dim: size for dim, size in value.dims.items() if size != 1 or dim not in dims}
        if array is None or len(kept) == len(value.dims):
            return self.source.get(name, name)
        short = f"{name}:{' '.join(kept)}"
        if short not in self.graph.values:
            self.graph.values[short] = VTensor(value.dtype, kept, Option(name=short))
            self.graph.constants[short] = array.reshape([*kept.values()])
        return short

    def _free(self, name: str) -> str:
        while name in self.graph.values or name in self.graph.nodes:
            name += "'"
        return name
