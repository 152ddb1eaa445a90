"""Patterns of nodes, such as exporters write, become one operator.

    x * (1 + erf(x / sqrt(2))) / 2  becomes  gelu(x)

The rules are data: each is in the file of the operator that it makes, and is registered as
operators are (``libdesc/rules.py``). The pass itself knows no operator.
"""

from __future__ import annotations

from collections import ChainMap, Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from libdesc.dispatcher import has_kernel
from libdesc.preferences import EVERY, Preferences
from libdesc.registry import ready
from optimizer.choice.estimate import Estimate
from optimizer.constants.originals import copied
from optimizer.match import Matched, Matcher
from optimizer.readers import Readers
from optimizer.retyping import conversion, fastest
from optimizer.widen import HALF_FLOATS
from ptensor.background_work import checkpoint
from vtensor.errors import VTensorError
from vtensor.language.cached import cached_property
from vtensor.language.dtype import numpy_dtype
from vtensor.language.graph import Graph, Node
from vtensor.language.operators import OPERATORS, Context, info_of, label_of, run_compute
from vtensor.language.records import dataclass, replace
from vtensor.language.rules import Apply, Hole, Match, Named, Number, Pattern, Rule
from vtensor.language.symbolic.symbolic_arrays import SymbolicArray
from vtensor.language.tensor import CPU, Option, VTensor
from vtensor.language.traits import Encodes

#: The element types of integers for which libraries have kernels of their own.
BYTES = ("s8", "u8")

#: Element types of values that rules are applied to.
FLOATS = ("f32", "f64", "f16", "bf16")


def rewrite(
    graph: Graph,
    preferences: Preferences = EVERY,
    rules: Collection[str] | None = None,
    *,
    off: Collection[str] = (),
    native: bool = True,
    only: Collection[tuple[str, str]] | None = None,
    early: bool = False,
) -> Graph:
    """Return the same network with each match of a rule's pattern replaced by what the rule makes.

    A match stays if one of its nodes is pinned. It stays, too, if a value inside it is read by a
    node outside it, or is an output of the graph.

    Args:
        graph: sealed; it is not changed.
        preferences: which nodes are pinned, and which libraries may be used.
        rules: the names of the rules that may be applied; None is all.
        off: the names of rules that may not be applied.
        native: True also keeps a match whose replacement would leave native code: each operator of
            the match has a native invoker in an allowed library, and an operator of the replacement
            has none.
        only: the matches to which the search is restricted, as (rule, name of the last node), such
            as ``applied`` of a graph of the same network for other sizes; None is no restriction.
        early: True applies the rules with ``early``, False all others.
    """
    by_root = defaultdict[str, list[tuple[Rule, Apply]]](list)
    operators = {info_of(node.op).name for node in graph.nodes.values()}
    for name, rule in ready().rules_for(operators).items():
        if (rules is None or name in rules) and name not in off and rule.early == early:
            for pattern in rule.roots:
                by_root[pattern.op].append((rule, pattern))
    if not by_root:
        return graph
    rewritten = replace(
        graph,
        values=dict(graph.values),
        constants=copied(graph.constants),
        nodes=dict(graph.nodes),
        merged=dict(graph.merged),
    )
    work = _Rewriting(rewritten, Readers(rewritten), preferences, native, only is None)
    roots = graph.nodes if only is None else {root for _, root in only}
    for name in (name for name in graph.nodes if name in roots):
        checkpoint()
        applied = True
        while applied and (root := rewritten.nodes.get(name)) is not None:
            fitting = [
                (rule, pattern)
                for rule, pattern in by_root.get(info_of(root.op).name, ())
                if only is None or (rule.name, name) in only
            ]
            applied = any(work.apply(rule, pattern, root) for rule, pattern in fitting)
    return replace(
        rewritten,
        nodes=dict(work.order()),
        rewritten=dict(work.count + Counter(graph.rewritten)),
        applied=frozenset(work.done).union(graph.applied),
        notes={**graph.notes, **work.notes},
    )


