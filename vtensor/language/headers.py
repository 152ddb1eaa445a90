"""The folder of the C header ``vtensor/step.h``, for libraries of other distributions."""

from __future__ import annotations

from pathlib import Path

from vtensor.errors import LibraryError


def get_include() -> str:
    """Return the folder that a compiler needs after ``-I`` for ``#include "vtensor/step.h"``.

    Raises:
        LibraryError: the header is missing, since VTensor runs from its sources, not installed.

    >>> (Path(get_include()) / "vtensor" / "step.h").is_file()
    True
    """
    import vtensor  # an editable install has two folders: of the sources and of the build

    for folder in vtensor.__path__:
        include = Path(folder) / "include"
        if (include / "vtensor" / "step.h").is_file():
            return str(include)
    raise LibraryError(f"vtensor/step.h is not installed in {vtensor.__path__[-1]}")
