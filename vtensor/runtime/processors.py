"""How many processors this process may use: the machine's, less what affinity and quotas forbid."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath

#: Which control groups this process is in, and where they are mounted.
MEMBERSHIP, MOUNT = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def available_threads() -> int:
    """How many threads can run at once: a container with 1.5 processors takes two."""
    if hasattr(os, "sched_getaffinity"):
        processors = len(os.sched_getaffinity(0))
    else:
        processors = os.cpu_count() or 1
    return min(processors, quota())


def quota(membership: Path = MEMBERSHIP, mount: Path = MOUNT) -> int:
    """The processors that the control groups of this process leave it, rounded up; at least 1.

    A group has no more than those around it. Without a quota, more than any machine has.

    Source: Linux, admin-guide/cgroup-v2 (``cpu.max``), scheduler/sched-bwc
    (``cpu.cfs_quota_us``).
    """
    least = min(_quotas(membership, mount), default=math.inf)
    return max(1, math.ceil(min(least, 1 << 30)))


def _quotas(membership: Path, mount: Path) -> Iterator[float]:
    """The quota of each group around this process, in processors."""
    with suppress(OSError):
        for line in membership.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                yield from map(_of_version_2, _folders(mount, path))
            elif "cpu" in controllers.split(","):
                yield from map(_of_version_1, _folders(mount / "cpu", path))


def _folders(mount: Path, path: str) -> Iterator[Path]:
    """A group's folder and those above it; in a container the inner ones may not be there."""
    parts = [part for part in PurePosixPath(path).parts if part not in ("/", "..")]
    for depth in range(len(parts) + 1):
        yield mount.joinpath(*parts[:depth])


def _of_version_2(folder: Path) -> float:
    return _share(folder / "cpu.max")


def _of_version_1(folder: Path) -> float:
    return _share(folder / "cpu.cfs_quota_us", folder / "cpu.cfs_period_us")


def _share(*files: Path) -> float:
    """Microseconds allowed in each period; no limit where there is none, or no such file."""
    try:
        allowed, period = map(int, " ".join(file.read_text() for file in files).split())
    except (OSError, ValueError):  # "max 100000" among them
        return math.inf
    return allowed / period if allowed > 0 and period > 0 else math.inf
