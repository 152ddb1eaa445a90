"""Equal Transforms of one value become one Transform, even if other nodes read the value itself."""

from __future__ import annotations

from optimizer.edges import merged, transforms_of
from optimizer.settings import Settings
from resolver.lowered import LoweredGraph, TransformNode


def share(graph: LoweredGraph, settings: Settings) -> LoweredGraph:  # noqa: ARG001
    """f(T(v)), g(T(v)), h(v) = f(u), g(u), h(v) with u = T(v), also if v is a constant.

    Each rewriting removes a Transform, so the pass ends.
    """
    groups: list[list[TransformNode]] = []
    for name, nodes in transforms_of(graph).items():
        dims = graph.values[name].dims
        alike: list[list[TransformNode]] = []
        for node in nodes:
            layout = graph.values[node.output].layout
            for group in alike:
                if layout.same(graph.values[group[0].output].layout, dims):
                    group.append(node)
                    break
            else:
                alike.append([node])
        groups += [group for group in alike if len(group) > 1]
    return merged(graph, groups)
