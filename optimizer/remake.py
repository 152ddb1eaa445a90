"""The lowered graph in other variants, and identical Transforms once."""

from __future__ import annotations

from collections.abc import Mapping

from optimizer.problem import Problem
from optimizer.settings import Settings
from optimizer.share import share
from resolver.change import changed
from resolver.lowered import LoweredGraph


def remade(graph: LoweredGraph, problem: Problem, chosen: Mapping[str, int]) -> LoweredGraph:
    """The graph with each node in the variant that is chosen for it.

    Its Transforms are then exactly those that the objective ``shared`` counts.
    """
    variants = {node: problem.variants[node][number] for node, number in chosen.items()}
    others = {n: one for n, one in variants.items() if one is not problem.nodes[n].variant}
    return share(changed(graph, others), Settings())
