"""Plans by measured times: several are recorded and run in turns, and the fastest is returned."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from optimizer.pipeline import optimise
from optimizer.settings import Settings
from ptensor.background_work import checkpoint
from resolver.lowered import LoweredGraph
from vtensor.errors import BudgetError, UnsoundPlanError, VTensorError
from vtensor.language.graph import Graph
from vtensor.language.process.imported import logger
from vtensor.runtime.execution.plan import Plan
from vtensor.runtime.planning.choosing import recorded, resolved_of, sound
from vtensor.runtime.planning.options import Options
from vtensor.runtime.recording.on_numbers import plan_on_numbers
from vtensor.runtime.recording.workspace import Workspace
from vtensor.runtime.tuning.fewest_transforms import with_fewer_transforms

if TYPE_CHECKING:
    from vtensor.runtime.execution.executor import Executor
    from vtensor.runtime.tuning.variant_errors import Meter

#: The log message if the plan with measured times is not faster.
NOT_FASTER_MEASURED = (
    "%s: without measured times the plan takes %.2f ms, with them %.2f ms: they are not used"
)

#: The log message if the plan within the tolerance is not faster.
NOT_FASTER_TOLERANT = (
    "%s: within the tolerance the plan takes %.2f ms, strictly %.2f ms: it stays strict"
)

_log = logger(__name__)


def fastest(plans: Sequence[Plan], executor: Executor) -> tuple[Plan, list[int]]:
    """Return the fastest of some plans, and the nanoseconds of a run of each.

    The module ``measure`` is imported at the first timing.
    """
    from vtensor.runtime.tuning import measure

    return measure.fastest(plans, executor)


def plan_of(graph: Graph, options: Options, workspace: Workspace) -> Plan:
    """Return the plan of a graph whose sizes are known.

    If times are measured, several plans are made and compared by running them: one chosen by
    measured times, one chosen so but with fewer Transforms, and one chosen by estimates. The
    fastest is returned, or an approximate plan within the tolerance that is faster still.

    Args:
        graph: the simplified graph.
        options: the options of plans.
        workspace: the arena, weights and executors that plans share.

    Raises:
        NoInvokerError: no library runs a node, or the pinned one declines it.
        BudgetError: the plan needs more memory than the workspace allows.
    """
    resolved = resolved_of(graph, options)
    measured = _recorded(graph, resolved, options, options.settings, workspace)
    if options.settings.clock is None:
        return measured
    untimed = _recorded(
        graph, resolved, options, Settings(speeds=options.settings.speeds), workspace
    )
    choice = partial(optimise, resolved, options.passes)
    few = list[Plan]()
    for lowered in with_fewer_transforms(measured.graph, options.settings, choice):
        with suppress(BudgetError):
            few.append(recorded(graph, resolved, lowered, options, workspace))
    try:
        best, times_ns = fastest([*few, measured, untimed], workspace.executor)
    except VTensorError as error:
        checkpoint()
        _log.warning("%s: plans cannot be timed, so no times are used: %s", graph.name, error)
        return untimed
    if best is untimed:
        _log.info(NOT_FASTER_MEASURED, graph.name, times_ns[-1] / 1e6, min(times_ns[:-1]) / 1e6)
    return within_tolerance(graph, best, options, workspace)


def within_tolerance(
    graph: Graph,
    strict: Plan,
    options: Options,
    workspace: Workspace,
    meter: Meter | None = None,
    form: str = "",
) -> Plan:
    """Return a plan with approximate variants if one is faster than ``strict``, else ``strict``.

    Args:
        graph: the simplified graph.
        strict: the strict plan; it repeats runs of the approximate one with non-finite numbers.
        options: the options of plans: the tolerance, and a clock that measures.
        workspace: the arena, weights and executors that plans share.
        meter: a meter whose measured errors are reused; None makes a new one.
        form: the only form that approximate variants may have (``form_name``), and the plan is then
            returned even if ``strict`` is faster; empty for any form.
    """
    if not options.tolerance:
        return strict
    from vtensor.runtime.tuning.tolerant_choice import observable, tolerant  # rarely needed

    strictly = partial(  # recorded only if needed: its packed weights take memory
        plan_on_numbers,
        strict.graph,
        graph.constants,
        workspace,
        preferences=options.preferences,
        resolved=strict.resolved,
    )
    simple = observable(graph)
    try:
        choices = tolerant(
            simple,
            resolved_of(simple, options),
            options.passes,
            options.settings,
            options.tolerance,
            options.calibrate,
            workspace,
            meter,
            form,
        )
        if not choices:
            return strict
        plans = list[Plan]()
        for lowered in choices:
            with suppress(BudgetError):
                sound(lowered, simple, options, workspace)
                plan = plan_on_numbers(
                    lowered,
                    graph.constants,
                    workspace,
                    options.progress,
                    options.preferences,
                    strict.resolved,
                    strictly=None if options.finite else strictly,
                )
                plans.append(plan)
        if not plans:
            return strict
        best, times_ns = fastest([*plans, *([] if form else [strict])], workspace.executor)
        if best is strict:
            _log.info(NOT_FASTER_TOLERANT, graph.name, min(times_ns[:-1]) / 1e6, times_ns[-1] / 1e6)
    except UnsoundPlanError:
        raise
    except VTensorError as error:
        checkpoint()
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
    """Optimise a resolved graph, prove the result sound, record it, and return the plan.

    Args:
        graph, resolved: the simplified graph, and its lowered graph before any pass.
        options, settings: the options of plans, and the settings of passes to use.
        workspace: the arena, weights and executors that plans share.
    """
    lowered = optimise(resolved, options.passes, settings)
    return recorded(graph, resolved, lowered, options, workspace)
