"""Measured times on disk: one database of a user, which processes may use at once.

It is a cache: what cannot be read is measured again. A file that is broken, or somebody else's, is
put aside and said so; where nothing can be written, times live as long as the process.
"""

from __future__ import annotations

import logging
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from vtensor.language.interrupts import ignored, pass_signals
from vtensor.storage.cache_folder import cache_folder
from vtensor.storage.entries import foreign

#: All that the database holds; another text is another form, or somebody else's.
_TABLE = """\
CREATE TABLE timings (
    environment TEXT NOT NULL, call TEXT NOT NULL, way TEXT NOT NULL, ns INTEGER NOT NULL,
    PRIMARY KEY (environment, call, way)
) WITHOUT ROWID"""

_READ = """
SELECT call, way, ns FROM timings WHERE environment = ? AND typeof(ns) = 'integer' AND ns >= 0
"""

#: Where there are more rows than this, those of other environments go.
MOST_ROWS = 50_000

_SHRINK = "DELETE FROM timings WHERE environment != ? AND (SELECT count(*) FROM timings) > ?"

#: Seconds for which a process waits for others that use the file, in all, once one kept it locked.
PATIENCE = 1.0

#: Endings of the names of SQLite's files: the database and its companions.
_SUFFIXES = ("", "-journal", "-wal", "-shm")

#: The databases that others kept locked for longer: this process waits for them no more.
_locked = set[Path]()

_log = logging.getLogger(__name__)


class Timings:
    """Nanoseconds by call and way, of one environment.

    Args:
        environment: all that times depend on beside the call: processor, libraries, threads.
    """

    def __init__(self, environment: str) -> None:
        self._environment = environment
        self._file = cache_folder() / "timings.sqlite"
        #: A folder that was there and is removed stays away.
        self._was_there = self._file.parent.is_dir()
        self._known: dict[tuple[str, str], int] = {}
        self._new: dict[tuple[str, str], int] = {}  # not on disk yet
        self._writable = True
        with self._forgiving():
            try:
                self._read()
            except sqlite3.OperationalError:  # which is no fault of the file
                raise
            except sqlite3.DatabaseError as error:
                aside = self._file.with_suffix(".broken")
                self._file.replace(aside)
                _log.warning("%s: %s; put aside as %s", self._file, error, aside.name)

    def get(self, call: str, way: str) -> int | None:
        """What is known, if anything is."""
        return self._known.get((call, way))

    def put(self, call: str, way: str, ns: int) -> None:
        """Know it from now on, in later processes too."""
        self.note(call, way, ns)
        self.save()

    def note(self, call: str, way: str, ns: int) -> None:
        """Know it from now on; in later processes after ``save``."""
        self._known[call, way] = self._new[call, way] = ns

    def save(self) -> None:
        """Write down what was noted: all at once, for a transaction takes longer than a look."""
        if not self._new:
            return
        rows = [(self._environment, *key, ns) for key, ns in self._new.items()]
        self._new.clear()
        if self._was_there and not self._file.parent.is_dir():
            return
        if self._writable:
            with self._forgiving(), self._database("rwc") as base:
                if not _has_table(base):
                    base.execute(_TABLE)
                base.execute(_SHRINK, (self._environment, MOST_ROWS))
                base.executemany("INSERT OR REPLACE INTO timings VALUES (?, ?, ?, ?)", rows)

    def _read(self) -> None:
        if self._exists():
            with self._database("rw") as base:  # only a writer rolls back what a dead one left
                if _has_table(base):
                    rows = base.execute(_READ, (self._environment,))
                    self._known = {(call, way): ns for call, way, ns in rows}

    def _exists(self) -> bool:
        """Return whether there is a database, and refuse files that are not the user's own.

        Raises:
            PermissionError: it would find a FIFO, a link or another user's file, say.
        """
        found = False
        for suffix in _SUFFIXES:
            path = self._file.with_name(self._file.name + suffix)
            with ignored(FileNotFoundError, NotADirectoryError):
                status = path.lstat()
                if not stat.S_ISREG(status.st_mode) or foreign(status):
                    raise PermissionError(f"{path.name} is no file of the user's alone")
                found = found or not suffix
        return found

    @contextmanager
    def _forgiving(self) -> Iterator[None]:
        """Where the file cannot be used, go on without, and say so once."""
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            pass_signals(error)
            self._writable = False
            _log.warning("%s: %s; measured times are kept by this process alone", self._file, error)

    @contextmanager
    def _database(self, mode: str) -> Iterator[sqlite3.Connection]:
        """Open the database for one transaction: to read ("rw"), or to write and, where there is
        none, to make it ("rwc").

        Raises:
            OSError, sqlite3.OperationalError: it cannot be opened, read or written here and now.
        """
        writing = mode == "rwc"
        if writing:
            self._file.parent.mkdir(0o700, parents=True, exist_ok=True)
            self._was_there = True
            self._exists()
        address = f"{self._file.absolute().as_uri()}?mode={mode}"
        patience = 0.0 if self._file in _locked else PATIENCE
        try:
            with closing(sqlite3.connect(address, patience, uri=True)) as base, base:
                base.execute("PRAGMA synchronous = OFF")  # a lost file is measured again
                base.execute("BEGIN IMMEDIATE" if writing else "BEGIN")
                yield base
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
                _locked.add(self._file)
            raise


def count_timings(file: Path) -> int:
    """Return how many times a database of measured times holds, all of it read.

    Raises:
        sqlite3.OperationalError: it cannot be read now: another process has locked it, say.
        sqlite3.DatabaseError: it is broken, or has another form.
    """
    with closing(_connected(file)) as base:
        if not _has_table(base):
            return 0
        if [*base.execute("PRAGMA quick_check(1)")] != [("ok",)]:
            raise sqlite3.DatabaseError("the database is damaged")
        [(count,)] = base.execute("SELECT count(*) FROM timings")
        return int(count)


def clear_timings(file: Path) -> None:
    """Remove all times from a database, whose file stays: processes may have it open.

    Raises:
        sqlite3.Error: as for ``count_timings``; or it cannot be written.
    """
    with closing(_connected(file)) as base:
        if _has_table(base):
            with base:
                base.execute("DELETE FROM timings")
            base.execute("VACUUM")


def _connected(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{file.absolute().as_uri()}?mode=rw", PATIENCE, uri=True)


def _has_table(base: sqlite3.Connection) -> bool:
    """False in a database that some process is about to fill.

    Raises:
        sqlite3.DatabaseError: the file is broken, or none of ours.
    """
    made = [text for (text,) in base.execute("SELECT sql FROM sqlite_master")]
    if made not in ([], [_TABLE]):
        raise sqlite3.DatabaseError("no database of measured times, or one of another form")
    return bool(made)
