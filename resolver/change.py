"""Exchange of nodes' variants in a lowered graph. Optimisations apply their results by it."""

from __future__ import annotations

from collections.abc import Mapping

from libdesc.transforms import LayoutChange
from ptensor.evaluation import Variant
from resolver.extend import extend
from resolver.lowered import LoweredGraph, OpNode, TransformNode, in_variant, output_type
from vtensor.language.records import replace


def changed(graph: LoweredGraph, variants: Mapping[str, Variant]) -> LoweredGraph:
    """Return the graph with some nodes in other variants, and a Transform on each edge that needs
    one.

    The libraries of Transforms next to these nodes are chosen again. All other Transforms stay on
    their libraries.

    Args:
        graph: the lowered graph, with or without Transforms.
        variants: the new variants, by the node's name. If the new variant is on the node's present
            library, the node keeps its record of the libraries that declined it.
    """
    makers = {name: node.name for node in graph.operators for name in node.outputs}
    layouts = {value.name: value.layout for value in graph.values.values()}
    known = {
        (node.reason, LayoutChange(layouts[node.input], layouts[node.output])): node.library
        for node in graph.nodes
        if isinstance(node, TransformNode)
        and variants.keys().isdisjoint((node.reason.consumer, makers.get(node.reason.producer)))
    }
    return extend(revised(graph.bare, variants), known=known)


def revised(graph: LoweredGraph, variants: Mapping[str, Variant]) -> LoweredGraph:
    """Return a graph without Transforms with some nodes in other variants.

    Afterwards a value may be produced in one layout and read in another.

    Args:
        graph: the lowered graph, which has no Transforms.
        variants: as for ``changed``.
    """
    nodes: list[OpNode] = []
    values, merged = dict(graph.values), dict(graph.merged)
    for node in graph.operators:
        variant = variants.get(node.name)
        if variant is None:
            nodes.append(node)
            continue
        if variant.library == node.variant.library:
            variant = replace(variant, refused=node.variant.refused)
        for piece in in_variant(node, variant):
            nodes.append(piece)
            merged.pop(piece.name, None)
            produced = piece.variant.layouts[len(piece.inputs) :]
            for name, layout in zip(piece.outputs, produced, strict=True):
                if name not in values:  # it is made and read inside the fused node
                    dtype = output_type(piece, values)
                    values[name] = replace(values[node.outputs[0]], name=name, dtype=dtype)
                values[name] = replace(values[name], layout=layout)
    return replace(graph, nodes=nodes, values=values, merged=merged)
