"""OpenVINO on the CPU, with its performance hints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from vtensor.benchmark.peer import Array, Peer, Task
from vtensor.errors import PeerError

#: The layers that change layouts in OpenVINO's runtime model, the compiled one.
_CONVERSIONS = ("Reorder", "Transpose")


class OpenVINO(Peer):
    """A compiled model of fixed sizes, with one inference request, or several for throughput.

    Source: OpenVINO's manual: CPU device, performance hints, runtime model.
    """

    distribution = "openvino"

    def load(self, task: Task) -> None:
        import openvino

        core = openvino.Core()
        model = core.read_model(task.model)
        if model.is_dynamic():
            model.reshape({name: list(array.shape) for name, array in task.feeds.items()})
        settings: dict[str, Any] = {
            "INFERENCE_NUM_THREADS": task.threads,
            "PERFORMANCE_HINT": task.hint.upper(),
        }
        if task.precision != "default":
            settings["INFERENCE_PRECISION_HINT"] = task.precision
        self._compiled = core.compile_model(model, "CPU", settings)
        precision = self._compiled.get_property("INFERENCE_PRECISION_HINT").to_string()
        if task.precision not in (precision, "default"):
            raise PeerError(f"on this processor it uses {precision} in place of {task.precision}")
        best = self._compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS")
        count = best if task.hint == "throughput" else 1
        self._requests = [self._compiled.create_infer_request() for _ in range(count)]
        self._feeds = dict(task.feeds)

    def run(self) -> Sequence[Array]:
        results = self._infer(self._requests[0])
        return [results[port] for port in self._compiled.outputs]

    def callers(self) -> Sequence[Callable[[], object]]:
        """Return, for each inference request, the function that runs it."""
        return [partial(self._infer, request) for request in self._requests]

    def _infer(self, request: Any) -> Any:
        return request.infer(self._feeds, share_inputs=True, share_outputs=True)

    def conversions(self) -> int:
        nodes = self._compiled.get_runtime_model().get_ops()
        return sum(node.get_rt_info()["layerType"].value in _CONVERSIONS for node in nodes)
