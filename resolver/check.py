"""The independent check of a lowered graph: is every edge consistent, and is it still the same
network?

It shares no code with the resolver or the layout algebra: it reads a layout's text with a parser of
its own (``addresses.py``) and compares addresses element by element, dim by dim. It runs on every
plan, always.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from resolver.addresses import addresses
from resolver.exactness import holds
from resolver.lowered import LoweredGraph, OpNode, TransformNode, Value
from vtensor.errors import UnsoundPlanError

if TYPE_CHECKING:
    from ptensor.layout import Layout
    from vtensor.language.graph import Graph, Node


def check(
    extended: LoweredGraph,
    graph: Graph,
    transformers: Iterable[str],
    entry_layouts: Mapping[str, Layout] | None = None,
    output_layouts: Mapping[str, Layout] | None = None,
    tolerance: float = 0.0,
) -> None:
    """Prove a lowered graph sound.

    Args:
        extended: what is to run.
        graph: what was to be computed.
        transformers: libraries that have a transformer.
        entry_layouts, output_layouts: how inputs lie and how outputs are promised, by name;
            declared order where nothing is said.
        tolerance: the rounding error that the plan may have; at 0 nothing in it rounds, constants
            aside that inexact nodes alone read: theirs is among those nodes' errors, which
            ``check_errors`` looks at.

    Raises:
        UnsoundPlanError: a value is used before it is made, an edge's layouts disagree, a Transform
            changes more than the layout or has nobody to run it, an output is delivered elsewhere
            or otherwise than promised, the network is not the one that was given, or a node rounds
            what it makes and the tolerance is 0.
    """
    _values(extended, graph)
    able = set(transformers)
    made: set[str] = set(extended.inputs)
    produced = {name for node in extended.nodes for name in node.outputs}
    made |= {v.name for v in extended.values.values() if v.constant and v.name not in produced}
    origin: dict[str, str] = {name: name for name in made}
    readers = _readers(graph)
    charged = _charged(extended)
    for node in extended.nodes:
        _known(node.name, node.inputs, made)
        if isinstance(node, TransformNode):
            _transform(extended, node, able)
            origin[node.output] = origin[node.input]
        else:
            _operator(extended, node, graph, origin, readers)
            origin.update({name: name for name in node.outputs})
        if not tolerance:
            made_here = (extended.values[name] for name in node.outputs)
            _exact(node.name, [value for value in made_here if value.name not in charged])
        if not made.isdisjoint(node.outputs):
            repeated = sorted(made & set(node.outputs))
            raise UnsoundPlanError(f"{node.name}: makes {repeated} a second time")
        made.update(node.outputs)
    _whole(extended, graph, origin, made)
    for name in graph.inputs:
        _promised(f"input {name}", extended.values[name], entry_layouts, name)
    for alias, name in extended.outputs.items():
        if not (output_layouts and alias in output_layouts and output_layouts[alias].is_any):
            _promised(f"output {alias}", extended.values[name], output_layouts, alias)


def _values(extended: LoweredGraph, graph: Graph) -> None:
    """Every name that is used has a value; the network's own are as the network has them."""
    used = {name for node in extended.nodes for name in (*node.inputs, *node.outputs)}
    changed = {node.output for node in extended.nodes if isinstance(node, TransformNode)}
    constants = {*graph.constants}
    for name in sorted(used | {*extended.inputs, *extended.outputs.values()}):
        value, given = extended.values.get(name), graph.values.get(name)
        if value is None:
            raise UnsoundPlanError(f"{name!r} has no value")
        if name in changed:
            continue
        if given is None or value.dtype != given.dtype or value.dims != given.dims:
            raise UnsoundPlanError(f"{name!r} is not what the network says")
        if value.constant != (name in constants):
            raise UnsoundPlanError(f"{name!r}: only the network's constants are constant")


def _exact(node: str, made: Iterable[Value]) -> None:
    """What a node makes is stored in a type that has every value of its own."""
    for value in made:
        encoding = str(value.layout).partition(":")[2]
        if encoding and not holds(encoding, value.dtype):
            raise UnsoundPlanError(
                f"{node}: makes {value.name} in {value.layout}, which rounds {value.dtype}, and "
                "the session's tolerance is 0"
            )


def _charged(extended: LoweredGraph) -> set[str]:
    """Constants whose rounding is in the error of the nodes that read them, which are inexact."""
    free = {
        name
        for node in extended.nodes
        if isinstance(node, TransformNode) or not node.variant.inexact
        for name in node.inputs
    } | set(extended.outputs.values())
    return {value.name for value in extended.values.values() if value.constant} - free


