"""Choices: library, layouts, kernel and fusion of every node, and the places of Transforms.

Resolve, extend, optimise, check: each stage takes the result of the stage before and does not
change it.
The nodes of an earlier choice, for other sizes, are hints: they stay settled. Only nodes that their
libraries decline, or that differ in the graph, are chosen from scratch.

A first choice is made without times of this machine, and libraries are queried for other variants
only where these could save much: it is *provisional*.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TypeVar

from libdesc.registry import ready
from optimizer.pipeline import ASKING, READING, optimise, simplify
from resolver.check import check
from resolver.choice import ChoiceRefused, ChosenGraph
from resolver.lowered import LoweredGraph, OpNode
from vtensor.language.graph import Graph
from vtensor.language.process.imported import logger
from vtensor.language.records import replace
from vtensor.runtime.execution.plan import Plan
from vtensor.runtime.planning.options import Options
from vtensor.runtime.planning.transform_share import around_transforms, avoidable
from vtensor.runtime.recording.on_numbers import plan_on_numbers
from vtensor.runtime.recording.plan_bytes import check_plan
from vtensor.runtime.recording.workspace import Workspace

T = TypeVar("T")

#: Libraries are asked whether they read other layouts if Transforms and reference code take more
#: than this share of a plan's estimated time.
READING_THRESHOLD = 0.05

#: Libraries are asked for other variants as well, which takes long, if Transforms and reference
#: code take more than this share.
ASKING_THRESHOLD = 0.25

#: Libraries are asked about a node if it is at most this many nodes away from a Transform or from
#: reference code.
HOPS = 2

#: The largest share of nodes that may differ from the hints. If more differ, the hints are not
#: used.
MAX_CHANGED = 0.5

#: The most times that ``widened`` adds declined nodes to those that are chosen from scratch.
MAX_WIDENINGS = 8

_log = logger(__name__)


def simplified(
    graph: Graph, options: Options, only: Collection[tuple[str, str]] | None = None
) -> Graph:
    """Return a graph after the simplifications that ``options`` name.

    Args:
        graph, options: the graph, and the options of plans, which name the passes.
        only: the rewrites that are allowed, as (rule, name of the last node that the rule
            replaces); None allows all.
    """
    return simplify(graph, options.passes, options.preferences, only)


def resolved_of(graph: Graph, options: Options) -> LoweredGraph:
    """Return the lowered graph of a simplified graph: resolved by Algorithm 1, with Transforms,
    before any pass of the optimiser.
    """
    return _resolved(graph, options, {})


def _resolved(graph: Graph, options: Options, settled: Mapping[str, OpNode]) -> LoweredGraph:
    from resolver.evaluate import resolve
    from resolver.extend import extend

    lowered = resolve(graph, options.entry, options.preferences, settled)
    return extend(lowered, options.delivery)


def chosen(graph: Graph, options: Options, provisional: bool) -> LoweredGraph:
    """Make a choice for a simplified graph whose sizes are numbers, and return it as a lowered
    graph.

    Args:
        graph, options: the graph and the options of plans.
        provisional: True chooses without times of this machine.

    Raises:
        NoInvokerError: no library runs a node, or the pinned one declines it.
    """
    return _optimised(resolved_of(graph, options), options, None, provisional)


def chosen_with_hints(
    graph: Graph,
    options: Options,
    hints: ChosenGraph,
    reopened: frozenset[str],
    provisional: bool,
) -> tuple[LoweredGraph, tuple[str, ...]]:
    """Make a choice for a simplified graph, and return it as a lowered graph.

    Nodes of an earlier choice, for other sizes, are reused as hints.

    Args:
        graph, options: the graph and the options of plans.
        hints: the earlier choice.
        reopened: names of nodes that are chosen from scratch.
        provisional: True chooses without times of this machine.

    Returns:
        The choice as a lowered graph, and the names of nodes that were chosen from scratch or whose
        variants differ from ``hints``.

    Raises:
        ChoiceRefused: these are more than the share ``MAX_CHANGED`` of all nodes.
        VTensorError: no choice can be made with these hints.
    """
    if not reopened:
        try:
            return hints.on(graph), ()
        except ChoiceRefused as why:
            reopened = why.nodes
    settled = hints.settled(graph, reopened)
    resolved = _resolved(graph, options, settled)
    only = frozenset(node.name for node in resolved.operators if node.name not in settled)
    lowered = _optimised(resolved, options, only, provisional)
    before = {name: node.variant for name, node in settled.items()}
    others = tuple(node.name for node in lowered.operators if before.get(node.name) != node.variant)
    if len(others) > MAX_CHANGED * len(lowered.operators):
        raise ChoiceRefused(f"{len(others)} nodes would have other variants")
    return lowered, others


def widened(make: Callable[[frozenset[str]], T], reopened: frozenset[str]) -> T:
    """Return ``make(reopened)``.

    If that raises ChoiceRefused and names nodes, call ``make`` again with these nodes added to
    ``reopened``.

    Args:
        make: takes the names of the nodes that are chosen from scratch.
        reopened: the names for the first call.

    Raises:
        ChoiceRefused: ``make`` raises it without naming further nodes, or too often.
    """
    for _ in range(MAX_WIDENINGS):
        try:
            return make(reopened)
        except ChoiceRefused as why:
            if why.nodes <= reopened:
                raise
            reopened |= why.nodes
    return make(reopened)


def _optimised(
    resolved: LoweredGraph, options: Options, only: frozenset[str] | None, provisional: bool
) -> LoweredGraph:
    """Return a resolved graph after the passes.

    Args:
        resolved, options: the graph with Transforms, and the options of plans.
        only: the names of nodes whose variants may change; None is all.
        provisional: True takes no times of this machine.
    """
    if provisional:
        return _optimised_provisionally(resolved, options.soon, only)
    if only is None:
        return optimise(resolved, options.passes, options.settings)
    return _optimised_partly(resolved, options, only)


def _optimised_provisionally(
    resolved: LoweredGraph, options: Options, only: frozenset[str] | None
) -> LoweredGraph:
    """Return a resolved graph after the passes of a provisional plan.

    Passes that ask libraries for other variants take long. They run only if Transforms and
    reference code take a large share of the estimated time.

    Args:
        resolved, options: the graph with Transforms, and the options of plans.
        only: the names of nodes whose variants may change; None is all.
    """
    quick = [name for name in options.passes if name not in (*ASKING, READING)]
    lowered = optimise(resolved, quick, options.settings)
    if (spared := avoidable(lowered, options)) <= READING_THRESHOLD:
        return lowered
    reading = [name for name in options.passes if name == READING]
    lowered = optimise(lowered, reading, replace(options.settings, light=True))
    if spared <= ASKING_THRESHOLD or avoidable(lowered, options) <= ASKING_THRESHOLD:
        return lowered
    around = around_transforms(lowered, HOPS)
    around = around if only is None else around & only
    lowered = _optimised_partly(resolved, options, around)
    if any(node.name not in around for node in lowered.operators):
        lowered = replace(lowered, certificate=None)  # other nodes were not considered
    return lowered


def _optimised_partly(
    resolved: LoweredGraph, options: Options, only: frozenset[str]
) -> LoweredGraph:
    """Return a resolved graph after passes that may change only the nodes named by ``only``.

    The certificate of the result is dropped if a node was open in it or a Transform is left: it
    covers only these nodes.

    Args:
        resolved, options: the graph with Transforms, and the options of plans.
        only: the names of nodes whose variants may change.
    """
    lowered = optimise(resolved, options.passes, replace(options.settings, only=only))
    certificate = lowered.certificate
    if certificate and (certificate.open_nodes or any(lowered.transforms())):
        return replace(lowered, certificate=None)
    return lowered


def sound(lowered: LoweredGraph, graph: Graph, options: Options, workspace: Workspace) -> None:
    """Check that a lowered graph is sound, and that it fits into the memory budget.

    Args:
        lowered, graph: the lowered graph, and the graph that it was made of.
        options, workspace: the options of plans, and the memory that plans share.

    Raises:
        UnsoundPlanError: the lowered graph is unsound.
        BudgetError: the plan needs more memory than the workspace allows.
    """
    able = [library.name for library in ready().libraries.values() if library.transforms]
    check(lowered, graph, able, options.entry, options.delivery)
    check_plan(lowered, workspace.max_bytes)


def recorded(
    graph: Graph,
    resolved: LoweredGraph | Callable[[], LoweredGraph],
    lowered: LoweredGraph,
    options: Options,
    workspace: Workspace,
    *,
    confirming: bool = False,
) -> Plan:
    """Return the plan of a choice for numbers, proven sound.

    Args:
        graph: the simplified graph that the choice was made for.
        resolved: its lowered graph before any pass, or a function that makes it.
        lowered: the choice.
        options, workspace: the options of plans, and the memory that plans share.
        confirming: True asks libraries again whether they accept their nodes.

    Raises:
        UnsoundPlanError: the lowered graph is unsound.
        BudgetError: the plan needs more memory than the workspace allows.
        ChoiceRefused: libraries do not confirm the choice.
    """
    sound(lowered, graph, options, workspace)
    return plan_on_numbers(
        lowered,
        graph.constants,
        workspace,
        options.progress,
        options.preferences,
        resolved,
        confirming=confirming,
    )


def same_choice(first: LoweredGraph, second: LoweredGraph) -> bool:
    """Return whether two lowered graphs have equal nodes, layouts and outputs. The times of their
    variants may differ.
    """
    return _steps(first) == _steps(second)


def _steps(graph: LoweredGraph) -> object:
    nodes = [
        (
            node.name,
            node.inputs,
            node.outputs,
            replace(node.variant, ns=None, basis="declared", refused=()),
        )
        if isinstance(node, OpNode)
        else node
        for node in graph.nodes
    ]
    return nodes, {name: value.layout for name, value in graph.values.items()}, graph.outputs


def plan_in_full(graph: Graph, options: Options, workspace: Workspace) -> Plan:
    """Return the plan of a simplified graph whose sizes are numbers. It is not provisional, and no
    earlier choice serves as hints.

    Raises:
        NoInvokerError: no library runs a node, or the pinned one declines it.
        BudgetError: the plan needs more memory than the workspace allows.
    """
    lowered = chosen(graph, options, provisional=False)
    return recorded(graph, partial(resolved_of, graph, options), lowered, options, workspace)
