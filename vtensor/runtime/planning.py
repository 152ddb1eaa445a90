"""Planning: one function from a graph and options to a plan.

Simplify, resolve, extend, optimise, check, record: each step takes what the one before made and
changes nothing. What a plan shares with others (memory, packed weights) is the workspace's.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from libdesc.registry import ready
from optimizer.pipeline import optimise, simplify
from optimizer.settings import Settings
from ptensor.stopping import go_on
from resolver.check import check
from resolver.lowered import LoweredGraph
from vtensor.errors import BudgetError, UnsoundPlanError, VTensorError
from vtensor.language.graph import Graph
from vtensor.language.imported import logger
from vtensor.language.records import replace
from vtensor.runtime.fewer import fewer
from vtensor.runtime.options import Options
from vtensor.runtime.plan import Plan
from vtensor.runtime.plan_bytes import check_plan
from vtensor.runtime.workspace import Workspace

if TYPE_CHECKING:
    from resolver.proof import Proof
    from vtensor.runtime.erring import Meter
    from vtensor.runtime.executor import Executor

#: The log message where the plan with measured times is not faster.
KEPT = "%s: without measured times the plan takes %.2f ms, with them %.2f ms: it stays without"

#: The log message where the plan within the tolerance is not faster.
SLOWER = "%s: within the tolerance the plan takes %.2f ms, strictly %.2f ms: it stays strict"

_log = logger(__name__)


def fastest(plans: Sequence[Plan], executor: Executor) -> tuple[Plan, list[int]]:
    """As ``measure.fastest``, which is imported where plans are timed."""
    from vtensor.runtime import measure

    return measure.fastest(plans, executor)


def simplified(
    graph: Graph, options: Options, only: Collection[tuple[str, str]] | None = None
) -> Graph:
    """A graph as it is planned; rules are applied only here or there, where something is said."""
    return simplify(graph, options.passes, options.preferences, only)


def plan_of(graph: Graph, options: Options, workspace: Workspace) -> Plan:
    """The plan of a graph whose sizes are known; where times are measured, the fastest of those
    with measured times, with fewer Transforms, and with estimates.

    Args:
        graph: simplified.
        options: how it is made.
        workspace: what it shares with other plans.

    Raises:
        NoInvokerError: no library takes a node, or not the one that it is pinned to.
        BudgetError: it needs more memory than the workspace may have.
    """
    resolved = resolved_of(graph, options)
    made = _recorded(graph, resolved, options, options.settings, workspace)
    if options.settings.clock is None:
        return made
    plain = _recorded(graph, resolved, options, Settings(speeds=options.settings.speeds), workspace)
    choice = partial(optimise, resolved, options.passes)
    few = list[Plan]()
    for lowered in fewer(made.graph, options.settings, choice):
        with suppress(BudgetError):
            few.append(recorded(graph, resolved, lowered, options, workspace))
    try:
        best, took = fastest([*few, made, plain], workspace.executor)
    except VTensorError as error:
        go_on()
        _log.warning("%s: plans cannot be timed, so it stays without: %s", graph.name, error)
        return plain
    if best is plain:
        _log.warning(KEPT, graph.name, took[-1] / 1e6, min(took[:-1]) / 1e6)
    return within_tolerance(graph, best, options, workspace)


def within_tolerance(
    graph: Graph,
    strict: Plan,
    options: Options,
    workspace: Workspace,
    meter: Meter | None = None,
) -> Plan:
    """The plan whose results may be off by the tolerance, if it is faster than the strict one.

    Args:
        graph, options, workspace: as for ``plan_of``; the options have a clock that measures.
        strict: a plan of the graph, which answers where numbers are not finite.
        meter: what has measured errors for another tolerance.
    """
    if not options.tolerance:
        return strict
    from vtensor.runtime.tolerant import observable, tolerant  # nothing else needs it

    again = partial(  # recorded when it is needed: its packed weights need not be kept
        Plan,
        strict.graph,
        graph.constants,
        workspace,
        preferences=options.preferences,
        resolved=strict.resolved,
    )
    simple = observable(graph)
    try:
        found = tolerant(
            simple,
            resolved_of(simple, options),
            options.passes,
            options.settings,
            options.tolerance,
            options.calibrate,
            workspace,
            meter,
        )
        if not found:
            return strict
        made = list[Plan]()
        for lowered in found:
            with suppress(BudgetError):
                sound(lowered, simple, options, workspace)
                plan = Plan(
                    lowered,
                    graph.constants,
                    workspace,
                    options.progress,
                    options.preferences,
                    strict.resolved,
                    strictly=None if options.finite else again,
                )
                made.append(plan)
        if not made:
            return strict
        best, took = fastest([*made, strict], workspace.executor)
        if best is strict:
            _log.info(SLOWER, graph.name, min(took[:-1]) / 1e6, took[-1] / 1e6)
    except UnsoundPlanError:
        raise
    except VTensorError as error:
        go_on()
        _log.warning("%s: no plan within the tolerance, so it is strict: %s", graph.name, error)
        return strict
    return best


def _recorded(
    graph: Graph,
    resolved: LoweredGraph,
    options: Options,
    settings: Settings,
    workspace: Workspace,
) -> Plan:
    """Optimise a resolved graph, prove it sound, and record it."""
    lowered = optimise(resolved, options.passes, settings)
    return recorded(graph, resolved, lowered, options, workspace)


def recorded(
    graph: Graph,
    resolved: LoweredGraph,
    lowered: LoweredGraph,
    options: Options,
    workspace: Workspace,
) -> Plan:
    """The plan of an optimised graph, proven sound."""
    sound(lowered, graph, options, workspace)
    return Plan(
        lowered, graph.constants, workspace, options.progress, options.preferences, resolved
    )


def resolved_of(graph: Graph, options: Options) -> LoweredGraph:
    """A graph with the Transforms that Algorithm 1 leaves, before any pass."""
    from resolver.evaluate import resolve
    from resolver.extend import extend

    return extend(resolve(graph, options.entry, options.preferences), options.delivery)


def partly_optimised(
    resolved: LoweredGraph, options: Options, only: frozenset[str]
) -> LoweredGraph:
    """A resolved graph optimised, where the joint choice may change some nodes alone.

    A certificate says nothing of the others, so there is none, unless there was nothing to gain.
    """
    lowered = optimise(resolved, options.passes, replace(options.settings, only=only))
    certificate = lowered.certificate
    if certificate and (certificate.open_nodes or any(lowered.transforms())):
        return replace(lowered, certificate=None)
    return lowered


def sound(
    lowered: LoweredGraph,
    graph: Graph,
    options: Options,
    workspace: Workspace,
    proof: Proof | None = None,
) -> None:
    """Prove a lowered graph sound, and see that it fits into the budget.

    Args:
        lowered, graph, options, workspace: what is to run, of which graph, and how.
        proof: what was proved of the same in other sizes.

    Raises:
        UnsoundPlanError: it is not.
        BudgetError: it needs more memory than the workspace may have.
    """
    able = [library.name for library in ready().libraries.values() if library.transforms]
    proven = check if proof is None else proof.check
    proven(lowered, graph, able, options.entry, options.delivery)
    check_plan(lowered, workspace.max_bytes)
