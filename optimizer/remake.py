"""The extended graph again, with other rows, and identical Transforms once."""

from __future__ import annotations

from dataclasses import replace

from optimizer.problem import Assignment, Problem
from optimizer.settings import Settings
from optimizer.share import share
from resolver.extend import extend
from resolver.extended import ExtendedGraph
from resolver.revise import revised


def remade(graph: ExtendedGraph, problem: Problem, chosen: Assignment) -> ExtendedGraph:
    """The graph with each node in the row that is chosen for it.

    Its Transforms are then exactly those that the objective ``shared`` counts.
    """
    origin = graph.origin
    assert origin is not None, "a graph that extend made has an origin"
    rows = {node: problem.rows[node][row] for node, row in chosen.items()}
    decisions = {n: row for n, row in rows.items() if row is not problem.nodes[n].decision}
    resolution = revised(origin.resolution, decisions)
    fresh = extend(resolution, origin.output_layouts, origin.choice)
    return replace(share(fresh, Settings()), passes=graph.passes, certificate=graph.certificate)
