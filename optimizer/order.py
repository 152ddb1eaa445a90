"""Changes of the order of dims move from before element-wise nodes to after them.

    f(order(x), c)  becomes  order(f(x, c))

Dims are matched by name, so an element-wise node works in any order of dims. A node that only
changes the order of dims, of which exporters make many, hides the nodes after it from other
simplifications. The constants that an element-wise node reads are transposed to the order of its
other operands. That is done for all sizes, so that graphs for different sizes are the same.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field
from functools import partial
from typing import Any

from libdesc.preferences import EVERY, Preferences
from optimizer.constants.computed import Computed, Made, origin
from optimizer.constants.originals import Original
from vtensor.language.graph import Graph, Node
from vtensor.language.operators import OPERATORS, Context, info_of, label_of, run_compute
from vtensor.language.records import dataclass, replace
from vtensor.language.symbolic.symbolic_arrays import SymbolicArray, turned
from vtensor.language.tensor import Option, VTensor


def order(graph: Graph, preferences: Preferences = EVERY) -> Graph:  # noqa: ARG001
    """Return the same network with nodes that only change the order of dims moved as far to the end
    as possible.

    Args:
        graph: sealed; it is not changed.
        preferences: not used: no node changes its operator.
    """
    constants = Computed(graph.constants)
    ordered = replace(
        graph, values=dict(graph.values), constants=constants, nodes=dict(graph.nodes)
    )
    work = _Reordering(ordered, constants)
    for node in graph.nodes.values():
        work.add(node)
    return replace(ordered, nodes=work.needed_nodes()) if work.changed else graph


@dataclass
class _Reordering:
    """A graph that is being changed, node by node.

    Attributes:
        graph: the graph; new values are added to it.
        constants: the graph's constants.
        source: by name of a value that a change of order makes, the name of the value before that
            change and before all changes of order right before it.
        nodes: the nodes of the new graph, in order.
        changed: True if a node of the new graph differs from the old one.
    """

    graph: Graph
    constants: Computed
    source: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    changed: bool = False

    def add(self, node: Node) -> None:
        """Add the next node to the new graph.

        An element-wise node that reads results of changes of order gets the values before these
        changes as its operands.
        """
        names = getattr(node.op, "names", ())
        kind = info_of(node.op).structural
        if kind == "rename" and len(names) and all(old == new for old, new in names):
            self.source[node.outputs[0]] = self.source.get(node.inputs[0], node.inputs[0])
        elif info_of(node.op).elementwise and not self.source.keys().isdisjoint(node.inputs):
            self._add_late(node)
            return
        self.nodes[node.name] = node

    def needed_nodes(self) -> dict[str, Node]:
        """Return the nodes of the new graph by name, in order. Changes of order whose result is
        not needed are left out.
        """
        wanted, kept = set(self.graph.outputs.values()), list[Node]()
        for node in reversed(self.nodes.values()):
            if node.outputs[0] not in self.source or node.outputs[0] in wanted:
                wanted |= {*node.inputs}
                kept.append(node)
        return {node.name: node for node in reversed(kept)}

    def _add_late(self, node: Node) -> None:
        """Add an element-wise node whose operands are the values before changes of order.

        If the dims of its result then have another order, a change of order is added after it.
        """
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
        """Return the name of the operand that an element-wise node reads in place of the value
        ``name``.

        - If a change of order makes the value, it is the value before this change.
        - For a constant, it is a constant with the axes in the order of ``dims``, which is added if
          it is new.
        - Otherwise it is ``name`` itself.
        """
        value = self.graph.values[name]
        if name not in self.constants:
            return self.source.get(name, name)
        value_dims = [*value.dims]
        places = [value_dims.index(dim) for dim in (*dims, *value_dims) if dim in value_dims]
        axes = tuple(dict.fromkeys(places))
        if axes == tuple(range(len(value_dims))):
            return name
        other = f"{name}:{' '.join(value_dims[axis] for axis in axes)}"
        if other not in self.graph.values:
            sizes = {value_dims[axis]: value.dims[value_dims[axis]] for axis in axes}
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
        """Return ``name``, with apostrophes added until the graph has no such name."""
        while name in self.graph.values or name in self.graph.nodes:
            name += "'"
        return name
