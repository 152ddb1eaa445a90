"""The handlers of the library's description. Importing them loads nothing native."""

from __future__ import annotations

from libdesc.narrow import native
from vtensor import __version__
from vtensor.errors import LibraryError


def available() -> str | None:
    """Return None if the kernels can be used in this process, else the reason why not."""
    try:
        native.load_baseline()
    except LibraryError as error:
        return str(error)
    return None


def version() -> str:
    """Return VTensor's version, of which the kernels are a part, and their instructions."""
    return f"{__version__} on {native.instructions()}"


def limit_isa(cap: str) -> None:
    """Cap the instructions; see ``native.limit``."""
    native.limit(cap)
