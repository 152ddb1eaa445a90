"""A Transform of a Transform's result is one Transform, or none."""

from __future__ import annotations

from libdesc.transforms import LayoutChange, choose_library
from optimizer.edges import rewired, users
from optimizer.settings import Settings
from ptensor.convert import lossless, preserves
from ptensor.evaluation import installed
from resolver.evaluate import PartialEvaluation
from resolver.lowered import LoweredGraph, TransformNode, Value
from vtensor.language.records import replace


def cancel(graph: LoweredGraph, settings: Settings) -> LoweredGraph:  # noqa: ARG001
    """T_BC(T_AB(v)) = T_AC(v), and v if A = C, provided that T_AB is exact: B then holds all of v.

    Each rewriting shortens a chain of Transforms, so the pass ends.
    """
    while (pair := _chain(graph)) is not None:
        graph = _without_unread(_shortened(graph, *pair))
    return graph


def _chain(graph: LoweredGraph) -> tuple[TransformNode, TransformNode] | None:
    """Return two Transforms of a graph that can be shortened; None if there are none.

    The second one reads the output of the first, and may read the input of the first instead.
    """
    makers = {node.output: node for node in graph.nodes if isinstance(node, TransformNode)}
    for second in makers.values():
        first = makers.get(second.input)
        if first is not None and _exact(graph, first, second):
            return first, second
    return None


def _exact(graph: LoweredGraph, first: TransformNode, second: TransformNode) -> bool:
    """Return whether the second Transform makes the same elements if it reads the input of the
    first Transform instead of its output.
    """
    a, b, c = (graph.values[name] for name in (first.input, first.output, second.output))
    first_stored, second_stored = a.layout.stored(a.dtype), b.layout.stored(b.dtype)
    same = a.layout.same(c.layout, a.dims)
    return lossless(first_stored, second_stored) if same else preserves(first_stored, second_stored)


def _shortened(graph: LoweredGraph, first: TransformNode, second: TransformNode) -> LoweredGraph:
    """Return the graph with the second Transform reading the first one's input.

    If that input has the wanted layout already, the second Transform is removed instead.
    """
    source, target = graph.values[first.input], graph.values[second.output]
    if source.layout.same(target.layout, source.dims):
        nodes = [node for node in graph.nodes if node is not second]
        return rewired(replace(graph, nodes=nodes), {second.output: source.name})
    library = _library(graph, source, target, second.library)
    direct = replace(second, input=source.name, library=library)
    nodes = [direct if node is second else node for node in graph.nodes]
    return replace(graph, nodes=nodes)


def _library(graph: LoweredGraph, source: Value, target: Value, preferred: str) -> str:
    """Return the library that runs a Transform from ``source`` to ``target``. It is ``preferred``
    if that can run it.
    """
    change = LayoutChange(source.layout, target.layout)
    evaluation = PartialEvaluation()
    with installed(evaluation):
        return choose_library(source.tensor(), change, [preferred], evaluation, graph.preferences)


def _without_unread(graph: LoweredGraph) -> LoweredGraph:
    """Return the graph without Transforms that have no reader."""
    reading = users(graph)
    unread = {
        n.output for n in graph.nodes if isinstance(n, TransformNode) and not reading[n.output]
    }
    return replace(
        graph,
        nodes=[node for node in graph.nodes if unread.isdisjoint(node.outputs)],
        values={name: value for name, value in graph.values.items() if name not in unread},
    )
