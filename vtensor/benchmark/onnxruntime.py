"""ONNX Runtime, on the processor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from vtensor.benchmark.peer import Array, Peer, Task
from vtensor.errors import PeerError

#: What its optimised model calls changes of layout.
_CONVERSIONS = ("ReorderInput", "ReorderOutput", "Transpose")


class OnnxRuntime(Peer):
    """A session with every optimisation that it has.

    Source: ONNX Runtime's manual: thread management, graph optimisations.
    """

    distribution = "onnxruntime"

    def load(self, task: Task) -> None:
        if task.precision != "f32":
            raise PeerError(f"its processor kernels have no {task.precision}")
        self._task = task
        self._session = self._make(self._options())

    def run(self) -> Sequence[Array]:
        made: Sequence[Array] = self._session.run(None, dict(self._task.feeds))
        return made

    def conversions(self) -> int:
        """Counted in the model that a second session writes."""
        import onnx

        with TemporaryDirectory() as folder:
            file, options = Path(folder) / "optimised.onnx", self._options()
            options.optimized_model_filepath = str(file)
            weights = "session.optimized_model_external_initializers_file_name"
            options.add_session_config_entry(weights, "weights")
            self._make(options)
            nodes = onnx.load(file, load_external_data=False).graph.node
        return sum(node.op_type in _CONVERSIONS for node in nodes)

    def _options(self) -> Any:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = self._task.threads
        return options

    def _make(self, options: Any) -> Any:
        import onnxruntime

        return onnxruntime.InferenceSession(
            self._task.model, options, providers=["CPUExecutionProvider"]
        )
