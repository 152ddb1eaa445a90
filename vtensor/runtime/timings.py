"""Measured times on disk: one database of a user, which processes may use at once.

It is a cache: what cannot be read is measured again. A file that is broken, or somebody else's, is
put aside and said so; where nothing can be written, times live as long as the process.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

#: The folder of the database, before the user's own cache.
DIRECTORY_VARIABLE = "VTENSOR_CACHE_DIR"

#: What says that a database is this one ("VTNS"), and in this form.
_MARKS = {"application_id": 0x56544E53, "user_version": 1}

_TABLE = """
CREATE TABLE timings (
    environment TEXT NOT NULL, call TEXT NOT NULL, way TEXT NOT NULL,
    ns INTEGER NOT NULL CHECK (typeof(ns) = 'integer' AND ns >= 0),
    PRIMARY KEY (environment, call, way)
) WITHOUT ROWID
"""

#: Seconds that one process waits for another that is writing.
PATIENCE = 5.0

_log = logging.getLogger(__name__)


def cache_folder() -> Path:
    """``VTENSOR_CACHE_DIR``, else ``vtensor`` in the user's cache.

    Source: XDG Base Directory Specification, 0.8: a relative path there is ignored.
    """
    if chosen := os.environ.get(DIRECTORY_VARIABLE):
        return Path(chosen)
    users = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (users if users.is_absolute() else Path.home() / ".cache") / "vtensor"


class Timings:
    """Nanoseconds by call and way, of one environment.

    Args:
        environment: all that times depend on beside the call: processor, libraries, threads.
    """

    def __init__(self, environment: str) -> None:
        self._environment = environment
        self._file = cache_folder() / "timings.sqlite"
        self._known: dict[tuple[str, str], int] = {}
        self._kept = True
        with self._forgiving():
            try:
                self._read()
            except sqlite3.OperationalError:  # no fault of the file
                raise
            except sqlite3.DatabaseError as error:
                aside = self._file.with_suffix(".broken")
                _log.warning("%s: %s; put aside as %s", self._file, error, aside.name)
                self._file.replace(aside)
                self._read()

    def get(self, call: str, way: str) -> int | None:
        """What is known, if anything is."""
        return self._known.get((call, way))

    def put(self, call: str, way: str, ns: int) -> None:
        """Know it from now on, in later processes too."""
        self._known[call, way] = ns
        if self._kept:
            row = (self._environment, call, way, ns)
            with self._forgiving(), self._database() as base:
                base.execute("INSERT OR REPLACE INTO timings VALUES (?, ?, ?, ?)", row)

    def _read(self) -> None:
        query = "SELECT call, way, ns FROM timings WHERE environment = ?"
        with self._database() as base:
            rows = base.execute(query, (self._environment,)).fetchall()
        self._known = {(call, way): int(ns) for call, way, ns in rows}

    @contextmanager
    def _forgiving(self) -> Iterator[None]:
        """Where the file cannot be used, go on without, and say so once."""
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            self._kept = False
            _log.warning("%s: %s; measured times are kept by this process alone", self._file, error)

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        """The database, made where there is none; what happens inside is one transaction.

        Raises:
            OSError, sqlite3.OperationalError: it cannot be opened, read or written here and now.
            sqlite3.DatabaseError: the file is broken, or none of ours.
        """
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(self._file, PATIENCE)) as base, base:
            base.execute("PRAGMA synchronous = OFF")  # a lost file is measured again
            base.execute("BEGIN IMMEDIATE")
            marks = [base.execute(f"PRAGMA {name}").fetchone()[0] for name in _MARKS]
            tables = base.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if not tables and not any(marks):
                base.execute(_TABLE)
                for name, value in _MARKS.items():
                    base.execute(f"PRAGMA {name} = {value}")
            elif marks != list(_MARKS.values()):
                raise sqlite3.DatabaseError("it is no database of measured times, or an older one")
            yield base
