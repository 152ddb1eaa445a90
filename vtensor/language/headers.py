"""Where the C header lies that steps of other distributions are built against."""

from __future__ import annotations

from pathlib import Path

from vtensor.errors import LibraryError


def get_include() -> str:
    """The folder that a compiler needs after ``-I`` for ``#include "vtensor/step.h"``.

    Raises:
        LibraryError: VTensor is not installed, only its sources are there.

    >>> (Path(get_include()) / "vtensor" / "step.h").is_file()
    True
    """
    import vtensor  # an editable install has two folders: the sources', and that of what was built

    for folder in vtensor.__path__:
        include = Path(folder) / "include"
        if (include / "vtensor" / "step.h").is_file():
            return str(include)
    raise LibraryError(f"vtensor/step.h is not installed beside {vtensor.__path__[-1]}")
