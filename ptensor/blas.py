"""NumPy's products on one thread, where the threads of runs have the processors.

OpenBLAS's threads spin for tens of milliseconds once they have worked. A run that begins meanwhile
waits for processors, in each of its parallel loops.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache
from typing import TypeVar

from vtensor.language.forks import process_lock
from vtensor.language.interrupts import pass_signals

T = TypeVar("T")

#: Sets the number of threads, and gives what it was.
Setter = Callable[[int], int]

#: Whoever sets the number has it until it is as before, also where a process forks meanwhile.
_setting = process_lock(0)


def on_one_thread(work: Callable[[], T]) -> T:
    """Run ``work``, in which NumPy's products take one thread, if it has them from OpenBLAS, and
    return its result.

    So do others', in any thread of the process: the work should be short.
    """
    setter = _setter()
    if setter is None:
        return work()
    before = list[int]()
    with _setting:
        try:
            before.extend(map(setter, (1,)))  # recorded in the same call: see ``forks.locked``
            return work()
        finally:
            for number in before:
                setter(number)


@cache
def _setter() -> Setter | None:
    """OpenBLAS's own; None where NumPy has another library, or an old one.

    It first makes threads where there are none, and those spin, too: then the number is set itself.
    """
    core = sys.modules.get("numpy._core._multiarray_umath")
    try:
        library = ctypes.CDLL(getattr(core, "__file__", ""))
        found: Setter = library.openblas_set_num_threads_local
    except (OSError, AttributeError) as error:
        pass_signals(error)
        return None
    try:
        there = ctypes.c_int.in_dll(library, "blas_server_avail")
        number = ctypes.c_int.in_dll(library, "blas_cpu_number")
    except ValueError:  # it does not show them
        return found

    def setter(wanted: int) -> int:
        if there.value:
            return found(wanted)
        before, number.value = number.value, wanted
        return before

    return setter
