"""What the checker has proved of a lowered graph, for others that differ from it in sizes alone.

The checker asks sizes little: whether a value's are the network's, and whether two layouts that are
written differently put a value's elements at the same places. All its other questions are about
names, edges, types, layouts and variants. Where these are the same again they are not asked again;
where anything is not, the checker runs in full, and says what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from resolver.addresses import addresses
from resolver.check import check
from resolver.lowered import LoweredGraph, OpNode, TransformNode, Value
from vtensor.errors import UnsoundPlanError
from vtensor.language.records import dataclass

if TYPE_CHECKING:
    from ptensor.layout import Layout
    from vtensor.language.graph import Graph, Node
    from vtensor.language.tensor import VTensor

    Layouts = Mapping[str, Layout] | None


class Proof:
    """Checks lowered graphs, each after the first by what differs from it."""

    def __init__(self) -> None:
        self._proven: Proven | None = None

    @property
    def questions(self) -> Sequence[tuple[str, str, str]]:
        """What the first one's sizes were asked: values, and two layouts that have to lie alike.

        Raises:
            UnsoundPlanError: none was checked yet.
        """
        if self._proven is None:
            raise UnsoundPlanError("nothing was checked yet")
        return self._proven.questions

    def check(
        self,
        extended: LoweredGraph,
        graph: Graph,
        transformers: Sequence[str],
        entry: Layouts = None,
        delivery: Layouts = None,
    ) -> None:
        """As ``check``, for a tolerance of 0.

        Raises:
            UnsoundPlanError: as ``check``.
        """
        said = (tuple(transformers), dict(entry or {}), dict(delivery or {}))
        if self._proven is not None and self._proven.holds_for(extended, graph, said):
            return
        check(extended, graph, transformers, entry, delivery)
        self._proven = Proven.of(extended, graph, said)


@dataclass(frozen=True)
class Proven:
    """A lowered graph that was checked in full, without its constants' memory.

    Attributes:
        ends: inputs and outputs, of the lowered graph and of the network.
        given, known: the network's nodes and values.
        changed: by output of a Transform, its input.
        questions: values, and two texts of layouts that have to lie alike in their sizes.
    """

    said: object
    ends: object
    nodes: Sequence[object]
    values: Mapping[str, Value]
    given: Mapping[str, Node]
    known: Mapping[str, VTensor]
    constants: frozenset[str]
    changed: Mapping[str, str]
    questions: Sequence[tuple[str, str, str]]

    @classmethod
    def of(cls, extended: LoweredGraph, graph: Graph, said: tuple[object, ...]) -> Proven:
        """What was proved of a lowered graph that is sound."""
        changes = [node for node in extended.nodes if isinstance(node, TransformNode)]
        return cls(
            said,
            _ends(extended, graph),
            extended.nodes,
            extended.values,
            graph.nodes,
            graph.values,
            frozenset(graph.constants),
            {node.output: node.input for node in changes},
            tuple(dict.fromkeys(_questions(extended, said[1:]))),
        )

    def holds_for(self, extended: LoweredGraph, graph: Graph, said: tuple[object, ...]) -> bool:
        """The checker would have the same answers, or asks nothing but sizes, which have them."""
        return (
            (said, _ends(extended, graph)) == (self.said, self.ends)
            and self._same_network(graph)
            and self._same_nodes(extended.nodes, graph.nodes)
            and self._same_values(extended.values, graph.values)
            and self._lie_alike(extended.values)
        )

    def _same_network(self, graph: Graph) -> bool:
        """The network has the same nodes with the same edges, and the same constants."""
        if graph.nodes.keys() != self.given.keys() or self.constants != {*graph.constants}:
            return False
        rows = zip(graph.nodes.values(), map(self.given.__getitem__, graph.nodes), strict=True)
        return all(
            one is was or (one.name, one.inputs, one.outputs) == (was.name, was.inputs, was.outputs)
            for one, was in rows
        )

    def _same_nodes(self, nodes: Sequence[object], given: Mapping[str, Node]) -> bool:
        """The same nodes run in the same order, with the parameters of the network."""
        if len(nodes) != len(self.nodes):
            return False
        for node, was in zip(nodes, self.nodes, strict=True):
            if node is not was and not _same_node(node, was):
                return False
            if isinstance(node, OpNode) and (
                given[node.name].op is not node.op
                or any(given.get(one.name) is not one for one in node.followers)
            ):
                return False
        return True

    def _same_values(self, values: Mapping[str, Value], known: Mapping[str, VTensor]) -> bool:
        """All values are of the same kinds, and of the sizes that the network has now."""
        if values.keys() != self.values.keys():
            return False
        for name, value in values.items():
            was, source = self.values[name], self.changed.get(name)
            if source is not None:
                if value is was and values[source] is self.values[source]:
                    continue
                dims, own = dict(value.dims), dict(values[source].dims)
            else:
                given = known.get(name)
                if given is None or (value is was and given is self.known.get(name)):
                    if given is None:
                        return False
                    continue
                if value.dtype != given.dtype:
                    return False
                dims, own = dict(value.dims), dict(given.dims)
            if dims != own or not _same_kind(value, was):
                return False
        return True

    def _lie_alike(self, values: Mapping[str, Value]) -> bool:
        """Layouts that are written differently are still the same, where sizes are others."""
        try:
            return all(
                addresses(one, values[name].dims) == addresses(other, values[name].dims)
                for name, one, other in self.questions
                if values[name] is not self.values[name]
            )
        except UnsoundPlanError:
            return False


def _ends(extended: LoweredGraph, graph: Graph) -> object:
    own = (tuple(extended.inputs), dict(extended.outputs))
    return own, (tuple(graph.inputs), dict(graph.outputs))


def _same_node(node: object, was: object) -> bool:
    """Two nodes differ in parameters alone."""
    if not (isinstance(node, OpNode) and isinstance(was, OpNode)):
        return node == was
    return (
        node.variant is was.variant
        and (node.name, node.inputs, node.outputs) == (was.name, was.inputs, was.outputs)
        and [one.name for one in node.followers] == [one.name for one in was.followers]
    )


def _same_kind(value: Value, was: Value) -> bool:
    """Two values differ in sizes alone."""
    own = (value.name, value.dtype, value.constant, value.layout, [*value.dims])
    return own == (was.name, was.dtype, was.constant, was.layout, [*was.dims])


def _questions(
    extended: LoweredGraph, promised: Sequence[object]
) -> Iterator[tuple[str, str, str]]:
    """What the checker asks addresses for, in whatever sizes."""
    for name, one, other in _pairs(extended, promised):
        own = f":{extended.values[name].dtype}"  # the tensor's own type says nothing
        if one == other:
            continue
        texts = one.removesuffix(own), other.removesuffix(own)
        if texts[0] != texts[1]:
            yield name, *texts
    for node in extended.nodes:
        if isinstance(node, TransformNode):
            for name in (node.input, node.output):  # there has to be an answer
                text = str(extended.values[name].layout)
                yield name, text, text


def _pairs(extended: LoweredGraph, promised: Sequence[object]) -> Iterator[tuple[str, str, str]]:
    """Values, how they lie, and how somebody takes them."""
    values = extended.values
    for node in extended.operators:
        names = (*node.inputs, *node.outputs)
        for name, layout in zip(names, node.variant.layouts, strict=True):
            yield name, str(values[name].layout), str(layout)
    ends = ({name: name for name in extended.inputs}, extended.outputs)
    for layouts, rows in zip(promised, ends, strict=True):
        assert isinstance(layouts, dict)
        for alias, name in rows.items():
            wanted = layouts.get(alias)
            declared = " ".join(f"{dim}/1" for dim in values[name].dims) or "()"
            if wanted is None or not wanted.is_any or rows is ends[0]:
                yield name, str(values[name].layout), str(wanted or declared)
