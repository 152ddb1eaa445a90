"""The extended dataflow graph: operators with decided layouts, and Transform nodes between them.

Source: the paper, sections 3 and 5.1, Fig. 5(a).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

from ptensor.evaluation import Requirement, Variant
from ptensor.layout import Layout
from vtensor.language.operators import Follower

if TYPE_CHECKING:
    from libdesc.preferences import Preferences
    from resolver.evaluate import Resolution
    from vtensor.language.graph import Node
    from vtensor.language.tensor import VTensor


@dataclass(frozen=True)
class Value:
    """What flows along an edge: a tensor in one layout."""

    name: str
    dtype: str
    dims: Mapping[str, int]
    layout: Layout
    constant: bool = False

    @cached_property
    def nbytes(self) -> int:
        """Bytes in memory, pads included."""
        return self.layout.nbytes(self.dims, self.dtype)


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

    In a resolution the inputs are the network's values; in the extended graph they may be outputs
    of Transforms.

    Attributes:
        followers: the network's nodes that are fused behind it. Its last inputs are theirs, and
            its outputs the last one's.
    """

    name: str
    op: object
    op_name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    roles: tuple[str, ...]
    variant: Variant
    followers: tuple[Node, ...] = ()

    def split(self, inputs: Sequence[VTensor]) -> tuple[Sequence[VTensor], tuple[Follower, ...]]:
        """The operator's own operands, and its followers with theirs."""
        return split(inputs, self.followers)


def split(
    inputs: Sequence[VTensor], followers: Sequence[Node]
) -> tuple[Sequence[VTensor], tuple[Follower, ...]]:
    """The operands of an operator among all inputs, and what is behind it with its own.

    Each follower reads the value before it and has the others of its inputs here.
    """
    counts = [len(node.inputs) - 1 for node in followers]
    own = len(inputs) - sum(counts)
    rest = iter(inputs[own:])
    behind = (
        Follower(node.op, tuple(islice(rest, count)))
        for node, count in zip(followers, counts, strict=True)
    )
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


ExtendedNode = OpNode | TransformNode


@dataclass(frozen=True)
class Origin:
    """What an extended graph was made from, so that it can be made again with other rows."""

    resolution: Resolution
    output_layouts: Mapping[str, Layout]
    preferences: Preferences


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
            Transforms, as measured.
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

    @property
    def unit(self) -> str:
        """Of the objective and its bound."""
        return {"shared": "bytes", "paper": "edges", "time": "ns"}[self.objective]

    @property
    def settled(self) -> bool:
        """Rules that lower bytes have nothing to add: there are none, or bytes do not count."""
        return self.minimal or self.objective == "time"

    @property
    def minimal(self) -> bool:
        """No choice of rows lets Transforms move less."""
        return self.objective == "shared" and self.status == "optimal"


@dataclass
class ExtendedGraph:
    """Values and nodes in topological order.

    Attributes:
        outputs: for each name that is delivered, the value that is delivered under it.
        merged: nodes that a simplification took away, each with the node that does their work.
        passes: the optimisations that have been here.
        origin: what it was made from.
        certificate: what the last optimisation proved, if one could.
    """

    name: str
    values: dict[str, Value] = field(default_factory=dict)
    nodes: list[ExtendedNode] = field(default_factory=list)
    inputs: tuple[str, ...] = ()
    outputs: dict[str, str] = field(default_factory=dict)
    merged: Mapping[str, str] = field(default_factory=dict)
    passes: tuple[str, ...] = ()
    origin: Origin | None = None
    certificate: Certificate | None = None

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
