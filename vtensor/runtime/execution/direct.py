"""Runs on plain arrays, each run a single native call.

In a network that takes a few milliseconds, the time of Python's own code matters. The kernels of
the last run have displaced Python's memory from the processor's caches.
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


class DirectRequest:
    """A request whose inputs are arrays in C order and whose outputs are new arrays.

    Args:
        plan: a plan without call-backs.
        names: the names of the wanted outputs, in order.
        every: True if ``names`` are all outputs of the network.
        inputs, outputs: the inputs of the plan, and the wanted outputs, in order.
        known: the inputs whose values decide sizes, each with the bytes that the plan is made for.

    Attributes:
        requests: the native requests by lane, as far as runs have made them.
    """

    def __init__(
        self,
        plan: Plan,
        names: list[str],
        every: bool,
        inputs: Sequence[FastInput],
        outputs: Sequence[FastOutput],
        known: Sequence[tuple[str, np.dtype[Any], tuple[int, ...], bytes]] = (),
    ) -> None:
        from vtensor.runtime import _replay

        self._plan, self._names, self._every = plan, names, every
        #: What the session records as its last run after each run of this request: the plan, and
        #: that nothing was copied.
        self.last_run: tuple[Plan, dict[str, Any]] = plan, {}
        self._inputs = [
            (input_.name, input_.dtype, input_.shape, input_.dtype.alignment) for input_ in inputs
        ]
        self._outputs = [
            (output.binding - len(inputs), output.dtype, output.presented, strides(output))
            for output in outputs
        ]
        self.known, self._lanes = known, plan.lanes
        self.requests: dict[Lane, Request] = {}
        # The errors after which the general path repeats the run. Exceptions of signal handlers,
        # which may be of any kind, are not among them.
        self._failures = _replay.StepFailed, _replay.Stopped, _replay.Circular, _replay.Busy

    def run(self, names: object, arrays: object) -> list[Array] | Literal[False] | None:
        """Run the request and return its outputs.

        Args:
            names: the names of the requested outputs; None for all. If they are not those of the
                request, a run is not possible here.
            arrays: the inputs, by name.

        Returns:
            The outputs in order; None if a native call cannot do the run or has failed: the
            caller then uses the general path, which names the error; False if the strict plan must
            repeat the run.
        """
        lanes, run = self._lanes, object()
        lane = lanes.idle if lanes.runs else lanes.every[0]
        if lane is None:
            return None  # the run has to queue
        try:
            lanes.runs[run] = lane
            request = self.requests.get(lane) or self._request(lane)
            return request.run(names, arrays)
        except (*self._failures, MemoryError):
            return None  # the general path repeats the run and names the fault
        finally:
            lanes.runs.pop(run, None)

    def _request(self, lane: Lane) -> Request:
        from vtensor.runtime import _replay

        plan = self._plan
        request = _replay.Request(
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
            self.known,
        )
        return self.requests.setdefault(lane, request)


def strides(output: FastOutput) -> tuple[int, ...]:
    """Return the strides of an output in bytes, one for each dim in the network's order of dims."""
    sizes = (size or 1 for size in reversed(output.shape[1:]))
    inner = accumulate(sizes, mul, initial=output.dtype.itemsize)
    in_memory = [*inner][: len(output.shape)][::-1]
    return tuple(in_memory[axis] for axis in output.axes)
