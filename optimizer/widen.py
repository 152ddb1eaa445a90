"""Values in f16 or bf16 are computed in f32 where that type has no native kernel, or a slow one.

    f(x)  becomes  cast(f(cast(x)))

Libraries declare the element types of their kernels, and which of these the processor has. A node
without a kernel in the narrow type, but with one in f32, is *wide*: it reads and makes f32. Nodes
that have both are wide if that saves time: a minimum cut decides, by declared speeds of kernels and
of conversions, for typical sizes. A cast between the narrow type and f32 disappears if
both sides are f32; values are then rounded less often than in the given graph. Constants are
widened when they are read, exactly. A note on each conversion names a node without a narrow kernel,
or with a slow one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from libdesc.preferences import EVERY, Preferences
from optimizer.choice.estimate import Estimate
from optimizer.constants.originals import Originals
from optimizer.retyping import (
    NARROW_SIDE,
    WIDE_SIDE,
    Link,
    Retyping,
    conversion,
    fastest,
    fewest,
    operands_of,
    retyped_op,
    with_followers,
)
from vtensor.errors import VTensorError
from vtensor.language.graph import Graph, Node
from vtensor.language.operators import Context, info_of, run_compute
from vtensor.language.tensor import VTensor

#: The element types that are widened, and the type that they become.
HALF_FLOATS = ("f16", "bf16")
WIDE = "f32"


def widen(graph: Graph, preferences: Preferences = EVERY) -> Graph:
    """Return the same network with nodes in f32 that have no native kernel in a narrower float, or
    a slower one.

    Inputs, outputs and values that a run asks for keep their types. A graph whose nodes all have
    native kernels, none of them slower than in f32, is returned as it is.

    Args:
        graph: sealed; it is not changed.
        preferences: the allowed libraries. A pinned node is wide if its library has only a wide
            kernel; a pinned cast stays.
    """
    if all(value.dtype not in HALF_FLOATS for value in graph.values.values()):
        return graph
    if not (wide := _wide_nodes(graph, preferences)):
        return graph
    constants = graph.constants
    origins = constants.origins() if isinstance(constants, Originals) else constants
    return Retyping(graph, Originals(origins), wide, HALF_FLOATS, WIDE).run()


def _wide_nodes(graph: Graph, preferences: Preferences) -> dict[str, str]:
    """Return, by name of each wide node, a note that names a node without a narrow kernel near it.

    Casts between a narrow type and f32 are among the wide nodes.
    """
    touching = {node.name: node for node in graph.nodes.values() if any(_narrow_of(graph, node))}
    estimate, sides, notes, gains = Estimate(preferences), dict[str, str](), dict[str, str](), {}
    for name, node in touching.items():
        side, gain, note = _side(graph, node, estimate)
        if side:
            sides[name] = side
        else:
            gains[name] = gain
        if note:
            notes[name] = note
    if not notes:
        return {}
    linked = _linked(graph, touching, sides, notes)
    sides |= {name: NARROW_SIDE for name in touching if name not in linked}
    links = {link.value: link for link in _links(graph, touching, sides, estimate)}
    free = {name: gain for name, gain in gains.items() if name not in sides}
    wide = fewest(links.values(), free, WIDE_SIDE, NARROW_SIDE)
    wide = with_followers(touching, sides, links, wide)
    return {
        name: notes[linked[name]]
        for name in touching
        if name in linked and sides.get(name, name) in wide
    }


def _types(graph: Graph, node: Node) -> Iterator[str]:
    """Yield the element types of a node's operands."""
    return (graph.values[name].dtype for name in (*node.inputs, *node.outputs))


def _narrow_of(graph: Graph, node: Node) -> Iterator[str]:
    """Yield the names of a node's operands that have a narrow type, each once."""
    names = dict.fromkeys((*node.inputs, *node.outputs))
    return (name for name in names if graph.values[name].dtype in HALF_FLOATS)


def _changes_width(graph: Graph, node: Node) -> bool:
    """Return whether a node is a cast between a narrow type and f32."""
    types = {*_types(graph, node)}
    return info_of(node.op).structural == "cast" and WIDE in types and types <= {WIDE, *HALF_FLOATS}


