"""The lowered graph: a model's nodes, each in a variant, and the Transforms between them.

Algorithm 1 makes it of a ``Graph`` without Transforms, and extending it puts one on each edge that
needs one: the paper's extended dataflow graph. Passes make other lowered graphs of it; none is ever
changed.

Source: the paper, sections 3 and 5.1, Fig. 5(a).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING

from libdesc.preferences import EVERY, Preferences
from ptensor.buffer import TensorStorage
from ptensor.evaluation import Basis, Requirement, Variant
from ptensor.layout import Layout
from resolver.errors import ErrorProof
from resolver.values import Value as Value
from vtensor.language.cached import cached_property
from vtensor.language.operators import Follower, info_of, label_of
from vtensor.language.records import dataclass, replace
from vtensor.language.tensor import VTensor

if TYPE_CHECKING:
    from vtensor.language.graph import Node


@dataclass(frozen=True)
class Reason:
    """Why a Transform exists: who asked for what, and who had something else.

    ``requirement`` is None where the caller asked, for the delivery of an output.
    """

    consumer: str
    producer: str
    role: str = ""
    library: str = ""
    op: str = ""
    producer_op: str = ""
    requirement: Requirement | None = None

    def __str__(self) -> str:
        made = f"{self.producer_op} {self.producer}" if self.producer_op else self.producer
        if self.requirement is None:
            return f"output {self.consumer} is delivered in a layout that {made} does not have"
        place = f"{self.requirement.file}:{self.requirement.line}"
        what = (
            f"requires it of {self.role} at {place}"
            if self.requirement.layouts
            else f"takes it as {self.role}, for which ANY was asked at {place}"
        )
        return f"{self.op} {self.consumer} ({self.library}) {what}, {made} has another"


@dataclass(frozen=True)
class OpNode:
    """An operator on its library, as it was decided; values go by name.

    Its inputs are the model's values, or outputs of Transforms.

    Attributes:
        followers: the network's nodes that are fused behind it. Its last inputs are theirs, and
            its first output is the last one's.
        value: what the first follower reads; empty without followers.
    """

    name: str
    op: object
    op_name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    roles: tuple[str, ...]
    variant: Variant
    followers: tuple[Node, ...] = ()
    value: str = ""

    def split(self, inputs: Sequence[VTensor]) -> tuple[Sequence[VTensor], tuple[Follower, ...]]:
        """The operator's own operands, and its followers with theirs."""
        return split(inputs, self.followers, self.value)


def pieces(node: OpNode, count: int) -> list[OpNode]:
    """A node with its first followers only, and each of the others as a node of its own.

    Variants are still to be found. What passes between them is not among the graph's values.
    """
    kept, others = node.followers[:count], node.followers[count:]
    own = len(node.inputs) - _operands(node.value, node.followers)
    taken = own + _operands(node.value, kept)
    outputs = node.outputs
    if others:
        outputs = (kept[-1].outputs[0] if kept else node.value, *outputs[1:])
    posts = (role for role in node.roles[own : len(node.inputs)][: taken - own])
    lead = replace(
        node,
        op_name=" + ".join([label_of(node.op), *(one.op_name for one in kept)]),
        inputs=node.inputs[:taken],
        outputs=outputs,
        roles=(*node.roles[:own], *posts, *node.roles[len(node.inputs) :]),
        followers=kept,
        value=node.value if kept else "",
        variant=replace(node.variant, followers=tuple(one.name for one in kept)),
    )
    unfused = replace(node.variant, followers=())
    return [
        lead,
        *(
            OpNode(
                one.name,
                one.op,
                one.op_name,
                one.inputs,
                one.outputs,
                info_of(one.op).roles(len(one.inputs), len(one.outputs)),
                unfused,
            )
            for one in others
        ),
    ]


def _operands(value: str, followers: Sequence[Node]) -> int:
    """How many operands followers have apart from the values that they follow."""
    count = 0
    for node in followers:
        count += len(node.inputs) - node.inputs.count(value)
        value = node.outputs[0]
    return count


