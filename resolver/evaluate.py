"""Algorithm 1: evaluate every node partially, in topological order, and collect what it decided.

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
from resolver.calls import Calls
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
    """Evaluation that ends at the tagger: nothing is allocated and no kernel runs.

    Args:
        inexact: routines may be taken whose results are inexact; what their error may be is the
            plan's to decide.
    """

    mode = Mode.PARTIAL

    def __init__(self, inexact: bool = False) -> None:
        self.tolerance = max(self.tolerance, float(inexact))

    def emit(self, call: Call, step: Step, slots: Sequence[VTensor | int]) -> None:  # noqa: ARG002
        """A step here is an invoker that went on past its tagger."""
        raise call.misuse("a native step in partial evaluation")

    def share(self, call: Call, source: VTensor, target: VTensor) -> None:  # noqa: ARG002
        """As for ``emit``."""
        raise call.misuse("share in partial evaluation")

    def callback(self, call: Call, run: Callable[[], None]) -> None:  # noqa: ARG002
        """As for ``emit``."""
        raise call.misuse("a call-back in partial evaluation")


@dataclass
class _Resolving:
    """What is known so far: values with their produced layouts, nodes with their variants, and the
    invokers of operators, the first one first.
    """

    values: dict[str, VTensor] = field(default_factory=dict)
    nodes: list[OpNode] = field(default_factory=list)
    calls: Calls = field(default_factory=Calls)
    libraries: dict[str, dict[str, int]] = field(default_factory=dict)
    first: dict[str, list[InvokerInfo]] = field(default_factory=dict)

    def libraries_of(self, node: Node) -> Mapping[str, int]:
        """Those that have its operator, each with its priority there."""
        op = info_of(node.op).name
        if op not in self.libraries:
            rows = ready().candidates(op, Context.device)
            self.libraries[op] = {row.library: priority for priority, row in rows}
            self.first[op] = [row for _, row in rows if row.first is not None]
        return self.libraries[op]

    def first_of(self, node: Node) -> list[InvokerInfo]:
        """Those that may go before higher priorities."""
        self.libraries_of(node)
        return self.first[info_of(node.op).name]


def resolve(
    graph: Graph,
    entry_layouts: Mapping[str, Layout] | None = None,
    preferences: Preferences = EVERY,
    settled: Mapping[str, OpNode] = MappingProxyType({}),
) -> LoweredGraph:
    """Resolve a sealed graph.

    The library that takes a node takes with it as many as it can of those that are offered behind
    it, from the first on.

    Args:
        graph: what to resolve; nodes that no output needs are left out.
        entry_layouts: how inputs lie in memory, by name; declared order where nothing is said.
        preferences: which libraries may take which nodes, and their order.
        settled: nodes that are decided already, by name.

    Returns:
        The layout that each value is produced in and that each node requires; no Transforms yet.

    Raises:
        InputError: a node is pinned that is not there, or to a library without its operator.
        NoInvokerError: no library takes a node.
        ContractError: an invoker breaks its contract.
        ResolutionError: an entry layout does not fit its input.

    Source: the paper, Algorithm 1.
    """
    preferences.check_nodes(graph)
    needed, order = _order(graph)
    state = _Resolving()
    _entry(graph, state, entry_layouts or {}, needed)
    fused: dict[str, str] = {}
    with installed(PartialEvaluation()):
        for node in order:
            if node.name in fused:
                continue
            made = settled.get(node.name)
            if made is not None:
                _spread(graph, state, made)
            else:
                offered = takewhile(
                    lambda one: one.name not in settled, graph.offers.get(node.name, ())
                )
                out = graph.values[node.outputs[0]]
                made = _decided(state, node, out, preferences, tuple(offered))
            state.nodes.append(made)
            fused |= dict.fromkeys(made.variant.followers, node.name)
    return LoweredGraph(
        graph.name,
        values={name: Value.of(tensor) for name, tensor in state.values.items()},
        nodes=state.nodes,
        inputs=tuple(graph.inputs),
        outputs=graph.outputs,
        merged={**graph.merged, **fused},
        passes=graph.passes,
        rewritten=graph.rewritten,
        constants={
            name: tensor.storage
            for name, tensor in state.values.items()
            if isinstance(tensor.storage, TensorStorage)
        },
        preferences=preferences,
    )


def _spread(graph: Graph, state: _Resolving, made: OpNode) -> None:
    """Note what a node makes that was decided before."""
    for name, layout in zip(made.outputs, made.variant.layouts[len(made.inputs) :], strict=True):
        value = graph.values[name]
        state.values[name] = VTensor.as_known(value.dtype, dict(value.dims), Option(name=name))
        state.values[name].produced_layout = layout


def _order(graph: Graph) -> tuple[set[str], list[Node]]:
    """The values that outputs need, and their nodes as they were added: in topological order."""
    needed, order = set(graph.outputs.values()), []
    for node in reversed(graph.nodes.values()):
        if not needed.isdisjoint(node.outputs):
            needed.update(node.inputs)
            order.append(node)
    return needed, order[::-1]


def _entry(
    graph: Graph, state: _Resolving, entry_layouts: Mapping[str, Layout], needed: set[str]
) -> None:
    """Give inputs and constants their produced layouts (Algorithm 1, line 1)."""
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
    """A node's inputs, each a VTensor of its own: a value given twice is two operands."""
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


