"""The names of ``onnxruntime_pybind11_state``, under their other module."""

from typing import Any

from vtensor.onnxruntime.capi.onnxruntime_pybind11_state import *  # noqa: F403


def __getattr__(name: str) -> Any:
    """Return a public name of the package."""
    from vtensor import onnxruntime

    return getattr(onnxruntime, name)
