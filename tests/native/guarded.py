"""Memory that ends, or begins, at an unmapped page; and a program that runs native kernels.

It is a process of its own since an overrun ends the process, and since libraries fix their cap at
their first use: ``python -m tests.native.guarded KIND CAP [SEED COUNT]``. KIND is one of ``KINDS``;
only the random ones take a seed and a count. It prints a line for each fault and, last, how many
kernels of each name ran, as JSON; the exit status is the number of faults.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import mmap
import sys
from collections import Counter

import numpy as np

from tests.native.packing import Array

#: By kind of kernels, the module whose ``cases(kind, cap, seed, count)`` runs them: for each kernel
#: it yields a name and the faults.
KINDS = {
    "bounds": "tests.native.bounds",
    "kept code": "tests.native.kept_code",
    "onednn": "tests.native.guarded_onednn",
    "eigen": "tests.native.guarded_eigen",
    **dict.fromkeys(("winograd", "depthwise", "direct"), "tests.native.guarded_convolutions"),
}
PAGE = mmap.PAGESIZE
#: Alignment of scratch memory, in bytes.
LINE = 64

libc = ctypes.CDLL(None, use_errno=True)


def guarded(values: Array, behind: bool = True) -> Array:
    """Copy bytes to memory that ends at an unmapped page, or begins at one if not ``behind``."""
    pages = -(-values.nbytes // PAGE)
    room = mmap.mmap(-1, (pages + 1) * PAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(room))
    if libc.mprotect(ctypes.c_void_p(address + pages * PAGE * behind), PAGE, 0) != 0:
        raise OSError(ctypes.get_errno(), "mprotect")
    begin = pages * PAGE - values.nbytes if behind else PAGE
    copy = np.frombuffer(room, np.uint8, values.nbytes, begin)
    copy[:] = values
    return copy


def filled(size: int, behind: bool = True) -> Array:
    """Return guarded memory of so many bytes, all of whose bits are set."""
    return guarded(np.full(size, 0xFF, np.uint8), behind)


def main(kind: str, cap: str, seed: str = "1", count: str = "0") -> int:
    """Run the kernels of a kind, print what is wrong, and return the number of faults."""
    ran: Counter[str] = Counter()
    total = 0
    cases = importlib.import_module(KINDS[kind]).cases
    for name, faults in cases(kind, cap, int(seed), int(count)):
        ran[name] += 1
        for fault in faults:
            total += 1
            print(fault)
    print(json.dumps(ran))
    return total


if __name__ == "__main__":
    sys.exit(min(main(*sys.argv[1:]), 99))
