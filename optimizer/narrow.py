"""Values in f32 are stored in bf16 around products, where the session allows that.

    f(x)  becomes  cast(f(cast(x)))

A *product* is a node that is linear in an operand and adds many terms up for each element. Every
product with a native kernel in bf16 that is no slower than in f32 reads and makes bf16; kernels add
up in f32. Nodes that have kernels in both types, and products that bf16 makes slower, are in bf16
if that saves time: a minimum cut decides, by declared speeds of kernels and of conversions. Other
types than floats, discontinuous nodes, normalizations and exponentials over a dim stay in f32:
rounded operands of these would err most. Constants are rounded once, when they are read; only those
of products and of biases after them are, if kernels take the others in f32.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from libdesc.preferences import EVERY, Preferences
from optimizer.choice.estimate import Estimate
from optimizer.constants.computed import Computed
from optimizer.retyping import (
    NARROW_SIDE,
    WIDE_SIDE,
    Link,
    Retyping,
    conversion,
    fastest,
    fewest,
    operands_of,
    with_followers,
)
from vtensor.errors import VTensorError
from vtensor.language.graph import Graph, Node
from vtensor.language.operators import Context, info_of, run_compute
from vtensor.language.tensor import VTensor
from vtensor.language.traits import Jumps, Linear, Stretches

#: The element type that is narrowed, and the type that it becomes.
WIDE, NARROW = "f32", "bf16"


def narrow(graph: Graph, preferences: Preferences = EVERY) -> Graph:
    """Return the same network with products, and nodes around them, in bf16 in place of f32.

    Inputs and outputs keep their types. A graph without products in f32 is returned as it is.

    Args:
        graph: sealed; it is not changed.
        preferences: the allowed libraries.
    """
    able, gains, estimate = dict[str, frozenset[str]](), dict[str, int](), Estimate(preferences)
    makers = {name: node for node in graph.nodes.values() for name in node.outputs}
    for node in graph.nodes.values():
        if (form := _form(graph, node, makers, estimate)) is not None:
            able[node.name], gains[node.name] = form
    products = {name for name in able if info_of(graph.nodes[name].op).product}
    if not products:
        return graph
    sides = {name: NARROW_SIDE for name in products if gains[name] >= 0}
    links = {link.value: link for link in _links(graph, able, sides, estimate)}
    free = {name: gain for name, gain in gains.items() if name not in sides}
    nodes = {name: graph.nodes[name] for name in able}
    chosen = fewest(links.values(), free, NARROW_SIDE, WIDE_SIDE) | {NARROW_SIDE}
    chosen = with_followers(nodes, sides, links, chosen, views=False)  # libraries fuse casts
    changed = [name for name in able if sides.get(name, name) in chosen]
    pairs = frozenset((name, value) for name in changed for value in able[name])
    constants = Computed(graph.constants)
    note = f'the session computes products in {NARROW}: precision="{NARROW}"'
    return Retyping(graph, constants, dict.fromkeys(changed, note), (WIDE,), NARROW, pairs).run()


def _needs_digits(node: Node) -> bool:
    """Return whether a node stays in f32: it is discontinuous, scales by statistics of its input,
    or computes exponentials over a dim.
    """
    info = info_of(node.op)
    scales = info.trait(Linear) is not None and not info.product
    stretches = info.trait(Stretches) is not None and not info.elementwise
    return scales or stretches or info.trait(Jumps) is not None


def _ends_product(node: Node, makers: Mapping[str, Node]) -> bool:
    """Return whether a node adds a bias to a product. Some kernels take a bias only in the type of
    the weights.
    """
    return info_of(node.op).structural == "bias" and any(
        info_of(makers[name].op).product for name in node.inputs if name in makers
    )


def _form(
    graph: Graph, node: Node, makers: Mapping[str, Node], estimate: Estimate
) -> tuple[frozenset[str], int] | None:
    """Return the names of a node's operands that stay in f32 if the node is in bf16, and how many
    nanoseconds faster it is in bf16; None if it cannot be.

    Args:
        graph, node: the graph and the node.
        makers: the nodes that make values, by name of the value.
        estimate: declared rates, and the libraries that may be used.
    """
    info, [inputs, outputs] = info_of(node.op), operands_of(graph, node)
    wide = [name for name in node.inputs if graph.values[name].dtype == WIDE]
    variable = [name for name in wide if name not in graph.constants]
    if not variable or info.structural == "cast" or _needs_digits(node):
        return None
    if any(value.dtype != WIDE for value in outputs):
        return None
    options = [tuple(wide), tuple(variable)]
    product = info.product or _ends_product(node, makers)
    for narrowed in options if product else reversed(options):
        operands = [
            _narrowed(value) if name in narrowed else value
            for name, value in zip(node.inputs, inputs, strict=True)
        ]
        try:
            made = run_compute(Context(node=node.name), node.op, operands)
        except VTensorError:  # the operator wants operands of one type
            continue
        types = [value.dtype for value in made]
        if NARROW not in types or not {*types} <= {WIDE, NARROW}:
            continue
        results = [
            _narrowed(value) if dtype == NARROW else value
            for value, dtype in zip(outputs, types, strict=True)
        ]
        if (rounded := fastest(estimate, node, node.op, operands, results)) is not None:
            strict = fastest(estimate, node, node.op, inputs, outputs)
            names = {*wide, *node.outputs} - {*narrowed}
            same = {n for n, dtype in zip(node.outputs, types, strict=True) if dtype == NARROW}
            return frozenset(names - same), (strict or rounded) - rounded
    return None


def _narrowed(value: VTensor) -> VTensor:
    """Return a new value in bf16 with the dims of ``value``."""
    return VTensor.as_known(NARROW, dict(value.dims), value.option)


def _links(
    graph: Graph,
    able: Mapping[str, frozenset[str]],
    sides: Mapping[str, str],
    estimate: Estimate,
) -> Iterator[Link]:
    """Yield a link for each value in f32 that a node that may be in bf16 makes or reads, and that
    is no constant.

    Args:
        graph: the graph; its inputs and outputs are in f32.
        able: by name of a node that may be in bf16, its operands that stay in f32.
        sides: the sides of the nodes that cannot choose.
        estimate: the declared rates.
    """
    makers, readers = dict[str, str](), defaultdict[str, list[str]](list)
    for node in graph.nodes.values():
        kept = able.get(node.name)
        own = WIDE_SIDE if kept is None else sides.get(node.name, node.name)
        side = {
            value: WIDE_SIDE if kept and value in kept else own
            for value in (*node.inputs, *node.outputs)
        }
        makers |= {value: side[value] for value in node.outputs}
        for value in node.inputs:
            readers[value].append(side[value])
    for value in graph.outputs.values():
        readers[value].append(WIDE_SIDE)
    for value, names in readers.items():
        if graph.values[value].dtype == WIDE and value not in graph.constants:
            weight = conversion(estimate, graph.values[value], WIDE, NARROW)
            yield Link(value, makers.get(value, WIDE_SIDE), names, weight)
