"""A lowered graph rebuilt in other variants, with identical Transforms shared."""

from __future__ import annotations

from collections.abc import Mapping

from optimizer.choice.problem import Problem
from optimizer.settings import Settings
from optimizer.share import share
from resolver.change import changed
from resolver.lowered import LoweredGraph


def remade(graph: LoweredGraph, problem: Problem, chosen: Mapping[str, int]) -> LoweredGraph:
    """Return the graph with each node in its chosen variant.

    Its Transforms are exactly those that the objective ``shared`` counts.

    Args:
        graph: the lowered graph; it is not changed.
        problem: the variants of the graph's nodes.
        chosen: the index of the new variant, by node. A node that it lacks keeps its variant.
    """
    variants = {node: problem.variants[node][number] for node, number in chosen.items()}
    others = {n: v for n, v in variants.items() if v is not problem.nodes[n].variant}
    return share(changed(graph, others), Settings())
