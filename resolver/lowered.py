"""The lowered graph: a model's nodes, each in a variant, and the Transforms between them.

Algorithm 1 makes it from a ``Graph``, still without Transforms. Then it is *extended*: each edge
that needs a Transform gets one. The result is the paper's extended dataflow graph. A lowered graph
never changes; a pass returns another one. ``str(graph)`` prints it::

    graph     ::= "extended" name, then lines
    line      ::= "input"    value ":" layout
                | "constant" value ":" layout
                | operands "=" operators "[" library "]" [operands]
                | operand "=" "Transform[" library "]" operand ["ahead of time"]
                | "output"   name "<-" operand
    operators ::= operator {"+" operator}
    operands  ::= operand {"," operand}
    operand   ::= value ":" layout

Inputs come first, then the model's constants, the nodes in topological order, and the outputs. An
operand is written without spaces: ``x:NHWC``. After ``+`` stand the operators that are fused. Left
of ``=`` is the layout in which a value is made, right of it the layout in which the node takes it:
they agree once the graph is extended. The Transform of a constant runs ahead of time.
``ptensor/parse.py`` has the grammar of a layout.

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
from vtensor.language.operators import Follower, info_of, label_of, result_type
from vtensor.language.records import dataclass, replace
from vtensor.language.tensor import VTensor

if TYPE_CHECKING:
    from vtensor.language.graph import Node


@dataclass(frozen=True)
class Reason:
    """Cause of a Transform: a consumer takes a value in another layout than the one in which it is
    produced.

    Attributes:
        consumer: name of the node that takes the value, or of the output that delivers it.
        producer: name, in the model, of the value that the consumer takes.
        role: the role of the value among the consumer's operands.
        library: the consumer's library.
        op, producer_op: operators of the consumer and of the producer; empty if there is none, as
            for an output, input or constant.
        requirement: what the consumer's invoker required of the operand; None if the consumer is an
            output.
    """

    consumer: str
    producer: str
    role: str = ""
    library: str = ""
    op: str = ""
    producer_op: str = ""
    requirement: Requirement | None = None

    def __str__(self) -> str:
        source = f"{self.producer_op} {self.producer}" if self.producer_op else self.producer
        if self.requirement is None:
            return f"output {self.consumer} is delivered in a layout that {source} does not have"
        place = f"{self.requirement.file}:{self.requirement.line}"
        demand = (
            f"requires this layout of {self.role} ({place})"
            if self.requirement.layouts
            else f"takes {self.role} in this layout, though any is allowed ({place})"
        )
        return f"{self.op} {self.consumer} ({self.library}) {demand}; {source} has another"


@dataclass(frozen=True)
class OpNode:
    """A node with its operator, in its variant: on one library, with one layout for each operand.

    Operands are values, given by their names. A layout of the variant is the one in which this node
    reads or writes the value. The value may be made in another layout; a Transform then has to be
    between the two nodes. Inputs are values of the model or outputs of Transforms.

    Attributes:
        followers: nodes of the network that are fused into this one. Their operands are the last of
            ``inputs``, and the output of the last follower is the first of ``outputs``.
        value: name of the value that the first follower reads; empty without followers.
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
        """Split ``inputs``, the tensors of the node's inputs, into the operands of its operator,
        and the followers with theirs.
        """
        return split(self.op, inputs, self.followers, self.value)


def pieces(node: OpNode, count: int) -> list[OpNode]:
    """Split a node into several: the node with its first ``count`` followers, and a node for each
    other follower.

    Each of the new nodes still has the variant of the whole node; the caller has to replace it. The
    values that the new nodes pass to each other are not yet among the graph's values.
    """
    fused, unfused = node.followers[:count], node.followers[count:]
    own_count = len(node.inputs) - _operands(node.value, node.followers)
    lead_count = own_count + _operands(node.value, fused)
    outputs = node.outputs
    if unfused:
        outputs = (fused[-1].outputs[0] if fused else node.value, *outputs[1:])
    fused_roles = (
        role for role in node.roles[own_count : len(node.inputs)][: lead_count - own_count]
    )
    lead = replace(
        node,
        op_name=" + ".join([label_of(node.op), *(follower.op_name for follower in fused)]),
        inputs=node.inputs[:lead_count],
        outputs=outputs,
        roles=(*node.roles[:own_count], *fused_roles, *node.roles[len(node.inputs) :]),
        followers=fused,
        value=node.value if fused else "",
        variant=replace(node.variant, followers=tuple(follower.name for follower in fused)),
    )
    alone = replace(node.variant, followers=())
    return [
        lead,
        *(
            OpNode(
                follower.name,
                follower.op,
                follower.op_name,
                follower.inputs,
                follower.outputs,
                info_of(follower.op).roles(len(follower.inputs), len(follower.outputs)),
                alone,
            )
            for follower in unfused
        ),
    ]


