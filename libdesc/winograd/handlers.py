"""The handlers of the description. Nothing native is loaded before one of them is called."""

from __future__ import annotations

from libdesc.winograd import native
from vtensor import __version__
from vtensor.errors import LibraryError


def available() -> str | None:
    """None, or why the kernels cannot be used in this process."""
    try:
        native.load_baseline()
    except LibraryError as error:
        return str(error)
    return None


def version() -> str:
    """VTensor's version, whose own the kernels are, and the instruction set that they use."""
    return f"{__version__} on {native.load().level}"


def limit_isa(cap: str) -> None:
    """Cap the instruction set; see ``libdesc/levels.py``."""
    native.limit(cap)
