"""A lower bound of a plan's estimated time. It tells how far the plan may be from the best one.

The bound takes, for each node, the least estimated time on any library that may run the node, and
assumes that no Transform is needed. No choice of variants for these nodes takes less. Nodes stay
fused as they are in the plan; the bound does not cover what fusing other nodes would save.
"""

from __future__ import annotations

from libdesc.transforms import LayoutChange
from optimizer.choice.candidates import other_libraries
from optimizer.choice.estimate import Estimate
from optimizer.joint import MARGIN
from optimizer.settings import Settings
from ptensor.layout import Layout
from resolver.lowered import LoweredGraph, OpNode
from vtensor.language.records import replace


def total_ns(graph: LoweredGraph, settings: Settings) -> int:
    """Return the estimated nanoseconds of a plan's nodes and Transforms."""
    clock, values = _clock(graph, settings), graph.values
    ends = ((values[node.input], values[node.output]) for node in graph.transforms())
    changes = (
        clock.transform(source.tensor(), LayoutChange(source.layout, target.layout))
        for source, target in ends
    )
    return sum(changes) + sum(clock.node(node, graph.tensors) for node in graph.operators)


def excess(graph: LoweredGraph, settings: Settings) -> float:
    """Return the largest share (0 to 1) of a plan's estimated time that a better plan could
    save.
    """
    total, clock = total_ns(graph, settings), _clock(graph, settings)
    bound = sum(_least_ns(graph, node, clock) for node in graph.operators)
    return (total - bound) / total if total else 0.0


def _clock(graph: LoweredGraph, settings: Settings) -> Estimate:
    return Estimate(graph.preferences, settings.speeds)


def _least_ns(graph: LoweredGraph, node: OpNode, clock: Estimate) -> int:
    """Return a lower bound of a node's estimated time, in nanoseconds, on any library that may run
    it.

    It is estimated with operands that have no pads, and without reference code. Libraries other
    than the node's own are charged the share MARGIN of the own library's time on top, as by the
    joint choice.
    """
    names, library = (*node.inputs, *node.outputs), node.variant.library
    layouts = [Layout.plain(graph.values[name].dims) for name in names]
    dense = replace(node.variant.lying(layouts), reference=False)
    own, *others = (
        clock.node(replace(node, variant=replace(dense, library=name)), graph.tensors)
        for name in (library, *other_libraries(graph, node))
    )
    return min(own, *(ns + int(own * MARGIN) for ns in others), own)
