"""Which processor this is, and how many of it this process may use: the machine's, less what
affinity and quotas forbid.
"""

from __future__ import annotations

import math
import os
from functools import cache
from pathlib import Path

from vtensor.runtime.cgroups import MEMBERSHIP, MOUNT, folders

#: Where a group's quota stands, by version.
_FILES = {1: ("cpu.cfs_quota_us", "cpu.cfs_period_us"), 2: ("cpu.max",)}


def available_threads() -> int:
    """How many threads can run at once: a container with 1.5 processors takes two."""
    if hasattr(os, "sched_getaffinity"):
        processors = len(os.sched_getaffinity(0))
    else:
        processors = os.cpu_count() or 1
    return min(processors, quota())


def quota(membership: Path = MEMBERSHIP, mount: Path = MOUNT) -> int:
    """The processors that the control groups of this process leave it, rounded up; at least 1.

    Without a quota, more than any machine has.

    Source: Linux, admin-guide/cgroup-v2 (``cpu.max``), scheduler/sched-bwc
    (``cpu.cfs_quota_us``).
    """
    found = folders("cpu", membership, mount)
    quotas = (_share(*(folder / name for name in _FILES[version])) for version, folder in found)
    return max(1, math.ceil(min(1 << 30, *quotas, math.inf)))


def _share(*files: Path) -> float:
    """Microseconds allowed in each period; no limit where there is none, or no such file."""
    try:
        allowed, period = map(int, " ".join(file.read_text() for file in files).split())
    except (OSError, ValueError):  # "max 100000" among them
        return math.inf
    return allowed / period if allowed > 0 and period > 0 else math.inf


@cache
def processor() -> str:
    """The processor's name, as the system has it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    if name := next(names, ""):
        return name
    import platform

    return platform.processor() or platform.machine()
