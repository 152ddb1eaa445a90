"""The independent check of a lowered graph: every edge is consistent, and the network is the same.

It shares no code with the resolver or the layout algebra: it reads a layout's text with a parser of
its own (``addresses.py``) and compares addresses element by element, dim by dim. It runs on every
plan, always.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from resolver.addresses import addresses
from resolver.exactness import holds
from resolver.lowered import LoweredGraph, LoweredNode, OpNode, TransformNode, Value
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
    """Prove that a lowered graph is sound: it computes the network, and layouts agree on every
    edge.

    Args:
        extended: the lowered graph that is to run.
        graph: the network that ``extended`` must compute.
        transformers: names of the libraries that have a transformer.
        entry_layouts, output_layouts: layouts of the inputs, and those promised for the outputs, by
            name; an input or output that is not named has its declared order.
        tolerance: the rounding error that the plan may have. At 0 no value may be rounded. Exempt
            are values that approximate nodes make, and constants and results of Transforms that
            only approximate nodes read: their rounding is part of the errors of these nodes, which
            ``check_errors`` checks.

    Raises:
        UnsoundPlanError: a value is used before it is made, or made twice; an edge's layouts
            disagree; a Transform changes more than the layout or its library has no transformer; an
            output is not the promised value or layout; the network is another one; or a node rounds
            what it makes and the tolerance is 0.
    """
    _check_values(extended, graph)
    able = set(transformers)
    available: set[str] = set(extended.inputs)
    produced = {name for node in extended.nodes for name in node.outputs}
    available |= {v.name for v in extended.values.values() if v.constant and v.name not in produced}
    origin: dict[str, str] = {name: name for name in available}
    readers = _readers(graph)
    charged = _charged_values(extended)
    for node in extended.nodes:
        _check_made(node.name, node.inputs, available)
        if isinstance(node, TransformNode):
            _check_transform(extended, node, able)
            origin[node.output] = origin[node.input]
        else:
            _check_operator(extended, node, graph, origin, readers)
            origin.update({name: name for name in node.outputs})
        if not tolerance:
            made_here = (extended.values[name] for name in node.outputs)
            _check_exact(node.name, [value for value in made_here if value.name not in charged])
        if not available.isdisjoint(node.outputs):
            repeated = sorted(available & set(node.outputs))
            raise UnsoundPlanError(f"{node.name}: makes {repeated} a second time")
        available.update(node.outputs)
    _check_ends(extended, graph, origin, available)
    for name in graph.inputs:
        _check_promised(f"input {name}", extended.values[name], entry_layouts, name)
    for alias, name in extended.outputs.items():
        if not (output_layouts and alias in output_layouts and output_layouts[alias].is_any):
            _check_promised(f"output {alias}", extended.values[name], output_layouts, alias)


def _check_values(extended: LoweredGraph, graph: Graph) -> None:
    """Check that each name in use has a value, and that values not made by a Transform are the
    network's.

    Such a value needs the type and sizes that it has in the network, and is constant exactly if it
    is constant there.
    """
    used = {name for node in extended.nodes for name in (*node.inputs, *node.outputs)}
    changed = {node.output for node in extended.nodes if isinstance(node, TransformNode)}
    constants = {*graph.constants}
    for name in sorted(used | {*extended.inputs, *extended.outputs.values()}):
        value, original = extended.values.get(name), graph.values.get(name)
        if value is None:
            raise UnsoundPlanError(f"{name!r} has no value")
        if name in changed:
            continue
        if original is None or value.dtype != original.dtype or value.dims != original.dims:
            raise UnsoundPlanError(f"{name!r} is not what the network says")
        if value.constant != (name in constants):
            raise UnsoundPlanError(f"{name!r}: only the network's constants are constant")


def _check_exact(node: str, made: Iterable[Value]) -> None:
    """Check that ``made``, the values that a node makes, have no encoding that rounds their element
    type.
    """
    for value in made:
        encoding = str(value.layout).partition(":")[2]
        if encoding and not holds(encoding, value.dtype):
            raise UnsoundPlanError(
                f"{node}: makes {value.name} in {value.layout}, which rounds {value.dtype}, and "
                "the session's tolerance is 0"
            )


def _charged_values(extended: LoweredGraph) -> set[str]:
    """Return the names of the values whose rounding the measured errors of approximate nodes
    include.

    They are the values that such nodes make, and constants and results of Transforms that no other
    node reads.
    """
    approximate, others = list[LoweredNode](), list[LoweredNode]()
    for node in extended.nodes:
        charged = isinstance(node, OpNode) and node.variant.inexact
        (approximate if charged else others).append(node)
    strict = {name for node in others for name in node.inputs} | set(extended.outputs.values())
    changed = {name for node in others if isinstance(node, TransformNode) for name in node.outputs}
    constants = {value.name for value in extended.values.values() if value.constant}
    return {name for node in approximate for name in node.outputs} | (
        (changed | constants) - strict
    )


def _check_promised(
    what: str, value: Value, layouts: Mapping[str, Layout] | None, name: str
) -> None:
    """Check that a value is in the layout promised for it.

    That is the layout that ``layouts`` has for ``name``, by default the declared order of the
    value's dims.

    Args:
        what: description of the value in the error.
    """
    declared = " ".join(f"{dim}/1" for dim in value.dims) or "()"
    want = str(layouts[name]) if layouts and name in layouts else declared
    if not _same_addresses(value, str(value.layout), want):
        raise UnsoundPlanError(f"{what}: is in {value.layout}, promised is {want}")


def _check_made(node: str, names: Iterable[str], available: set[str]) -> None:
    """Check that all values that a node uses have been made before.

    Args:
        node: the node's name, for the error.
        names: the values that it uses.
        available: the values that have been made so far.
    """
    for name in [] if available.issuperset(names) else names:
        if name not in available:
            raise UnsoundPlanError(f"{node}: uses {name!r} before anything makes it")


def _check_transform(extended: LoweredGraph, node: TransformNode, able: set[str]) -> None:
    """Check that a Transform changes nothing but the layout, and that its library can run it.

    Args:
        able: the names of the libraries that have a transformer.
    """
    source, target = extended.values[node.input], extended.values[node.output]
    if dict(source.dims) != dict(target.dims) or source.dtype != target.dtype:
        raise UnsoundPlanError(f"{node.name}: changes more than the layout of {source.name}")
    if source.constant != target.constant:
        raise UnsoundPlanError(f"{node.name}: a constant stays one, and nothing else becomes one")
    if node.library not in able:
        raise UnsoundPlanError(f"{node.name}: {node.library} has no transformer")
    addresses(str(source.layout), source.dims)
    addresses(str(target.layout), target.dims)


def _check_operator(
    extended: LoweredGraph,
    node: OpNode,
    graph: Graph,
    origin: Mapping[str, str],
    readers: Mapping[str, Sequence[str]],
) -> None:
    """Check that a node has the network's operator, operands and followers, in the right layouts.

    Args:
        extended: the lowered graph.
        node: the node of ``extended`` to check.
        graph: the network.
        origin: for each value of the lowered graph, the network's value of which it is a copy,
            perhaps in another layout.
        readers: for each value of the network, the names of the nodes that read it.
    """
    original = graph.nodes.get(node.name)
    if original is None or original.op is not node.op:
        raise UnsoundPlanError(f"{node.name}: no such node in the network")
    sources, inputs, outputs = (
        tuple(origin[n] for n in node.inputs),
        original.inputs,
        original.outputs,
    )
    for follower in node.followers:
        _check_follower(graph, follower, outputs[:1], readers)
        inputs = (*inputs, *(name for name in follower.inputs if name != outputs[0]))
        outputs = (*follower.outputs, *original.outputs[1:])
    if outputs != node.outputs:
        raise UnsoundPlanError(f"{node.name}: makes {node.outputs}, the network says {outputs}")
    if sources != inputs:
        raise UnsoundPlanError(f"{node.name}: reads {sources}, the network says {inputs}")
    names = (*node.inputs, *node.outputs)
    if len(names) != len(node.variant.layouts):
        raise UnsoundPlanError(f"{node.name}: {len(names)} operands, other layouts decided")
    for name, layout in zip(names, node.variant.layouts, strict=True):
        _check_layout(node.name, extended.values[name], layout)


def _readers(graph: Graph) -> Mapping[str, Sequence[str]]:
    """Return for each value, by name, the names of the nodes that read it, each node once."""
    readers: dict[str, list[str]] = {}
    for node in graph.nodes.values():
        for name in dict.fromkeys(node.inputs):
            readers.setdefault(name, []).append(node.name)
    return readers


def _check_follower(
    graph: Graph, follower: Node, values: tuple[str, ...], readers: Mapping[str, Sequence[str]]
) -> None:
    """Check that a fused node is in the network, and that nothing else reads the value that it
    follows.

    Args:
        values: the first output of the node before it, as a tuple; the check fails if it is empty.
        readers: for each value of the network, the names of the nodes that read it.
    """
    if graph.nodes.get(follower.name) is not follower:
        raise UnsoundPlanError(f"{follower.name}: no such node in the network")
    if (
        len(values) != 1
        or [*readers.get(values[0], ())] != [follower.name]
        or not set(values).isdisjoint(graph.outputs.values())
    ):
        raise UnsoundPlanError(f"{follower.name}: {values} is not for it alone")


def _check_layout(node: str, value: Value, layout: Layout) -> None:
    """Check that a value is in ``layout``, in which the node named ``node`` takes it."""
    have, want = str(value.layout), str(layout)
    if not _same_addresses(value, have, want):
        raise UnsoundPlanError(f"{node}: {value.name} is in {have}, {want} is required")


def _same_addresses(value: Value, *layouts: str) -> bool:
    """Return whether two layouts, given as texts, put a value's elements at the same addresses, in
    the same encoding.
    """
    have, want = layouts
    if have == want:
        return True
    suffix = f":{value.dtype}"  # the tensor's own type is the default encoding
    have, want = have.removesuffix(suffix), want.removesuffix(suffix)
    return have == want or addresses(have, value.dims) == addresses(want, value.dims)


def _check_ends(
    extended: LoweredGraph, graph: Graph, origin: Mapping[str, str], available: set[str]
) -> None:
    """Check that the inputs and outputs are those of the network, and that each output is made.

    Args:
        origin: as for ``_check_operator``.
        available: the names of the values that are made.
    """
    if tuple(extended.inputs) != tuple(graph.inputs):
        raise UnsoundPlanError("the plan has other inputs than the network")
    if extended.outputs.keys() != graph.outputs.keys():
        raise UnsoundPlanError("the plan has other outputs than the network")
    for alias, name in extended.outputs.items():
        _check_made(f"output {alias}", [name], available)
        if origin[name] != graph.outputs[alias]:
            raise UnsoundPlanError(f"output {alias}: {name} is not {graph.outputs[alias]}")
