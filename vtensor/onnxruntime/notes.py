"""Notes about options that have no meaning for VTensor: each is logged once in a process."""

from __future__ import annotations

from vtensor.language.process.imported import logger

_log = logger("vtensor.onnxruntime")
_noted: set[str] = set()

#: The level of Python's loggers for each severity of ONNX Runtime: verbose, information, warning,
#: error, fatal.
LEVELS = (10, 20, 30, 40, 50)


def note(option: str) -> None:
    """Log that an option has no effect, unless that was logged before."""
    if option not in _noted:
        _noted.add(option)
        _log.info("%s has no meaning for VTensor and is ignored", option)


def set_severity(severity: int) -> None:
    """Set the level of VTensor's loggers.

    Args:
        severity: 0 for all messages, to 4 for the fewest.

    Raises:
        RuntimeError: the severity is not among 0 to 4.
    """
    if not 0 <= severity < len(LEVELS):
        raise RuntimeError(
            f"Invalid logging severity {severity}. 0:Verbose, 1:Info, 2:Warning, 3:Error, 4:Fatal"
        )
    import logging

    logging.getLogger("vtensor").setLevel(LEVELS[severity])
