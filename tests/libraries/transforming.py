"""A single Transform on a named library, run by itself."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptensor.layout import Layout
from resolver.lowered import LoweredGraph, Reason, TransformNode, Value
from vtensor.runtime.execution.executor import Executor
from vtensor.runtime.recording.on_numbers import plan_on_numbers
from vtensor.runtime.recording.workspace import Workspace
from vtensor.runtime.tuning.variant_errors import bound_memory


def transformed(library: str, x: NDArray[Any], source: str, target: str) -> NDArray[np.uint8]:
    """Return the bytes of a tensor with the one dim N after a Transform of the library."""
    dims = {"N": x.size}
    ends = {"x": source, "y": target}
    values = {name: Value(name, "f32", dims, Layout(text)) for name, text in ends.items()}
    node = TransformNode("t", "x", "y", library, Reason("y", "x"))
    executor = Executor.of(1)
    graph = LoweredGraph("t", values, [node], ("x",), {"y": "y"})
    plan = plan_on_numbers(graph, {}, Workspace(executor, 1 << 33))
    memory = bound_memory(plan, {"x": x})
    executor.run(partial(plan.replay, memory))
    return np.array(memory[-1].reshape(-1).view(np.uint8))
