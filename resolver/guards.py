"""Layout guards of a lowered graph, and the same choice on a graph of other sizes.

Sizes decide only whether two layouts that are spelled differently put a value's elements at the
same addresses. An edge has a Transform if they do not, none if they do. A choice that is recorded
on symbols holds for all sizes for which each of these comparisons comes out the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ptensor.layout import Layout
from resolver.choice import lasting_certificate, with_parameters
from resolver.constants import stored
from resolver.lowered import LoweredGraph, OpNode, TransformNode, Value
from vtensor.language.records import replace

if TYPE_CHECKING:
    from vtensor.language.graph import Graph


def layout_pairs(
    lowered: LoweredGraph, entry: Mapping[str, Layout], delivery: Mapping[str, Layout]
) -> Iterator[tuple[str, str, str]]:
    """Yield (value, layout, layout) where a value has one layout and is taken in another, which
    agree in these sizes.

    The layouts are texts, and differ. The first one is that of the value, the second one that in
    which a node or output takes the value.

    Args:
        lowered: a graph that the checker accepted.
        entry, delivery: layouts of the inputs and promised layouts of the outputs, by name.
    """
    for name, have, want in _pairs(lowered, entry, delivery):
        suffix = f":{lowered.values[name].dtype}"  # the tensor's own type is the default encoding
        texts = have.removesuffix(suffix), want.removesuffix(suffix)
        if texts[0] != texts[1]:
            yield name, *texts


def _pairs(
    lowered: LoweredGraph, entry: Mapping[str, Layout], delivery: Mapping[str, Layout]
) -> Iterator[tuple[str, str, str]]:
    """Yield (value, layout, layout) for each use of a value: its own layout, and the one in which
    it is taken, as texts.
    """
    values = lowered.values
    for node in lowered.operators:
        names = (*node.inputs, *node.outputs)
        for name, layout in zip(names, node.variant.layouts, strict=True):
            yield name, str(values[name].layout), str(layout)
    inputs = {name: name for name in lowered.inputs}
    for layouts, ends in ((entry, inputs), (delivery, lowered.outputs)):
        for alias, name in ends.items():
            wanted = layouts.get(alias)
            declared = " ".join(f"{dim}/1" for dim in values[name].dims) or "()"
            if wanted is None or not wanted.is_any or ends is inputs:
                yield name, str(values[name].layout), str(wanted or declared)


def transform_guards(lowered: LoweredGraph) -> list[tuple[str, Layout, bool]]:
    """Return the guards of a choice: under them, other sizes need Transforms at the same edges.

    A guard is (value, layout, agree): the name of a value, a layout, and whether the value's own
    layout must agree with it.
    """
    rows, values = dict[tuple[str, Layout, bool], None](), lowered.values
    for node in lowered.nodes:
        if isinstance(node, TransformNode):
            rows[node.input, values[node.output].layout, False] = None
        else:
            names = (*node.inputs, *node.outputs)
            rows |= dict.fromkeys(
                (name, layout, True)
                for name, layout in zip(names, node.variant.layouts, strict=True)
            )
    for alias, name in lowered.outputs.items():
        wanted = lowered.delivery.get(alias, Layout.plain(values[name].dims))
        if not wanted.is_any:
            rows[name, wanted, True] = None
    return [row for row in rows if not row[2] or values[row[0]].layout != row[1]]


def put(lowered: LoweredGraph, graph: Graph) -> LoweredGraph:
    """Return the lowered graph of a choice for a graph that differs only in sizes. The result is
    not checked.

    Args:
        lowered: the choice; its graph has the nodes and edges of ``graph``, and the same followers
            are offered for fusion.
        graph: the graph, whose sizes may be symbolic.
    """
    sources = lowered.sources
    values = {
        name: Value(name, v.dtype, graph.values[sources[name]].dims, v.layout, v.constant)
        for name, v in lowered.values.items()
    }
    nodes = [
        with_parameters(graph, node) if isinstance(node, OpNode) else node for node in lowered.nodes
    ]
    constants = [name for name, v in values.items() if v.constant and name == sources[name]]
    return replace(
        lowered,
        values=values,
        nodes=nodes,
        constants=stored(graph, constants),
        certificate=lasting_certificate(lowered),
    )
