"""NumPy's threads, which work for nothing at the start of a process.

OpenBLAS makes one for each further processor when NumPy is imported, and each spins for about 0.1 s
before it sleeps: longer than all that VTensor imports. The next product makes them anew. OpenBLAS
itself ends them so whenever a process forks.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from pathlib import Path

from vtensor.language.interrupts import ignored

#: What OpenBLAS calls its number of threads, with and without what wheels put around names.
_COUNTS = (
    "scipy_openblas_get_num_threads64_",
    "scipy_openblas_get_num_threads",
    "openblas_get_num_threads64_",
    "openblas_get_num_threads",
)


def rest() -> None:
    """End the threads of NumPy's products, once, where nobody can be in the midst of one."""
    core = sys.modules.get("numpy._core._multiarray_umath")
    if (file := getattr(core, "__file__", None)) is not None:
        _rest(file)


@cache
def _rest(file: str) -> None:
    """Nobody can be where this thread and those are all that the process has."""
    with ignored(OSError, AttributeError, ValueError):  # another library, no list of threads
        library = ctypes.CDLL(file)
        counts = [getattr(library, name) for name in _COUNTS if hasattr(library, name)]
        threads = sum(1 for _ in Path("/proc/self/task").iterdir())
        there = ctypes.c_int.in_dll(library, "blas_server_avail")  # as in ``ptensor/blas.py``
        if there.value and [threads] == [count() for count in counts[:1]]:
            library.blas_thread_shutdown_()
