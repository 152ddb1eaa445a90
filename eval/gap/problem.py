"""A layout problem, with the costs that solvers ask for; ``reading.py`` reads it from a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

#: What a solver minimises: the bytes that conversions move, or the nanoseconds of all kernels and
#: conversions.
Measure = Literal["bytes", "ns"]
MEASURES: tuple[Measure, ...] = ("bytes", "ns")


class Alternative(NamedTuple):
    """One way to run a node.

    Attributes:
        reads, writes: the layouts of the values that the node reads and writes, in their order.
        ns: the nanoseconds of the kernel.
        bytes, conversions: the bytes and the number of conversions inside the node; 0 for almost
            all nodes. Their time is part of ``ns``.
        library, kernel: for readers; solvers do without them.
    """

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    ns: float = 0
    bytes: float = 0
    conversions: int = 0
    library: str = ""
    kernel: str = ""

    def cost(self, measure: Measure) -> float:
        """Return the cost of the kernel in a measure."""
        return self.ns if measure == "ns" else self.bytes


class Node(NamedTuple):
    """A node of the network.

    Attributes:
        name: its name.
        reads, writes: the values that it reads and writes, constants left out.
        alternatives: the ways to run it; the first is the one that the resolver chose.
        op: name of the operator.
        kind: ``product`` (convolutions and matrix products), ``elementwise`` or ``other``.
    """

    name: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    alternatives: tuple[Alternative, ...]
    op: str = ""
    kind: str = "other"


@dataclass(frozen=True)
class Tensor:
    """The layouts of values of one type and size.

    Attributes:
        layouts: the bytes of the value in each layout, pads included.
        ns: the nanoseconds of a conversion, by (source, target).
        plain, channels_last: the layouts in declared order and with channels last; empty if no
            alternative has it.
    """

    layouts: Mapping[str, float]
    ns: Mapping[tuple[str, str], float]
    plain: str = ""
    channels_last: str = ""


class Reader(NamedTuple):
    """A use of a value: by a node, or as an output of the network.

    Attributes:
        node: the node; None for an output.
        place: index of the value among what the node reads.
        layout: the layout in which an output is wanted.
    """

    node: Node | None
    place: int = 0
    layout: str = ""


@dataclass(frozen=True)
class Problem:
    """A layout problem.

    Attributes:
        nodes: in topological order.
        values: the tensor of each value.
        given: the layouts of the network's inputs.
        outputs: (value, layout) of the network's outputs whose layout is fixed.
        about: the origin of the problem.
        optima: by measure, the certificate of the file; empty if it has none.
    """

    nodes: tuple[Node, ...]
    values: Mapping[str, Tensor]
    given: Mapping[str, str]
    outputs: Sequence[tuple[str, str]] = ()
    about: Mapping[str, Any] = field(default_factory=dict)
    optima: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @cached_property
    def makers(self) -> dict[str, tuple[Node, int]]:
        """By name of a value, the node that writes it and its index among what that node writes."""
        return {name: (n, place) for n in self.nodes for place, name in enumerate(n.writes)}

    @cached_property
    def readers(self) -> dict[str, list[Reader]]:
        """By name of a value, its readers: nodes, then outputs."""
        readers: dict[str, list[Reader]] = {name: [] for name in self.values}
        for node in self.nodes:
            for place, name in enumerate(node.reads):
                readers[name].append(Reader(node, place))
        for name, layout in self.outputs:
            readers[name].append(Reader(None, 0, layout))
        return readers

    def made(self, value: str, choice: Mapping[str, int]) -> str:
        """Return the layout in which a value is made in a choice: indices of alternatives by node;
        a node that it lacks has its first.
        """
        if value in self.given:
            return self.given[value]
        node, place = self.makers[value]
        return node.alternatives[choice.get(node.name, 0)].writes[place]

    def wanted(self, reader: Reader, choice: Mapping[str, int]) -> str:
        """Return the layout in which a reader wants its value in a choice."""
        if reader.node is None:
            return reader.layout
        return reader.node.alternatives[choice.get(reader.node.name, 0)].reads[reader.place]

    def conversion(self, value: str, source: str, target: str, measure: Measure) -> float:
        """Return the cost of converting a value; 0 if both layouts are the same."""
        tensor = self.values[value]
        if source == target:
            return 0
        if measure == "bytes":
            return tensor.layouts[source] + tensor.layouts[target]
        return tensor.ns[source, target]