def _decided(
    state: _Resolving,
    node: Node,
    out: VTensor,
    preferences: Preferences,
    offered: Sequence[Node],
) -> OpNode:
    """A node with as much behind it as its library takes; its values are spread."""
    if (before := _before_others(state, node, preferences, offered)) is not None:
        made, values = before
    elif not offered:
        made, values = _partially(state, node, preferences)
    elif preferences.order is None and _light(state, node, out):
        longer = _run(state, node, preferences, offered)
        made, values = longer or _partially(state, node, preferences)
    else:
        made, values = _with_behind(state, node, preferences, offered)
    state.values.update({value.name: value for value in values})
    return made


def _before_others(
    state: _Resolving, node: Node, preferences: Preferences, offered: Sequence[Node]
) -> tuple[OpNode, tuple[VTensor, ...]] | None:
    """A node on a library that goes before those of higher priority here, with all that is offered.

    None where there is no such library, it does not take all of it, or another would be passed over
    than those that it goes before.
    """
    pinned = preferences.pinned(node.name, info_of(node.op).name)
    if preferences.order is not None or pinned is not None:
        return None
    for row in state.first_of(node):
        library, all_of_them = row.library, (node, *offered)
        if not present([library]) or not all(
            _allows(preferences, one, library) for one in all_of_them
        ):
            continue
        passed = [present(_before(state, preferences, one, library)) for one in all_of_them]
        if not set().union(*passed) <= {*row.before}:
            continue
        if not precedes(row, node.name, node.op, _operands(state, node.inputs)):
            continue
        with suppress(NoInvokerError):
            fused, values = _fused(state, node, preferences, offered, library)
            refused = tuple(_passed_over(state, node, one, library) for one in sorted(passed[0]))
            return replace(fused, variant=replace(fused.variant, refused=refused)), values
    return None


def _passed_over(state: _Resolving, node: Node, library: str, by: str) -> Refusal:
    why = f"passed over: {by} says that it is faster here"
    return Refusal(state.libraries_of(node)[library], library, why)


def _with_behind(
    state: _Resolving, node: Node, preferences: Preferences, offered: Sequence[Node]
) -> tuple[OpNode, tuple[VTensor, ...]]:
    """A node with as many behind it as the library takes that takes the node.

    Most often that is the library that is asked first, and it takes all of them: it would take the
    node alone, too, so nobody asks.
    """
    tried = _asked_first(state, preferences, node)
    if tried is not None and _taken_freely(state, preferences, offered, tried):
        with suppress(NoInvokerError):
            return _fused(state, node, preferences, offered, tried)
    else:
        tried = None
    made, values = _partially(state, node, preferences)
    library = made.variant.library
    able = _taken_along(state, values, preferences, offered, library)
    most = len(able) - (tried == library and len(able) == len(offered))  # all were tried
    for count in range(most, 0, -1):
        with suppress(NoInvokerError):  # then it takes fewer
            fused, values = _fused(state, node, preferences, able[:count], library)
            return replace(
                fused, variant=replace(fused.variant, refused=made.variant.refused)
            ), values
    return made, values


def _fused(
    state: _Resolving,
    node: Node,
    preferences: Preferences,
    behind: Sequence[Node],
    library: str,
) -> tuple[OpNode, tuple[VTensor, ...]]:
    """A node with all of these behind it, on one library.

    Raises:
        NoInvokerError: it does not take them.
    """
    kept = replace(preferences, nodes={**preferences.nodes, node.name: library})
    fused, values = _partially(state, node, kept, behind)
    names = tuple(follower.name for follower in fused.followers)
    return replace(fused, variant=replace(fused.variant, followers=names)), values


