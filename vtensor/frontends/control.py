"""Control flow that is decided before a run: branches that are taken, loops that are unrolled.

A loop is unrolled by one iteration at a time: its body, followed by the remaining loop. Whether
there is another iteration is decided once the values of the iteration before it are known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, helper

from vtensor.errors import ModelError
from vtensor.frontends.folding import Facts
from vtensor.frontends.network import NetworkNode
from vtensor.frontends.splicing import Splice
from vtensor.frontends.taken_names import TakenNames
from vtensor.frontends.tensors import Array, sizes_of
from vtensor.language.records import dataclass
from vtensor.language.wording import counted

#: Operators of control flow, and the indices of the inputs that decide what runs.
DECIDING = {"If": (0,), "Loop": (0, 1), "Scan": ()}

#: Largest number of nodes that unrolled loops may become. A loop of more nodes runs turn by turn.
MAX_LOOP_NODES = 1 << 13


@dataclass(frozen=True, eq=False)
class RemainingLoop(NetworkNode):
    """The iterations of a loop that are not unrolled yet, as one node.

    Attributes:
        number: number of the next iteration, from 0.
        condition: name of the boolean value that says whether there is a next iteration; empty if
            no value says so.
        states: names of the values that are passed to the next iteration.
        rows: an entry for each output of the loop that stacks a value of every iteration: the names
            of the values of the iterations so far.
        weights: for each constant of the loop's body, by its name there, its name in the network.
    """

    number: int = 0
    condition: str = ""
    states: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    weights: Mapping[str, str] = field(default_factory=dict)

    @property
    def reads(self) -> set[str]:
        """Names of all values that the remaining iterations and the loop's outputs need."""
        condition = [self.condition] if self.condition else []
        return super().reads.union(condition, self.states, *self.rows, self.weights.values())


def deciding(node: NetworkNode, facts: Facts) -> list[str]:
    """Return the names of the unknown values that decide what a node of control flow runs.

    Empty if they are all known, or if the node is no control flow.
    """
    names = [node.proto.input[i] for i in DECIDING.get(node.label, ()) if i < len(node.proto.input)]
    if isinstance(node, RemainingLoop):
        names[1:] = [node.condition]
    return [name for name in names if name and name not in facts.arrays]


def has_batch(node: NetworkNode) -> bool:
    """Return whether a node is a Scan of opset 8, whose inputs have a batch; none is run."""
    return node.label == "Scan" and node.opset < 9


def undecided(node: NetworkNode, facts: Facts) -> str:
    """Return the reason why a node of control flow cannot be decided before a run."""
    values = deciding(node, facts)
    if has_batch(node):
        return "a Scan of opset 8, which has a batch; convert the model to a later opset"
    if not values:
        return (
            "how often it runs is decided by sizes that are computed from data, or its turns would "
            f"become more than {MAX_LOOP_NODES} nodes"
        )
    listed = ", ".join(map(repr, values))
    return (
        f"{listed} decides what runs, and is computed from data; it has to follow from constants, "
        "sizes, or inputs of at most one dim"
    )


def decide(node: NetworkNode, facts: Facts, taken: TakenNames) -> list[NetworkNode] | None:
    """Return the nodes that replace a node of control flow.

    These are the nodes of a branch, or of a loop's next iteration, with the remaining loop as the
    last node. For a loop that has ended, these are the nodes that compute its outputs. None if the
    node is no control flow, or if it is not known yet what it runs.

    Args:
        node: the node.
        facts: the known types and values.
        taken: the names of all values and nodes; the names of new ones are added to it.

    Raises:
        ModelError: the node's attributes or graphs are wrong. Or a loop runs no iteration, and its
            body does not declare the sizes of the values that an output of the loop stacks.
    """
    if node.label not in DECIDING or node.name in facts.kept or deciding(node, facts):
        return None
    attributes = {a.name: helper.get_attribute_value(a) for a in node.proto.attribute}
    _check(node, attributes, facts)
    if node.label == "If":
        [condition] = np.ravel(facts.arrays[node.proto.input[0]])
        return _branch(node, attributes["then_branch" if condition else "else_branch"], taken)
    loop = (_Scan if node.label == "Scan" else _Loop)(node, facts, attributes)
    if (another := loop.another()) is None or loop.is_long():
        return None
    return loop.iteration(taken) if another else loop.end(taken)


def never_ends(node: NetworkNode) -> bool:
    """Return whether a node is a Loop without a number of turns, none of which decides by what
    changes from turn to turn whether there is another one.
    """
    if node.label != "Loop" or node.proto.input[0]:
        return False
    [body] = (a.g for a in node.proto.attribute if a.name == "body")
    names = [value.name for value in body.input]
    changing = {*names[:1], *names[2:]}  # the condition is true in every turn
    for part in body.node:
        if part.op_type in DECIDING or changing.intersection(part.input):
            changing.update(part.output)
    return body.output[0].name not in changing


