"""The names of ``onnxruntime_pybind11_state``, under their other module."""

from vtensor.onnxruntime.capi.onnxruntime_pybind11_state import __getattr__ as __getattr__
