"""Runs of plain arrays, each of which is one call of native code.

Around a network of a few milliseconds Python's own work counts: between two runs the kernels have
had its memory thrown out of the processor's caches.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import mul
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from vtensor.runtime._replay import Request
    from vtensor.runtime.execution.fast_io import FastInput, FastOutput
    from vtensor.runtime.execution.lanes import Lane
    from vtensor.runtime.execution.plan import Plan

Array = np.ndarray[Any, Any]


class Direct:
    """A request whose inputs are arrays in C order, and whose outputs are new ones.

    Args:
        plan: runs without Python.
        names: of the outputs, in order.
        every: they are all that the network has.
        inputs, outputs: as the plan has them.
    """

    def __init__(
        self,
        plan: Plan,
        names: list[str],
        every: bool,
        inputs: Sequence[FastInput],
        outputs: Sequence[FastOutput],
    ) -> None:
        from vtensor.runtime import _replay

        self._plan, self._names, self._every = plan, names, every
        #: The plan and the copies of each run of it, of which there are none.
        self.last_run: tuple[Plan, dict[str, Any]] = plan, {}
        self._inputs = [(one.name, one.dtype, one.shape, one.dtype.alignment) for one in inputs]
        self._outputs = [
            (one.binding - len(inputs), one.dtype, one.presented, strides(one)) for one in outputs
        ]
        self._lanes = plan.lanes
        self._requests: dict[Lane, Request] = {}
        # Not whatever a signal's handler raises meanwhile, which may be of any kind.
        self._failures = _replay.StepFailed, _replay.Stopped, _replay.Circular, _replay.Busy

    def run(self, names: object, arrays: object) -> list[Array] | Literal[False] | None:
        """The outputs.

        Returns:
            None where somebody has to look closer, at a failure too; False where the strict plan is
            to answer.
        """
        lanes, run = self._lanes, object()
        lane = lanes.idle if lanes.runs else lanes.every[0]
        if lane is None:
            return None  # the run is to queue
        try:
            lanes.runs[run] = lane
            request = self._requests.get(lane) or self._request(lane)
            return request.run(names, arrays)
        except (*self._failures, MemoryError):
            return None  # the same run says by name what is wrong
        finally:
            lanes.runs.pop(run, None)

    def _request(self, lane: Lane) -> Request:
        from vtensor.runtime import _replay

        plan = self._plan
        made = _replay.Request(
            lane.executor.team,
            plan.program(lane),
            self._names,
            self._every,
            self._inputs,
            plan.own_sizes,
            self._outputs,
            plan.exponents,
            np.ndarray,
            np.empty,
            np.dtype(np.uint8),
        )
        return self._requests.setdefault(lane, made)


def strides(output: FastOutput) -> tuple[int, ...]:
    """Bytes from one element to the next along each axis of an output as it is presented."""
    sizes = (size or 1 for size in reversed(output.shape[1:]))
    inner = accumulate(sizes, mul, initial=output.dtype.itemsize)
    lying = [*inner][: len(output.shape)][::-1]
    return tuple(lying[axis] for axis in output.axes)
