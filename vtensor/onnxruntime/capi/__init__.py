"""The inner modules of ONNX Runtime that programs import, or reach as attributes."""

from importlib import import_module
from typing import Any

_MODULES = ("_pybind_state", "onnxruntime_inference_collection", "onnxruntime_pybind11_state")


def __getattr__(name: str) -> Any:
    """Import an inner module.

    Raises:
        AttributeError: ONNX Runtime may have the module, and this package lacks it.
    """
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    from vtensor.onnxruntime.errors import missing

    raise missing("capi", name)
