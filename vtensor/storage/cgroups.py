"""The control groups of this process: what a container or a service may use of the machine.

Source: Linux, admin-guide/cgroup-v2, admin-guide/cgroup-v1.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from vtensor.language.interrupts import ignored

#: Which control groups this process is in, and where they are mounted.
MEMBERSHIP, MOUNT = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def folders(controller: str, membership: Path, mount: Path) -> Iterator[tuple[int, Path]]:
    """The folders of the groups around this process that a controller may limit.

    A group has no more than those around it, so all of them count.

    Args:
        controller: ``"cpu"`` or ``"memory"``.
        membership: as ``MEMBERSHIP``.
        mount: as ``MOUNT``.

    Returns:
        The version of the control groups, 1 or 2, and a folder; it may be missing.
    """
    with ignored(OSError):
        for line in membership.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                for root in (mount, mount / "unified"):  # beside version 1 it has its own
                    yield from ((2, folder) for folder in _around(root, path))
            elif controller in controllers.split(","):
                for root in dict.fromkeys((mount / controller, mount / controllers)):
                    yield from ((1, folder) for folder in _around(root, path))


def _around(root: Path, path: str) -> Iterator[Path]:
    """A group's folder and those above it; in a container the inner ones may not be there."""
    parts = [part for part in PurePosixPath(path).parts if part not in ("/", "..")]
    for depth in range(len(parts) + 1):
        yield root.joinpath(*parts[:depth])
