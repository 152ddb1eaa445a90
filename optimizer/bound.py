"""How far a plan may be from the best one of its sizes, at the cost of a look at each node.

The program of ``joint`` without its edges: each node takes the least that any library that may have
it takes by estimate, and no Transform is needed. No choice of variants of these nodes takes less,
so that a plan is at most as far off as it takes longer. It goes by the nodes as the plan has fused
them: that others could be fused, it does not see.
"""

from __future__ import annotations

from libdesc.transforms import LayoutChange
from optimizer.candidates import other_libraries
from optimizer.estimate import Estimate
from optimizer.joint import MARGIN
from optimizer.settings import Settings
from ptensor.layout import Layout
from resolver.lowered import LoweredGraph, OpNode
from vtensor.language.records import replace


def total_ns(graph: LoweredGraph, settings: Settings) -> int:
    """What a plan takes by estimate: its nodes, and its Transforms."""
    clock, values = _clock(graph, settings), graph.values
    ends = ((values[one.input], values[one.output]) for one in graph.transforms())
    changes = (
        clock.transform(source.tensor(), LayoutChange(source.layout, target.layout))
        for source, target in ends
    )
    return sum(changes) + sum(clock.node(node, graph.tensors) for node in graph.operators)


def excess(graph: LoweredGraph, settings: Settings) -> float:
    """Which part of a plan's estimated time a better one may spare at most."""
    takes, clock = total_ns(graph, settings), _clock(graph, settings)
    least = sum(_least_ns(graph, node, clock) for node in graph.operators)
    return (takes - least) / takes if takes else 0.0


def _clock(graph: LoweredGraph, settings: Settings) -> Estimate:
    return Estimate(graph.preferences, settings.speeds)


def _least_ns(graph: LoweredGraph, node: OpNode, clock: Estimate) -> int:
    """What a node takes at least: without pads in memory, and with no reference code."""
    names, library = (*node.inputs, *node.outputs), node.variant.library
    layouts = [Layout.plain(graph.values[name].dims) for name in names]
    dense = replace(node.variant.lying(layouts), reference=False)
    own, *others = (
        clock.node(replace(node, variant=replace(dense, library=one)), graph.tensors)
        for one in (library, *other_libraries(graph, node))
    )
    return min(own, *(ns + int(own * MARGIN) for ns in others), own)
