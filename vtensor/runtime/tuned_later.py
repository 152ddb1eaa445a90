"""``Session(tune="background")``: a plan by measured times, which takes the first one's place.

The first plan is strict and made without measurements. Once it is used, the other one is made on
the thread for such work, in small parts between runs, as ``plan_of`` makes it where times are
measured: inexact kernels as far as the tolerance allows. Where that fails the first one stays.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from optimizer.pipeline import import_passes
from ptensor.stopping import go_on
from vtensor.language.graph import Graph
from vtensor.runtime.better import Better, NotBetter
from vtensor.runtime.options import Options
from vtensor.runtime.plan import Plan
from vtensor.runtime.planning import plan_of, simplified
from vtensor.runtime.workspace import Workspace

#: The log message where there is no such plan.
FAILED = "%s: times cannot be measured in the background, so its plan stays as it is: %s"

_log = logging.getLogger(__name__)


def tuned_later(
    plan: Plan, graph: Callable[[], Graph], options: Options, workspace: Workspace
) -> Better[Plan]:
    """The plan that is to take a plan's place.

    Args:
        plan: the first one.
        graph: makes what it was made of, before any pass.
        options: how it was made; ``later`` says what is other.
        workspace: what plans share.
    """
    import_passes()
    own = plan.taken_from is None
    make = partial(_made, plan.graph.name, own, graph, options, workspace)
    return Better(make, "it was made without measured times")


def _made(
    name: str, own: bool, graph: Callable[[], Graph], options: Options, workspace: Workspace
) -> Plan:
    """The plan by measured times.

    Raises:
        NotBetter: without them the same is as fast, and the first plan was chosen for its own
            sizes.
    """
    settings = options.later or options.settings
    told = replace(options, settings=settings, later=None, progress=None)
    try:
        plan = workspace.executor.planning(
            lambda: plan_of(simplified(graph(), told), told, workspace)
        )
    except Exception as error:  # of whatever a library raises: the plan that is there is right
        go_on()  # a session that is closed has nothing to say
        _log.warning(FAILED, name, error)
        raise
    if own and all(step.ns is None for step in plan.steps):
        raise NotBetter("with measured times none is faster")
    return plan
