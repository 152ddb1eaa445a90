"""A control group whose processes share a quota of processors, like those of a container."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from vtensor.errors import InputError
from vtensor.language.wording import reason
from vtensor.storage.cgroups import MEMBERSHIP, MOUNT, folders

#: The file of a group that says which processes are in it.
PROCESSES = "cgroup.procs"

#: The period of a quota in microseconds: the kernel's default.
PERIOD = 100_000

#: Attempts to remove a group whose processes are ending, and the seconds between two.
TRIES, WAIT_S = 50, 0.02


@dataclass(frozen=True)
class Group:
    """A control group with a quota.

    Attributes:
        folder: the group's folder.
        outside: the folder of the group that this process normally belongs to.
    """

    folder: Path
    outside: Path

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Put this process into the group during the block; processes started there stay in it."""
        _write(self.folder / PROCESSES, os.getpid())
        try:
            yield
        finally:
            _write(self.outside / PROCESSES, os.getpid())


@contextmanager
def limited(
    processors: float, membership: Path = MEMBERSHIP, mount: Path = MOUNT
) -> Iterator[Group]:
    """Yield a control group below this process's own, which is removed at the end.

    Args:
        processors: the number of processors that the group's processes may use together.
        membership, mount: the system's list of groups, and the folder in which they are mounted.

    Raises:
        InputError: this process cannot make a group; the message has the reason.
    """
    if not processors > 0:
        raise InputError(f"--quota {processors:g}: no process runs with that")
    why = "there are no control groups of processors here"
    around = [
        folder for folder in folders("cpu", membership, mount) if (folder[1] / PROCESSES).exists()
    ]
    for version, outside in reversed(around):  # this process's own group first
        group = Group(outside / f"vtensor-quota-{os.getpid()}", outside)
        try:
            group.folder.mkdir()
            _limit(group.folder, version, round(processors * PERIOD))
            with group.inside():
                pass
        except OSError as error:
            why = f"no control group with one can be made in {outside}: {reason(error)}"
            _remove(group.folder)
            continue
        try:
            yield group
        finally:
            _remove(group.folder)
        return
    raise InputError(
        f"--quota {processors:g}: {why}\n  to fix: run it in a container that has a quota "
        f"(--cpus {processors:g}), without --quota"
    )


def _limit(folder: Path, version: int, allowed: int) -> None:
    """Allow a group so many microseconds of processor time in each ``PERIOD``.

    Source: Linux, admin-guide/cgroup-v2 (``cpu.max``), scheduler/sched-bwc.

    Args:
        folder: the group's folder.
        version: the version of control groups, 1 or 2.
        allowed: the microseconds.
    """
    if version == 2:
        _write(folder / "cpu.max", f"{allowed} {PERIOD}")
    else:
        _write(folder / "cpu.cfs_period_us", PERIOD)
        _write(folder / "cpu.cfs_quota_us", allowed)


def _write(file: Path, value: object) -> None:
    with file.open("r+") as opened:  # unlike "w", this mode creates no file
        opened.write(str(value))


def _remove(folder: Path) -> None:
    """Remove a group's folder once its processes have ended, which may take a moment."""
    for _ in range(TRIES):
        with suppress(OSError):
            folder.rmdir()
        if not folder.exists():
            return
        time.sleep(WAIT_S)
