"""Algorithm 1: evaluate every node partially, in topological order, and collect the variants that
are decided.

Source: the paper, section 5.1 and Fig. 8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from itertools import takewhile
from types import MappingProxyType
from typing import TYPE_CHECKING

from libdesc.dispatcher import DispatchContext, post_roles
from libdesc.precedence import precedes, present
from libdesc.preferences import EVERY, Preferences
from libdesc.registry import ready
from ptensor.buffer import TensorStorage
from ptensor.evaluation import Call, Evaluation, Mode, Refusal, Step, installed
from ptensor.layout import Layout
from resolver.calls import EvaluatedCalls
from resolver.constants import stored
from resolver.lowered import LoweredGraph, OpNode, Value, split
from vtensor.errors import NoInvokerError, ResolutionError
from vtensor.language.operators import Context, info_of
from vtensor.language.records import dataclass, replace
from vtensor.language.tensor import Option, VTensor
from vtensor.language.traits import Linear

if TYPE_CHECKING:
    from libdesc.invokers import InvokerInfo
    from vtensor.language.graph import Graph, Node


class PartialEvaluation(Evaluation):
    """Evaluation of invokers that ends at ``lib_tagger``: nothing is allocated, and no kernel runs.

    Args:
        inexact: True accepts approximate routines. The plan then has to bound their errors.
    """

    mode = Mode.PARTIAL

    def __init__(self, inexact: bool = False) -> None:
        self.tolerance = max(self.tolerance, float(inexact))

    def emit(self, call: Call, step: Step, slots: Sequence[VTensor | int]) -> None:  # noqa: ARG002
        """Raise ContractError: the invoker made a step, although it had to return after
        ``lib_tagger``.
        """
        raise call.misuse("a native step in partial evaluation")

    def share(self, call: Call, source: VTensor, target: VTensor) -> None:  # noqa: ARG002
        """Raise ContractError, as ``emit`` does."""
        raise call.misuse("share in partial evaluation")

    def callback(self, call: Call, run: Callable[[], None]) -> None:  # noqa: ARG002
        """Raise ContractError, as ``emit`` does."""
        raise call.misuse("a call-back in partial evaluation")


@dataclass
class _Resolving:
    """State of one call of ``resolve``.

    Attributes:
        values: the values decided so far by name, with their produced layouts.
        nodes: the nodes decided so far, in their variants.
        calls: the results of the calls evaluated so far, for reuse by equal calls.
        libraries: for each operator name, its libraries with their priorities, the highest first.
        first: for each operator name, its invokers with a condition ``first``: they may be tried
            before libraries of higher priority.
    """

    values: dict[str, VTensor] = field(default_factory=dict)
    nodes: list[OpNode] = field(default_factory=list)
    calls: EvaluatedCalls = field(default_factory=EvaluatedCalls)
    libraries: dict[str, dict[str, int]] = field(default_factory=dict)
    first: dict[str, list[InvokerInfo]] = field(default_factory=dict)

    def libraries_of(self, node: Node) -> Mapping[str, int]:
        """Return the libraries that have a node's operator, each with its priority for it."""
        op = info_of(node.op).name
        if op not in self.libraries:
            rows = ready().candidates(op, Context.device)
            self.libraries[op] = {row.library: priority for priority, row in rows}
            self.first[op] = [row for _, row in rows if row.first is not None]
        return self.libraries[op]

    def first_of(self, node: Node) -> list[InvokerInfo]:
        """Return a node's invokers that may be tried before libraries of higher priority."""
        self.libraries_of(node)
        return self.first[info_of(node.op).name]