#: The attributes that each operator of control flow must have.
_REQUIRED_ATTRIBUTES = {
    "If": ("then_branch", "else_branch"),
    "Loop": ("body",),
    "Scan": ("body", "num_scan_inputs"),
}


def _check(node: NetworkNode, attributes: Mapping[str, Any], facts: Facts) -> None:
    """Check the attributes of a node of control flow, and the inputs that decide what it runs.

    Raises:
        ModelError: an attribute is missing or wrong; or a deciding input is known and is not one
            number.
    """
    for name in _REQUIRED_ATTRIBUTES[node.label]:
        if name not in attributes:
            raise ModelError(f"it has no attribute {name!r}")
    for position in DECIDING[node.label]:
        name = node.proto.input[position] if position < len(node.proto.input) else ""
        if name in facts.arrays and facts.arrays.origin(name).size != 1:
            raise ModelError(f"{name!r} must be one number: {facts.sizes(name)}")
    count = attributes.get("num_scan_inputs", 1)
    if node.label == "Scan" and not 1 <= count <= len(node.proto.input):
        raise ModelError(f"it scans {count} inputs, and has {len(node.proto.input)}")


def _branch(node: NetworkNode, graph: GraphProto, taken: TakenNames) -> list[NetworkNode]:
    """Return the nodes that replace ``node``, an If: those of ``graph``, the branch that is taken.

    Raises:
        ModelError: the branch has fewer outputs than the If.
    """
    splice = Splice(node, taken)
    delivered = [value.name for value in graph.output]
    if len(delivered) < len(node.proto.output):
        text = f"delivers {counted(len(delivered), 'value')}, not {len(node.proto.output)}"
        raise ModelError(f"its graph {graph.name!r} {text}")
    outputs = [pair for pair in zip(delivered, node.proto.output, strict=False) if pair[1]]
    splice.add([*constants_of(graph), *graph.node], {}, outputs)
    return splice.nodes(node.outputs, node.opsets)


def constants_of(graph: GraphProto) -> list[NodeProto]:
    """Return a ``Constant`` node for each initializer of a graph."""
    return [helper.make_node("Constant", [], [t.name], value=t) for t in graph.initializer]


def _is_constant(node: NodeProto) -> bool:
    return node.op_type == "Constant" and not node.input


class _Loop:
    """An ONNX Loop: it ends after a number of iterations, or when a condition is false.

    Its body is a graph with these inputs: the iteration's number, the condition, and the states,
    which are values that each iteration passes to the next one. The body's other outputs are
    collected: an output of the loop is the stack of one such value from every iteration.

    Attributes:
        heads: number of the body's outputs before its states: one, the condition.
    """

    heads = 1

    def __init__(self, node: NetworkNode, facts: Facts, attributes: Mapping[str, Any]) -> None:
        self.node, self.facts, self.attributes = node, facts, attributes
        self.body: GraphProto = attributes["body"]
        self.remaining = node if isinstance(node, RemainingLoop) else self.first()

    def first(self) -> RemainingLoop:
        """Return the loop with no iteration unrolled."""
        inputs = self.node.proto.input
        return self.begin(inputs[1] if len(inputs) > 1 else "", inputs[2:])

    def begin(self, condition: str, states: Sequence[str]) -> RemainingLoop:
        """Return the loop with no iteration unrolled, given the values that its first iteration
        gets.

        Args:
            condition: name of the boolean value that says whether there is a first iteration; empty
                if no value says so.
            states: names of the values that are passed to the first iteration.
        """
        rows = ((),) * (len(self.body.output) - self.heads - len(states))
        node = self.node
        fields = (node.name, node.proto, node.opsets, node.origin)
        return RemainingLoop(*fields, 0, condition, tuple(states), rows)

    def another(self) -> bool | None:
        """Return whether there is a next iteration, or None if that is unknown."""
        count, condition = self.node.proto.input[0], self.remaining.condition
        if count and self.remaining.number >= self.facts.arrays[count].item():
            return False
        return not condition or bool(self.facts.arrays[condition].item())

    def most(self) -> int:
        """Return the most iterations; 0 if their number is unknown."""
        count = self.node.proto.input[0]
        return int(self.facts.arrays[count].item()) if count else 0

    def is_long(self) -> bool:
        """Return whether no iteration is unrolled yet, and all would be more than MAX_LOOP_NODES
        nodes.
        """
        each = len(self.body.node) + len(self.body.input) + 1
        return self.remaining.number == 0 and self.most() * each > MAX_LOOP_NODES

    def given(self, splice: Splice) -> list[str]:
        """Return the names of the values that the body gets as inputs in the next iteration.

        Constants among them are added to ``splice``, which collects new nodes.
        """
        number = splice.constant(np.array(self.remaining.number))
        condition = self.remaining.condition or splice.constant(np.array(True))
        return [number, condition, *self.remaining.states]

    def collected(self, row: int) -> tuple[tuple[str, ...], int]:
        """Return (names, axis): the values to stack, in order, and the new axis that they are
        stacked along.

        The stack is collected output number ``row`` of the loop, from 0.
        """
        return self.remaining.rows[row], 0

    def empty(self, row: int) -> Array:
        """Return what a loop without iterations stacks as collected output ``row``: an empty array.

        Raises:
            ModelError: the body does not declare the sizes of the values that the output stacks.
        """
        value = self.body.output[self.heads + len(self.remaining.states) + row]
        sizes = sizes_of(value.type)
        if sizes is None or None in sizes:
            raise ModelError(f"it runs no iteration, and declares no sizes of {value.name!r}")
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        shape = [size or 0 for size in sizes]
        shape.insert(self.collected(row)[1] % (len(shape) + 1), 0)
        return np.zeros(shape, dtype)

    def iteration(self, taken: TakenNames) -> list[NetworkNode]:
        """Return the nodes of the next iteration, then the node of all iterations after it."""
        before = self.remaining
        splice = Splice(self.node, taken, f"{before.number}/")
        constant = [node for node in self.body.node if _is_constant(node)]
        others = [node for node in self.body.node if not _is_constant(node)]
        constants = [*constants_of(self.body), *constant]
        weights = before.weights if before.number else splice.add(constants, {})
        inputs = dict(zip((v.name for v in self.body.input), self.given(splice), strict=False))
        names = splice.add(others, {**weights, **inputs})
        results = tuple(names.get(value.name, value.name) for value in self.body.output)
        states_end = self.heads + len(before.states)
        after = replace(
            before,
            number=before.number + 1,
            condition=results[0] if self.heads else "",
            states=results[self.heads : states_end],
            rows=tuple(
                (*row, new) for row, new in zip(before.rows, results[states_end:], strict=True)
            ),
            weights=weights,
        )
        return [*splice.nodes([*results, *weights.values()], self.node.opsets), after]

    def end(self, taken: TakenNames) -> list[NetworkNode]:
        """Return the nodes that compute the loop's outputs from the values of its iterations."""
        node, splice = self.node, Splice(self.node, taken)
        outputs = dict(enumerate(node.proto.output))
        for position, state in enumerate(self.remaining.states):
            if outputs.get(position):
                splice.alias(state, outputs[position])
        for row in range(len(self.remaining.rows)):
            name = outputs.get(len(self.remaining.states) + row)
            if name and not self.remaining.rows[row]:
                splice.alias(splice.constant(self.empty(row)), name)
            elif name:
                splice.stack(*self.collected(row), name)
        return splice.nodes(node.outputs, node.opsets)


