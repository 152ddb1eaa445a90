"""A program: what instructions decide on a library, under a cap on instruction sets.

``python -m tests.operators.calls.capped CAP LIBRARY [COUNT [SHARE]]`` prints a line for each fault
and, last, how many calls were compared, by kind. At most ``COUNT`` cases of each operator are
drawn, and one in ``SHARE`` of the fused calls with special inputs. Libraries fix their cap at their
first use, so that each cap needs a process.
"""

from __future__ import annotations

import json
import sys
from collections import Counter

from tests.operators.calls import fused, levels, special
from vtensor import limit_isa

#: Caps and libraries under which the ends of float types are compared.
ENDS = {("sse41", "onednn"), ("avx2", "onednn"), ("avx2", "eigen")}
ENDS |= {("max", library) for library in ("onednn", "eigen", "numpy")}


def main(cap: str, library: str, most: str = "1000", share: str = "1") -> None:
    """Print the faults, then the counts as JSON."""
    if cap != "max":
        limit_isa(cap)
    parts = {}
    if library != "numpy":
        parts["cases"] = levels.faults(cap, library, int(most))
    if (cap, library) in ENDS:
        parts["alone"] = special.faults_alone(library)
        parts["behind"] = special.faults_behind(library)
        parts["rows"] = special.faults_in_rows(library)
    if library == "onednn":
        parts["fused"] = fused.faults(int(share))
    counts = Counter[str]()
    for kind, faults in parts.items():
        for fault in faults:
            counts[kind] += 1
            print(f"{fault}\n" if fault else "", end="")
    print(json.dumps(counts))


if __name__ == "__main__":
    main(*sys.argv[1:])
