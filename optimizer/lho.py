"""Layout hoisting: equal Transforms after a branch become one.

Source: the paper, section 5.2, Fig. 4.
"""

from __future__ import annotations

from collections.abc import Iterator

from optimizer.edges import merged, users
from optimizer.settings import Settings
from resolver.lowered import LoweredGraph, TransformNode


def hoist(graph: LoweredGraph, settings: Settings) -> LoweredGraph:  # noqa: ARG001
    """f1(T(v)), ..., fn(T(v)) = f1(u), ..., fn(u) with u = T(v), if nothing else reads the branch.

    A branch node is a node whose immediate successors (1) are all Transforms, (2) of the same
    output, (3) to the same layout. Each rewriting removes a Transform, so the pass ends.
    """
    return merged(graph, list(_branches(graph)))


def _branches(graph: LoweredGraph) -> Iterator[list[TransformNode]]:
    """Yield, for each branch node that fulfils the three conditions of ``hoist``, the Transforms
    that read its output.
    """
    users_of = users(graph)
    branches = [(name,) for name in graph.inputs] + [node.outputs for node in graph.nodes]
    for outputs in branches:
        readers = [user for name in outputs for user in users_of[name]]
        transforms = [user for user in readers if isinstance(user, TransformNode)]
        if len(readers) < 2 or len(transforms) < len(readers):
            continue
        value, wanted = graph.values[transforms[0].input], graph.values[transforms[0].output]
        if all(
            node.input == value.name
            and graph.values[node.output].layout.same(wanted.layout, value.dims)
            for node in transforms
        ):
            yield transforms
