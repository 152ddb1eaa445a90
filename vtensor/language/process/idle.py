"""Shutdown of NumPy's BLAS threads, which keep processors busy without work at the start of a
process.

When NumPy is imported, OpenBLAS starts a thread for each processor but one. Each of them spins
(waits in a busy loop) for about 0.1 s before it sleeps, which is longer than VTensor's imports
take. NumPy's next matrix product starts the
threads again. OpenBLAS itself shuts them down in the same way whenever a process forks.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from pathlib import Path

from vtensor.language.process.interrupts import ignored

#: Names of the OpenBLAS function that returns the number of threads: with and without the prefix
#: and suffix that NumPy's wheels add.
_THREAD_COUNT_NAMES = (
    "scipy_openblas_get_num_threads64_",
    "scipy_openblas_get_num_threads",
    "openblas_get_num_threads64_",
    "openblas_get_num_threads",
)


def stop_blas_threads() -> None:
    """Shut down NumPy's BLAS threads, once in a process, if no thread can be in a BLAS call."""
    core = sys.modules.get("numpy._core._multiarray_umath")
    if (file := getattr(core, "__file__", None)) is not None:
        _stop_threads_of(file)


@cache
def _stop_threads_of(file: str) -> None:
    """Shut down the threads of the OpenBLAS that ``file`` is linked to.

    Nothing is done if the process has any other thread besides these and the calling one, since
    that thread could be inside a BLAS call.

    Args:
        file: the path of an extension module.
    """
    with ignored(OSError, AttributeError, ValueError):  # another BLAS, or no list of threads
        library = ctypes.CDLL(file)
        counts = [getattr(library, name) for name in _THREAD_COUNT_NAMES if hasattr(library, name)]
        threads = sum(1 for _ in Path("/proc/self/task").iterdir())
        running = ctypes.c_int.in_dll(library, "blas_server_avail")  # as in ``ptensor/blas.py``
        if running.value and [threads] == [count() for count in counts[:1]]:
            library.blas_thread_shutdown_()