def _promised(what: str, value: Value, layouts: Mapping[str, Layout] | None, name: str) -> None:
    declared = " ".join(f"{dim}/1" for dim in value.dims) or "()"
    want = str(layouts[name]) if layouts and name in layouts else declared
    if not _alike(value, str(value.layout), want):
        raise UnsoundPlanError(f"{what}: is in {value.layout}, promised is {want}")


def _known(node: str, names: Iterable[str], made: set[str]) -> None:
    for name in [] if made.issuperset(names) else names:
        if name not in made:
            raise UnsoundPlanError(f"{node}: uses {name!r} before anything makes it")


def _transform(extended: LoweredGraph, node: TransformNode, able: set[str]) -> None:
    source, target = extended.values[node.input], extended.values[node.output]
    if dict(source.dims) != dict(target.dims) or source.dtype != target.dtype:
        raise UnsoundPlanError(f"{node.name}: changes more than the layout of {source.name}")
    if source.constant != target.constant:
        raise UnsoundPlanError(f"{node.name}: a constant stays one, and nothing else becomes one")
    if node.library not in able:
        raise UnsoundPlanError(f"{node.name}: {node.library} has no transformer")
    addresses(str(source.layout), source.dims)
    addresses(str(target.layout), target.dims)


def _operator(
    extended: LoweredGraph,
    node: OpNode,
    graph: Graph,
    origin: Mapping[str, str],
    readers: Mapping[str, Sequence[str]],
) -> None:
    given = graph.nodes.get(node.name)
    if given is None or given.op is not node.op:
        raise UnsoundPlanError(f"{node.name}: no such node in the network")
    sources, inputs, outputs = tuple(origin[n] for n in node.inputs), given.inputs, given.outputs
    for follower in node.followers:
        _follows(graph, follower, outputs[:1], readers)
        inputs = (*inputs, *(name for name in follower.inputs if name != outputs[0]))
        outputs = (*follower.outputs, *given.outputs[1:])
    if outputs != node.outputs:
        raise UnsoundPlanError(f"{node.name}: makes {node.outputs}, the network says {outputs}")
    if sources != inputs:
        raise UnsoundPlanError(f"{node.name}: reads {sources}, the network says {inputs}")
    names = (*node.inputs, *node.outputs)
    if len(names) != len(node.variant.layouts):
        raise UnsoundPlanError(f"{node.name}: {len(names)} operands, other layouts decided")
    for name, layout in zip(names, node.variant.layouts, strict=True):
        _agree(node.name, extended.values[name], layout)


def _readers(graph: Graph) -> Mapping[str, Sequence[str]]:
    """The names of the nodes that read each value, each once."""
    found: dict[str, list[str]] = {}
    for node in graph.nodes.values():
        for name in dict.fromkeys(node.inputs):
            found.setdefault(name, []).append(node.name)
    return found


def _follows(
    graph: Graph, follower: Node, values: tuple[str, ...], readers: Mapping[str, Sequence[str]]
) -> None:
    """A fused node is the network's, and nobody else wants what it reads of the one before."""
    if graph.nodes.get(follower.name) is not follower:
        raise UnsoundPlanError(f"{follower.name}: no such node in the network")
    if (
        len(values) != 1
        or [*readers.get(values[0], ())] != [follower.name]
        or not set(values).isdisjoint(graph.outputs.values())
    ):
        raise UnsoundPlanError(f"{follower.name}: {values} is not for it alone")


def _agree(node: str, value: Value, layout: Layout) -> None:
    have, want = str(value.layout), str(layout)
    if not _alike(value, have, want):
        raise UnsoundPlanError(f"{node}: {value.name} is in {have}, {want} is required")


def _alike(value: Value, *layouts: str) -> bool:
    """Both layouts put this value's elements at the same places, in the same encoding."""
    have, want = layouts
    if have == want:
        return True
    own = f":{value.dtype}"  # the tensor's own type says nothing
    have, want = have.removesuffix(own), want.removesuffix(own)
    return have == want or addresses(have, value.dims) == addresses(want, value.dims)


def _whole(extended: LoweredGraph, graph: Graph, origin: Mapping[str, str], made: set[str]) -> None:
    if tuple(extended.inputs) != tuple(graph.inputs):
        raise UnsoundPlanError("the plan has other inputs than the network")
    if extended.outputs.keys() != graph.outputs.keys():
        raise UnsoundPlanError("the plan has other outputs than the network")
    for alias, name in extended.outputs.items():
        _known(f"output {alias}", [name], made)
        if origin[name] != graph.outputs[alias]:
            raise UnsoundPlanError(f"output {alias}: {name} is not {graph.outputs[alias]}")
