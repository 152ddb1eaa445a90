"""OpenVINO, on the processor, at its lowest latency."""

from __future__ import annotations

from collections.abc import Sequence

from vtensor.benchmark.peer import Array, Peer, Task
from vtensor.errors import PeerError

#: What its runtime model calls changes of layout.
_CONVERSIONS = ("Reorder", "Transpose")


class OpenVINO(Peer):
    """One inference request on a compiled model, its sizes fixed.

    Source: OpenVINO's manual: CPU device, performance hints, runtime model.
    """

    distribution = "openvino"

    def load(self, task: Task) -> None:
        import openvino

        core = openvino.Core()
        model = core.read_model(task.model)
        if model.is_dynamic():
            model.reshape({name: list(array.shape) for name, array in task.feeds.items()})
        settings = {
            "INFERENCE_PRECISION_HINT": task.precision,
            "INFERENCE_NUM_THREADS": task.threads,
            "PERFORMANCE_HINT": "LATENCY",
        }
        self._compiled = core.compile_model(model, "CPU", settings)
        taken = self._compiled.get_property("INFERENCE_PRECISION_HINT").to_string()
        if taken != task.precision:
            raise PeerError(f"on this processor it takes {taken} in place of {task.precision}")
        self._request = self._compiled.create_infer_request()
        self._feeds = dict(task.feeds)

    def run(self) -> Sequence[Array]:
        made = self._request.infer(self._feeds, share_inputs=True, share_outputs=True)
        return [made[port] for port in self._compiled.outputs]

    def conversions(self) -> int:
        nodes = self._compiled.get_runtime_model().get_ops()
        return sum(node.get_rt_info()["layerType"].value in _CONVERSIONS for node in nodes)
