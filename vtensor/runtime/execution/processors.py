"""Which processor this is, and how many of it this process may use: the machine's, less what
affinity and quotas forbid.
"""

from __future__ import annotations

import math
import os
from functools import cache
from pathlib import Path
from typing import NamedTuple

from vtensor.language.interrupts import pass_signals
from vtensor.storage.cgroups import MEMBERSHIP, MOUNT, folders

#: Where a group's quota stands, by version.
_FILES = {1: ("cpu.cfs_quota_us", "cpu.cfs_period_us"), 2: ("cpu.max",)}


class Quota(NamedTuple):
    """What the control groups of this process leave it.

    Attributes:
        processors: that it may use in each period; infinity without a quota.
        period_us: the period, in microseconds.
    """

    processors: float
    period_us: int


#: None, with the kernel's own period.
NO_QUOTA = Quota(math.inf, 100_000)


def available_threads() -> int:
    """How many threads can run at once: a container with 1.5 processors takes two."""
    return min(_processors(), max(1, math.ceil(min(1 << 30, quota().processors))))


def binding_quota() -> Quota:
    """The quota, where it is less than the processors that there are."""
    found = quota()
    return found if found.processors < _processors() else NO_QUOTA


def quota(membership: Path = MEMBERSHIP, mount: Path = MOUNT) -> Quota:
    """The least quota of the control groups around this process.

    Source: Linux, admin-guide/cgroup-v2 (``cpu.max``), scheduler/sched-bwc
    (``cpu.cfs_quota_us``).
    """
    found = folders("cpu", membership, mount)
    quotas = (_quota(*(folder / name for name in _FILES[version])) for version, folder in found)
    return min(quotas, default=NO_QUOTA)


def _processors() -> int:
    """Those that this process may be on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _quota(*files: Path) -> Quota:
    """Of one group; none where it has none, or no such file."""
    try:
        allowed, period = map(int, " ".join(file.read_text() for file in files).split())
    except (OSError, ValueError) as error:  # "max 100000" among them
        pass_signals(error)
        return NO_QUOTA
    return Quota(allowed / period, period) if allowed > 0 and period > 0 else NO_QUOTA


@cache
def processor() -> str:
    """The processor's name, as the system has it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError as error:
        pass_signals(error)
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    if name := next(names, ""):
        return name
    import platform

    return platform.processor() or platform.machine()
