"""Values in f16 or bf16 are computed in f32 where that type has no native kernel.

    f(x)  becomes  cast(f(cast(x)))

Libraries declare the element types of their kernels, and which of these the processor has. A node
without a kernel in the narrow type, but with one in f32, is *wide*: it reads and makes f32. Nodes
that have both are wide if that saves conversions: a minimum cut decides, whatever the sizes are.
Then no node is preceded and followed by a conversion without need. A cast between the narrow type
and f32 disappears if both sides are f32; values are then rounded less often than in the given
graph. Constants are widened when they are read, exactly. A note on each conversion names a node
without a narrow kernel.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from libdesc.dispatcher import has_kernel
from libdesc.preferences import EVERY, Preferences
from optimizer.constants.originals import Originals
from optimizer.retyping import (
    NARROW_SIDE,
    WIDE_SIDE,
    Link,
    Retyping,
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

#: The weight of a conversion of a value that is computed of constants alone. The value is as large
#: as weights are, and its conversion saves those of at most two other operands.
WEIGHTS = 3


def widen(graph: Graph, preferences: Preferences = EVERY) -> Graph:
    """Return the same network with nodes in f32 that have no native kernel in a narrower float.

    Inputs, outputs and values that a run asks for keep their types. A graph whose nodes all have
    native kernels is returned as it is.

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
    barred = {"f16"} if preferences.wide else set[str]()
    native = {
        name: has_kernel(name, node.op, *operands_of(graph, node), preferences)
        and (bool(info_of(node.op).structural) or barred.isdisjoint(_types(graph, node)))
        for name, node in touching.items()
    }
    if all(native.values()):
        return {}
    sides = {
        name: side
        for name, node in touching.items()
        if (side := _side(graph, node, native[name], preferences)) is not None
    }
    linked = _linked(graph, touching, sides)
    sides |= {name: NARROW_SIDE for name in touching if name not in linked}
    links = {link.value: link for link in _links(graph, touching, sides)}
    wide = with_followers(touching, sides, links, fewest(links.values(), WIDE_SIDE, NARROW_SIDE))
    return {
        name: _note(graph, touching[linked[name]])
        for name in touching
        if sides.get(name, name) in wide
    }


def _types(graph: Graph, node: Node) -> Iterator[str]:
    """Yield the element types of a node's operands."""
    return (graph.values[name].dtype for name in (*node.inputs, *node.outputs))


def _note(graph: Graph, node: Node) -> str:
    """Return the note on conversions that are there because of a node without a narrow kernel."""
    narrow = graph.values[next(_narrow_of(graph, node))].dtype
    return (
        f"{node.op_name} {node.name} is computed in {WIDE}: "
        f"no library of the session has a native {narrow} kernel for it on this processor"
    )


def _narrow_of(graph: Graph, node: Node) -> Iterator[str]:
    """Yield the names of a node's operands that have a narrow type, each once."""
    names = dict.fromkeys((*node.inputs, *node.outputs))
    return (name for name in names if graph.values[name].dtype in HALF_FLOATS)


def _changes_width(graph: Graph, node: Node) -> bool:
    """Return whether a node is a cast between a narrow type and f32."""
    types = {*_types(graph, node)}
    return info_of(node.op).structural == "cast" and WIDE in types and types <= {WIDE, *HALF_FLOATS}


def _side(graph: Graph, node: Node, native: bool, preferences: Preferences) -> str | None:
    """Return the side of a node with narrow operands; None if it may take either.

    A node that only moves elements of constants is narrow: wide constants would take more memory.

    Args:
        graph, node: the graph and the node.
        native: True if the node has a native kernel in its narrow type.
        preferences: the allowed libraries.
    """
    info = info_of(node.op)
    if info.structural == "cast" and preferences.pinned(node.name, info.name):
        return NARROW_SIDE
    if _changes_width(graph, node):
        return WIDE_SIDE
    moved = [name for name in _narrow_of(graph, node) if name in node.inputs]
    if info.structural and moved and all(name in graph.constants for name in moved):
        return NARROW_SIDE
    op, [inputs, outputs] = retyped_op(graph, node, HALF_FLOATS, WIDE), operands_of(graph, node)
    inputs, outputs = [*map(_widened, inputs)], [*map(_widened, outputs)]
    try:
        made = run_compute(Context(node=node.name), op, inputs)
    except VTensorError:
        return NARROW_SIDE
    if [value.dtype for value in made] != [value.dtype for value in outputs]:
        return NARROW_SIDE  # a parameter decides the type
    if native == has_kernel(node.name, op, inputs, outputs, preferences):
        return None
    return NARROW_SIDE if native else WIDE_SIDE


def _widened(value: VTensor) -> VTensor:
    """Return a new value in f32 for a narrow one, else the value itself."""
    if value.dtype not in HALF_FLOATS:
        return value
    return VTensor.as_known(WIDE, dict(value.dims), value.option)


def _links(graph: Graph, touching: Mapping[str, Node], sides: Mapping[str, str]) -> Iterator[Link]:
    """Yield a link for each narrow value that is read and is no constant.

    Args:
        graph: the graph; its inputs and outputs are on the narrow side.
        touching: the nodes with narrow operands, by name.
        sides: the sides of the nodes that cannot choose.
    """
    makers, readers = dict[str, str](), defaultdict[str, list[str]](list)
    weights = set[str]()
    for name, node in touching.items():
        makers |= dict.fromkeys(node.outputs, sides.get(name, name))
        if all(value in graph.constants or value in weights for value in node.inputs):
            weights.update(node.outputs)
        for value in node.inputs:
            readers[value].append(sides.get(name, name))
    for value in graph.outputs.values():
        readers[value].append(NARROW_SIDE)
    for value, names in readers.items():
        if graph.values[value].dtype in HALF_FLOATS and value not in graph.constants:
            weight = WEIGHTS if value in weights else 1
            yield Link(value, makers.get(value, NARROW_SIDE), names, weight)


def _linked(
    graph: Graph, touching: Mapping[str, Node], sides: Mapping[str, str]
) -> Mapping[str, str]:
    """Return, for each node that narrow values link to nodes without a narrow kernel, the nearest.

    Arguments are as for ``_links``. Casts that change the width, and narrow nodes, end the search.
    """
    near = defaultdict[str, list[str]](list)
    for name, node in touching.items():
        for value in _narrow_of(graph, node):
            near[value].append(name)
    work = [
        name
        for name, side in sides.items()
        if side == WIDE_SIDE and not _changes_width(graph, touching[name])
    ]
    linked = {name: name for name in work}
    for name in work:
        for value in _narrow_of(graph, touching[name]):
            for other in near[value] if value not in graph.constants else ():
                if other not in linked:
                    linked[other] = linked[name]
                    work += [] if other in sides else [other]
    return linked
