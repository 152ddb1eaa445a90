"""A program that runs native kernels on memory that ends, or begins, at an unmapped page.

It is a process of its own since an overrun ends the process, and since libraries fix their cap at
their first use: ``python -m tests.native.guarded KIND CAP [SEED COUNT]``. KIND is one of ``KINDS``;
only the random ones take a seed and a count. It prints a line for each fault and, last, how many
kernels of each name ran, as JSON; the exit status is the number of faults.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections import Counter

#: By kind of kernels, the module whose ``cases(kind, cap, seed, count)`` runs them: for each kernel
#: it yields a name and the faults.
KINDS = {
    "bounds": "tests.native.guarded.bounds",
    "kept code": "tests.native.guarded.kept_code",
    "onednn": "tests.native.guarded.onednn",
    "eigen": "tests.native.guarded.eigen",
    **dict.fromkeys(("winograd", "depthwise", "direct"), "tests.native.guarded.convolutions"),
    "narrow": "tests.native.guarded.narrow",
    "blocks": "tests.native.guarded.blockwise",
}


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
