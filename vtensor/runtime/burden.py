"""What Transforms take of a plan's time, by estimate; and what other variants could spare."""

from __future__ import annotations

from typing import TYPE_CHECKING

from libdesc.transforms import LayoutChange

if TYPE_CHECKING:
    from optimizer.estimate import Estimate
    from resolver.lowered import LoweredGraph
    from vtensor.runtime.options import Options


def burden(graph: LoweredGraph, options: Options) -> float:
    """Which part of a plan's estimated time its Transforms take."""
    clock = _clock(options)
    changes = _changes(graph, clock)
    if not changes:
        return 0.0
    return changes / (changes + sum(clock.node(node, graph.tensors) for node in graph.operators))


def avoidable(graph: LoweredGraph, options: Options) -> float:
    """Which part Transforms and reference code take: by estimate, no other variants spare more."""
    clock, takes = _clock(options), dict[bool, int]()
    for node in graph.operators:
        reference = node.variant.reference
        takes[reference] = takes.get(reference, 0) + clock.node(node, graph.tensors)
    least, most = takes.get(False, 0), takes.get(True, 0) + _changes(graph, clock)
    return most / (least + most) if most else 0.0


def _clock(options: Options) -> Estimate:
    from optimizer.estimate import Estimate

    return Estimate(options.preferences, options.settings.speeds)


def _changes(graph: LoweredGraph, clock: Estimate) -> int:
    pairs = ((graph.values[one.input], graph.values[one.output]) for one in graph.transforms())
    return sum(
        clock.transform(source.tensor(), LayoutChange(source.layout, target.layout))
        for source, target in pairs
    )
