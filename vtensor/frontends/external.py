"""Data of tensors in files beside a model: which files may be read, and how.

A model names its files, so it must not reach files that its sender could not read: a file lies
inside a root, links followed, and is opened such that nothing that changes meanwhile leads outside.

Data is read into memory of our own, not mapped: what is written to a mapped file later changes the
weights of a session that is in use, and a file that is cut short ends the process (SIGBUS). What is
read again comes from the file that was open, and is refused where somebody wrote to it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from weakref import WeakValueDictionary

from optimizer.originals import Original
from ptensor.pages import lasting
from vtensor.errors import BudgetError, ModelError
from vtensor.language.cached import cached_property
from vtensor.language.interrupts import pass_signals
from vtensor.language.records import dataclass
from vtensor.language.wording import reason
from vtensor.storage.budget import REMEDY
from vtensor.storage.open_file import Bytes, Data, OpenFile, State, settled

#: Files of a model that stay open at most: a process may open some hundred.
MOST_OPEN = 8

#: Neither a link instead of what was checked, nor a wait for the other end of a pipe.
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(eq=False)
class DataFiles:
    """Where a model's files may be.

    Args:
        folder: the one of the model's path; files are named relative to it.
        root: the folder that files must be in, links followed; None is ``folder`` or ``real``.
        max_bytes: what may be taken for the data of all files; None is any.
        real: the folder of the model's file, links followed, where that is another: a file that is
            not in ``folder`` is named relative to it.
    """

    folder: Path
    root: Path | None = None
    max_bytes: int | None = None
    real: Path | None = None
    #: By location, as a model's tensors name few files many times.
    _paths: dict[str, Path] = field(default_factory=dict, init=False, repr=False)
    #: By path without links, the state in which a file was first met: all data is of one state.
    _states: dict[Path, State] = field(default_factory=dict, init=False, repr=False)
    #: By path, offset and length: tensors that lie in one place share their memory.
    _parts: WeakValueDictionary[tuple[Path, int, int], Bytes] = field(
        default_factory=WeakValueDictionary, init=False, repr=False
    )
    #: What is read later, by place, type and shape: tensors that lie in one place share it.
    shared: dict[Hashable, Original] = field(default_factory=dict, init=False, repr=False)
    #: By path, files that stay open.
    _files: dict[Path, OpenFile] = field(default_factory=dict, init=False, repr=False)
    _taken: int = field(default=0, init=False)
    #: Where arrays are that were read at once.
    at_once: dict[tuple[str, int, int], None] = field(default_factory=dict, init=False, repr=False)

    def read(self, location: str, offset: int, nbytes: int) -> Bytes:
        """A copy of bytes of a file, which is made once and cannot be written to.

        Raises:
            ModelError: there is no such file here, it is no plain file, it is shorter, or it is
                not as it was when the model was loaded.
            BudgetError: all data that was read would take more than ``max_bytes``.
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
        """As ``read``, of bytes that nobody keeps: they take nothing of what may be taken."""
        before = self._taken
        try:
            return self.read(location, offset, nbytes)
        finally:
            self._taken = before

    def later(self, location: str, offset: int, nbytes: int) -> Data | None:
        """As ``read``, but when somebody asks; None where too many files are open.

        Raises:
            ModelError, BudgetError: as for ``read``.
        """
        path = self._located(location)
        with self._at(location, path, offset, nbytes):
            file = self._files.get(path)
        if file is None:
            return None
        self._taken += nbytes
        return Data(None, nbytes, file.stretch(offset, nbytes))

    def _located(self, location: str) -> Path:
        if (path := self._paths.get(location)) is None:
            path = self._paths[location] = self._path(location)
        return path

    @contextmanager
    def _at(self, location: str, path: Path, offset: int, nbytes: int) -> Iterator[OpenFile]:
        """A file that has these bytes, and for which there is room; it may stay open."""
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
        """The folders that files must be in, without links."""
        given = [self.root] if self.root else [self.folder, self.real or self.folder]
        return [folder.resolve() for folder in given]

    def _top(self, path: Path) -> Path:
        """Return the folder that a file is in."""
        return next(top for top in self._tops if path.is_relative_to(top))

    def _path(self, location: str) -> Path:
        """Return a file's path without links; no link that comes there later is followed.

        Raises:
            ModelError: the location is no relative path, or leads elsewhere.
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
        """Open the file of a path, which must be the one that was first met there, unchanged.

        Raises:
            ModelError: it is no plain file, another file, or in another state.
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
                if len(self._files) < MOST_OPEN:
                    self._files[path] = file
            elif not file.is_same(facts) or file.changed:
                raise _changed(location)
            yield file

    def _check_room(self, file: OpenFile, location: str, offset: int, nbytes: int) -> None:
        available = max(file.size - offset, 0)
        if offset < 0 or available < nbytes:
            raise ModelError(
                f"{nbytes} bytes are needed, and {location!r} has {available} from byte {offset} on"
            )
        if self.max_bytes is not None and self._taken + nbytes > self.max_bytes:
            raise BudgetError(
                f"{nbytes} bytes of external data {location!r} beside {self._taken} that are "
                f"taken: the budget is {self.max_bytes}\n  to fix: {REMEDY}"
            )


def data_files(
    model: Path | None, root: str | os.PathLike[str] | None, max_bytes: int
) -> DataFiles | None:
    """Return where a model's files may be; None of a model from memory without a root.

    Args:
        model: the path of its file; None of a model from memory, whose files are named relative to
            the root.
        root, max_bytes: as for ``DataFiles``.
    """
    top = None if root is None else Path(root).absolute()
    if model is None:
        return None if top is None else DataFiles(top, top, max_bytes)
    folder, real = model.parent.absolute(), model.resolve().parent
    return DataFiles(folder, top, max_bytes, None if real == folder else real)


def _changed(location: str) -> ModelError:
    return ModelError(
        f"external data file {location!r} was changed while it was read; load the model again"
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
