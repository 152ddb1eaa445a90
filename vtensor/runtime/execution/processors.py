"""The name of the processor, and the number of kernel threads that this process may use.

That number is the number of the machine's processors, limited by the process's CPU affinity and CPU
quotas.
"""

from __future__ import annotations

import math
import os
from functools import cache
from pathlib import Path
from typing import NamedTuple

from vtensor.language.process.interrupts import pass_signals
from vtensor.storage.cgroups import MEMBERSHIP, MOUNT, folders

#: The names of the files with a control group's CPU quota, by version of control groups.
_FILES = {1: ("cpu.cfs_quota_us", "cpu.cfs_period_us"), 2: ("cpu.max",)}


class Quota(NamedTuple):
    """The CPU quota of the process's control groups.

    Attributes:
        processors: CPU time per period divided by the period; infinity without a quota.
        period_us: the period, in microseconds.
    """

    processors: float
    period_us: int


#: The value if there is no quota; its period is the kernel's default.
NO_QUOTA = Quota(math.inf, 100_000)


def available_threads() -> int:
    """Return how many threads can run at once; a quota of 1.5 processors gives 2."""
    return min(_processors(), max(1, math.ceil(min(1 << 30, quota().processors))))


def binding_quota() -> Quota:
    """Return the process's CPU quota if it allows less than the available processors, else
    ``NO_QUOTA``.
    """
    quota_now = quota()
    return quota_now if quota_now.processors < _processors() else NO_QUOTA


def quota(membership: Path = MEMBERSHIP, mount: Path = MOUNT) -> Quota:
    """Return the CPU quota of this process: the smallest one of the control groups that contain it.

    Source: Linux, admin-guide/cgroup-v2 (``cpu.max``), scheduler/sched-bwc (``cpu.cfs_quota_us``).

    Args:
        membership: the file that lists the process's control groups.
        mount: the folder in which control groups are mounted.
    """
    group_folders = folders("cpu", membership, mount)
    quotas = (
        _quota(*(folder / name for name in _FILES[version])) for version, folder in group_folders
    )
    return min(quotas, default=NO_QUOTA)


def _processors() -> int:
    """Return the number of processors in the process's CPU affinity."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _quota(*files: Path) -> Quota:
    """Return the CPU quota of one control group.

    Returns ``NO_QUOTA`` if the group sets no quota or a file is missing.

    Args:
        files: the files that hold the quota and the period, in this order; one may hold both.
    """
    try:
        allowed, period = map(int, " ".join(file.read_text() for file in files).split())
    except (OSError, ValueError) as error:  # a group without a quota has "max 100000"
        pass_signals(error)
        return NO_QUOTA
    return Quota(allowed / period, period) if allowed > 0 and period > 0 else NO_QUOTA


@cache
def processor() -> str:
    """Return the processor's name as the system reports it."""
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
