"""A faster choice whose results may be off by a tolerance.

Approximate variants are chosen together with all others, by one integer program that knows what
each adds to the error of the results. The whole plan is then compared with the strict plan; if its
error exceeds the tolerance, the program is solved again with a smaller budget. Exact kernels chosen
by measured times also differ from the strict plan's: their error is measured once and added to the
expected error.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from optimizer.choice.errors import Allowed
from optimizer.constants.observed import observed, without_observed
from optimizer.pipeline import optimise
from optimizer.settings import Settings
from resolver.check_errors import check_errors
from resolver.errors import expected
from resolver.lowered import LoweredGraph
from vtensor.language.graph import Graph
from vtensor.runtime.recording.plan_bytes import needed_bytes
from vtensor.runtime.recording.workspace import Workspace
from vtensor.runtime.tuning.fewest_transforms import with_fewer_transforms
from vtensor.runtime.tuning.variant_errors import Meter
from vtensor.storage.inputs import Array

#: The most solutions of the program before the plan stays strict.
ROUNDS = 5

#: The factor between the measured error and the tolerance: inputs that were not tried may have
#: larger errors.
MARGIN = 1.25

#: The next budget as a share of the one that would have been right for the plan that failed.
BUDGET_CUT = 0.9

#: The solver's time limit, in seconds; a choice that is not proved best still serves.
SOLVER_SECONDS = 2.0

_log = logging.getLogger(__name__)


def tolerant(
    graph: Graph,
    resolved: LoweredGraph,
    passes: Sequence[str],
    settings: Settings,
    tolerance: float,
    calibrate: Mapping[str, Array],
    workspace: Workspace,
    meter: Meter | None = None,
) -> list[LoweredGraph]:
    """Return graphs within the tolerance: one with fewer Transforms, then the fastest.

    The first is missing if no choice has fewer; the list is empty if no approximate variant is
    faster.

    Args:
        graph: the simplified graph.
        resolved: its lowered graph before passes, in which no observed value is inside a fused
            node.
        passes: names of passes, in order.
        settings: the settings, with a clock that measures.
        tolerance: the largest error of the results.
        calibrate: arrays for inputs, by name, on which errors are measured.
        workspace: the memory and threads that plans share.
        meter: a meter of the same graph whose measured errors are reused; None makes one.
    """
    names = observed(graph)
    if not names or settings.clock is None:
        return []
    meter = meter or Meter(graph, resolved, names, calibrate, workspace)
    choice = partial(_choice, graph, resolved, passes, tolerance, workspace, meter)
    within = choice(tolerance / MARGIN, settings)
    proof = within.certificate.errors if within and within.certificate else None
    if within is None or proof is None:
        return []
    return [*with_fewer_transforms(within, settings, partial(choice, proof.budget)), within]


def _choice(
    graph: Graph,
    resolved: LoweredGraph,
    passes: Sequence[str],
    tolerance: float,
    workspace: Workspace,
    meter: Meter,
    budget: float,
    settings: Settings,
) -> LoweredGraph | None:
    """Return the fastest choice within the tolerance with this error budget or less, or None."""
    room = workspace.max_bytes - needed_bytes(resolved)
    exact = partial(optimise, resolved, passes, settings)
    for attempt in range(ROUNDS):
        allowed = Allowed(tolerance, budget, meter)
        limited = replace(settings, allowed=allowed, room=room, time_limit=SOLVER_SECONDS)
        lowered = optimise(resolved, passes, limited)
        proof = lowered.certificate.errors if lowered.certificate else None
        if not lowered.inexact or lowered.certificate is None or proof is None:
            if attempt:  # the earlier solution's measured error is too large
                break
            return None
        measured = meter.whole(lowered)
        proof = replace(proof, measured=measured, direct=meter.direct(exact))
        reached = max(measured * MARGIN, proof.expected)
        if reached <= tolerance:
            lowered = replace(lowered, certificate=replace(lowered.certificate, errors=proof))
            check_errors(lowered, tolerance)
            return lowered
        _log.info(
            "%s: expected an error of %.2g, measured %.2g, allowed %.2g: solving again with less",
            graph.name,
            proof.expected,
            measured,
            tolerance,
        )
        budget = BUDGET_CUT * expected(proof.shares) * tolerance / reached
    _log.warning(
        "%s: no plan kept to the tolerance %g: the plan stays strict", graph.name, tolerance
    )
    return None


def observable(graph: Graph) -> Graph:
    """Return the graph without fusions that would hide a value at which errors count."""
    offers = dict(without_observed(graph, observed(graph)))
    remaining = {lead: followers for lead, followers in offers.items() if followers}
    return graph if remaining == dict(graph.offers) else replace(graph, offers=remaining)
