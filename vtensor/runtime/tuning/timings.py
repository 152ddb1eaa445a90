"""Measured times on disk: one database per user, shared by concurrent processes.

The database is a cache: a time that cannot be read is measured again. A broken or foreign file is
set aside with a warning; if nothing can be written, times live as long as the process.
"""

from __future__ import annotations

import logging
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from vtensor.language.process.interrupts import ignored, pass_signals
from vtensor.storage.cache_folder import cache_folder
from vtensor.storage.entries import foreign

#: The database's only table; another text means another version or a foreign file.
_TABLE = """\
CREATE TABLE timings (
    environment TEXT NOT NULL, call TEXT NOT NULL, way TEXT NOT NULL, ns INTEGER NOT NULL,
    PRIMARY KEY (environment, call, way)
) WITHOUT ROWID"""

_READ = """
SELECT call, way, ns FROM timings WHERE environment = ? AND typeof(ns) = 'integer' AND ns >= 0
"""

#: If the database has more rows than this, rows of other environments are deleted.
MAX_ROWS = 50_000

_SHRINK = "DELETE FROM timings WHERE environment != ? AND (SELECT count(*) FROM timings) > ?"

#: The seconds that a process waits in all for a file that other processes keep locked.
PATIENCE = 1.0

#: The suffixes of SQLite's files: the database and its companions.
_SUFFIXES = ("", "-journal", "-wal", "-shm")

#: Databases that other processes kept locked for longer than ``PATIENCE``. This process no longer
#: waits for them.
_locked = set[Path]()

_log = logging.getLogger(__name__)


class Timings:
    """Measured times in one environment, in nanoseconds.

    A time is found by two texts of ``measure.signature``: the call (library, operators, sizes) and
    the way (layouts, kernel).

    Args:
        environment: a text that names the processor, libraries, threads and all else that times
            depend on.
    """

    def __init__(self, environment: str) -> None:
        self._environment = environment
        self._file = cache_folder() / "timings.sqlite"
        #: True if the folder exists at the begin. It is not created again if it is removed while in
        #: use.
        self._was_there = self._file.parent.is_dir()
        self._known: dict[tuple[str, str], int] = {}
        self._new: dict[tuple[str, str], int] = {}  # not on disk yet
        self._writable = True
        with self._tolerating_errors():
            try:
                self._read()
            except sqlite3.OperationalError:  # the file itself is not at fault
                raise
            except sqlite3.DatabaseError as error:
                aside = self._file.with_suffix(".broken")
                self._file.replace(aside)
                _log.warning("%s: %s; put aside as %s", self._file, error, aside.name)

    def get(self, call: str, way: str) -> int | None:
        """Return the nanoseconds of a call in a way; None if they are unknown."""
        return self._known.get((call, way))

    def put(self, call: str, way: str, ns: int) -> None:
        """Set the nanoseconds of a call in a way, and save them on disk at once."""
        self.note(call, way, ns)
        self.save()

    def note(self, call: str, way: str, ns: int) -> None:
        """Set the nanoseconds of a call in a way, in memory only; ``save`` writes them to disk."""
        self._known[call, way] = self._new[call, way] = ns

    def save(self) -> None:
        """Write all noted times to disk.

        That is one transaction, which takes longer than a short measurement.
        """
        if not self._new:
            return
        rows = [(self._environment, *key, ns) for key, ns in self._new.items()]
        self._new.clear()
        if self._was_there and not self._file.parent.is_dir():
            return
        if self._writable:
            with self._tolerating_errors(), self._database("rwc") as base:
                if not _has_table(base):
                    base.execute(_TABLE)
                base.execute(_SHRINK, (self._environment, MAX_ROWS))
                base.executemany("INSERT OR REPLACE INTO timings VALUES (?, ?, ?, ?)", rows)

    def _read(self) -> None:
        if self._exists():
            with self._database("rw") as base:  # to roll back a dead process's transaction
                if _has_table(base):
                    rows = base.execute(_READ, (self._environment,))
                    self._known = {(call, way): ns for call, way, ns in rows}

    def _exists(self) -> bool:
        """Return whether the database exists, and refuse foreign files in its place.

        Raises:
            PermissionError: a file of the database is a FIFO, a link or another user's.
        """
        exists = False
        for suffix in _SUFFIXES:
            path = self._file.with_name(self._file.name + suffix)
            with ignored(FileNotFoundError, NotADirectoryError):
                status = path.lstat()
                if not stat.S_ISREG(status.st_mode) or foreign(status):
                    raise PermissionError(f"{path.name} is no file of the user's alone")
                exists = exists or not suffix
        return exists

    @contextmanager
    def _tolerating_errors(self) -> Iterator[None]:
        """Run the block; if it fails to use the file, log a warning and write no more times."""
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            pass_signals(error)
            self._writable = False
            _log.warning("%s: %s; measured times are kept by this process alone", self._file, error)

    @contextmanager
    def _database(self, mode: str) -> Iterator[sqlite3.Connection]:
        """Open the database for one transaction.

        Args:
            mode: ``"rw"`` reads; ``"rwc"`` writes and creates a missing database.

        Raises:
            OSError, sqlite3.OperationalError: the file cannot be opened, read or written now.
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
    """Return the number of times in a database. All of the database is read and checked.

    Raises:
        sqlite3.OperationalError: the file cannot be read now: it may be locked.
        sqlite3.DatabaseError: the file is broken or has another form.
    """
    with closing(_connected(file)) as base:
        if not _has_table(base):
            return 0
        if [*base.execute("PRAGMA quick_check(1)")] != [("ok",)]:
            raise sqlite3.DatabaseError("the database is damaged")
        [(count,)] = base.execute("SELECT count(*) FROM timings")
        return int(count)


def clear_timings(file: Path) -> None:
    """Remove all times from a database but keep its file, which other processes may have open.

    Raises:
        sqlite3.Error: the file is broken, has another form, or cannot be read or written now.
    """
    with closing(_connected(file)) as base:
        if _has_table(base):
            with base:
                base.execute("DELETE FROM timings")
            base.execute("VACUUM")


def _connected(file: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{file.absolute().as_uri()}?mode=rw", PATIENCE, uri=True)


def _has_table(base: sqlite3.Connection) -> bool:
    """Return whether a database has the table of times; a new one has none yet.

    Raises:
        sqlite3.DatabaseError: the file is broken or foreign.
    """
    forms = [text for (text,) in base.execute("SELECT sql FROM sqlite_master")]
    if forms not in ([], [_TABLE]):
        raise sqlite3.DatabaseError("no database of measured times, or one of another form")
    return bool(forms)
