"""Notes about options that have no meaning for VTensor: each is logged once in a process."""

from __future__ import annotations

from vtensor.language.process.imported import logger

_log = logger("vtensor.onnxruntime")
_noted: set[str] = set()


def note(option: str) -> None:
    """Log that an option has no effect, unless that was logged before."""
    if option not in _noted:
        _noted.add(option)
        _log.info("%s has no meaning for VTensor and is ignored", option)
