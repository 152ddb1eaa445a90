"""The folder of a user's cache."""

from __future__ import annotations

import os
from pathlib import Path

#: Environment variable that names the cache's folder, in place of the default one.
DIRECTORY_VARIABLE = "VTENSOR_CACHE_DIR"


def cache_folder() -> Path:
    """Return the cache's folder: ``VTENSOR_CACHE_DIR``, else ``vtensor`` in the user's cache.

    Source: XDG Base Directory Specification, 0.8: a relative path there is ignored.
    """
    if folder := os.environ.get(DIRECTORY_VARIABLE):
        return Path(folder)
    user_cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (user_cache if user_cache.is_absolute() else Path.home() / ".cache") / "vtensor"
