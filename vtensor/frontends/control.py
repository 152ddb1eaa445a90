"""Control flow that is decided before a run: the branch that is taken, the turns of a loop.

A loop is unrolled a turn at a time: its body, and behind it what is left of the loop. So whether
there is another turn is asked once the values of the turn before it are known.
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

#: Operators of control flow, and the positions of the inputs that decide what runs.
DECIDING = {"If": (0,), "Loop": (0, 1), "Scan": ()}


@dataclass(frozen=True, eq=False)
class Turns(NetworkNode):
    """What is left of a loop.

    Attributes:
        number: of the turn that is next.
        condition: the value that says whether there is one; empty where none does.
        states: the values that the next turn is given.
        rows: what every turn has delivered so far, by output of the loop that collects it.
        weights: what the body's own constants are called outside; they are made once.
    """

    number: int = 0
    condition: str = ""
    states: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    weights: Mapping[str, str] = field(default_factory=dict)

    @property
    def reads(self) -> set[str]:
        """All values that are still needed."""
        own = [self.condition] if self.condition else []
        return super().reads.union(own, self.states, *self.rows, self.weights.values())


def deciding(node: NetworkNode, facts: Facts) -> list[str]:
    """The values that decide what a node runs, and are not known; none for other nodes."""
    names = [node.proto.input[i] for i in DECIDING.get(node.label, ()) if i < len(node.proto.input)]
    if isinstance(node, Turns):
        names[1:] = [node.condition]
    return [name for name in names if name and name not in facts.arrays]


def undecided(node: NetworkNode, facts: Facts) -> str:
    """Say what keeps a node of control flow from being decided before a run."""
    values = deciding(node, facts)
    if node.label == "Scan" and node.opset < 9:
        return "a Scan of opset 8, which has a batch; convert the model to a later opset"
    if not values:
        return "how often it runs is decided by sizes that are computed from data"
    listed = ", ".join(map(repr, values))
    return (
        f"{listed} decides what runs, and is computed from data; it has to follow from constants, "
        "sizes, or inputs of at most one dim"
    )


def decide(node: NetworkNode, facts: Facts, taken: TakenNames) -> list[NetworkNode] | None:
    """What a node of control flow becomes; None for others, and while it is not decided.

    Args:
        taken: every name of a value or a node; new ones join.

    Raises:
        ModelError: its graphs do not hang together, or no turn delivers what is to be collected.
    """
    if node.label not in DECIDING or deciding(node, facts):
        return None
    attributes = {a.name: helper.get_attribute_value(a) for a in node.proto.attribute}
    _check(node, attributes, facts)
    if node.label == "If":
        [condition] = np.ravel(facts.arrays[node.proto.input[0]])
        return _branch(node, attributes["then_branch" if condition else "else_branch"], taken)
    loop = (_Scan if node.label == "Scan" else _Loop)(node, facts, attributes)
    if (another := loop.another()) is None:
        return None
    return loop.turn(taken) if another else loop.end(taken)


#: The attributes that each operator of control flow must have.
_HELD = {
    "If": ("then_branch", "else_branch"),
    "Loop": ("body",),
    "Scan": ("body", "num_scan_inputs"),
}


def _check(node: NetworkNode, attributes: Mapping[str, Any], facts: Facts) -> None:
    """See that what decides is one number, and that nothing is missing.

    Raises:
        ModelError: something is.
    """
    for name in _HELD[node.label]:
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
    splice = Splice(node, taken)
    delivered = [value.name for value in graph.output]
    if len(delivered) < len(node.proto.output):
        text = f"delivers {counted(len(delivered), 'value')}, not {len(node.proto.output)}"
        raise ModelError(f"its graph {graph.name!r} {text}")
    outputs = [pair for pair in zip(delivered, node.proto.output, strict=False) if pair[1]]
    splice.add([*_constants(graph), *graph.node], {}, outputs)
    return splice.nodes(node.outputs, node.opsets)


def _constants(graph: GraphProto) -> list[NodeProto]:
    """The initializers of a graph as nodes."""
    return [helper.make_node("Constant", [], [t.name], value=t) for t in graph.initializer]


def _is_constant(node: NodeProto) -> bool:
    return node.op_type == "Constant" and not node.input


class _Loop:
    """A loop that counts, or runs while a condition holds; the body is given both.

    ``heads`` are outputs of the body in front of its states.
    """

    heads = 1

    def __init__(self, node: NetworkNode, facts: Facts, attributes: Mapping[str, Any]) -> None:
        self.node, self.facts, self.attributes = node, facts, attributes
        self.body: GraphProto = attributes["body"]
        self.turns = node if isinstance(node, Turns) else self.first()

    def first(self) -> Turns:
        """The loop before its first turn."""
        inputs = self.node.proto.input
        return self.begin(inputs[1] if len(inputs) > 1 else "", inputs[2:])

    def begin(self, condition: str, states: Sequence[str]) -> Turns:
        """The loop with these states."""
        rows = ((),) * (len(self.body.output) - self.heads - len(states))
        node = self.node
        own = (node.name, node.proto, node.opsets, node.origin)
        return Turns(*own, 0, condition, tuple(states), rows)

    def another(self) -> bool | None:
        """Whether there is another turn; None when that is not known."""
        count, condition = self.node.proto.input[0], self.turns.condition
        if count and self.turns.number >= self.facts.arrays[count].item():
            return False
        return not condition or bool(self.facts.arrays[condition].item())

    def given(self, splice: Splice) -> list[str]:
        """The values that the body is given this turn."""
        number = splice.constant(np.array(self.turns.number))
        condition = self.turns.condition or splice.constant(np.array(True))
        return [number, condition, *self.turns.states]

    def collected(self, row: int) -> tuple[tuple[str, ...], int]:
        """What the turns have delivered, in the order in which it is collected, and the axis."""
        return self.turns.rows[row], 0

    def empty(self, row: int) -> Array:
        """What is collected when there is no turn, of the type that the body declares."""
        value = self.body.output[self.heads + len(self.turns.states) + row]
        sizes = sizes_of(value.type)
        if sizes is None or None in sizes:
            raise ModelError(f"it runs no iteration, and declares no sizes of {value.name!r}")
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        shape = [size or 0 for size in sizes]
        shape.insert(self.collected(row)[1] % (len(shape) + 1), 0)
        return np.zeros(shape, dtype)

    def turn(self, taken: TakenNames) -> list[NetworkNode]:
        """The nodes of the next turn, and what is left of the loop behind them."""
        turns = self.turns
        splice = Splice(self.node, taken, f"{turns.number}/")
        constant = [node for node in self.body.node if _is_constant(node)]
        rest = [node for node in self.body.node if not _is_constant(node)]
        own = [*_constants(self.body), *constant]
        weights = turns.weights if turns.number else splice.add(own, {})
        given = dict(zip((v.name for v in self.body.input), self.given(splice), strict=False))
        names = splice.add(rest, {**weights, **given})
        results = tuple(names.get(value.name, value.name) for value in self.body.output)
        behind = self.heads + len(turns.states)
        left = replace(
            turns,
            number=turns.number + 1,
            condition=results[0] if self.heads else "",
            states=results[self.heads : behind],
            rows=tuple((*row, new) for row, new in zip(turns.rows, results[behind:], strict=True)),
            weights=weights,
        )
        return [*splice.nodes([*results, *weights.values()], self.node.opsets), left]

    def end(self, taken: TakenNames) -> list[NetworkNode]:
        """The nodes that deliver the loop's outputs."""
        node, splice = self.node, Splice(self.node, taken)
        outputs = dict(enumerate(node.proto.output))
        for position, state in enumerate(self.turns.states):
            if outputs.get(position):
                splice.alias(state, outputs[position])
        for row in range(len(self.turns.rows)):
            name = outputs.get(len(self.turns.states) + row)
            if name and not self.turns.rows[row]:
                splice.alias(splice.constant(self.empty(row)), name)
            elif name:
                splice.stack(*self.collected(row), name)
        return splice.nodes(node.outputs, node.opsets)


