"""Facts about the package as a whole, and functions of ONNX Runtime that say them."""

from __future__ import annotations

from vtensor.onnxruntime.notes import note

#: The name of this package, and the one that programs import.
OWN, NAME = "vtensor.onnxruntime", "onnxruntime"

#: Subpackages that pass through to the installed package.
PASSED = ("quantization", "transformers", "tools", "datasets")

#: The version of ONNX Runtime whose interface this is.
__version__ = "1.23.2"


def get_version_string() -> str:
    """Return the version of ONNX Runtime whose interface this is."""
    return __version__


def get_build_info() -> str:
    """Return a text that names VTensor and its version."""
    import vtensor

    return f"ORT Build Info: VTensor {vtensor.__version__}"


def get_device() -> str:
    """Return the kind of device on which models run."""
    return "CPU"


def set_default_logger_severity(severity: int) -> None:
    """Set the least severity of messages that VTensor's loggers pass on.

    Args:
        severity: 0 for all messages, 1 for information, 2 for warnings, 3 for errors, 4 for fatal
            errors.

    Raises:
        RuntimeError: the severity is not among these.
    """
    if not 0 <= severity <= 4:
        raise RuntimeError(
            f"Invalid logging severity {severity}. 0:Verbose, 1:Info, 2:Warning, 3:Error, 4:Fatal"
        )
    import logging

    logging.getLogger("vtensor").setLevel(10 * (severity + 1))  # logging's levels, in this order


def set_default_logger_verbosity(verbosity: int) -> None:  # noqa: ARG001
    """Do nothing: VTensor's messages have no verbosity."""
    note("set_default_logger_verbosity")


def disable_telemetry_events() -> None:
    """Do nothing: VTensor sends no events."""


def preload_dlls(*arguments: object, **options: object) -> None:  # noqa: ARG001
    """Do nothing: VTensor needs no libraries of a graphics card."""
    note("preload_dlls")


def set_seed(seed: int) -> None:  # noqa: ARG001
    """Do nothing: VTensor draws random numbers as the model's own seeds say."""
    note("set_seed")
