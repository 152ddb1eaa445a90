"""The control groups of this process, which limit the resources of a container or a service.

Source: Linux, admin-guide/cgroup-v2, admin-guide/cgroup-v1.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from vtensor.language.process.interrupts import ignored

#: The file that lists the control groups of this process, and the folder where groups are mounted.
MEMBERSHIP, MOUNT = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def folders(controller: str, membership: Path, mount: Path) -> Iterator[tuple[int, Path]]:
    """Yield the folders of the control groups that contain this process.

    The limit of a group holds also for the groups inside it, so the folders of all outer groups are
    yielded, too.

    Args:
        controller: the kind of resource, ``"cpu"`` or ``"memory"``.
        membership: ``MEMBERSHIP``, or a file in the same format.
        mount: ``MOUNT``, or a folder of the same structure.

    Yields:
        The version of the control groups, 1 or 2, and a folder, which may not exist.
    """
    with ignored(OSError):
        for line in membership.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                for root in (mount, mount / "unified"):  # the latter where version 1 is in use, too
                    yield from ((2, folder) for folder in _around(root, path))
            elif controller in controllers.split(","):
                for root in dict.fromkeys((mount / controller, mount / controllers)):
                    yield from ((1, folder) for folder in _around(root, path))


def _around(root: Path, path: str) -> Iterator[Path]:
    """Yield ``root``, then each folder from it down to that of the control group ``path``,
    inclusive.

    In a container, the inner folders may not exist.
    """
    parts = [part for part in PurePosixPath(path).parts if part not in ("/", "..")]
    for depth in range(len(parts) + 1):
        yield root.joinpath(*parts[:depth])
