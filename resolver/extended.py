"""The extended dataflow graph: operators with decided layouts, and Transform nodes between them.

Source: the paper, sections 3 and 5.1, Fig. 5(a).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from ptensor.evaluation import Decision, Requirement
from ptensor.layout import Layout


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
        asked = f"{self.op} {self.consumer} ({self.library}) requires it of {self.role}"
        return f"{asked} at {self.requirement.file}:{self.requirement.line}, {made} has another"


@dataclass(frozen=True)
class OpNode:
    """An operator on its library, as it was decided; values go by name.

    In a resolution the inputs are the network's values; in the extended graph they may be outputs
    of Transforms.
    """

    name: str
    op: object
    op_name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    roles: tuple[str, ...]
    decision: Decision


@dataclass(frozen=True)
class TransformNode:
    """A change of layout as a node of its own."""

    name: str
    input: str
    output: str
    library: str
    reason: Reason

    @property
    def inputs(self) -> tuple[str, ...]:
        """Its one input, as a tuple like any node's."""
        return (self.input,)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Its one output."""
        return (self.output,)


ExtendedNode = OpNode | TransformNode


@dataclass
class ExtendedGraph:
    """Values and nodes in topological order.

    Attributes:
        outputs: for each name that is delivered, the value that is delivered under it.
        passes: the optimisations that have been here.
    """

    name: str
    values: dict[str, Value] = field(default_factory=dict)
    nodes: list[ExtendedNode] = field(default_factory=list)
    inputs: tuple[str, ...] = ()
    outputs: dict[str, str] = field(default_factory=dict)
    passes: tuple[str, ...] = ()

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
                used = zip(node.inputs, node.decision.layouts, strict=False)
                text = ", ".join(f"{name}:{layout}" for name, layout in used)
                yield f"{made} = {node.op_name}[{node.decision.library}] {text}"
        for alias, name in self.outputs.items():
            yield f"output {alias} <- {name}:{self.values[name].layout}"
