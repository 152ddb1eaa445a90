"""The classes of sessions, bindings and values, under their other module."""

from vtensor.onnxruntime.binding import IOBinding
from vtensor.onnxruntime.session import InferenceSession, Session
from vtensor.onnxruntime.values import OrtDevice, OrtValue

__all__ = ["IOBinding", "InferenceSession", "OrtDevice", "OrtValue", "Session"]
