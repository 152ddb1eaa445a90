"""Two other ways to insert Transforms, with which the resolver is compared.

Nodes stay on the libraries that the resolver chose. Each node is evaluated again for the layouts in
which its inputs now arrive.
"""

from __future__ import annotations

from collections.abc import Iterable

from libdesc.registry import ready
from ptensor.layout import Layout
from resolver.change import revised
from resolver.extend import Passing, extend
from resolver.lowered import LoweredGraph, OpNode, Value
from resolver.probe import Prober
from vtensor.language.operators import info_of

#: The dim of channels, which is last in the paper's layout NHWC.
CHANNELS = "C"


def aware(graph: LoweredGraph, _settings: object) -> LoweredGraph:
    """Extend a graph as if each operator took its inputs in any layout and converted them inside
    itself.

    From one library to another a value is passed with channels last. If its producer has another
    layout, it is converted after it; if its consumer has another layout, it is converted again
    before it. Between nodes of one library it is passed unchanged. No conversion serves two edges.
    A reshape, which runs no library's code, counts as a node of its input's library.

    Args:
        graph: the resolver's result.

    Raises:
        NoInvokerError: no library can change one layout into another.

    Source: the paper, sections 2.1 and 2.2, Fig. 1.
    """
    between = _between(graph.bare)
    return extend(_rebuilt(graph.bare, between), passing=between)


def held(graph: LoweredGraph, _settings: object) -> LoweredGraph:
    """Extend a graph whose element-wise operators take their inputs with channels last, if their
    library can.

    Raises:
        NoInvokerError: no library can change one layout into another.

    Source: the paper, section 5.2, Fig. 9(a).
    """
    return extend(_rebuilt(graph.bare, _elementwise))


def channels_last(dims: Iterable[str]) -> Layout:
    """Return the layout with dim C last and the other dims in their order: NHWC for N C H W.

    >>> [str(channels_last(dims)) for dims in ("NCHW", "NCW", "NC", "OIhw")]
    ['NHWC', 'NWC', 'NC', 'OIhw']
    """
    return Layout.plain(sorted(dims, key=CHANNELS.__eq__))


def _between(graph: LoweredGraph) -> Passing:
    """Return the argument ``passing`` of ``extend`` for ``aware``.

    The function returns the layout with channels last for an edge between nodes of two libraries,
    else None. A node that moves no memory belongs to the library of its input.
    """
    runs: dict[str, str] = {}
    makers: dict[str, str] = {}
    for node in graph.operators:
        runs[node.name] = _library_of(node) or makers.get(node.inputs[0], "")
        makers |= dict.fromkeys(node.outputs, runs[node.name])

    def passes(maker: OpNode | None, node: OpNode, value: Value) -> Layout | None:
        ends = {runs[node.name], runs[maker.name] if maker else ""} - {""}
        return channels_last(value.dims) if len(ends) > 1 else None

    return passes


def _library_of(node: OpNode) -> str:
    """Return the library whose code a node runs; empty if it shares memory, as a reshape does."""
    registry, library = ready(), node.variant.library
    invoker = registry.invokers.get((info_of(node.op).name, library, node.variant.forms[0].device))
    shares = invoker and registry.libraries[library].description.python and not invoker.python
    return "" if shares else library


def _elementwise(maker: OpNode | None, node: OpNode, value: Value) -> Layout | None:  # noqa: ARG001
    """Return channels last for an input of an element-wise operator, if it is no constant, else
    None.

    None means that the value keeps its layout. Constants are transformed ahead of time in any case.
    """
    free = value.constant or not info_of(node.op).elementwise
    return None if free else channels_last(value.dims)


def _rebuilt(graph: LoweredGraph, passes: Passing) -> LoweredGraph:
    """Return the graph with the variant of each node decided again, for the layouts in which its
    inputs now arrive.

    A node whose library declines these layouts keeps its variant.

    Args:
        passes: as ``passing`` of ``extend``: the layout in which a value arrives, or None for the
            one in which it is produced.
    """
    prober, variants = Prober(graph), {}
    makers: dict[str, OpNode] = {}
    layouts = {name: value.layout for name, value in graph.values.items()}
    for node in graph.operators:
        values = [graph.values[name] for name in node.inputs]
        input_layouts = [passes(makers.get(v.name), node, v) or layouts[v.name] for v in values]
        variant = prober.decide(node, input_layouts) or node.variant
        variants[node.name] = variant
        produced = variant.layouts[len(values) :]
        for name, layout in zip(node.outputs, produced, strict=True):
            makers[name], layouts[name] = node, layout
    return revised(graph, variants)