@dataclass
class _Rewriting:
    """A graph that is being rewritten.

    Attributes:
        graph: the graph.
        readers: the makers and readers of its values.
        preferences: which nodes are pinned, and which libraries may be used.
        native: the argument of this name of ``rewrite``.
        timed: True compares estimated times; False if another graph of the network has decided.
        before: by name of a node, the new nodes that come before it in running order.
        done: (rule, name of the last node) of each replacement. Each is made once only, so that the
            pass ends.
        count: how often each rule was applied.
        notes: by name of a node, why it is computed on numbers, though on integers it could be.
        runs_native: by name of an operator asked for so far, whether it has a native invoker in an
            allowed library.
    """

    graph: Graph
    readers: Readers
    preferences: Preferences
    native: bool
    timed: bool
    before: dict[str, list[Node]] = field(default_factory=dict)
    done: set[tuple[str, str]] = field(default_factory=set)
    count: Counter[str] = field(default_factory=Counter)
    notes: dict[str, str] = field(default_factory=dict)
    runs_native: dict[str, bool] = field(default_factory=dict)

    @cached_property
    def estimate(self) -> Estimate:
        """The declared speeds of the allowed libraries."""
        return Estimate(self.preferences)

    def apply(self, rule: Rule, pattern: Apply, root: Node) -> bool:
        """Apply a rule to the first match that it can replace and whose last node is ``root``.

        Returns False if there is no such match.

        Args:
            rule: the rule.
            pattern: one of the rule's patterns.
            root: the last node.
        """
        graph, dtype = self.graph, self.graph.values[root.outputs[0]].dtype
        if (rule.name, root.name) in self.done or not (rule.early or dtype in FLOATS):
            return False
        for met in Matcher(graph, self.readers).find(pattern, root):
            if any(self._pinned(graph.nodes[name]) for name in met.nodes):
                continue
            match = self._match(met, root)
            computed = rule.given(match)
            if computed is None:
                continue
            new = _Replacement(graph, root, match, {**met.parameters, **computed})
            if not new.build(rule.makes) or self._worse(met, new):
                continue
            slower, note = self._compared(met, new)
            if not slower and not rule.holds(match):
                continue
            self.notes |= note
            if not slower:
                self._replace(met, new)
                self.done.add((rule.name, root.name))
                self.count[rule.name] += 1
                return True
        return False

    def _worse(self, met: Matched, new: _Replacement) -> bool:
        """Return whether ``new`` has a node that calls back into Python, although all nodes of the
        match ``met`` run in native code.

        False if the field ``native`` is False.
        """
        given, values = self.graph.values, ChainMap(new.values, self.graph.values)
        return (
            self.native
            and not all(self._is_native(node, values) for node in new.nodes)
            and all(self._is_native(self.graph.nodes[name], given) for name in met.nodes)
        )

    def _compared(self, met: Matched, new: _Replacement) -> tuple[bool, dict[str, str]]:
        """Return whether ``new`` takes longer than the match ``met``, where one of them has a
        product of integers and the other one that of numbers; and a note, by the last node's name,
        if that of numbers is faster.

        Times are estimates by declared speeds, conversions counted. What only scales, bounds or
        quantizes a product is fused to that of integers, which then stores bytes; that of numbers
        is quantized by a step.
        """
        values, constants = ChainMap(new.values, self.graph.values), self.graph.constants
        of_match = [self.graph.nodes[name] for name in met.nodes]
        result, stored = values[new.root.outputs[0]], self._stored(new.root)
        of_bytes, made_of_bytes = (
            any(values[node.inputs[0]].dtype in BYTES for node in nodes if info_of(node.op).product)
            for nodes in (of_match, new.nodes)
        )
        if not self.timed or of_bytes == made_of_bytes:
            return False, {}
        sides = (new.nodes, of_match) if of_bytes else (of_match, new.nodes)
        conversions = [
            conversion(self.estimate, values[node.outputs[0]], values[source].dtype, dtype)
            for node in sides[0]
            for source in node.inputs[:1]
            if values[source].dtype in BYTES and source not in constants
            for dtype in [values[node.outputs[0]].dtype]
        ]
        if of_bytes or stored != result.dtype:
            conversions.append(conversion(self.estimate, result, result.dtype, stored))
        wide, narrow = (
            [self._ns(node, values, dtype) for node in nodes if info_of(node.op).product]
            for nodes, dtype in zip(sides, (result.dtype, stored), strict=True)
        )
        times = sum(filter(None, wide)) + sum(conversions), sum(filter(None, narrow))
        if None in wide or None in narrow or times[0] >= times[1]:
            return of_bytes, {}
        us, root = [f"{ns / 1e3:.1f}" for ns in times], new.root
        text = (
            f"{root.op_name} {root.name} is computed in f32: by declared speeds it takes "
            f"{us[1]} us on integers, {us[0]} in f32, conversions counted"
        )
        return not of_bytes, {root.name: text}

    def _stored(self, node: Node) -> str:
        """Return the element type in which a node's result is stored, if the light operators that
        alone read it, up to a quantization, are fused to it.
        """
        dtype, reader = (
            self.graph.values[node.outputs[0]].dtype,
            self.readers.alone(node.outputs[0]),
        )
        while reader is not None and (info := info_of(reader.op)).light:
            encodes, result = info.trait(Encodes), self.graph.values[reader.outputs[0]]
            if encodes is not None or result.dtype in BYTES:
                return dtype if encodes is not None and encodes.back else result.dtype
            reader = self.readers.alone(reader.outputs[0])
        return dtype

    def _ns(self, node: Node, values: Mapping[str, VTensor], stored: str) -> int | None:
        """Return the estimated nanoseconds of a node whose results are stored in a type."""
        inputs, outputs = ([values[n] for n in names] for names in (node.inputs, node.outputs))
        written = [VTensor.as_known(stored, dict(value.dims), value.option) for value in outputs]
        return fastest(self.estimate, node, node.op, inputs, outputs, written)

    def _is_native(self, node: Node, values: Mapping[str, VTensor]) -> bool:
        """Return whether an allowed library has native code for an operator; for a node on narrow
        floats or integers, whether it has a kernel for them.
        """
        name, allows = info_of(node.op).name, self.preferences.allows
        inputs, outputs = ([values[n] for n in names] for names in (node.inputs, node.outputs))
        if any(value.dtype in (*HALF_FLOATS, *BYTES) for value in (*inputs, *outputs)):
            return has_kernel(node.name, node.op, inputs, outputs, self.preferences)
        if name not in self.runs_native:
            rows = ready().candidates(name, CPU)
            found = any(allows(info.library) and not info.python for _, info in rows)
            self.runs_native[name] = found
        return self.runs_native[name]

    def _pinned(self, node: Node) -> bool:
        """Return whether a node is pinned to a library."""
        return self.preferences.pinned(node.name, info_of(node.op).name) is not None

    def _match(self, met: Matched, root: Node) -> Match:
        """Return the match ``met`` in the form that rules read: it has the values and constants
        themselves, not their names.
        """
        values = {hole: self.graph.values[name] for hole, name in met.values.items()}
        numbers = _Numbers(self.graph.constants, met.values)
        return Match(values, met.parameters, numbers, self.graph.values[root.outputs[0]])

    def _replace(self, met: Matched, new: _Replacement) -> None:
        """Replace the nodes of a match by those of ``new``."""
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
        """Yield (name, node) of all nodes in running order.

        New nodes come right before the node that has the result of their replacement.
        """
        early = {node.name for nodes in self.before.values() for node in nodes}
        for name, node in self.graph.nodes.items():
            for new in self.before.get(name, ()):
                if new.name in self.graph.nodes:
                    yield new.name, new
            if name not in early:
                yield name, node


