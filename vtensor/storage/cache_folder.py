"""Where a user's cache is."""

from __future__ import annotations

import os
from pathlib import Path

#: The folder of the cache, before the user's own.
DIRECTORY_VARIABLE = "VTENSOR_CACHE_DIR"


def cache_folder() -> Path:
    """``VTENSOR_CACHE_DIR``, else ``vtensor`` in the user's cache.

    Source: XDG Base Directory Specification, 0.8: a relative path there is ignored.
    """
    if chosen := os.environ.get(DIRECTORY_VARIABLE):
        return Path(chosen)
    users = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (users if users.is_absolute() else Path.home() / ".cache") / "vtensor"
