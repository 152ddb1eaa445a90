"""The folder of a user's cache on disk."""

from __future__ import annotations

import os
from pathlib import Path

#: Environment variable that names the cache's folder, in place of the default one.
DIRECTORY_VARIABLE = "VTENSOR_CACHE_DIR"


def cache_folder() -> Path:
    """Return the folder that the variable ``VTENSOR_CACHE_DIR`` names.

    Without the variable: ``vtensor`` in ``XDG_CACHE_HOME``, by default in ``~/.cache``.

    Source: XDG Base Directory Specification, 0.8: a relative ``XDG_CACHE_HOME`` is ignored.
    """
    if folder := os.environ.get(DIRECTORY_VARIABLE):
        return Path(folder)
    user_cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (user_cache if user_cache.is_absolute() else Path.home() / ".cache") / "vtensor"