class _Numbers(Mapping[str, Any]):
    """The constants of a match, by name of the hole, each read when it is asked for."""

    def __init__(self, constants: Mapping[str, Any], values: Mapping[str, str]) -> None:
        self._constants = constants
        self._names = {hole: name for hole, name in values.items() if name in constants}

    def __getitem__(self, hole: str) -> Any:
        array = self._constants[self._names[hole]]
        whole = isinstance(array, SymbolicArray) or array.size != 1
        return array if whole else float(array.flat[0])

    def __contains__(self, hole: object) -> bool:
        return hole in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


@dataclass
class _Replacement:
    """The nodes, values and constants that a rule makes in place of a match.

    Attributes:
        graph: the graph, which is not changed.
        root: the last node of the match; the last new node gets its name and output.
        match: the match.
        parameters: values of the rule's named parameters and computed holes, by name.
        nodes: the new nodes, in running order.
        values: the new values by name.
        constants: the new constants by name.
    """

    graph: Graph
    root: Node
    match: Match
    parameters: Mapping[str, Any]
    nodes: list[Node] = field(default_factory=list)
    values: dict[str, VTensor] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)

    def build(self, template: Apply) -> bool:
        """Build the nodes of ``template``, the result that a rule makes.

        Returns False if an operator refuses its operands, or if the result differs from the match's
        output in type or sizes.
        """
        [result, *_], wanted = self.root.outputs, self.match.output
        try:
            result_value = self._operand(template)
        except VTensorError:
            return False
        assert result_value is not None, "a node makes it"
        if (result_value.dtype, dict(result_value.dims)) != (wanted.dtype, dict(wanted.dims)):
            return False
        if [*result_value.dims] != [*wanted.dims]:
            names = tuple((dim, dim) for dim in wanted.dims)
            result_value = self._node(OPERATORS.structural("rename").cls(names), [result_value])
        node, *more_outputs = self.nodes[-1], *self.nodes[-1].outputs[1:]
        del self.values[node.outputs[0]]
        self.values[result] = VTensor(result_value.dtype, result_value.dims, Option(name=result))
        self.nodes[-1] = replace(node, name=self.root.name, outputs=(result, *more_outputs))
        return True

    def _operand(self, pattern: Pattern) -> VTensor | None:
        """Build the nodes of ``pattern``, a part of what the rule makes, and return the value that
        they compute.

        Returns None for a hole (a variable of the pattern) that is bound to no value.
        """
        match pattern:
            case Hole(name):
                if (value := self.match.values.get(name)) is not None:
                    return self.graph.values[value.name]
                array, dims, *dtype = self.parameters.get(name, (None, ()))
                return None if array is None else self._constant(array, dims, *dtype)
            case Number(value):
                return self._constant(value, ())
            case Apply(op, operands, parameters):
                built = [self._operand(operand) for operand in operands]
                values = {key: self._parameter(given) for key, given in parameters.items()}
                known = {key: value for key, value in values.items() if value is not None}
                return self._node(OPERATORS[op].cls(**known), [v for v in built if v is not None])
        raise AssertionError("a rule's result has no alternatives")

    def _parameter(self, given: object) -> Any:
        """Return the value of an operator's parameter: ``given`` itself, if it is not ``Named``.

        A ``Named`` parameter has the value in ``parameters`` under its name, or else the match's
        number; None if both are missing.
        """
        if not isinstance(given, Named):
            return given
        return self.parameters.get(given.name, self.match.numbers.get(given.name))

    def _constant(self, values: Any, dims: Sequence[str], dtype: str = "") -> VTensor:
        """Add a constant with these values and dims, and return it.

        ``dtype`` is its element type; empty is that of the match's output.
        """
        name, dtype = self._free(f"{self.root.name}:constant"), dtype or self.match.output.dtype
        kind = numpy_dtype(dtype)
        known = isinstance(values, SymbolicArray) and values.dtype == kind
        array = self.constants[name] = values if known else np.asarray(values, kind)
        sizes = dict(zip(dims, array.shape, strict=True))
        self.values[name] = VTensor(dtype, sizes, Option(name=name))
        return self.values[name]

    def _node(self, op: Any, given: Sequence[VTensor]) -> VTensor:
        """Add a node on the values ``given``, and return its first output."""
        name = self._free(f"{self.root.name}:{label_of(op).lower()}")
        outputs = run_compute(Context(node=name), op, given)
        names = tuple(self._free(f"{name}:{i}") if i else name for i in range(len(outputs)))
        for value, out in zip(names, outputs, strict=True):
            self.values[value] = VTensor(out.dtype, out.dims, Option(name=value))
        self.nodes.append(Node(name, op, label_of(op), tuple(v.name for v in given), names))
        return self.values[name]

    def _free(self, name: str) -> str:
        """Return ``name``, with apostrophes added until no node or value has the name."""
        taken = (self.graph.values, self.graph.nodes, self.values)
        while any(name in names for names in taken):
            name += "'"
        return name