def resolve(
    graph: Graph,
    entry_layouts: Mapping[str, Layout] | None = None,
    preferences: Preferences = EVERY,
    settled: Mapping[str, OpNode] = MappingProxyType({}),
) -> LoweredGraph:
    """Decide the library, layouts and fused followers of each node of a sealed graph.

    The graph offers for each node the nodes after it that may be fused into it. The library that
    takes the node fuses as many of these as it can, from the first one on.

    Args:
        graph: the graph; nodes that no output needs are left out.
        entry_layouts: layouts of the inputs in memory, by name; an input without one has its
            declared order.
        preferences: libraries that may run nodes and Transforms, and their order.
        settled: nodes that are decided already, by name; their variants are kept.

    Returns:
        The lowered graph: the layouts in which values are produced and those that nodes require,
        still without Transforms.

    Raises:
        InputError: ``preferences`` pin a node that does not exist, or pin a node to a library that
            lacks its operator.
        NoInvokerError: no library takes a node.
        ContractError: an invoker breaks its contract.
        ResolutionError: an entry layout does not fit its input.

    Source: the paper, Algorithm 1.
    """
    preferences.check_nodes(graph)
    needed, order = _order(graph)
    state = _Resolving()
    _set_entry_layouts(graph, state, entry_layouts or {}, needed)
    fused: dict[str, str] = {}
    with installed(PartialEvaluation()):
        for node in order:
            if node.name in fused:
                continue
            decided = settled.get(node.name)
            if decided is not None:
                _enter_settled(graph, state, decided)
            else:
                offered = takewhile(
                    lambda follower: follower.name not in settled, graph.offers.get(node.name, ())
                )
                out = graph.values[node.outputs[0]]
                decided = _decide(state, node, out, preferences, tuple(offered))
            state.nodes.append(decided)
            fused |= dict.fromkeys(decided.variant.followers, node.name)
    return LoweredGraph(
        graph.name,
        values={name: Value.of(tensor) for name, tensor in state.values.items()},
        nodes=state.nodes,
        inputs=tuple(graph.inputs),
        outputs=graph.outputs,
        merged={**graph.merged, **fused},
        passes=graph.passes,
        rewritten=graph.rewritten,
        notes=graph.notes,
        constants={
            name: tensor.storage
            for name, tensor in state.values.items()
            if isinstance(tensor.storage, TensorStorage)
        },
        preferences=preferences,
    )


def _enter_settled(graph: Graph, state: _Resolving, node: OpNode) -> None:
    """Add the outputs of a node that is decided already to the values of ``state``, in the layouts
    of its variant.
    """
    for name, layout in zip(node.outputs, node.variant.layouts[len(node.inputs) :], strict=True):
        value = graph.values[name]
        state.values[name] = VTensor.as_known(value.dtype, dict(value.dims), Option(name=name))
        state.values[name].produced_layout = layout


def _order(graph: Graph) -> tuple[set[str], list[Node]]:
    """Return (names, nodes): the names of all values on which outputs depend, and the nodes that
    make these values.

    The nodes are in the order in which they were added, which is topological.
    """
    needed, order = set(graph.outputs.values()), []
    for node in reversed(graph.nodes.values()):
        if not needed.isdisjoint(node.outputs):
            needed.update(node.inputs)
            order.append(node)
    return needed, order[::-1]


def _set_entry_layouts(
    graph: Graph, state: _Resolving, entry_layouts: Mapping[str, Layout], needed: set[str]
) -> None:
    """Add the graph's inputs, and its constants in ``needed``, to the values of ``state``, in the
    layouts that they have in memory.

    Source: the paper, Algorithm 1, line 1.

    Raises:
        ResolutionError: an entry layout is for no input, or has other dims than its input.
    """
    unknown = entry_layouts.keys() - {*graph.inputs}
    if unknown:
        known = ", ".join(graph.inputs)
        raise ResolutionError(
            f"entry layouts given for {', '.join(sorted(unknown))}; inputs are {known}"
        )
    for name in graph.inputs:
        value = graph.values[name]
        layout = entry_layouts.get(name, Layout.plain(value.dims))
        if layout.is_any or set(layout.dims) != value.dims.keys():
            raise ResolutionError(
                f"input {name!r}: layout {layout} does not hold {value.summary()}; "
                f"name each of its dims once"
            )
        fresh = VTensor.as_known(value.dtype, dict(value.dims), Option(name=name))
        fresh.produced_layout = layout.normalized(value.dtype)
        state.values[name] = fresh
    constants = stored(graph, [name for name in graph.constants if name in needed])
    for name, storage in constants.items():
        value = graph.values[name]
        fresh = VTensor.as_known(value.dtype, dict(value.dims), Option(name=name))
        fresh.storage = storage
        state.values[name] = fresh


def _operands(state: _Resolving, names: Sequence[str]) -> list[VTensor]:
    """Return a VTensor for each of ``names``; a name that occurs twice gives two VTensors."""
    operands, seen = list[VTensor](), set[int]()
    for name in names:
        value = state.values[name]
        if id(value) in seen:
            twin = VTensor.as_known(value.dtype, dict(value.dims), value.option)
            if value.storage is not None:
                twin.storage = value.storage
            twin.produced_layout = value.produced_layout
            value = twin
        seen.add(id(value))
        operands.append(value)
    return operands


def _decide(
    state: _Resolving,
    node: Node,
    out: VTensor,
    preferences: Preferences,
    offered: Sequence[Node],
) -> OpNode:
    """Decide the variant of a node with as many fused followers as its library takes, and add its
    outputs to the values of ``state``.

    Args:
        out: the node's first output.
        offered: the nodes that may be fused into it, in order.
    """
    if (early := _on_preceding_library(state, node, preferences, offered)) is not None:
        decided, values = early
    elif not offered:
        decided, values = _evaluate(state, node, preferences)
    elif preferences.order is None and _is_light(state, node, out):
        fused = _fuse_longest(state, node, preferences, offered)
        decided, values = fused or _evaluate(state, node, preferences)
    else:
        decided, values = _fuse_all_taken(state, node, preferences, offered)
    state.values.update({value.name: value for value in values})
    return decided


