"""NumPy's products on one thread, while the threads of runs have the processors.

OpenBLAS's threads keep spinning for a while after they have worked. A run that begins meanwhile
waits for processors in each of its parallel loops.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache
from typing import TypeVar

from vtensor.language.process.forks import process_lock
from vtensor.language.process.interrupts import pass_signals

T = TypeVar("T")

#: Sets the number of OpenBLAS's threads and returns the number before.
Setter = Callable[[int], int]

#: Held while the number of threads is changed, also if the process forks meanwhile.
_thread_count_lock = process_lock(0)


def on_one_thread(work: Callable[[], T]) -> T:
    """Run ``work`` with NumPy's products on one thread, if NumPy uses OpenBLAS, and return its
    result.

    Products of other threads of the process then run on one thread, too: the work should be short.
    """
    setter = _setter()
    if setter is None:
        return work()
    before = list[int]()
    with _thread_count_lock:
        try:
            before.extend(map(setter, (1,)))  # recorded in the same call: see ``forks.locked``
            return work()
        finally:
            for number in before:
                setter(number)


@cache
def _setter() -> Setter | None:
    """Return OpenBLAS's function that sets the number of threads, or None.

    None if NumPy uses another library or an old OpenBLAS. The function would start OpenBLAS's
    threads, which spin, if there are none yet; then the number itself is written instead.
    """
    core = sys.modules.get("numpy._core._multiarray_umath")
    try:
        library = ctypes.CDLL(getattr(core, "__file__", ""))
        set_num_threads: Setter = library.openblas_set_num_threads_local
    except (OSError, AttributeError) as error:
        pass_signals(error)
        return None
    try:
        are_threads_started = ctypes.c_int.in_dll(library, "blas_server_avail")
        number = ctypes.c_int.in_dll(library, "blas_cpu_number")
    except ValueError:  # the library does not export them
        return set_num_threads

    def setter(wanted: int) -> int:
        if are_threads_started.value:
            return set_num_threads(wanted)
        before, number.value = number.value, wanted
        return before

    return setter
