"""ONNX Runtime's native module: its exception classes, and the names that are public as well."""

from typing import Any


def __getattr__(name: str) -> Any:
    """Return an exception class, or a public name of the package."""
    from vtensor import onnxruntime
    from vtensor.onnxruntime import errors

    is_class = name in {kind.__name__ for kind in errors.STATUS}
    return getattr(errors if is_class else onnxruntime, name)
