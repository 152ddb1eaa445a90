"""Facts about the package as a whole, and functions of ONNX Runtime that say them."""

from __future__ import annotations

from vtensor.onnxruntime.notes import note, set_severity

#: The name of this package.
OWN = "vtensor.onnxruntime"

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


def has_collective_ops() -> bool:
    """Return False: no model runs on several machines."""
    return False


def set_default_logger_severity(severity: int) -> None:
    """Set the least severity of messages that VTensor's loggers pass on.

    Args:
        severity: 0 for all messages, 1 for information, 2 for warnings, 3 for errors, 4 for fatal
            errors.

    Raises:
        RuntimeError: the severity is not among these.
    """
    set_severity(severity)


def set_default_logger_verbosity(verbosity: int) -> None:  # noqa: ARG001
    """Do nothing: VTensor's messages have no verbosity."""
    note("set_default_logger_verbosity")


def disable_telemetry_events() -> None:
    """Do nothing: VTensor sends no events."""


def enable_telemetry_events() -> None:
    """Do nothing: VTensor sends no events."""
    note("enable_telemetry_events")


def preload_dlls(*arguments: object, **options: object) -> None:  # noqa: ARG001
    """Do nothing: VTensor needs no libraries of a graphics card."""
    note("preload_dlls")


def set_seed(seed: int) -> None:  # noqa: ARG001
    """Do nothing: VTensor draws random numbers as the model's own seeds say."""
    note("set_seed")


def print_debug_info() -> None:
    """Print the versions and the providers."""
    from vtensor.onnxruntime.providers import AVAILABLE

    print(f"{get_build_info()}, as onnxruntime {__version__}; providers: {', '.join(AVAILABLE)}")
