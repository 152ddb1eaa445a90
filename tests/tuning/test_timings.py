"""The database of measured times: what is kept, and what happens where it cannot be."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.libraries.processes import run_python
from vtensor.runtime.tuning.timings import PATIENCE, Timings
from vtensor.storage.cache_folder import cache_folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use an empty cache of the test's own."""
    monkeypatch.setenv("VTENSOR_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def cached(environment: str = "here", way: str = "way") -> int | None:
    """Return what a fresh reader finds."""
    return Timings(environment).get("call", way)


def test_times_are_cached_by_environment(folder: Path) -> None:
    assert cached() is None
    assert not folder.exists()  # reading makes no files
    for ns in (7, 9):
        Timings("here").put("call", "way", ns)
        assert cached() == ns
    assert cached("there") is None
    Timings("there").put("call", "way", 8)
    assert (cached(), cached("there")) == (9, 8)


def test_noted_times_are_written_together_once(folder: Path) -> None:
    timings = Timings("here")
    timings.note("call", "way", 7)
    assert (timings.get("call", "way"), cached()) == (7, None)
    timings.note("call", "other", 8)
    timings.save()
    assert (cached(), cached(way="other")) == (7, 8)
    (folder / "timings.sqlite").unlink()
    timings.save()
    assert cached() is None


@pytest.mark.parametrize("there", [True, False])
def test_removed_folder_is_not_made_again(
    there: bool, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if there:
        folder.mkdir()
    timings = Timings("here")
    timings.put("call", "way", 7)
    shutil.rmtree(folder)
    timings.put("call", "way", 8)
    assert timings.get("call", "way") == 8
    assert not folder.exists()
    assert not caplog.records


def test_cache_folder_is_that_of_the_first_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VTENSOR_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value, folder in (
        ("HOME", "/home/somebody", "/home/somebody/.cache/vtensor"),
        ("XDG_CACHE_HOME", "relative", "/home/somebody/.cache/vtensor"),
        ("XDG_CACHE_HOME", "/caches", "/caches/vtensor"),
        ("VTENSOR_CACHE_DIR", "own", "own"),
    ):
        monkeypatch.setenv(name, value)
        assert cache_folder() == Path(folder)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:4096])  # a page


def overwrite(file: Path) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole[:100] + b"\xff" * len(whole[100:]))


def other_table(file: Path, statement: str) -> None:
    file.unlink()
    with closing(sqlite3.connect(file)) as base, base:
        base.execute(statement)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda file: file.write_text("not a database at all, but long enough to be one" * 100),
        cut,
        overwrite,
        lambda file: other_table(file, "CREATE TABLE bookmarks (page)"),
        lambda file: other_table(file, "CREATE TABLE timings (call, ns)"),
    ],
    ids=["text", "cut", "noise", "another table", "other columns"],
)
def test_damaged_file_is_put_aside(
    folder: Path, caplog: pytest.LogCaptureFixture, spoil: Callable[[Path], object]
) -> None:
    for number in range(100):
        Timings("here").put("call", f"way{number}", 7)
    Timings("here").put("call", "way", 7)
    file = folder / "timings.sqlite"
    spoil(file)
    before = file.read_bytes()
    fresh = Timings("here")
    assert "put aside as timings.broken" in caplog.text
    assert (folder / "timings.broken").read_bytes() == before
    assert fresh.get("call", "way") is None
    fresh.put("call", "way", 8)
    assert cached() == 8


@pytest.mark.parametrize("before", [(), ("CREATE TABLE pages (page)", "DROP TABLE pages")])
def test_database_that_another_process_is_making_is_empty(
    folder: Path, caplog: pytest.LogCaptureFixture, before: Sequence[str]
) -> None:
    folder.mkdir()
    file = folder / "timings.sqlite"
    with closing(sqlite3.connect(file)) as base, base:
        for statement in before:
            base.execute(statement)
        base.commit()
        assert (file.stat().st_size > 0) == bool(before)
        base.execute("BEGIN IMMEDIATE")
        reader = Timings("here")
        assert [*folder.glob("*.broken")] == []
    reader.put("call", "way", 7)
    assert cached() == 7
    assert caplog.text == ""


def test_value_that_is_no_time_is_ignored(folder: Path) -> None:
    Timings("here").put("call", "other", 7)
    with closing(sqlite3.connect(folder / "timings.sqlite")) as base, base:
        for way, ns in (("way", "soon"), ("negative", -1)):
            base.execute("INSERT INTO timings VALUES ('here', 'call', ?, ?)", (way, ns))
    assert [cached(way=way) for way in ("way", "negative", "other")] == [None, None, 7]


