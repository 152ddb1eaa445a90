"""Data of tensors in files beside a model: which files may be read, and how.

A model names its files, so it must not reach files that its sender could not read: a file lies
inside a root, links followed, and is opened such that nothing that changes meanwhile leads outside.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ptensor.pages import mapped
from vtensor.errors import ModelError
from vtensor.wording import reason

Bytes = NDArray[np.uint8]

#: Neither a link instead of what was checked, nor a wait for the other end of a pipe.
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True)
class DataFiles:
    """Where a model's files may be.

    Args:
        folder: the model's; files are named relative to it.
        root: what files must lie in; None is the folder, and then files with several names (hard
            links) are refused as ONNX does: an archive can hold a second name of anybody's file.
    """

    folder: Path
    root: Path | None = None
    #: By path without links: each mapping keeps a descriptor, of which a process has few.
    _mappings: dict[Path, Bytes] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def read(self, location: str, offset: int, nbytes: int) -> Bytes:
        """Bytes of a file, which is mapped once.

        Raises:
            ModelError: there is no such file here, it is no plain file, or it is shorter.
        """
        data = self._file(location)
        if offset < 0 or data.size - offset < nbytes:
            available = max(data.size - offset, 0)
            raise ModelError(
                f"{nbytes} bytes are needed, and {location!r} has {available} from byte {offset} on"
            )
        return data[offset : offset + nbytes]

    def _file(self, location: str) -> Bytes:
        top = (self.root or self.folder).resolve()
        path = (self.folder / location).resolve() if location and "\0" not in location else top
        if Path(location).is_absolute() or not path.is_relative_to(top) or path == top:
            where = f"inside {str(self.root)!r}" if self.root else "inside the model's folder"
            raise ModelError(
                f"external data {location!r} is not {where}; if it may be read, give a folder that "
                "holds it as external_data_root= (--external-data-root on the command line)"
            )
        try:
            if path not in self._mappings:
                with _opened(top, path.relative_to(top).parts) as descriptor:
                    self._check(facts := os.fstat(descriptor), location)
                    self._mappings[path] = mapped(descriptor, facts.st_size)
            return self._mappings[path]
        except FileNotFoundError:
            raise ModelError(f"external data file {location!r} is missing") from None
        except OSError as error:
            raise ModelError(
                f"external data file {location!r} cannot be read: {reason(error)}"
            ) from error

    def _check(self, facts: os.stat_result, location: str) -> None:
        if not stat.S_ISREG(facts.st_mode):
            raise ModelError(f"external data {location!r} is no plain file")
        if self.root is None and facts.st_nlink > 1:
            raise ModelError(
                f"external data file {location!r} has {facts.st_nlink} names (hard links); copy "
                "it, or give external_data_root= (--external-data-root on the command line)"
            )


@contextmanager
def _opened(top: Path, parts: tuple[str, ...]) -> Iterator[int]:
    """The descriptor of a file below a folder, no link followed on the way."""
    descriptor = os.open(top, _FLAGS | os.O_DIRECTORY)
    try:
        for part in parts:
            inner = os.open(part, _FLAGS, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)