def _on_preceding_library(
    state: _Resolving, node: Node, preferences: Preferences, offered: Sequence[Node]
) -> tuple[OpNode, tuple[VTensor, ...]] | None:
    """Try to run a node, fused with all offered nodes, on a library that may be tried before
    libraries of higher priority.

    An invoker with a condition ``first`` may be tried early. It names in ``before`` the libraries
    of higher priority that it may pass over.

    Returns:
        The decided node and its outputs. None if there is no such library, if it does not take all
        the nodes, or if it would pass over a library that is not in ``before``.
    """
    pinned = preferences.pinned(node.name, info_of(node.op).name)
    if preferences.order is not None or pinned is not None:
        return None
    for row in state.first_of(node):
        library, members = row.library, (node, *offered)
        if not present([library]) or not all(
            _allows(preferences, member, library) for member in members
        ):
            continue
        passed = [
            present(_libraries_before(state, preferences, member, library)) for member in members
        ]
        if not set().union(*passed) <= {*row.before}:
            continue
        if not precedes(row, node.name, node.op, _operands(state, node.inputs)):
            continue
        with suppress(NoInvokerError):
            fused, values = _fuse(state, node, preferences, offered, library)
            refused = tuple(
                _passed_over(state, node, member, library) for member in sorted(passed[0])
            )
            return replace(fused, variant=replace(fused.variant, refused=refused)), values
    return None


def _passed_over(state: _Resolving, node: Node, library: str, by: str) -> Refusal:
    """Return the Refusal that records why ``library`` was not asked: the library ``by`` was tried
    before it.
    """
    why = f"passed over: {by} says that it is faster here"
    return Refusal(state.libraries_of(node)[library], library, why)


def _fuse_all_taken(
    state: _Resolving, node: Node, preferences: Preferences, offered: Sequence[Node]
) -> tuple[OpNode, tuple[VTensor, ...]]:
    """Decide a node by priority, fused with as many of the offered nodes as its library takes.
    Return the node and its outputs.

    The first attempt is to fuse all offered nodes at once, on the library that is asked first about
    the node, since it mostly takes them. It is left out if another library is asked earlier about
    one of the offered nodes. If it fails or is left out, the node is decided alone. Then its
    library is asked to take it with as many of the offered nodes as may be fused, then with fewer
    and fewer.
    """
    tried = _first_library(state, preferences, node)
    if tried is not None and _no_library_before(state, preferences, offered, tried):
        with suppress(NoInvokerError):
            return _fuse(state, node, preferences, offered, tried)
    else:
        tried = None
    decided, values = _evaluate(state, node, preferences)
    library = decided.variant.library
    able = _fusible(state, values, preferences, offered, library)
    longest = len(able) - (tried == library and len(able) == len(offered))  # all were tried above
    for count in range(longest, 0, -1):
        with suppress(NoInvokerError):  # then it takes fewer
            fused, values = _fuse(state, node, preferences, able[:count], library)
            return replace(
                fused, variant=replace(fused.variant, refused=decided.variant.refused)
            ), values
    return decided, values


def _fuse(
    state: _Resolving,
    node: Node,
    preferences: Preferences,
    fused_nodes: Sequence[Node],
    library: str,
) -> tuple[OpNode, tuple[VTensor, ...]]:
    """Evaluate a node fused with all of ``fused_nodes``, on one library.

    Returns:
        The decided node, and its outputs.

    Raises:
        NoInvokerError: the library does not take the node fused with all of them.
    """
    pinned = replace(preferences, nodes={**preferences.nodes, node.name: library})
    fused, values = _evaluate(state, node, pinned, fused_nodes)
    names = tuple(follower.name for follower in fused.followers)
    return replace(fused, variant=replace(fused.variant, followers=names)), values


def _first_library(state: _Resolving, preferences: Preferences, node: Node) -> str | None:
    """Return the library that is asked first about a node; None if it may not run the node."""
    first = min(state.libraries_of(node), key=preferences.rank, default=None)
    return first if first is not None and _allows(preferences, node, first) else None


def _no_library_before(
    state: _Resolving, preferences: Preferences, offered: Iterable[Node], library: str
) -> bool:
    """Return whether all offered nodes may run on ``library``, and no other library is asked about
    them before it.
    """
    return all(
        _allows(preferences, follower, library)
        and not _libraries_before(state, preferences, follower, library)
        for follower in offered
    )