def test_times_live_as_long_as_the_process_when_nothing_can_be_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder.touch()  # a file
    monkeypatch.setenv("VTENSOR_CACHE_DIR", str(folder / "cache"))
    timings = Timings("here")
    for way in ("way", "another"):
        timings.put("call", way, 7)
    assert timings.get("call", "way") == 7
    assert len(caplog.records) == 1  # said once
    assert "kept by this process alone" in caplog.text


def test_read_only_database_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Timings("here").put("call", "way", 7)
    connect = sqlite3.connect
    monkeypatch.setattr(
        "vtensor.runtime.tuning.timings.sqlite3.connect",
        lambda address, *rest, **more: connect(address.replace("=rwc", "=ro"), *rest, **more),
    )
    timings = Timings("here")
    timings.put("call", "new", 8)
    assert (timings.get("call", "way"), timings.get("call", "new")) == (7, 8)
    assert "readonly" in caplog.text
    assert cached(way="new") is None


KILLED = """
import os, signal, sqlite3, sys
base = sqlite3.connect(sys.argv[1], isolation_level=None)
base.execute("PRAGMA cache_size = 1")  # so that pages are written before the end
base.execute("BEGIN IMMEDIATE")
for number in range(2000):
    base.execute("INSERT OR REPLACE INTO timings VALUES ('here', 'call', ?, 1)", [f"way{number}"])
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_transaction_of_a_killed_process_is_undone(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Timings("here").put("call", "way", 7)
    file = folder / "timings.sqlite"
    run_python("-c", KILLED, file)
    assert file.with_name("timings.sqlite-journal").stat().st_size > 0
    timings = Timings("here")
    assert (timings.get("call", "way"), timings.get("call", "way5")) == (7, None)
    timings.put("call", "way", 8)
    assert cached() == 8
    assert caplog.text == ""


def open_to_others(path: Path) -> None:
    path.touch()
    path.chmod(0o666)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs FIFOs")
@pytest.mark.parametrize(
    "make",
    [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero"), open_to_others],
    ids=["FIFO", "folder", "link", "open to others"],
)
@pytest.mark.parametrize("name", ["timings.sqlite", "timings.sqlite-journal", "timings.sqlite-wal"])
@pytest.mark.parametrize("late", [False, True])
def test_file_that_is_not_the_users_own_is_not_opened(
    folder: Path, caplog: pytest.LogCaptureFixture, make: Any, name: str, late: bool
) -> None:
    folder.mkdir()
    early = Timings("here") if late else None
    make(folder / name)
    timings = early or Timings("here")
    for way in ("way", "another"):
        timings.put("call", way, 7)
    assert timings.get("call", "way") == 7
    assert len(caplog.records) == 1
    assert f"{name} is no file of the user's alone" in caplog.text


def test_process_waits_once_for_a_locked_database(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """For a second at most: the guide promises that a process ends within three."""
    assert PATIENCE <= 1
    monkeypatch.setattr("vtensor.runtime.tuning.timings.PATIENCE", 0.01)
    Timings("here").put("call", "way", 7)
    writer, waits = Timings("here"), list[float]()
    connect: Callable[..., sqlite3.Connection] = sqlite3.connect

    def noted(address: str, patience: float, **more: Any) -> sqlite3.Connection:
        waits.append(patience)
        return connect(address, patience, **more)

    monkeypatch.setattr("vtensor.runtime.tuning.timings.sqlite3.connect", noted)
    with closing(connect(folder / "timings.sqlite")) as base:
        base.execute("BEGIN EXCLUSIVE")
        writer.put("call", "way", 8)
        assert cached() is None
        Timings("there").put("call", "way", 9)
    assert waits == [0.01, 0, 0]
    assert caplog.text.count("database is locked") == 3
    assert cached() == 7  # once it is free, it is read again


WRITER = """
import sys
from vtensor.runtime.tuning.timings import Timings
timings = Timings("here")
for number in range(100):
    timings.put(sys.argv[1], str(number), number)
"""


def test_processes_write_concurrently(folder: Path) -> None:
    names = ("one", "two", "three")
    running = [subprocess.Popen([sys.executable, "-c", WRITER, name]) for name in names]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    timings = Timings("here")
    for name in names:
        assert [timings.get(name, str(number)) for number in range(100)] == list(range(100))
