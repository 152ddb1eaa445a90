"""The extended graph again, with other variants, and identical Transforms once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from optimizer.problem import Problem
from optimizer.settings import Settings
from optimizer.share import share
from resolver.extend import extend
from resolver.extended import ExtendedGraph
from resolver.revise import revised


def remade(graph: ExtendedGraph, problem: Problem, chosen: Mapping[str, int]) -> ExtendedGraph:
    """The graph with each node in the variant that is chosen for it.

    Its Transforms are then exactly those that the objective ``shared`` counts.
    """
    origin = graph.origin
    assert origin is not None, "a graph that extend made has an origin"
    variants = {node: problem.variants[node][number] for node, number in chosen.items()}
    variants = {n: one for n, one in variants.items() if one is not problem.nodes[n].variant}
    resolution = revised(origin.resolution, variants)
    fresh = extend(resolution, origin.output_layouts, origin.preferences)
    return replace(share(fresh, Settings()), passes=graph.passes, certificate=graph.certificate)