def in_variant(node: OpNode, variant: Variant) -> list[OpNode]:
    """A node in another variant; several where nodes behind it run by themselves."""
    if not variant.pieces:
        return [replace(node, variant=variant)]
    several = pieces(node, len(variant.followers))
    lead, *others = variant.pieces
    given = [replace(lead, refused=variant.refused), *others]
    return [replace(one, variant=own) for one, own in zip(several, given, strict=True)]


def split(
    inputs: Sequence[VTensor], followers: Sequence[Node], value: str
) -> tuple[Sequence[VTensor], tuple[Follower, ...]]:
    """The operands of an operator among all inputs, and what is behind it with its own.

    Each follower reads the value before it and has the others of its inputs here.

    Args:
        inputs: those of all.
        followers: what is behind the operator.
        value: what the first of them reads.
    """
    own = len(inputs) - _operands(value, followers)
    rest, behind = iter(inputs[own:]), []
    for node in followers:
        places = tuple(i for i, name in enumerate(node.inputs) if name == value)
        operands = tuple(islice(rest, len(node.inputs) - len(places)))
        behind.append(Follower(node.op, operands, places))
        value = node.outputs[0]
    return inputs[:own], tuple(behind)


@dataclass(frozen=True)
class TransformNode:
    """A change of layout as a node of its own.

    ``more`` are the reasons of those that this one replaces.
    """

    name: str
    input: str
    output: str
    library: str
    reason: Reason
    more: tuple[Reason, ...] = ()

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Why it exists: one reason for each that it serves."""
        return (self.reason, *self.more)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Its one input, as a tuple like any node's."""
        return (self.input,)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Its one output."""
        return (self.output,)


LoweredNode = OpNode | TransformNode


@dataclass(frozen=True)
class Certificate:
    """What an optimisation proved of the Transforms that are left.

    Attributes:
        objective: what was minimised.
        solver: who minimised it.
        status: ``optimal``, ``time limit``, or why it failed; the graph is then as it was before.
        open_nodes: how many nodes had a choice.
        bytes_before, count_before: what the Transforms moved, and how many there were.
        bytes_after, count_after: the same, of what is left.
        bound: the objective, in its unit, is at least this for every choice; None where nothing was
            proved.
        gap: how far the objective may be from the bound, relative to the objective.
        seconds: what the solver took.
        ns_before, ns_after: for the objective ``time``, nanoseconds of the open nodes and of all
            Transforms.
        basis: how those are known.
        errors: for which errors it is a proof; None where no variant was inexact.
    """

    objective: str
    solver: str
    status: str
    open_nodes: int
    bytes_before: int
    count_before: int
    bytes_after: int
    count_after: int
    bound: int | None = None
    gap: float | None = None
    seconds: float = 0.0
    ns_before: int | None = None
    ns_after: int | None = None
    basis: Basis = "declared"
    errors: ErrorProof | None = None

    @property
    def unit(self) -> str:
        """Of the objective and its bound."""
        return {"shared": "bytes", "paper": "edges", "time": "ns"}[self.objective]

    @property
    def costs(self) -> str:
        """What it is a proof for: ``bytes``, ``edges``, or ns with their basis: ``measured ns``."""
        return f"{self.basis} {self.unit}" if self.objective == "time" else self.unit

    @property
    def settled(self) -> bool:
        """Rules that lower bytes have nothing to add: there are none, or bytes do not count."""
        return self.minimal or self.objective == "time"

    @property
    def minimal(self) -> bool:
        """No choice of rows lets Transforms move less."""
        return self.objective == "shared" and self.status == "optimal"


class _Operands(Mapping[str, VTensor]):
    """Values as operands: each is made when it is asked for, for most passes ask for a few."""

    def __init__(self, values: Mapping[str, Value], constants: Mapping[str, TensorStorage]) -> None:
        self._values, self._constants = values, constants
        self._made: dict[str, VTensor] = {}

    def __getitem__(self, name: str) -> VTensor:
        found = self._made.get(name)
        if found is None:
            found = self._made[name] = self._values[name].tensor(self._constants.get(name))
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


@dataclass(frozen=True)
class LoweredGraph:
    """Values and nodes in topological order.

    Attributes:
        values: by name, each in the layout in which it is made.
        outputs: for each name that is delivered, the value that is delivered under it.
        merged: nodes that a simplification took away, each with the node that does their work.
        passes: the optimisations that have been here.
        rewritten: how often each rule was applied to the model, by name.
        certificate: what the last optimisation proved, if one could.
        constants: the memory of the model's constants, which invokers may look at.
        delivery: how outputs are to lie, by name; declared order where nothing is said, as their
            producers leave them where ANY is.
        preferences: which libraries may take which nodes and Transforms.
    """

    name: str
    values: Mapping[str, Value] = field(default_factory=dict)
    nodes: Sequence[LoweredNode] = ()
    inputs: tuple[str, ...] = ()
    outputs: Mapping[str, str] = field(default_factory=dict)
    merged: Mapping[str, str] = field(default_factory=dict)
    passes: tuple[str, ...] = ()
    certificate: Certificate | None = None
    constants: Mapping[str, TensorStorage] = field(default_factory=dict, repr=False)
    delivery: Mapping[str, Layout] = field(default_factory=dict)
    preferences: Preferences = EVERY
    rewritten: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", tuple(self.nodes))
        for name in ("values", "outputs", "merged", "constants", "delivery"):
            given = getattr(self, name)
            if not isinstance(given, MappingProxyType):
                object.__setattr__(self, name, MappingProxyType(dict(given)))

    @cached_property
    def operators(self) -> tuple[OpNode, ...]:
        """The nodes that are no Transforms."""
        return tuple(node for node in self.nodes if isinstance(node, OpNode))

    @cached_property
    def inexact(self) -> bool:
        """Some node's results differ from strict ones by more than the order of sums."""
        return any(node.variant.inexact for node in self.operators)

    @cached_property
    def sources(self) -> Mapping[str, str]:
        """Of each value the model's own that it is, perhaps in another layout."""
        found = {name: name for name in self.values}
        for node in self.nodes:
            if isinstance(node, TransformNode):
                found[node.output] = found[node.input]
        return found

    @property
    def bare(self) -> LoweredGraph:
        """The same without Transforms: nodes read the model's values, in whatever layouts."""
        changes = any(isinstance(node, TransformNode) for node in self.nodes)
        return self._bare if changes else self  # which must not keep itself

    @cached_property
    def _bare(self) -> LoweredGraph:
        own = {name for name, source in self.sources.items() if name == source}
        nodes = [
            node
            if own.issuperset(node.inputs)
            else replace(node, inputs=tuple(self.sources[name] for name in node.inputs))
            for node in self.operators
        ]
        return replace(
            self,
            nodes=nodes,
            values={name: value for name, value in self.values.items() if name in own},
            outputs={alias: self.sources[name] for alias, name in self.outputs.items()},
        )

    @cached_property
    def tensors(self) -> Mapping[str, VTensor]:
        """The values as operands, with the layouts in which they are made."""
        return _Operands(self.values, self.constants)

    def transforms(self) -> Iterator[TransformNode]:
        """Transforms that run each time; those of constants are done ahead of time."""
        for node in self.nodes:
            if isinstance(node, TransformNode) and not self.values[node.input].constant:
                yield node

    def ahead(self) -> Iterator[TransformNode]:
        """Transforms of constants."""
        for node in self.nodes:
            if isinstance(node, TransformNode) and self.values[node.input].constant:
                yield node

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"extended {self.name}"
        for name in self.inputs:
            yield f"input {name} : {self.values[name].layout}"
        for value in self.values.values():
            if value.constant and not any(value.name in node.outputs for node in self.nodes):
                yield f"constant {value.name} : {value.layout}"
        for node in self.nodes:
            made = ", ".join(f"{name}:{self.values[name].layout}" for name in node.outputs)
            if isinstance(node, TransformNode):
                source = self.values[node.input]
                once = " ahead of time" if source.constant else ""
                yield f"{made} = Transform[{node.library}] {node.input}:{source.layout}{once}"
            else:
                used = zip(node.inputs, node.variant.layouts, strict=False)
                text = ", ".join(f"{name}:{layout}" for name, layout in used)
                yield f"{made} = {node.op_name}[{node.variant.library}] {text}"
        for alias, name in self.outputs.items():
            yield f"output {alias} <- {name}:{self.values[name].layout}"