def _operands(value: str, followers: Sequence[Node]) -> int:
    """Return how many operands the followers of a node have, without the values that they follow.

    Each follower reads the output of the node or follower before it; this is the value that it
    follows.

    Args:
        value: the name of the value that the first follower follows.
    """
    count = 0
    for node in followers:
        count += len(node.inputs) - node.inputs.count(value)
        value = node.outputs[0]
    return count


def in_variant(node: OpNode, variant: Variant) -> list[OpNode]:
    """Return the nodes that replace ``node`` when its variant becomes ``variant``.

    It is one node, unless the variant has pieces: then it is a node for each piece, and followers
    that are not fused run in steps of their own.
    """
    if not variant.pieces:
        return [replace(node, variant=variant)]
    several = pieces(node, len(variant.followers))
    lead, *others = variant.pieces
    variants = [replace(lead, refused=variant.refused), *others]
    return [
        replace(piece, variant=piece_variant)
        for piece, piece_variant in zip(several, variants, strict=True)
    ]


def split(
    op: object, inputs: Sequence[VTensor], followers: Sequence[Node], value: str
) -> tuple[Sequence[VTensor], tuple[Follower, ...]]:
    """Divide the inputs of a fused node into those of its operator and those of its followers.

    A follower reads the output of the node or follower before it. All its other operands are among
    ``inputs``.

    Args:
        op: the operator.
        inputs: operands of the operator, then those of the followers.
        followers: nodes that are fused after the operator.
        value: name of the value that the first follower reads.

    Returns:
        The operator's own operands, and a ``Follower`` for each node.
    """
    own_count = len(inputs) - _operands(value, followers)
    remaining, fused = iter(inputs[own_count:]), list[Follower]()
    takes = result_type(op, [tensor.dtype for tensor in inputs[:own_count]]) if followers else ""
    for node in followers:
        places = tuple(i for i, name in enumerate(node.inputs) if name == value)
        operands = tuple(islice(remaining, len(node.inputs) - len(places)))
        fused.append(Follower(node.op, operands, places, takes))
        value, takes = node.outputs[0], fused[-1].gives
    return inputs[:own_count], tuple(fused)


def output_type(node: OpNode, values: Mapping[str, VTensor | Value]) -> str:
    """Return the element type of a node's first output, given the values that the node reads."""
    count, value = len(node.inputs) - _operands(node.value, node.followers), node.value
    dtype = result_type(node.op, [values[name].dtype for name in node.inputs[:count]])
    for follower in node.followers:
        types = [dtype if name == value else values[name].dtype for name in follower.inputs]
        dtype, value = result_type(follower.op, types), follower.outputs[0]
    return dtype


@dataclass(frozen=True)
class TransformNode:
    """A change of a value's layout, as a node of its own.

    Attributes:
        reason: why the Transform is needed.
        more: the reasons of other Transforms that were merged into this one.
    """

    name: str
    input: str
    output: str
    library: str
    reason: Reason
    more: tuple[Reason, ...] = ()

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """The causes of the Transform: one for each edge that it serves."""
        return (self.reason, *self.more)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The name of the only input, as a tuple like any node's."""
        return (self.input,)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The name of the only output, as a tuple."""
        return (self.output,)


LoweredNode = OpNode | TransformNode


@dataclass(frozen=True)
class Certificate:
    """What an optimisation proved about its choice of variants: its cost, and a bound that no
    choice's cost is below.

    Attributes:
        objective: what was minimised: ``shared``, the bytes that Transforms move; ``paper``, the
            edges with a Transform; or ``time``, in nanoseconds.
        solver: name of the solver.
        status: ``optimal``, ``time limit``, or why the solver failed. If it failed, the
            optimisation left the graph as it was.
        open_nodes: number of nodes that had more than one variant to choose from.
        bytes_before, count_before: bytes that Transforms moved before the optimisation, and number
            of Transforms.
        bytes_after, count_after: the same two after the optimisation.
        bound: lower bound of the objective over all choices, in its unit; None if nothing was
            proved.
        gap: how far the cost of the choice may be above the bound, as a fraction of that cost.
        seconds: the solver's time.
        ns_before, ns_after: for the objective ``time``, nanoseconds of the open nodes and of all
            Transforms, before and after the optimisation.
        basis: where the times of ``ns_before`` and ``ns_after`` come from, see ``Basis``.
        errors: the errors of approximate variants for which the proof holds; None if no variant was
            approximate.
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
        """The unit of the costs that were minimised: bytes, edges or ns."""
        return {"shared": "bytes", "paper": "edges", "time": "ns"}[self.objective]

    @property
    def costs(self) -> str:
        """What the optimisation minimised: ``bytes``, ``edges``, or ns with their basis, such as
        ``measured ns``.
        """
        return f"{self.basis} {self.unit}" if self.objective == "time" else self.unit

    @property
    def settled(self) -> bool:
        """True if a further optimisation should not try to reduce the bytes that Transforms move.

        They are minimal, or time was minimised instead.
        """
        return self.minimal or self.objective == "time"

    @property
    def minimal(self) -> bool:
        """True if no choice of variants lets Transforms move fewer bytes."""
        return self.objective == "shared" and self.status == "optimal"


