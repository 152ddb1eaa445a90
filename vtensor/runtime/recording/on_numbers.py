"""Plans of lowered graphs whose sizes are numbers: recorded, arranged, ready to run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from libdesc.preferences import EVERY, Preferences
from resolver.lowered import LoweredGraph
from vtensor.runtime.execution.plan import Ends, Nodes, Plan, PlanPorts
from vtensor.runtime.recording.live_steps import needed
from vtensor.runtime.recording.placement import place
from vtensor.runtime.recording.recorder import Recorder
from vtensor.runtime.recording.workspace import Workspace


def plan_on_numbers(
    graph: LoweredGraph,
    constants: Mapping[str, np.ndarray[Any, Any]],
    workspace: Workspace,
    progress: Callable[[str], None] | None = None,
    preferences: Preferences = EVERY,
    resolved: LoweredGraph | Callable[[], LoweredGraph] | None = None,
    *,
    confirming: bool = False,
    strictly: Callable[[], Plan] | None = None,
) -> Plan:
    """Record a lowered graph and return its plan.

    Args:
        graph: checked and optimised.
        constants: arrays of the graph's constants by name.
        workspace: what the plan shares with the other plans of its session.
        progress: called with each node's name while it is recorded.
        preferences: which libraries could take what.
        resolved: the graph before any pass, for those who compare, or what makes it; None where it
            is ``graph``.
        confirming: the choice was made for another plan; libraries are asked again.
        strictly: as for ``Plan``.

    Raises:
        ChoiceRefused: libraries do not confirm the choice.
        BudgetError: the plan needs more memory than the workspace may have.
    """
    recorder = Recorder(graph, constants, workspace, confirming)
    with recorder.recording():
        recorder.record(progress)
        steps = recorder.evaluation.compiled(workspace.lanes.threads)
        ends = Ends.of(graph, recorder.storages)
        recorded = needed(steps, ends.outputs)
        recorder.evaluation.steps.clear()  # they refer to it: no circle of the two
        placement = place(recorded, ends.inputs, ends.own)
    nodes = Nodes(graph, recorded, placement, preferences, resolved)
    held = placement.constants()
    plan = Plan(
        PlanPorts([graph.values[name] for name in graph.inputs], ends.own, ends.deliveries),
        placement.placed(held),
        placement.nbytes,
        placement.live,
        [storage.buffer.memory for storage in held],
        recorder.packed,
        workspace,
        lambda: nodes,
        calls_back=any(step.callback is not None for step in recorded),
        strictly=strictly,
    )
    if not plan.calls_back:
        plan.recording = recorder, ends, recorded
    return plan
