"""A faster choice whose results may have errors up to a tolerance.

One integer program chooses approximate variants together with all others. In it each approximate
variant uses a part of the error budget, the error that all may cause together. The whole plan is
then compared with the strict plan. If its error exceeds the tolerance, the program is solved again
with a smaller budget; if its error is far smaller than the errors of its nodes together, with
scaled errors. Results of exact kernels that were chosen by measured times also differ from
those of the strict plan. This error is measured once and added to the expected error.
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
from resolver.errors import Share, expected
from resolver.lowered import LoweredGraph
from vtensor.language.graph import Graph
from vtensor.runtime.recording.plan_bytes import needed_bytes
from vtensor.runtime.recording.workspace import Workspace
from vtensor.runtime.tuning.fewest_transforms import with_fewer_transforms
from vtensor.runtime.tuning.variant_errors import Meter
from vtensor.storage.inputs import Array

#: How often the integer program is solved before the plan stays strict.
ROUNDS = 5

#: The measured error times this factor must not exceed the tolerance, because inputs that were not
#: tried may have larger errors.
MARGIN = 1.25

#: The expected error of a choice is at least this multiple of the measured error of the plan that
#: scaled the errors of its nodes, because inputs that were not tried may have larger errors.
SCALE_MARGIN = 1.5

#: Errors are scaled only if that lowers their expected sum at least to this share of it.
LESS = 0.9

#: The next error budget as a share of the budget that would have fitted the plan that failed.
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
    form: str = "",
) -> list[LoweredGraph]:
    """Return choices whose error is within the tolerance, as lowered graphs: first one with fewer
    Transforms, then the fastest.

    The first one is missing if no choice has fewer Transforms than the fastest. The list is empty
    if no approximate variant makes the plan faster.

    Args:
        graph: the simplified graph.
        resolved: the lowered graph before passes, in which no observed value is inside a fused
            node.
        passes: names of passes, in order.
        settings: the settings, with a clock that measures.
        tolerance: the largest error of the results, relative to the largest element.
        calibrate: arrays for inputs, by name, on which errors are measured.
        workspace: the memory and threads that plans share.
        meter: a meter of the same graph whose measured errors are reused; None makes a new one.
        form: the only form that approximate variants may have (``form_name``); empty for any.
    """
    names = observed(graph)
    if not names or settings.clock is None:
        return []
    meter = meter or Meter(graph, resolved, names, calibrate, workspace)
    choice = partial(_choice, graph, resolved, passes, workspace, meter)
    allowed = Allowed(tolerance, tolerance / MARGIN, meter, form=form)
    within = choice(allowed, settings)
    proof = within.certificate.errors if within and within.certificate else None
    if within is None or proof is None:
        return []
    allowed = replace(allowed, budget=proof.budget, scale=proof.scale)
    return [*with_fewer_transforms(within, settings, partial(choice, allowed)), within]


def _choice(
    graph: Graph,
    resolved: LoweredGraph,
    passes: Sequence[str],
    workspace: Workspace,
    meter: Meter,
    allowed: Allowed,
    settings: Settings,
) -> LoweredGraph | None:
    """Return the fastest choice within the tolerance as a lowered graph.

    Returns None if no approximate variant is chosen, or if measured errors stay too large.

    Args:
        graph: the simplified graph.
        resolved: the lowered graph before passes.
        passes, settings: the names of passes, and their settings.
        workspace: the memory and threads that plans share.
        meter: measures errors.
        allowed: the tolerance, and the budget and scale of errors of the first solution. Later
            solutions have a smaller budget or scale.
    """
    room = workspace.max_bytes - needed_bytes(resolved)
    exact = partial(optimise, resolved, passes, settings)
    first, fitting, shares = allowed, list[tuple[int, LoweredGraph]](), tuple[Share, ...]()
    for _ in range(ROUNDS):
        limited = replace(settings, allowed=allowed, room=room, time_limit=SOLVER_SECONDS)
        lowered = optimise(resolved, passes, limited)
        certificate = lowered.certificate
        proof = certificate.errors if certificate else None
        if not lowered.inexact or certificate is None or proof is None:
            if allowed is first:
                return None
            break  # the earlier solution's measured error is too large
        if fitting and proof.shares == shares:  # scaled errors allow no further variant
            break
        shares, added = proof.shares, expected(proof.shares)
        measured = meter.whole(lowered)
        proof = replace(proof, measured=measured, direct=meter.direct(exact))
        reached = max(measured * MARGIN, proof.expected)
        if reached <= allowed.tolerance:
            lowered = replace(lowered, certificate=replace(certificate, errors=proof))
            check_errors(lowered, allowed.tolerance)
            fitting.append((certificate.ns_after or 0, lowered))
            scaled = SCALE_MARGIN * measured
            if not 0 < scaled <= LESS * allowed.scale * added:
                break
            allowed = replace(allowed, scale=scaled / added)
            continue
        _log.info(
            "%s: expected an error of %.2g, measured %.2g, allowed %.2g: solving again with less",
            graph.name,
            proof.expected,
            measured,
            allowed.tolerance,
        )
        budget = BUDGET_CUT * allowed.scale * added * allowed.tolerance / reached
        allowed = replace(allowed, budget=budget)
    if fitting:
        return min(fitting, key=lambda pair: pair[0])[1]
    _log.warning(
        "%s: no plan kept to the tolerance %g: the plan stays strict",
        graph.name,
        allowed.tolerance,
    )
    return None


def observable(graph: Graph, names: tuple[str, ...] | None = None) -> Graph:
    """Return the graph without those offers of fusion that would hide an observed value.

    An offer lists nodes that may be fused to the node before them. The values between fused nodes
    are not stored, so that errors cannot be measured at them.

    Args:
        graph: the graph.
        names: the names of the observed values; None is those of the graph itself.
    """
    offers = dict(without_observed(graph, observed(graph) if names is None else names))
    remaining = {lead: followers for lead, followers in offers.items() if followers}
    return graph if remaining == dict(graph.offers) else replace(graph, offers=remaining)
