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
    """An empty cache of the test's own."""
    monkeypatch.setenv("VTENSOR_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def kept(environment: str = "here") -> int | None:
    """What a fresh reader finds."""
    return Timings(environment).get("call", "way")


def test_what_is_measured_is_kept(folder: Path) -> None:
    assert kept() is None
    assert not folder.exists()  # reading makes no files
    Timings("here").put("call", "way", 7)
    assert kept() == 7
    Timings("here").put("call", "way", 9)
    assert kept() == 9


def test_what_is_noted_is_kept_with_all_others(folder: Path) -> None:
    timings = Timings("here")
    timings.note("call", "way", 7)
    assert (timings.get("call", "way"), kept()) == (7, None)
    timings.note("call", "other", 8)
    timings.save()
    assert (kept(), Timings("here").get("call", "other")) == (7, 8)
    (folder / "timings.sqlite").unlink()
    timings.save()
    assert kept() is None  # once


@pytest.mark.parametrize("there", [True, False])
def test_a_folder_that_was_removed_stays_away(
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


def test_another_environment_has_its_own(folder: Path) -> None:
    Timings("here").put("call", "way", 7)
    assert kept("there") is None
    Timings("there").put("call", "way", 8)
    assert (kept(), kept("there")) == (7, 8)


def test_where_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VTENSOR_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/somebody")
    assert cache_folder() == Path("/home/somebody/.cache/vtensor")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == Path("/home/somebody/.cache/vtensor")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache_folder() == Path("/caches/vtensor")
    monkeypatch.setenv("VTENSOR_CACHE_DIR", "own")
    assert cache_folder() == Path("own")


def spoil(file: Path, how: str) -> None:
    """Make a file that must not be believed."""
    if how == "text":
        file.write_text("not a database at all, but long enough to be one" * 100)
    elif how == "cut":
        file.write_bytes(file.read_bytes()[:4096])  # a page
    elif how == "noise":
        whole = file.read_bytes()
        file.write_bytes(whole[:100] + bytes(255 for _ in whole[100:]))
    else:
        file.unlink()
        with closing(sqlite3.connect(file)) as base, base:
            base.execute(how)


@pytest.mark.parametrize(
    "how",
    ["text", "cut", "noise", "CREATE TABLE bookmarks (page)", "CREATE TABLE timings (call, ns)"],
)
def test_a_file_that_is_no_such_database_is_put_aside(
    folder: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    for number in range(100):
        Timings("here").put("call", f"way{number}", 7)
    Timings("here").put("call", "way", 7)
    file = folder / "timings.sqlite"
    spoil(file, how)
    before = file.read_bytes()
    fresh = Timings("here")
    assert "put aside as timings.broken" in caplog.text
    assert (folder / "timings.broken").read_bytes() == before
    assert fresh.get("call", "way") is None
    fresh.put("call", "way", 8)
    assert kept() == 8


@pytest.mark.parametrize("before", [(), ("CREATE TABLE pages (page)", "DROP TABLE pages")])
def test_a_database_that_another_process_is_just_making_is_empty(
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
    assert kept() == 7
    assert caplog.text == ""


def test_a_value_that_is_no_time_is_not_believed(folder: Path) -> None:
    Timings("here").put("call", "other", 7)
    with closing(sqlite3.connect(folder / "timings.sqlite")) as base, base:
        for way, ns in (("way", "soon"), ("negative", -1)):
            base.execute("INSERT INTO timings VALUES ('here', 'call', ?, ?)", (way, ns))
    found = Timings("here")
    assert [found.get("call", way) for way in ("way", "negative", "other")] == [None, None, 7]


def test_where_nothing_can_be_written_times_live_as_long_as_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("VTENSOR_CACHE_DIR", str(tmp_path / "file" / "cache"))
    timings = Timings("here")
    for way in ("way", "another"):
        timings.put("call", way, 7)
    assert timings.get("call", "way") == 7
    assert len(caplog.records) == 1  # said once
    assert "kept by this process alone" in caplog.text


def test_a_database_that_cannot_be_written_to_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Timings("here").put("call", "way", 7)
    real = sqlite3.connect
    monkeypatch.setattr(
        "vtensor.runtime.tuning.timings.sqlite3.connect",
        lambda address, *rest, **more: real(address.replace("=rwc", "=ro"), *rest, **more),
    )
    timings = Timings("here")
    timings.put("call", "new", 8)
    assert (timings.get("call", "way"), timings.get("call", "new")) == (7, 8)
    assert "readonly" in caplog.text
    assert Timings("here").get("call", "new") is None


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
def test_a_process_that_was_killed_while_it_wrote_is_undone(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Timings("here").put("call", "way", 7)
    file = folder / "timings.sqlite"
    run_python("-c", KILLED, file)
    assert file.with_name("timings.sqlite-journal").stat().st_size > 0
    found = Timings("here")
    assert (found.get("call", "way"), found.get("call", "way5")) == (7, None)
    found.put("call", "way", 8)
    assert kept() == 8
    assert caplog.text == ""


def something_else(path: Path, kind: str) -> None:
    """Put something that is no file of the user's own in a place."""
    if kind == "FIFO":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to("/dev/zero")
    else:
        path.touch()
        path.chmod(0o666)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs FIFOs")
@pytest.mark.parametrize("kind", ["FIFO", "folder", "link", "open to others"])
@pytest.mark.parametrize("name", ["timings.sqlite", "timings.sqlite-journal", "timings.sqlite-wal"])
@pytest.mark.parametrize("late", [False, True])
def test_what_is_no_file_of_the_users_own_is_not_opened(
    folder: Path, caplog: pytest.LogCaptureFixture, kind: str, name: str, late: bool
) -> None:
    folder.mkdir()
    if late:
        timings = Timings("here")
        something_else(folder / name, kind)
    else:
        something_else(folder / name, kind)
        timings = Timings("here")
    for way in ("way", "another"):
        timings.put("call", way, 7)
    assert timings.get("call", "way") == 7
    assert len(caplog.records) == 1
    assert f"{name} is no file of the user's alone" in caplog.text


def test_a_process_waits_once_for_others_that_keep_it_locked(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """At most a second of the three that the guide promises for the end of a process."""
    assert PATIENCE <= 1
    monkeypatch.setattr("vtensor.runtime.tuning.timings.PATIENCE", 0.01)
    Timings("here").put("call", "way", 7)
    writer, waits = Timings("here"), list[float]()
    real: Callable[..., sqlite3.Connection] = sqlite3.connect

    def noted(address: str, patience: float, **more: Any) -> sqlite3.Connection:
        waits.append(patience)
        return real(address, patience, **more)

    monkeypatch.setattr("vtensor.runtime.tuning.timings.sqlite3.connect", noted)
    with closing(real(folder / "timings.sqlite")) as base:
        base.execute("BEGIN EXCLUSIVE")
        writer.put("call", "way", 8)
        assert kept() is None
        Timings("there").put("call", "way", 9)
    assert waits == [0.01, 0, 0]
    assert caplog.text.count("database is locked") == 3
    assert kept() == 7  # once it is free, it is read again


WRITER = """
import sys
from vtensor.runtime.tuning.timings import Timings
timings = Timings("here")
for number in range(100):
    timings.put(sys.argv[1], str(number), number)
"""


def test_processes_write_at_once(folder: Path) -> None:
    names = ("one", "two", "three")
    running = [subprocess.Popen([sys.executable, "-c", WRITER, name]) for name in names]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    found = Timings("here")
    for name in names:
        assert [found.get(name, str(number)) for number in range(100)] == list(range(100))
