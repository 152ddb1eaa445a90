"""ONNX Runtime on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from vtensor.benchmark.peer import Array, Peer, Task
from vtensor.errors import PeerError

#: The operators that change layouts in a model that ONNX Runtime has optimised.
_CONVERSIONS = ("ReorderInput", "ReorderOutput", "Transpose")


class OnnxRuntime(Peer):
    """Sessions of ONNX Runtime with all its optimisations.

    Source: ONNX Runtime's manual: thread management, graph optimisations.
    """

    distribution = "onnxruntime"

    def load(self, task: Task) -> None:
        if task.precision not in ("f32", "default"):
            raise PeerError(f"its processor kernels have no {task.precision}")
        self._task = task
        count = task.threads if task.hint == "throughput" else 1
        self._sessions = [self._make_session(self._options()) for _ in range(count)]

    def run(self) -> Sequence[Array]:
        outputs: Sequence[Array] = self._sessions[0].run(None, dict(self._task.feeds))
        return outputs

    def callers(self) -> Sequence[Callable[[], object]]:
        """Return, for each session, the function that runs it.

        For throughput there are as many sessions as threads, else one.
        """
        feeds = dict(self._task.feeds)
        return [partial(session.run, None, feeds) for session in self._sessions]

    def conversions(self) -> int:
        """Return the number of layout conversions in the optimised model.

        A further session, which is not timed, writes that model to a file.
        """
        import onnx

        with TemporaryDirectory() as folder:
            file, options = Path(folder) / "optimised.onnx", self._options()
            options.optimized_model_filepath = str(file)
            weights = "session.optimized_model_external_initializers_file_name"
            options.add_session_config_entry(weights, "weights")
            self._make_session(options)
            nodes = onnx.load(file, load_external_data=False).graph.node
        return sum(node.op_type in _CONVERSIONS for node in nodes)

    def _options(self) -> Any:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        throughput = self._task.hint == "throughput"
        options.intra_op_num_threads = 1 if throughput else self._task.threads
        return options

    def _make_session(self, options: Any) -> Any:
        import onnxruntime

        return onnxruntime.InferenceSession(
            self._task.model, options, providers=["CPUExecutionProvider"]
        )