class _Operands(Mapping[str, VTensor]):
    """A VTensor for each value of a graph, by name. It is made when it is first used, since most
    passes use few.
    """

    def __init__(self, values: Mapping[str, Value], constants: Mapping[str, TensorStorage]) -> None:
        self._values, self._constants = values, constants
        self._tensors: dict[str, VTensor] = {}

    def __getitem__(self, name: str) -> VTensor:
        tensor = self._tensors.get(name)
        if tensor is None:
            tensor = self._tensors[name] = self._values[name].tensor(self._constants.get(name))
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


@dataclass(frozen=True)
class LoweredGraph:
    """A graph that is ready to run: nodes in variants, in topological order, and the Transforms
    between them.

    Attributes:
        values: values by name, each in the layout in which it is made.
        outputs: for each output's name, the name of the value that is delivered.
        merged: names of the model's nodes that were removed or fused, each with the name of the
            node that does its work.
        passes: names of the optimisations that were applied.
        rewritten: how often each rewrite rule was applied to the model, by the rule's name.
        notes: why nodes that the model lacks are there, by the node's name.
        certificate: what the last optimisation proved, or None.
        constants: the memory of the model's constants by name, which invokers may read.
        delivery: layouts in which outputs are delivered, by name. An output without one has its
            declared order; ANY leaves it in its producer's layout.
        preferences: libraries that may run nodes and Transforms, and their order.
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
    notes: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", tuple(self.nodes))
        for name in ("values", "outputs", "merged", "constants", "delivery"):
            mapping = getattr(self, name)
            if not isinstance(mapping, MappingProxyType):
                object.__setattr__(self, name, MappingProxyType(dict(mapping)))

    @cached_property
    def operators(self) -> tuple[OpNode, ...]:
        """The nodes that are not Transforms."""
        return tuple(node for node in self.nodes if isinstance(node, OpNode))

    def notes_of(self, node: OpNode) -> list[str]:
        """Return why a node and its followers were added, or are computed in a wider type."""
        names = (node.name, *(follower.name for follower in node.followers))
        return [self.notes[name] for name in names if name in self.notes]

    @cached_property
    def overflows(self) -> bool:
        """True if a node computes in f16, whose numbers become infinite from 65520 on."""
        return any(
            not info_of(node.op).structural
            and any(self.values[name].dtype == "f16" for name in node.outputs)
            for node in self.operators
        )

    @cached_property
    def inexact(self) -> bool:
        """True if a node is approximate: its results differ from strict ones by more than the order
        of sums.
        """
        return any(node.variant.inexact for node in self.operators)

    @cached_property
    def sources(self) -> Mapping[str, str]:
        """For each value, by name, the model's value of which it is a copy, perhaps in another
        layout.
        """
        sources = {name: name for name in self.values}
        for node in self.nodes:
            if isinstance(node, TransformNode):
                sources[node.output] = sources[node.input]
        return sources

    @property
    def bare(self) -> LoweredGraph:
        """This graph without Transforms: each node reads the model's own values, even if their
        layouts are not those required.
        """
        changes = any(isinstance(node, TransformNode) for node in self.nodes)
        return self._bare if changes else self  # a cached self would be a reference cycle

    @cached_property
    def _bare(self) -> LoweredGraph:
        model_values = {name for name, source in self.sources.items() if name == source}
        nodes = [
            node
            if model_values.issuperset(node.inputs)
            else replace(node, inputs=tuple(self.sources[name] for name in node.inputs))
            for node in self.operators
        ]
        return replace(
            self,
            nodes=nodes,
            values={name: value for name, value in self.values.items() if name in model_values},
            outputs={alias: self.sources[name] for alias, name in self.outputs.items()},
        )

    @cached_property
    def tensors(self) -> Mapping[str, VTensor]:
        """A VTensor for each value, by name, in the layout in which the value is made."""
        return _Operands(self.values, self.constants)

    def transforms(self) -> Iterator[TransformNode]:
        """Yield the Transforms that are in every run: all but those of constants."""
        for node in self.nodes:
            if isinstance(node, TransformNode) and not self.values[node.input].constant:
                yield node

    def ahead(self) -> Iterator[TransformNode]:
        """Yield the Transforms of constants, which run once, ahead of time."""
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
            results = ", ".join(f"{name}:{self.values[name].layout}" for name in node.outputs)
            if isinstance(node, TransformNode):
                source = self.values[node.input]
                once = " ahead of time" if source.constant else ""
                yield f"{results} = Transform[{node.library}] {node.input}:{source.layout}{once}"
            else:
                used = zip(node.inputs, node.variant.layouts, strict=False)
                text = ", ".join(f"{name}:{layout}" for name, layout in used)
                yield f"{results} = {node.op_name}[{node.variant.library}] {text}"
        for alias, name in self.outputs.items():
            yield f"output {alias} <- {name}:{self.values[name].layout}"
