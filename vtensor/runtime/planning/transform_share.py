"""The share of Transforms in a plan's estimated time, and the nodes around Transforms."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from libdesc.transforms import LayoutChange

if TYPE_CHECKING:
    from optimizer.choice.estimate import Estimate
    from resolver.lowered import LoweredGraph, OpNode
    from vtensor.runtime.planning.options import Options


def avoidable(graph: LoweredGraph, options: Options) -> float:
    """Return the share (0 to 1) of a graph's estimated time that Transforms and reference code
    take.

    A choice of other variants can save no larger share.
    """
    clock, takes = _clock(options), dict[bool, int]()
    for node in graph.operators:
        reference = node.variant.reference
        takes[reference] = takes.get(reference, 0) + clock.node(node, graph.tensors)
    least, most = takes.get(False, 0), takes.get(True, 0) + _transforms_ns(graph, clock)
    return most / (least + most) if most else 0.0


def around_transforms(graph: LoweredGraph, hops: int) -> frozenset[str]:
    """Return the names of nodes that are next to Transforms or run in reference code, and of the
    nodes near them.

    Args:
        graph: the lowered graph.
        hops: the largest distance from such a node at which a node is near, counted in nodes.
    """
    ends = {
        name for transform in graph.transforms() for name in (transform.input, transform.output)
    }
    names = {node.name for node in graph.operators if node.variant.reference}
    names |= _touching(graph, ends)
    for _ in range(hops):
        nodes = [node for node in graph.operators if node.name in names]
        ends = {name for node in nodes for name in _ends(node) if not graph.values[name].constant}
        names |= _touching(graph, ends)
    return frozenset(names)


def _touching(graph: LoweredGraph, values: AbstractSet[str]) -> set[str]:
    return {node.name for node in graph.operators if not values.isdisjoint(_ends(node))}


def _ends(node: OpNode) -> tuple[str, ...]:
    return (*node.inputs, *node.outputs)


def _clock(options: Options) -> Estimate:
    from optimizer.choice.estimate import Estimate

    return Estimate(options.preferences, options.settings.speeds)


def _transforms_ns(graph: LoweredGraph, clock: Estimate) -> int:
    pairs = (
        (graph.values[transform.input], graph.values[transform.output])
        for transform in graph.transforms()
    )
    return sum(
        clock.transform(source.tensor(), LayoutChange(source.layout, target.layout))
        for source, target in pairs
    )
