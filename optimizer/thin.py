"""If only every second column of a result is read, compute only those columns.

    picks(relu(x * w + r))  becomes  relu(thinned(x * w) + slice(r))

``picks`` is a node that reads every second element, or every n-th, along some dims, such as a
window of one element with strides of 2. If all readers of a value pick the same elements, the
window that computes the value gets larger strides and computes only these elements. Element-wise
nodes between the two then work on fewer elements. Their other operands are computed with larger
strides, too, or sliced.
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

#: The stride of the elements that are read along each dim, by dim.
Steps = Mapping[str, int]

#: The most consecutive element-wise nodes between a value and the windows that compute it.
DEPTH = 100


def thin(graph: Graph, preferences: Preferences = EVERY) -> Graph:
    """Return the same network in which elements of values that no node reads are not computed.

    A value keeps all its elements in these cases: it is an output of the graph; no window computes
    it; or more operands would have to be sliced than windows get larger strides.

    Args:
        graph: sealed; it is not changed.
        preferences: the allowed libraries. If none of them slices in native code, nothing is
            sliced. A pinned node stays on its library.
    """
    thinned = replace(graph, values=dict(graph.values), nodes=dict(graph.nodes))
    readers, may_cut = Readers(thinned), cache(partial(_cutting, preferences))
    for value in reversed([name for node in graph.nodes.values() for name in node.outputs]):
        if (picked := _picked(thinned, readers.of(value))) is not None:
            steps, new_readers = picked
            change = _Thinning(thinned, readers, steps, may_cut(graph.values[value].device))
            if change.thin_value(value) and 0 < change.windows >= len(change.cuts):
                thinned.values.update(change.values)
                thinned.nodes = dict(change.order(new_readers))
                readers = Readers(thinned)
    return thinned


def _cutting(preferences: Preferences, device: str) -> bool:
    """Return whether an allowed library slices on ``device`` without a call-back into Python."""
    rows = ready().candidates(OPERATORS.structural("slice").name, device)
    return any(preferences.allows(info.library) and not info.python for _, info in rows)


def _picked(graph: Graph, nodes: Sequence[Node]) -> tuple[Steps, dict[str, Node]] | None:
    """Return the strides, by dim, with which all of ``nodes`` read their first input; and, by name,
    nodes that read that input without strides.

    The latter replace ``nodes`` if the input is thinned: computed only at these strides. Returns
    None if the nodes differ in strides, or if one reads every element.
    """
    thinned_nodes, all_steps = dict[str, Node](), list[Steps]()
    for node in nodes:
        picks = info_of(node.op).trait(Picks)
        if picks is None or len({*node.inputs}) < len(node.inputs):
            return None
        picked = picks.steps(node.op, *(graph.values[name] for name in node.inputs))
        if picked is None:
            return None
        steps, op = picked
        all_steps.append({dim: step for dim, step in steps.items() if step > 1})
        thinned_nodes[node.name] = replace(node, op=op, op_name=label_of(op))
    if not all_steps or not all_steps[0] or any(steps != all_steps[0] for steps in all_steps):
        return None
    return all_steps[0], thinned_nodes


@dataclass
class _Thinning:
    """The changes that thin a value, so that only elements at some strides are computed, and thin
    the values from which it is computed.

    Attributes:
        graph: the graph, which is not changed.
        readers: the makers and readers of its values.
        steps: the strides by dim: of so many elements along the dim, one remains.
        cutting: True if slices may be added, for values that keep all elements.
        values: the changed values by name.
        nodes: the changed nodes by name.
        cuts: the new slices, by the name of the value that each slices.
        windows: the number of windows that got larger strides.
    """

    graph: Graph
    readers: Readers
    steps: Steps
    cutting: bool
    values: dict[str, VTensor] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    cuts: dict[str, Node] = field(default_factory=dict)
    windows: int = 0

    def thin_value(self, value: str, depth: int = 0) -> bool:
        """Thin a value: let only its elements at the strides ``steps`` be computed.

        Returns False if the node that makes the value is neither a window nor element-wise. Returns
        False, too, if an operand of that node can neither be thinned nor sliced.

        Args:
            value: name of the value.
            depth: the number of element-wise nodes between the value and the first thinned one.
        """
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
        """Return the name of the value that a node reads in place of the value ``name``: thinned or
        sliced, or unchanged if it has size 1 along each dim of ``steps``.

        Empty if the value can neither be thinned nor sliced. ``depth`` is the number of
        element-wise nodes between the operand and the value thinned first.
        """
        dims = self.graph.values[name].dims
        if all(dims.get(dim, 1) == 1 for dim in self.steps):
            return name
        before = dict(self.values), dict(self.nodes), dict(self.cuts), self.windows
        if self.readers.only(name) is not None and self.thin_value(name, depth):
            return name
        self.values, self.nodes, self.cuts, self.windows = before
        return self._cut(name)

    def _cut(self, name: str) -> str:
        """Add a slice of a value that keeps all its elements, and return the name of the slice.

        Empty if slices are not allowed, or if a stride does not divide the size of its dim. If it
        does, libraries can read the slice in place.
        """
        if name in self.cuts:
            return self.cuts[name].name
        whole = self.graph.values[name]
        axes = tuple(dim for dim in self.steps if whole.dims.get(dim, 1) > 1)
        ends, steps = tuple(map(whole.size, axes)), tuple(self.steps[dim] for dim in axes)
        if not self.cutting or any(end % step for end, step in zip(ends, steps, strict=True)):
            return ""
        op = OPERATORS.structural("slice").cls(axes, (0,) * len(axes), ends, steps)
        slice_name = f"{name}:thin"
        while slice_name in self.graph.values or slice_name in self.values:
            slice_name += "'"
        self.cuts[name] = Node(slice_name, op, label_of(op), (name,), (slice_name,))
        self._computed(self.cuts[name])
        return slice_name

    def _computed(self, node: Node) -> bool:
        """Add the value that a changed node makes; return whether its sizes are those of the
        thinned value.

        False, too, if the operator refuses its operands.
        """
        operands = [self.values.get(n) or self.graph.values[n] for n in node.inputs]
        try:
            [out] = run_compute(Context(node=node.name), node.op, operands)
        except VTensorError:
            return False
        [name] = node.outputs
        self.values[name] = VTensor(out.dtype, out.dims, Option(name=name))
        whole = self.graph.values.get(name)
        wanted = whole and {d: -(-s // self.steps.get(d, 1)) for d, s in whole.dims.items()}
        return wanted is None or dict(out.dims) == wanted

    def order(self, others: Mapping[str, Node]) -> Iterator[tuple[str, Node]]:
        """Yield (name, node) of all nodes in running order, changed nodes in place of the former
        ones.

        A slice comes as early as possible, so that it is before a window to which its reader may be
        fused.

        Args:
            others: further changed nodes, by name.
        """
        of_inputs = (cut for name, cut in self.cuts.items() if self.readers.maker(name) is None)
        yield from ((cut.name, cut) for cut in of_inputs)
        for name, node in self.graph.nodes.items():
            yield name, self.nodes.get(name) or others.get(name) or node
            cuts = (self.cuts[value] for value in node.outputs if value in self.cuts)
            yield from ((cut.name, cut) for cut in cuts)
