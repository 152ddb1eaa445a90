"""External data of tensors: which files may be read, and how.

A model names its files, and it may come from a stranger, so it must not reach other files of the
user. A file must be inside a root folder after links are followed. It is opened in such a way that
no later change of a link leads outside.

Data is read into memory of the process, not mapped. A write to a mapped file would change the
weights of a session in use, and a truncated file would end the process (SIGBUS). If data is read
again later, it comes from the file that was opened first. If that file was written to in the
meantime, an error is raised.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from weakref import WeakValueDictionary

from optimizer.constants.originals import Original
from ptensor.pages import lasting
from vtensor.errors import BudgetError, ModelError
from vtensor.language.cached import cached_property
from vtensor.language.process.interrupts import pass_signals
from vtensor.language.records import dataclass
from vtensor.language.wording import reason
from vtensor.storage.budget import REMEDY
from vtensor.storage.open_file import Bytes, Data, OpenFile, State, settled

#: Largest number of a model's files that stay open; a process may have only some hundred open
#: files.
MAX_OPEN_FILES = 8

#: Flags of ``os.open``: fail if a link has replaced the path that was checked; do not wait for the
#: other end of a pipe.
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(eq=False)
class DataFiles:
    """The files of a model's external data.

    Args:
        folder: folder of the model's path; files are named relative to it.
        root: the folder that files must be in after links are followed; None allows ``folder`` and
            ``real``.
        max_bytes: limit of the data of all files, in bytes; None is no limit.
        real: if the model's path is a link, the folder of the file that it leads to; a file that is
            not in ``folder`` is looked up there. None if this is ``folder`` itself.
    """

    folder: Path
    root: Path | None = None
    max_bytes: int | None = None
    real: Path | None = None
    #: Path with links resolved, by location; cached, since a model's tensors name few files many
    #: times.
    _paths: dict[str, Path] = field(default_factory=dict, init=False, repr=False)
    #: State of each file when it was first opened, by path with links resolved. If the file has
    #: another state later, an error is raised.
    _states: dict[Path, State] = field(default_factory=dict, init=False, repr=False)
    #: Bytes that were read, by path, offset and length: tensors with the same bytes share memory.
    _parts: WeakValueDictionary[tuple[Path, int, int], Bytes] = field(
        default_factory=WeakValueDictionary, init=False, repr=False
    )
    #: Deferred arrays by place of their bytes, type and shape: tensors that agree in these share
    #: one.
    shared: dict[Hashable, Original] = field(default_factory=dict, init=False, repr=False)
    #: Files that stay open, by path.
    _files: dict[Path, OpenFile] = field(default_factory=dict, init=False, repr=False)
    _taken: int = field(default=0, init=False)
    #: Places (location, offset, bytes) of the arrays that were read immediately, not deferred.
    at_once: dict[tuple[str, int, int], None] = field(default_factory=dict, init=False, repr=False)

    def read(self, location: str, offset: int, nbytes: int) -> Bytes:
        """Return bytes of a file in read-only memory; equal calls share one copy while it is in
        use.

        Args:
            location: the file, as the model names it.
            offset: offset of the first byte.
            nbytes: number of bytes.

        Raises:
            ModelError: the file is not there, is no plain file or too short, or was changed since
                it was first opened.
            BudgetError: with these bytes, the data read so far would exceed ``max_bytes``.
        """
        place = self._located(location), offset, nbytes
        self.at_once[location, offset, nbytes] = None
        part = self._parts.get(place)
        if part is None:
            with self._at(location, *place) as file:
                part = lasting(nbytes)
                whole = file.fill(offset, part)
                if not whole or file.changed:
                    raise _changed(location)
            self._taken += nbytes
            part.flags.writeable = False
            self._parts[place] = part
        return part

    def look(self, location: str, offset: int, nbytes: int) -> Bytes:
        """Return bytes as ``read`` does, without counting them for ``max_bytes``.

        It is for a caller that does not keep the bytes.
        """
        before = self._taken
        try:
            return self.read(location, offset, nbytes)
        finally:
            self._taken = before

    def later(self, location: str, offset: int, nbytes: int) -> Data | None:
        """Return bytes of a file as ``Data`` that reads them on demand; None if too many files are
        open.

        The arguments are those of ``read``.

        Raises:
            ModelError: the file is not there, is no plain file or too short, or was changed.
            BudgetError: with these bytes, all data would exceed ``max_bytes``.
        """
        path = self._located(location)
        with self._at(location, path, offset, nbytes):
            file = self._files.get(path)
        if file is None:
            return None
        self._taken += nbytes
        return Data(None, nbytes, file.stretch(offset, nbytes))

    def _located(self, location: str) -> Path:
        """Return the path of the file that the model names ``location``, with links resolved.

        The result is cached.
        """
        if (path := self._paths.get(location)) is None:
            path = self._paths[location] = self._path(location)
        return path

    @contextmanager
    def _at(self, location: str, path: Path, offset: int, nbytes: int) -> Iterator[OpenFile]:
        """Yield an open file that has certain bytes, for which there is room within ``max_bytes``.

        Args:
            location: the file, as the model names it.
            path: its path without links.
            offset, nbytes: offset of the first byte, and number of bytes.

        Raises:
            ModelError: there is no such file, or it is too short, changed or unreadable.
            BudgetError: with these bytes, all data would exceed ``max_bytes``.
        """
        try:
            with self._file(location, path) as file:
                self._check_room(file, location, offset, nbytes)
                yield file
        except FileNotFoundError:
            raise ModelError(f"external data file {location!r} is missing") from None
        except OSError as error:
            pass_signals(error)
            raise ModelError(
                f"external data file {location!r} cannot be read: {reason(error)}"
            ) from error

    @cached_property
    def _tops(self) -> list[Path]:
        """The folders that files of external data may be in, with links resolved."""
        folders = [self.root] if self.root else [self.folder, self.real or self.folder]
        return [folder.resolve() for folder in folders]

    def _top(self, path: Path) -> Path:
        """Return the folder of ``_tops`` (the folders that files may be in) that contains a
        file.
        """
        return next(top for top in self._tops if path.is_relative_to(top))

    def _path(self, location: str) -> Path:
        """Return the path of the file that the model names ``location``, with all links resolved.

        Raises:
            ModelError: the location is no relative path, or leads out of the folders in ``_tops``.
        """
        if location and "\0" not in location and not Path(location).is_absolute():
            path = (self.folder / location).resolve()
            if self.real is not None and not path.exists():
                path = (self.real / location).resolve()
            if any(path.is_relative_to(top) and path != top for top in self._tops):
                return path
        where = f"inside {str(self.root)!r}" if self.root else "inside the model's folder"
        raise ModelError(
            f"external data {location!r} is not {where}; if it may be read, give a folder that "
            "holds it as external_data_root= (--external-data-root on the command line)"
        )

    @contextmanager
    def _file(self, location: str, path: Path) -> Iterator[OpenFile]:
        """Yield the open file at a path; it must be the one that was first opened there, unchanged.

        Raises:
            ModelError: it is no plain file; or it is not the file that was first opened at this
                path; or it was changed since then.
        """
        top = self._top(path)
        with _opened(top, path.relative_to(top).parts) as descriptor:
            facts = os.fstat(descriptor)
            if not stat.S_ISREG(facts.st_mode):
                raise ModelError(f"external data {location!r} is no plain file")
            if (file := self._files.get(path)) is None:
                if path not in self._states:
                    facts = settled(descriptor)
                state = State.of(facts)
                if state != self._states.setdefault(path, state):
                    raise _changed(location)
                file = OpenFile(descriptor, facts, f"external data file {location!r}")
                if len(self._files) < MAX_OPEN_FILES:
                    self._files[path] = file
            elif not file.is_same(facts) or file.changed:
                raise _changed(location)
            yield file

    def _check_room(self, file: OpenFile, location: str, offset: int, nbytes: int) -> None:
        """Check that a file has ``nbytes`` bytes from ``offset`` on, and that ``max_bytes`` allows
        them.

        Raises:
            ModelError: the file is too short.
            BudgetError: with these bytes, all data would exceed ``max_bytes``.
        """
        available = max(file.size - offset, 0)
        if offset < 0 or available < nbytes:
            raise ModelError(
                f"{nbytes} bytes are needed, and {location!r} has {available} from byte {offset} on"
            )
        if self.max_bytes is not None and self._taken + nbytes > self.max_bytes:
            raise BudgetError(
                f"{nbytes} bytes of external data {location!r} in addition to {self._taken} in "
                f"use: the budget is {self.max_bytes}\n  to fix: {REMEDY}"
            )


def data_files(
    model: Path | None, root: str | os.PathLike[str] | None, max_bytes: int
) -> DataFiles | None:
    """Return the files of a model's external data; None for a model from memory without a root.

    Args:
        model: the path of its file; None for a model from memory, whose files are named relative to
            the root.
        root: the folder that files must be in; None is the model's folder.
        max_bytes: limit of the data of all files, in bytes.
    """
    top = None if root is None else Path(root).absolute()
    if model is None:
        return None if top is None else DataFiles(top, top, max_bytes)
    folder, real = model.parent.absolute(), model.resolve().parent
    return DataFiles(folder, top, max_bytes, None if real == folder else real)


def _changed(location: str) -> ModelError:
    """Return the error for a file that was changed."""
    return ModelError(
        f"external data file {location!r} was changed while it was read; load the model again"
    )


@contextmanager
def _opened(top: Path, parts: tuple[str, ...]) -> Iterator[int]:
    """Yield the descriptor of a file that is opened for the block; no link is followed to reach it.

    Args:
        top: a folder.
        parts: the path from the folder to the file, as names of folders and, last, of the file.
    """
    descriptor = os.open(top, _FLAGS | os.O_DIRECTORY)
    try:
        for part in parts:
            inner = os.open(part, _FLAGS, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)
