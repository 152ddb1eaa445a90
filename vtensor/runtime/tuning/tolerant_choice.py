"""A faster plan whose results may be off by a tolerance.

Inexact variants are chosen with all others, in one program that knows what each adds to the error
of the results. The whole plan is then compared with the strict one; where its error is larger than
the program expected, and too large, the program is given less to spend, and solves again. Exact
kernels by measured times differ from the strict plan's, too: that is measured once, and expected
beside the rest.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from optimizer.errors import Allowed
from optimizer.observed import observed, without_observed
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

#: How often the program is solved before the plan stays strict.
ROUNDS = 5

#: What is left between the error that is measured and the tolerance, as a factor: inputs that
#: nobody tried may do worse.
MARGIN = 1.25

#: What of the error is expected again that would have been right for a plan: it is another plan.
LESS = 0.9

#: Seconds for the solver: a choice that is not the best is a choice, too.
SECONDS = 2.0

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
    """The graph in the fastest choice whose results are within the tolerance; before it, one with
    fewer Transforms, if there is one. Empty where no inexact variant is faster.

    Args:
        graph: simplified.
        resolved: what Algorithm 1 makes of it, in which no observed value passes inside of a node.
        passes: names of passes, in order.
        settings: with a clock that measures.
        tolerance: what results may be off by.
        calibrate: arrays for inputs, by name, that errors are measured on.
        workspace: what plans share.
        meter: what has measured errors of the same graph already.
    """
    names = observed(graph)
    if not names or settings.clock is None:
        return []
    meter = meter or Meter(graph, resolved, names, calibrate, workspace)
    choice = partial(_choice, graph, resolved, passes, tolerance, workspace, meter)
    found = choice(tolerance / MARGIN, settings)
    proof = found.certificate.errors if found and found.certificate else None
    if found is None or proof is None:
        return []
    return [*with_fewer_transforms(found, settings, partial(choice, proof.budget)), found]


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
    """The fastest choice within the tolerance by these settings, with this budget or less."""
    room = workspace.max_bytes - needed_bytes(resolved)
    exact = partial(optimise, resolved, passes, settings)
    for attempt in range(ROUNDS):
        allowed = Allowed(tolerance, budget, meter)
        limited = replace(settings, allowed=allowed, room=room, time_limit=SECONDS)
        lowered = optimise(resolved, passes, limited)
        proof = lowered.certificate.errors if lowered.certificate else None
        if not lowered.inexact or lowered.certificate is None or proof is None:
            if attempt:  # what there was is too inexact as a whole
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
            "%s: expected an error of %.2g, measured %.2g, allowed %.2g: once more with less",
            graph.name,
            proof.expected,
            measured,
            tolerance,
        )
        budget = LESS * expected(proof.shares) * tolerance / reached
    _log.warning("%s: no plan kept to the tolerance %g: it is strict", graph.name, tolerance)
    return None


def observable(graph: Graph) -> Graph:
    """A graph in which no value at which errors count passes inside of a fused node."""
    offers = dict(without_observed(graph, observed(graph)))
    remaining = {lead: behind for lead, behind in offers.items() if behind}
    return graph if remaining == dict(graph.offers) else replace(graph, offers=remaining)
