"""What Transforms take of a plan's time, by estimate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from libdesc.transforms import LayoutChange

if TYPE_CHECKING:
    from resolver.lowered import LoweredGraph
    from vtensor.runtime.planning import Options


def burden(graph: LoweredGraph, options: Options) -> float:
    """Which part of a plan's estimated time its Transforms take."""
    from optimizer.estimate import Estimate

    clock, changes = Estimate(options.preferences, options.settings.speeds), 0
    for node in graph.transforms():
        source, target = graph.values[node.input], graph.values[node.output]
        changes += clock.transform(source.tensor(), LayoutChange(source.layout, target.layout))
    if not changes:
        return 0.0
    return changes / (changes + sum(clock.node(node, graph.tensors) for node in graph.operators))
