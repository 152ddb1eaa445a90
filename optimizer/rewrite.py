"""What exporters spell out in many nodes becomes the one operator that it is.

    x * (1 + erf(x / sqrt(2))) / 2  becomes  gelu(x)

The rules are data: each stands in the file of the operator that it makes, and is registered as the
operators are (``libdesc/rules.py``). The pass knows no operator.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from libdesc.preferences import EVERY, Preferences
from libdesc.registry import ready
from optimizer.match import Matcher, Met
from optimizer.originals import copied
from optimizer.readers import Readers
from ptensor.background_work import checkpoint
from vtensor.errors import VTensorError
from vtensor.language.dtype import numpy_dtype
from vtensor.language.graph import Graph, Node
from vtensor.language.operators import OPERATORS, Context, info_of, label_of, run_compute
from vtensor.language.records import dataclass, replace
from vtensor.language.rules import Apply, Hole, Match, Named, Number, Pattern, Rule
from vtensor.language.symbolic_arrays import SymbolicArray
from vtensor.language.tensor import CPU, Option, VTensor

#: Element types that rules are for.
FLOATS = ("f32", "f64", "f16", "bf16")


def rewrite(
    graph: Graph,
    preferences: Preferences = EVERY,
    rules: Collection[str] | None = None,
    *,
    off: Collection[str] = (),
    native: bool = True,
    only: Collection[tuple[str, str]] | None = None,
) -> Graph:
    """The same network, in which every pattern of a rule is replaced by what the rule makes.

    A pattern stays where one of its nodes is pinned, or where another node or an output needs a
    value inside it.

    Args:
        graph: sealed; it is not changed.
        preferences: which nodes are pinned, and which libraries may be used.
        rules: the names of those that may be applied; None is all.
        off: the names of those that may not.
        native: a pattern also stays where each of its operators has a native invoker among these
            libraries, and one of those that would be made has none.
        only: the rules and last nodes at which patterns are looked for; None is everywhere. So the
            graph of other sizes is rewritten at once as another one was.
    """
    by_root = defaultdict[str, list[tuple[Rule, Apply]]](list)
    operators = {info_of(node.op).name for node in graph.nodes.values()}
    for name, rule in ready().rules_for(operators).items():
        if (rules is None or name in rules) and name not in off:
            for pattern in rule.roots:
                by_root[pattern.op].append((rule, pattern))
    made = replace(
        graph,
        values=dict(graph.values),
        constants=copied(graph.constants),
        nodes=dict(graph.nodes),
        merged=dict(graph.merged),
    )
    work = _Work(made, Readers(made), preferences, native)
    roots = graph.nodes if only is None else {root for _, root in only}
    for name in (name for name in graph.nodes if name in roots):
        checkpoint()
        applied = True
        while applied and (root := made.nodes.get(name)) is not None:
            fitting = [
                (rule, pattern)
                for rule, pattern in by_root.get(info_of(root.op).name, ())
                if only is None or (rule.name, name) in only
            ]
            applied = any(work.apply(rule, pattern, root) for rule, pattern in fitting)
    done = frozenset(work.done)
    return replace(made, nodes=dict(work.order()), rewritten=dict(work.count), applied=done)


@dataclass
class _Work:
    """A graph that is being rewritten.

    Attributes:
        native: as for ``rewrite``.
        before: new nodes, by the one that they come before.
        done: rules that have been applied at a node: each once, so that it ends.
        count: how often each rule has been.
        native_ones: whether operators run in native code, by name, so far as that was asked.
    """

    graph: Graph
    readers: Readers
    preferences: Preferences
    native: bool
    before: dict[str, list[Node]] = field(default_factory=dict)
    done: set[tuple[str, str]] = field(default_factory=set)
    count: Counter[str] = field(default_factory=Counter)
    native_ones: dict[str, bool] = field(default_factory=dict)

    def apply(self, rule: Rule, pattern: Apply, root: Node) -> bool:
        """Apply a rule where a pattern of it ends at a node; False where it cannot be."""
        graph = self.graph
        if (rule.name, root.name) in self.done or graph.values[root.outputs[0]].dtype not in FLOATS:
            return False
        for met in Matcher(graph, self.readers).find(pattern, root):
            if any(self._pinned(graph.nodes[name]) for name in met.nodes):
                continue
            match = self._match(met, root)
            given = rule.given(match)
            if given is None:
                continue
            new = _Making(graph, root, match, {**match.numbers, **met.parameters, **given})
            if new.made(rule.makes) and not self._worse(met, new):
                self._replace(met, new)
                self.done.add((rule.name, root.name))
                self.count[rule.name] += 1
                return True
        return False

    def _worse(self, met: Met, new: _Making) -> bool:
        """Native code would become a call back into Python."""
        nodes = (self.graph.nodes[name] for name in met.nodes)
        return self.native and not all(map(self._runs, new.nodes)) and all(map(self._runs, nodes))

    def _runs(self, node: Node) -> bool:
        """A library that may be used has native code for an operator."""
        name, allows = info_of(node.op).name, self.preferences.allows
        if name not in self.native_ones:
            rows = ready().candidates(name, CPU)
            found = any(allows(info.library) and not info.python for _, info in rows)
            self.native_ones[name] = found
        return self.native_ones[name]

    def _pinned(self, node: Node) -> bool:
        return self.preferences.pinned(node.name, info_of(node.op).name) is not None

    def _match(self, met: Met, root: Node) -> Match:
        values = {hole: self.graph.values[name] for hole, name in met.values.items()}
        arrays: dict[str, Any] = {
            hole: self.graph.constants.get(name) for hole, name in met.values.items()
        }
        numbers = {
            hole: array
            if isinstance(array, SymbolicArray) or array.size != 1
            else float(array.flat[0])
            for hole, array in arrays.items()
            if array is not None
        }
        return Match(values, met.parameters, numbers, self.graph.values[root.outputs[0]])

    def _replace(self, met: Met, new: _Making) -> None:
        graph, root = self.graph, new.root
        *others, last = new.nodes
        gone = [name for name in graph.nodes if name in met.nodes]
        early = [node for name in gone for node in self.before.pop(name, ())]
        self.before[root.name] = [*early, *others]
        for name in gone:
            self.readers.drop(graph.nodes[name])
            if name != root.name:
                del graph.nodes[name]
                graph.merged[name] = root.name
        graph.nodes.update({node.name: node for node in (*others, last)})
        graph.values.update(new.values)
        graph.constants.update(new.constants)
        for node in new.nodes:
            self.readers.add(node)

    def order(self) -> Iterator[tuple[str, Node]]:
        """All nodes in running order: new ones in front of that which they are for."""
        early = {node.name for nodes in self.before.values() for node in nodes}
        for name, node in self.graph.nodes.items():
            for one in self.before.get(name, ()):
                if one.name in self.graph.nodes:
                    yield one.name, one
            if name not in early:
                yield name, node


@dataclass
class _Making:
    """What a rule makes in the place of a node."""

    graph: Graph
    root: Node
    match: Match
    parameters: Mapping[str, Any]
    nodes: list[Node] = field(default_factory=list)
    values: dict[str, VTensor] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)

    def made(self, template: Apply) -> bool:
        """Make all nodes; False where they are not what is replaced, or no operator takes them."""
        [result, *_], wanted = self.root.outputs, self.match.output
        try:
            found = self._operand(template)
        except VTensorError:
            return False
        assert found is not None, "it is a node's"
        if (found.dtype, dict(found.dims)) != (wanted.dtype, dict(wanted.dims)):
            return False
        if [*found.dims] != [*wanted.dims]:
            names = tuple((dim, dim) for dim in wanted.dims)
            found = self._node(OPERATORS.structural("rename").cls(names), [found])
        node, *rest = self.nodes[-1], *self.nodes[-1].outputs[1:]
        del self.values[node.outputs[0]]
        self.values[result] = VTensor(found.dtype, found.dims, Option(name=result))
        self.nodes[-1] = replace(node, name=self.root.name, outputs=(result, *rest))
        return True

    def _operand(self, pattern: Pattern) -> VTensor | None:
        match pattern:
            case Hole(name):
                if (value := self.match.values.get(name)) is not None:
                    return self.graph.values[value.name]
                array, dims = self.parameters.get(name, (None, ()))
                return None if array is None else self._constant(array, dims)
            case Number(value):
                return self._constant(value, ())
            case Apply(op, operands, parameters):
                given = [made for one in operands if (made := self._operand(one)) is not None]
                rows = {key: self._parameter(one) for key, one in parameters.items()}
                known = {key: one for key, one in rows.items() if one is not None}
                return self._node(OPERATORS[op].cls(**known), given)
        raise AssertionError("a rule makes no choice")

    def _parameter(self, given: object) -> Any:
        return self.parameters.get(given.name) if isinstance(given, Named) else given

    def _constant(self, values: Any, dims: Sequence[str]) -> VTensor:
        name, dtype = self._free(f"{self.root.name}:constant"), self.match.output.dtype
        kind = numpy_dtype(dtype)
        known = isinstance(values, SymbolicArray) and values.dtype == kind
        array = self.constants[name] = values if known else np.asarray(values, kind)
        sizes = dict(zip(dims, array.shape, strict=True))
        self.values[name] = VTensor(dtype, sizes, Option(name=name))
        return self.values[name]

    def _node(self, op: Any, given: Sequence[VTensor]) -> VTensor:
        name = self._free(f"{self.root.name}:{label_of(op).lower()}")
        outputs = run_compute(Context(node=name), op, given)
        names = tuple(self._free(f"{name}:{i}") if i else name for i in range(len(outputs)))
        for value, out in zip(names, outputs, strict=True):
            self.values[value] = VTensor(out.dtype, out.dims, Option(name=value))
        self.nodes.append(Node(name, op, label_of(op), tuple(v.name for v in given), names))
        return self.values[name]

    def _free(self, name: str) -> str:
        taken = (self.graph.values, self.graph.nodes, self.values)
        while any(name in names for names in taken):
            name += "'"
        return name
