"""ONNX Runtime, on the processor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
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
        many = task.threads if task.hint == "throughput" else 1
        self._sessions = [self._make(self._options()) for _ in range(many)]

    def run(self) -> Sequence[Array]:
        made: Sequence[Array] = self._sessions[0].run(None, dict(self._task.feeds))
        return made

    def callers(self) -> Sequence[Callable[[], object]]:
        """Sessions of one thread each, where many runs count."""
        feeds = dict(self._task.feeds)
        return [partial(session.run, None, feeds) for session in self._sessions]

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
        throughput = self._task.hint == "throughput"
        options.intra_op_num_threads = 1 if throughput else self._task.threads
        return options

    def _make(self, options: Any) -> Any:
        import onnxruntime

        return onnxruntime.InferenceSession(
            self._task.model, options, providers=["CPUExecutionProvider"]
        )
