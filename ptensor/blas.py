"""NumPy's matrix products on one thread, so that the processors stay free for the threads of runs.

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

#: A function that sets the number of OpenBLAS's threads and returns the number before.
Setter = Callable[[int], int]

#: Lock that is held from a change of the number of threads until the change is undone. Forks wait
#: for it, so that no child process begins with the changed number.
_thread_count_lock = process_lock(0)


def on_one_thread(work: Callable[[], T]) -> T:
    """Run ``work`` and return its result; NumPy's matrix products run on one thread meanwhile.

    Products in other threads of the process are limited, too: the work should be short. If NumPy
    does not use OpenBLAS, nothing is limited.
    """
    setter = _setter()
    if setter is None:
        return work()
    before = list[int]()
    with _thread_count_lock:
        try:
            # one call sets and records the number: no exception can come between the two
            before.extend(map(setter, (1,)))
            return work()
        finally:
            for number in before:
                setter(number)


@cache
def _setter() -> Setter | None:
    """Return a function that sets the number of OpenBLAS's threads and returns the number before.

    None if NumPy uses another library or an old OpenBLAS. OpenBLAS's own function would start
    OpenBLAS's threads, which then spin. As long as no such thread has started, the returned
    function writes the number into OpenBLAS's variable instead.
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