class _Scan(_Loop):
    """An ONNX Scan: a loop over slices of its last inputs, the scanned inputs.

    Each iteration gets one slice of each scanned input, along one axis.
    """

    heads = 0

    def first(self) -> RemainingLoop:
        """Return the loop with no iteration unrolled."""
        return self.begin("", self.node.proto.input[: -self.attributes["num_scan_inputs"]])

    def another(self) -> bool | None:
        """Return whether there is a next iteration, or None if that is unknown."""
        length = self._length()
        return None if length is None or self.node.opset < 9 else self.remaining.number < length

    def most(self) -> int:
        """Return the number of iterations; 0 if it is unknown."""
        return self._length() or 0

    def given(self, splice: Splice) -> list[str]:
        """Return the names of the values that the body gets as inputs in the next iteration.

        Nodes that take slices of the scanned inputs are added to ``splice``, which collects new
        nodes.
        """
        slices = []
        for i, name in enumerate(self._scanned()):
            number = self.remaining.number
            if self._of("scan_input_directions", i):
                number = (self._length() or 0) - 1 - number
            place = splice.constant(np.array(number))
            slices.append(splice.new("gather", [name, place], self._of("scan_input_axes", i)))
        return [*self.remaining.states, *slices]

    def collected(self, row: int) -> tuple[tuple[str, ...], int]:
        """Return (names, axis): the values to stack, in order, and the new axis that they are
        stacked along.

        The stack is collected output number ``row`` of the loop, from 0.
        """
        step = -1 if self._of("scan_output_directions", row) else 1
        return self.remaining.rows[row][::step], self._of("scan_output_axes", row)

    def _scanned(self) -> list[str]:
        """Return the names of the inputs that are scanned."""
        return list(self.node.proto.input)[-self.attributes["num_scan_inputs"] :]

    def _length(self) -> int | None:
        """Return the number of iterations, or None if it is unknown.

        Raises:
            ModelError: the first scanned input lacks the axis along which it is to be sliced.
        """
        [name, *_], axis = self._scanned(), self._of("scan_input_axes", 0)
        sizes = self.facts.sizes(name)
        if sizes is not None and not -len(sizes) <= axis < len(sizes):
            raise ModelError(f"{name!r} has no axis {axis}: {sizes}")
        return None if sizes is None else sizes[axis]

    def _of(self, attribute: str, position: int) -> int:
        """Return element ``position`` of an attribute, or 0 if the attribute is absent."""
        values = self.attributes.get(attribute)
        return values[position] if values else 0