def _is_light(state: _Resolving, node: Node, out: VTensor) -> bool:
    """Return whether a node's time is spent on memory rather than arithmetic.

    It is then faster to fuse more followers, even on a library of lower priority.

    For a node with the trait Linear this holds if each input in which it is linear has fewer dims
    than its output ``out``, and only dims of ``out``. Other operators declare it.
    """
    info = info_of(node.op)
    linear = info.trait(Linear)
    if linear is None:
        return info.light
    rows = zip(info.roles(len(node.inputs), 0), node.inputs, strict=True)
    factors = [state.values[name] for role, name in rows if role in linear.inputs]
    return all(factor.dims.keys() < out.dims.keys() for factor in factors)


def _fuse_longest(
    state: _Resolving, node: Node, preferences: Preferences, offered: Sequence[Node]
) -> tuple[OpNode, tuple[VTensor, ...]] | None:
    """Return a node fused with as many of the offered nodes as any library takes, and its outputs.

    For each number of followers, libraries are tried by priority. None if no library takes the node
    with even one follower.
    """
    for count in range(len(offered), 0, -1):
        with suppress(NoInvokerError):
            fused, values = _evaluate(state, node, preferences, offered[:count])
            library = fused.variant.library
            if all(_allows(preferences, member, library) for member in offered[:count]):
                names = tuple(follower.name for follower in fused.followers)
                return replace(fused, variant=replace(fused.variant, followers=names)), values
    return None


def _fusible(
    state: _Resolving,
    values: Iterable[VTensor],
    preferences: Preferences,
    offered: Sequence[Node],
    library: str,
) -> Sequence[Node]:
    """Return the offered nodes that may be fused on ``library``: from the first one on, until one
    may not.

    A node may not be fused if another library is asked about it earlier than ``library``, and takes
    it as a node of its own. If no library is asked earlier about any of the nodes, none is
    evaluated.

    Args:
        values: the outputs of the node into which they would be fused.
    """
    offered = list(takewhile(lambda follower: _allows(preferences, follower, library), offered))
    earlier = [_libraries_before(state, preferences, follower, library) for follower in offered]
    if not any(earlier):
        return offered
    alone = replace(state, values={**state.values, **{value.name: value for value in values}})
    for place, follower in enumerate(offered):
        try:
            decided, values = _evaluate(alone, follower, preferences)
        except NoInvokerError:  # no library takes the node unless it is fused
            return offered[: place + 1]
        if decided.variant.library in earlier[place]:
            return offered[:place]
        alone.values.update({value.name: value for value in values})
    return offered


def _libraries_before(
    state: _Resolving, preferences: Preferences, node: Node, library: str
) -> set[str]:
    """Return the libraries that may run a node and are asked about it before ``library``."""
    priorities = {library: ready().libraries[library].priority, **state.libraries_of(node)}
    order = sorted(priorities, key=lambda name: (preferences.rank(name), -priorities[name], name))
    return {name for name in order[: order.index(library)] if _allows(preferences, node, name)}


def _allows(preferences: Preferences, node: Node, library: str) -> bool:
    return not preferences.refusal(node.name, info_of(node.op).name, library)


def _evaluate(
    state: _Resolving, node: Node, preferences: Preferences, fused_nodes: Sequence[Node] = ()
) -> tuple[OpNode, tuple[VTensor, ...]]:
    """Evaluate one node, fused with ``fused_nodes``, up to its ``lib_tagger``.

    Returns:
        The decided node, and its outputs with their produced layouts.
    """
    first, *_ = node.outputs
    names, outputs = list(node.inputs), node.outputs
    for follower in fused_nodes:
        names += [name for name in follower.inputs if name != outputs[0]]
        outputs = (*follower.outputs, *node.outputs[1:])
    inputs = _operands(state, names)
    own_inputs, followers = split(node.op, inputs, fused_nodes, first)
    ctx = DispatchContext(
        node=node.name, names=outputs, preferences=preferences, followers=followers
    )
    results = state.calls.evaluated(ctx, (node, *fused_nodes), names, inputs, own_inputs)
    assert ctx.variant is not None, "it was decided just now"
    for value, layout in zip(results, ctx.variant.layouts[len(inputs) :], strict=True):
        value.produced_layout = layout
    roles = info_of(node.op).roles(len(own_inputs), len(results))
    roles = (
        *roles[: len(own_inputs)],
        *post_roles(len(inputs) - len(own_inputs)),
        *roles[len(own_inputs) :],
    )
    label = " + ".join([node.op_name, *(follower.op_name for follower in fused_nodes)])
    fused = OpNode(
        node.name,
        node.op,
        label,
        tuple(names),
        outputs,
        roles,
        ctx.variant,
        tuple(fused_nodes),
        first if fused_nodes else "",
    )
    return fused, results
