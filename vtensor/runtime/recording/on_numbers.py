"""Plans of lowered graphs whose sizes are numbers: recorded, placed in memory, ready to run."""

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
        graph: the checked and optimised graph.
        constants: arrays of the graph's constants by name.
        workspace: the arena, weights and executors that plans share.
        progress: called with each node's name while it is recorded.
        preferences: the libraries that may run each operator or node.
        resolved: the lowered graph before any pass, for comparisons, or a function that makes it;
            None if it is ``graph``.
        confirming: True asks libraries again whether they accept their nodes.
        strictly: makes the plan without approximate variants that repeats a run with non-finite
            numbers; None if runs do not check for them.

    Raises:
        ChoiceRefused: libraries do not confirm the choice.
        BudgetError: the plan needs more memory than the workspace allows.
    """
    recorder = Recorder(graph, constants, workspace, confirming)
    with recorder.recording():
        recorder.record(progress)
        steps = recorder.evaluation.compiled(workspace.lanes.threads)
        ends = Ends.of(graph, recorder.storages)
        recorded = needed(steps, ends.outputs)
        recorder.evaluation.steps.clear()  # breaks the cycle of steps and evaluation
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
