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

#: The stride between elements that are read, by dim.
Steps = Mapping[str, int]

#: The most element-wise nodes in a row that are followed from a value back to its windows.
DEPTH = 100


def thin(graph: Graph, preferences: Preferences = EVERY) -> Graph:
    """Return the same network without those elements of values that are not read.

    A value keeps all its elements if it is an output, if no window computes it, or if more operands
    would be sliced than windows thinned.

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
    """Return the strides, by dim, with which all of ``nodes`` read their first input, and by name
    new nodes that read the thinned input instead.

    None if the nodes differ in strides, or one of them reads every element.
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
    """The changes that thin a value and the values from which it is computed.

    Attributes:
        graph: the graph, which is not changed.
        readers: the makers and readers of its values.
        steps: the stride by dim: of every so many elements one remains.
        cutting: True if values that stay whole may be sliced.
        values: the changed values by name.
        nodes: the changed nodes by name.
        cuts: the new slices, by the value that they slice.
        windows: the number of windows with larger strides.
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
        """Thin a value; return False if its maker is neither a window nor element-wise, or has an
        operand that can neither be thinned nor sliced.

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
        """Return the name that a node reads instead of ``name``; empty if the value can neither be
        thinned nor sliced.

        ``depth`` is as for ``thin_value``.
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
        """Add a slice of a value that stays whole, and return the slice's name; empty if slices are
        not allowed.

        Strides have to divide the sizes of dims: libraries can then read the slice in place.
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
        """Add the value that a changed node makes; return whether it has the thinned sizes.

        False also if the operator refuses its operands.
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
        """Yield the name and node of all nodes in order: changed ones in place of the former ones.

        A slice comes as early as possible, so that it precedes windows to which a reader may be
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
