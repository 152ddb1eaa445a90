"""ONNX Runtime without graph optimisations, as a peer whose answers are the reference."""

from __future__ import annotations

from typing import Any

from vtensor.benchmark.onnxruntime import OnnxRuntime


class Unoptimised(OnnxRuntime):
    """Sessions of ONNX Runtime that run each node of the model as the file has it.

    With its optimisations, ONNX Runtime rounds at other places of a quantised model, and its
    answers differ between processors.
    """

    def _options(self) -> Any:
        import onnxruntime

        options = super()._options()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        return options