def _asked_first(state: _Resolving, preferences: Preferences, node: Node) -> str | None:
    """The library that is asked first about a node; None where it may not be used."""
    first = min(state.libraries_of(node), key=preferences.rank, default=None)
    return first if first is not None and _allows(preferences, node, first) else None


def _taken_freely(
    state: _Resolving, preferences: Preferences, offered: Iterable[Node], library: str
) -> bool:
    """Each of these may run on a library, and none is asked about them before it."""
    return all(
        _allows(preferences, one, library) and not _before(state, preferences, one, library)
        for one in offered
    )


def _light(state: _Resolving, node: Node, out: VTensor) -> bool:
    """Whether memory, not arithmetic, takes a node's time: a longer run of nodes is faster.

    So it is where it is linear in nothing, or in no more than factors along its output's dims.
    """
    info = info_of(node.op)
    linear = info.trait(Linear)
    if linear is None:
        return info.light
    rows = zip(info.roles(len(node.inputs), 0), node.inputs, strict=True)
    factors = [state.values[name] for role, name in rows if role in linear.inputs]
    return all(one.dims.keys() < out.dims.keys() for one in factors)


def _run(
    state: _Resolving, node: Node, preferences: Preferences, offered: Sequence[Node]
) -> tuple[OpNode, tuple[VTensor, ...]] | None:
    """A node with as many behind it as any library takes, by priority among those that take them.

    None where no library takes one.
    """
    for count in range(len(offered), 0, -1):
        with suppress(NoInvokerError):
            fused, values = _partially(state, node, preferences, offered[:count])
            library = fused.variant.library
            if all(_allows(preferences, one, library) for one in offered[:count]):
                names = tuple(follower.name for follower in fused.followers)
                return replace(fused, variant=replace(fused.variant, followers=names)), values
    return None


def _taken_along(
    state: _Resolving,
    values: Iterable[VTensor],
    preferences: Preferences,
    offered: Sequence[Node],
    library: str,
) -> Sequence[Node]:
    """Those, from the first on, that no library would take as nodes which comes before the lead's.

    Nobody is asked where there is no such library.
    """
    offered = list(takewhile(lambda one: _allows(preferences, one, library), offered))
    earlier = [_before(state, preferences, one, library) for one in offered]
    if not any(earlier):
        return offered
    alone = replace(state, values={**state.values, **{value.name: value for value in values}})
    for place, one in enumerate(offered):
        try:
            made, values = _partially(alone, one, preferences)
        except NoInvokerError:  # it runs behind the lead or not at all
            return offered[: place + 1]
        if made.variant.library in earlier[place]:
            return offered[:place]
        alone.values.update({value.name: value for value in values})
    return offered


def _before(state: _Resolving, preferences: Preferences, node: Node, library: str) -> set[str]:
    """The libraries that are asked about a node before this one."""
    known = {library: ready().libraries[library].priority, **state.libraries_of(node)}
    order = sorted(known, key=lambda one: (preferences.rank(one), -known[one], one))
    return {one for one in order[: order.index(library)] if _allows(preferences, node, one)}


def _allows(preferences: Preferences, node: Node, library: str) -> bool:
    return not preferences.refusal(node.name, info_of(node.op).name, library)


def _partially(
    state: _Resolving, node: Node, preferences: Preferences, behind: Sequence[Node] = ()
) -> tuple[OpNode, tuple[VTensor, ...]]:
    """Evaluate one node, and what is fused behind it, up to its tagger; what it makes, too."""
    first, *_ = node.outputs
    names, outputs = list(node.inputs), node.outputs
    for follower in behind:
        names += [name for name in follower.inputs if name != outputs[0]]
        outputs = (*follower.outputs, *node.outputs[1:])
    inputs = _operands(state, names)
    own, followers = split(inputs, behind, first)
    ctx = DispatchContext(
        node=node.name, names=outputs, preferences=preferences, followers=followers
    )
    made = state.calls.evaluated(ctx, (node, *behind), names, inputs, own)
    assert ctx.variant is not None, "it was decided just now"
    for value, layout in zip(made, ctx.variant.layouts[len(inputs) :], strict=True):
        value.produced_layout = layout
    roles = info_of(node.op).roles(len(own), len(made))
    roles = (*roles[: len(own)], *post_roles(len(inputs) - len(own)), *roles[len(own) :])
    label = " + ".join([node.op_name, *(follower.op_name for follower in behind)])
    fused = OpNode(
        node.name,
        node.op,
        label,
        tuple(names),
        outputs,
        roles,
        ctx.variant,
        tuple(behind),
        first if behind else "",
    )
    return fused, made
