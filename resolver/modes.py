"""What the resolver is compared with: two ways of extending a graph that are not its own.

Nodes stay on the libraries that the resolver chose; each decides again for how its inputs come now.
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

#: The dim that the paper's NHWC has last.
CHANNELS = "C"


def aware(graph: LoweredGraph, _settings: object) -> LoweredGraph:
    """Layout-aware operators: each takes what comes, and converts inside itself what it must.

    From one library to another a value passes with channels last, converted behind its producer
    and again before its consumer wherever they have it otherwise; within a library it passes as it
    lies. No conversion serves two edges. A reshape runs no library: it is neither's end.

    Raises:
        NoInvokerError: no library can change one layout into another.

    Source: the paper, sections 2.1 and 2.2, Fig. 1.
    """
    between = _between(graph.bare)
    return extend(_rebuilt(graph.bare, between), passing=between)


def held(graph: LoweredGraph, _settings: object) -> LoweredGraph:
    """The resolver, with element-wise operators held at channels last; who declines stays.

    Raises:
        NoInvokerError: as ``aware``.

    Source: the paper, section 5.2, Fig. 9(a).
    """
    return extend(_rebuilt(graph.bare, _elementwise))


def channels_last(dims: Iterable[str]) -> Layout:
    """NHWC, of dims of any number and names.

    >>> [str(channels_last(dims)) for dims in ("NCHW", "NCW", "NC", "OIhw")]
    ['NHWC', 'NWC', 'NC', 'OIhw']
    """
    return Layout.plain(sorted(dims, key=CHANNELS.__eq__))


def _between(graph: LoweredGraph) -> Passing:
    """From one library to another; what moves no memory belongs to that which made its input."""
    runs: dict[str, str] = {}
    made: dict[str, str] = {}
    for node in graph.operators:
        runs[node.name] = _runs(node) or made.get(node.inputs[0], "")
        made |= dict.fromkeys(node.outputs, runs[node.name])

    def passes(maker: OpNode | None, node: OpNode, value: Value) -> Layout | None:
        ends = {runs[node.name], runs[maker.name] if maker else ""} - {""}
        return channels_last(value.dims) if len(ends) > 1 else None

    return passes


def _runs(node: OpNode) -> str:
    """The library whose code a node runs; none where it shares memory, as a reshape does."""
    found, library = ready(), node.variant.library
    invoker = found.invokers.get((info_of(node.op).name, library, node.variant.forms[0].device))
    shares = invoker and found.libraries[library].description.python and not invoker.python
    return "" if shares else library


def _elementwise(maker: OpNode | None, node: OpNode, value: Value) -> Layout | None:  # noqa: ARG001
    """To an element-wise operator; constants lie ready in any layout."""
    free = value.constant or not info_of(node.op).elementwise
    return None if free else channels_last(value.dims)


def _rebuilt(graph: LoweredGraph, passes: Passing) -> LoweredGraph:
    """Every node's variant for inputs that come as they pass, else as they were made."""
    prober, variants = Prober(graph), {}
    makers: dict[str, OpNode] = {}
    made = {name: value.layout for name, value in graph.values.items()}
    for node in graph.operators:
        values = [graph.values[name] for name in node.inputs]
        given = [passes(makers.get(v.name), node, v) or made[v.name] for v in values]
        variant = prober.decide(node, given) or node.variant
        variants[node.name] = variant
        for name, layout in zip(node.outputs, variant.layouts[len(values) :], strict=True):
            makers[name], made[name] = node, layout
    return revised(graph, variants)