def _side(graph: Graph, node: Node, estimate: Estimate) -> tuple[str, int, str]:
    """Return the side of a node with narrow operands, how many nanoseconds faster it is in f32, and
    a note on conversions around it if f32 is faster, or if it has no narrow kernel.

    The side is empty if the node may take either. A node that only moves elements of constants is
    narrow: wide constants would take more memory.

    Args:
        graph, node: the graph and the node.
        estimate: declared rates, and the libraries that may be used.
    """
    info, [inputs, outputs] = info_of(node.op), operands_of(graph, node)
    preferences = estimate.preferences
    if info.structural == "cast" and preferences.pinned(node.name, info.name):
        return NARROW_SIDE, 0, ""
    if _changes_width(graph, node):
        return WIDE_SIDE, 0, ""
    narrow = fastest(estimate, node, node.op, inputs, outputs)
    if preferences.wide and "f16" in _types(graph, node) and not info.structural:
        narrow = None
    lead = f"{node.op_name} {node.name} is computed in {WIDE}: "
    dtype = graph.values[next(_narrow_of(graph, node))].dtype
    moved = [name for name in _narrow_of(graph, node) if name in node.inputs]
    if info.structural and moved and all(name in graph.constants for name in moved):
        return NARROW_SIDE, 0, ""
    op = retyped_op(graph, node, HALF_FLOATS, WIDE)
    inputs, outputs = [*map(_widened, inputs)], [*map(_widened, outputs)]
    try:
        made = run_compute(Context(node=node.name), op, inputs)
    except VTensorError:
        return NARROW_SIDE, 0, ""
    if [value.dtype for value in made] != [value.dtype for value in outputs]:
        return NARROW_SIDE, 0, ""  # a parameter decides the type
    wide = fastest(estimate, node, op, inputs, outputs)
    if narrow is None and wide is not None:
        text = f"no library of the session has a native {dtype} kernel for it on this processor"
        return WIDE_SIDE, 0, lead + text
    if narrow is None or wide is None:
        return "" if narrow is wide else NARROW_SIDE, 0, ""
    text = (
        f"by declared speeds it takes {narrow / 1e3:.1f} us in {dtype}, {wide / 1e3:.1f} in {WIDE}"
    )
    return "", narrow - wide, (lead + text) * (wide < narrow)


def _widened(value: VTensor) -> VTensor:
    """Return a new value in f32 for a narrow one, else the value itself."""
    if value.dtype not in HALF_FLOATS:
        return value
    return VTensor.as_known(WIDE, dict(value.dims), value.option)


def _links(
    graph: Graph, touching: Mapping[str, Node], sides: Mapping[str, str], estimate: Estimate
) -> Iterator[Link]:
    """Yield a link for each narrow value that is read and is no constant.

    Args:
        graph: the graph; its inputs and outputs are on the narrow side.
        touching: the nodes with narrow operands, by name.
        sides: the sides of the nodes that cannot choose.
        estimate: the declared rates.
    """
    makers, readers = dict[str, str](), defaultdict[str, list[str]](list)
    for name, node in touching.items():
        makers |= dict.fromkeys(node.outputs, sides.get(name, name))
        for value in node.inputs:
            readers[value].append(sides.get(name, name))
    for value in graph.outputs.values():
        readers[value].append(NARROW_SIDE)
    for value, names in readers.items():
        tensor = graph.values[value]
        if tensor.dtype in HALF_FLOATS and value not in graph.constants:
            weight = conversion(estimate, tensor, tensor.dtype, WIDE)
            yield Link(value, makers.get(value, NARROW_SIDE), names, weight)


def _linked(
    graph: Graph,
    touching: Mapping[str, Node],
    sides: Mapping[str, str],
    notes: Mapping[str, str],
) -> Mapping[str, str]:
    """Return, for each node that narrow values link to nodes in ``notes``, the nearest of these.

    Arguments are as for ``_links``. Casts that change the width, and narrow nodes, end the search.
    """
    near = defaultdict[str, list[str]](list)
    for name, node in touching.items():
        for value in _narrow_of(graph, node):
            near[value].append(name)
    work = [*notes]
    linked = {name: name for name in work}
    for name in work:
        for value in _narrow_of(graph, touching[name]):
            for other in near[value] if value not in graph.constants else ():
                if other not in linked:
                    linked[other] = linked[name]
                    work += [] if other in sides else [other]
    return linked
