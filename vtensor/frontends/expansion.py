"""Expansion of a network into operators that VTensor has, with the facts about its values.

It takes one pass over the nodes, in the order in which they run. For each node, the types and known
values of its outputs are found first; then, if the node calls a function, the function's body takes
its place, which may depend on the types of the inputs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from onnx import helper

from vtensor.frontends.calls import MAX_NODES
from vtensor.frontends.control import MAX_LOOP_NODES, RemainingLoop, decide, never_ends
from vtensor.frontends.defined import defined_outputs
from vtensor.frontends.folding import (
    Facts,
    InputsRefused,
    check_budget,
    fold,
    infer_node,
    node_error,
)
from vtensor.frontends.functions import call, function_of
from vtensor.frontends.network import Network, NetworkNode, needed
from vtensor.frontends.output_types import made_types
from vtensor.frontends.taken_names import TakenNames
from vtensor.frontends.tensors import Array, sizes_of
from vtensor.frontends.values import shape_makers, waits
from vtensor.language.process.interrupts import pass_signals
from vtensor.language.records import replace


def infer(
    network: Network,
    sizes: Mapping[str, Sequence[int | None] | None],
    values: Mapping[str, Array] | None = None,
    by_operators: bool = False,
    kept: frozenset[str] = frozenset(),
) -> tuple[Network, Facts]:
    """Infer types, fold constants, and replace function calls and control flow by their nodes.

    Sizes that ONNX's inference leaves open are computed by the operators of VTensor.

    Args:
        network: the network as it was read.
        sizes: the size of each axis of every input, None if open; None for an input of open rank.
        values: values of inputs that are known before a run.
        by_operators: whether the operators of VTensor compute the sizes of all outputs. Their sizes
            replace those of ONNX's inference, and each difference is noted in
            ``Facts.differences``. If ONNX's inference refuses a node whose input sizes are open,
            its outputs stay unknown.
        kept: names of loops that are not unrolled.

    Returns:
        (network, facts). The network is ``network`` itself if no node was replaced.

    Raises:
        ModelError: a node is not as ONNX defines it; its shapes do not fit; a function is
            incomplete; functions expand to too many nodes; or a loop never ends.
        BudgetError: a value takes more memory than the network may.
    """
    facts = facts_of(network, sizes, values or {})
    facts.kept = kept
    taken = TakenNames([*network.value_names(), *(node.name for node in network.nodes)])
    waiting, count, unrolled = deque(network.nodes), 0, 0
    is_open = any(shape is None or None in shape for shape in sizes.values())
    nodes: list[NetworkNode] = []
    done = replace(network, nodes=nodes)
    while waiting:
        node = waiting.popleft()
        if any(name in facts.arrays for name in node.outputs):
            nodes.append(node)  # an earlier graph has folded it, from initializers alone
            continue
        if node.key not in network.functions:
            if by_operators:
                _infer_by_operator(network, node, facts, is_open)
            else:
                infer_node(network, node, facts, defined_outputs)
            if _has_open_sizes(node, facts):
                facts.know_types(made_types(network, node, facts))
        parts = _parts(node, done, facts, taken)
        if parts is None:
            nodes.append(node)
            done.producers.update(dict.fromkeys(node.outputs, node))
            continue
        count += len(parts)
        unrolled += len(parts) * any(isinstance(part, RemainingLoop) for part in parts)
        if unrolled > MAX_LOOP_NODES:
            if never_ends(node):
                raise node_error(network, node, "its condition is always true: it never ends")
            return infer(network, sizes, values, by_operators, kept | {node.name})
        if count > MAX_NODES:
            raise node_error(network, node, f"functions become more than {MAX_NODES} nodes")
        waiting.extendleft(reversed(parts))
    if not count:
        return network, facts
    running, used = needed(nodes, network.outputs)
    return replace(network, nodes=running, used=frozenset(used)), facts


def _infer_by_operator(network: Network, node: NetworkNode, facts: Facts, is_open: bool) -> None:
    """Set the types of a node's outputs to those that its operator in VTensor computes.

    Args:
        network: the network of the node.
        node: the node.
        facts: the known types and values, which are extended.
        is_open: whether sizes of the network's inputs are open.

    Raises:
        ModelError: ONNX's inference refuses the node, and its operator does as well.
        BudgetError: a value takes more memory than the network may.
    """
    fault: InputsRefused | None = None
    try:
        infer_node(network, node, facts, defined_outputs)
    except InputsRefused as error:
        fault = error
    static = facts.static.issuperset(node.outputs)
    if static and fault is None:
        return
    known = {*node.inputs} <= facts.types.keys() and _are_known(node.inputs, facts)
    types = made_types(network, node, facts) if known else {}
    if fault is not None and not types:
        if is_open and not known:
            return
        raise fault
    if fault is not None:
        facts.differences[node.name] = f"{fault}; its operator takes them"
    for name, kind in types.items():
        if fault is None:
            facts.compare(node, name, sizes_of(kind))
        facts.types[name] = kind
        check_budget(network, node.described, name, facts, facts.nbytes if static else 0)
    if static:
        fold(network, node, facts, defined_outputs)


def facts_of(
    network: Network,
    sizes: Mapping[str, Sequence[int | None] | None],
    values: Mapping[str, Array],
) -> Facts:
    """Return the facts (known types and values) about a network's inputs and initializers.

    Args:
        network: the network.
        sizes: the size of each axis of every input, None if open; None for an input of open rank.
        values: values of inputs that are known before a run.

    Raises:
        BudgetError: an input takes more memory than the network may.
    """
    facts = Facts(nbytes=sum(network.arrays.origin(name).nbytes for name in network.folded))
    for name, origin in network.arrays.origins().items():
        facts.know(name, origin)
    for name, declared in network.inputs.items():
        facts.types[name] = helper.make_tensor_type_proto(declared.elem_type, sizes[name])
        check_budget(network, "input", name, facts)
    for name, array in values.items():
        facts.know(name, array)
    return facts


def _has_open_sizes(node: NetworkNode, facts: Facts) -> bool:
    """Return whether a node's input sizes are known, but not all of its output sizes."""
    return not _are_known(node.outputs, facts) and _are_known(node.inputs, facts)


def _are_known(names: Iterable[str], facts: Facts) -> bool:
    """Return whether all sizes of the values ``names`` are known."""
    return all(sizes is not None and None not in sizes for sizes in map(facts.sizes, names))


def _parts(
    node: NetworkNode, done: Network, facts: Facts, taken: TakenNames
) -> list[NetworkNode] | None:
    """Return the nodes that replace a node of control flow or a call of a function.

    None if the node is neither of the two, is computed before a run, or cannot be replaced yet.

    Args:
        node: the node.
        done: the network with only the nodes before ``node``.
        facts: the known types and values.
        taken: the names of all values and nodes; the names of new ones are added to it.

    Raises:
        ModelError: the node cannot be expanded.
    """
    if facts.static.issuperset(node.outputs):
        return None
    try:
        if (iterations := decide(node, facts, taken)) is not None:
            return iterations
        function = function_of(node, done, facts)
        if function is None or shape_makers(node, done, facts) or waits(node, done, facts):
            return None  # it may still be folded once values are known
        return call(node, function, taken)
    except Exception as error:  # ModelError, or any error of a missing or malformed graph
        pass_signals(error)
        raise node_error(done, node, f"it cannot be expanded: {error}") from error
