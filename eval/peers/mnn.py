"""MNN as a peer, on the processor."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from vtensor.benchmark.peer import Array, Peer, Task
from vtensor.errors import PeerError


class Mnn(Peer):
    """MNN's module in f32, from the file that MNN's own converter makes of the ONNX model.

    Source: MNN's manual: MNNConvert, Module API.
    """

    distribution = "MNN"

    def load(self, task: Task) -> None:
        if task.precision != "f32":
            raise PeerError("it is asked for f32 alone here")
        import onnx

        graph = onnx.load(task.model, load_external_data=False).graph
        self._outputs = [output.name for output in graph.output]
        with TemporaryDirectory() as folder:
            file = Path(folder) / "model.mnn"
            _convert(task.model, file)
            import MNN

            config = {"precision": "high", "backend": "CPU", "numThread": task.threads}
            manager = MNN.nn.create_runtime_manager((config,))
            self._module: Any = MNN.nn.load_module_from_file(
                str(file), [*task.feeds], self._outputs, runtime_manager=manager
            )
        self._feeds = [_variable(MNN, array) for array in task.feeds.values()]

    def run(self) -> Sequence[Array]:
        return [np.array(output.read()) for output in self._module.forward(self._feeds)]


def _convert(model: Path, file: Path) -> None:
    """Run MNN's converter, in a process of its own: it prints, and may end the process.

    Args:
        model: the ONNX file to read.
        file: MNN's file to write.

    Raises:
        PeerError: the converter wrote no file.
    """
    script = "from MNN.tools.mnnconvert import main; main()"
    options = ["-f", "ONNX", "--modelFile", str(model), "--MNNModel", str(file), "--bizCode", "x"]
    ran = subprocess.run(
        [sys.executable, "-c", script, *options], capture_output=True, text=True, check=False
    )
    if not file.exists():
        lines = (ran.stdout + ran.stderr).strip().splitlines()
        raise PeerError(f"its converter made no file: {lines[-1] if lines else 'it says nothing'}")


def _variable(mnn: Any, array: Array) -> Any:
    """Return an array as MNN's tensor; an image in MNN's own layout, with blocks of channels."""
    constant = mnn.expr.const(array, list(array.shape), mnn.expr.NCHW)
    return mnn.expr.convert(constant, mnn.expr.NC4HW4) if array.ndim == 4 else constant