class _Scan(_Loop):
    """A loop over slices of its last inputs."""

    heads = 0

    def first(self) -> Turns:
        """The loop before its first turn."""
        return self.begin("", self.node.proto.input[: -self.attributes["num_scan_inputs"]])

    def another(self) -> bool | None:
        """Whether there is another turn; None when that is not known."""
        length = self._length()
        return None if length is None or self.node.opset < 9 else self.turns.number < length

    def given(self, splice: Splice) -> list[str]:
        """The values that the body is given this turn."""
        slices = []
        for i, name in enumerate(self._scanned()):
            number = self.turns.number
            if self._of("scan_input_directions", i):
                number = (self._length() or 0) - 1 - number
            place = splice.constant(np.array(number))
            slices.append(splice.new("gather", [name, place], self._of("scan_input_axes", i)))
        return [*self.turns.states, *slices]

    def collected(self, row: int) -> tuple[tuple[str, ...], int]:
        """What the turns have delivered, in the order in which it is collected, and the axis."""
        step = -1 if self._of("scan_output_directions", row) else 1
        return self.turns.rows[row][::step], self._of("scan_output_axes", row)

    def _scanned(self) -> list[str]:
        return list(self.node.proto.input)[-self.attributes["num_scan_inputs"] :]

    def _length(self) -> int | None:
        [name, *_], axis = self._scanned(), self._of("scan_input_axes", 0)
        sizes = self.facts.sizes(name)
        if sizes is not None and not -len(sizes) <= axis < len(sizes):
            raise ModelError(f"{name!r} has no axis {axis}: {sizes}")
        return None if sizes is None else sizes[axis]

    def _of(self, attribute: str, position: int) -> int:
        values = self.attributes.get(attribute)
        return values[position] if values else 0
