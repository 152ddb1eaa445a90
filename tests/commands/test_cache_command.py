"""``vtensor cache``: what is listed, removed and verified, in sound folders and in damaged ones."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import onnx
import pytest
from typer.testing import Result

from ops import Relu
from tests.frontends.support import model
from tests.libraries import command
from tests.planning.damage import by_bytes, by_fields
from tests.planning.rows import ROWS
from vtensor import Graph, Session, save_onnx
from vtensor.runtime.tuning import timings
from vtensor.storage.entries import FOLDER, Entries

#: Networks whose entries name arrays in every place, constants that depend on sizes, and values.
ROWS_VERIFIED = (
    *("attention", "fixed small in nodes", "fixed residual beside", "computed positions"),
    *("turned cut beside", "packed", "values decide", "any rank"),
)


def vtensor(*arguments: object) -> Result:
    """Run the command; an error of its own is a message, never a traceback."""
    ran = command.vtensor("cache", *arguments)
    assert ran.exception is None or type(ran.exception) is SystemExit, ran.exception
    assert ran.exit_code in (0, 1), ran.output
    return ran


def data_of(*arguments: object, exit_code: int = 0) -> Any:
    """Return what the command prints as JSON."""
    ran = vtensor(*arguments, "--json")
    assert ran.exit_code == exit_code, ran.output
    return json.loads(ran.stdout)


def count(*arguments: object) -> int:
    """Return the number of listed entries."""
    return len(data_of("list", *arguments)["entries"])


def use(model: Path | bytes, cache: Path, sizes: int = 3, **options: Any) -> None:
    """Run a model in a session that saves what it chose."""
    with Session(model, cache_dir=cache, threads=1, **options) as session:
        session.run(None, {"x": np.ones((sizes, 2), np.float32)})


@pytest.fixture(autouse=True, scope="module")
def caching() -> Iterator[None]:
    """Cache plans, although other tests may have registered operators."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vtensor.runtime.cache.plans.no_plugins", lambda: True)
        yield


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, bytes]:
    """Return the files of a cache of two models, one of them written by VTensor."""
    folder = tmp_path_factory.mktemp("made")
    graph = Graph("own")
    graph.output(graph.add(Relu(), graph.input("x", {"N": None, "C": 2})), "y")
    save_onnx(graph, folder / "own.onnx")
    foreign = model("m (float[N,2] x) => (float[N,2] y) { a = Relu(x) y = Mul(a, a) }")
    onnx.save(foreign, folder / "theirs.onnx")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VTENSOR_CACHE_DIR", str(folder / "cache"))
        patch.delenv("VTENSOR_COSTS")
        use(folder / "own.onnx", folder / "cache", deterministic=True)
        use(folder / "own.onnx", folder / "cache", tune=True, tolerance=0)
        use(folder / "theirs.onnx", folder / "cache", sizes=5)
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.fixture
def cache(files: Mapping[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the same cache anew, as the user's own."""
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(0o700, parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
        (tmp_path / name).chmod(0o600)
    monkeypatch.setenv("VTENSOR_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def entries(cache: Path, kind: str = "") -> list[Path]:
    """Return the files of the entries whose names begin so."""
    return sorted((cache / FOLDER).glob(f"{kind}*"))


def plan_of(cache: Path) -> Path:
    """Return an entry that has a plan, not only choices."""
    return next(file for file in entries(cache, "plan") if b'"plan":{' in file.read_bytes())


def path_of(cache: Path, name: str) -> Path:
    """Return the path that a model had when its entries were written."""
    [path] = {row["file"] for row in data_of("list")["entries"] if row["file"].endswith(name)}
    return Path(path)


def test_list_says_what_is_cached_for_which_model(cache: Path) -> None:
    for file in entries(cache):
        os.utime(file, (0, file.stat().st_mtime - 2 * 86400 - 60))
    before = [file.stat().st_mtime_ns for file in entries(cache)]
    data, text = data_of("list"), vtensor("list").stdout
    assert [file.stat().st_mtime_ns for file in entries(cache)] == before, "a look is no use"
    rows = {
        (Path(row["file"]).name, row["kind"], row["quality"], row["inputs"])
        for row in data["entries"]
    }
    [times] = {quality for _, kind, quality, _ in rows if kind == "timings"}
    assert times.endswith(("time", "times"))
    assert rows == {
        ("own.onnx", "model", "", ""),
        ("own.onnx", "model", "", "x=?,2"),
        ("own.onnx", "plan", "measured", "x=3,2"),
        ("own.onnx", "plan", "tuned", "x=3,2"),
        ("theirs.onnx", "model", "", "x=?,2"),
        ("theirs.onnx", "plan", "provisional", "x=5,2"),
        ("", "timings", times, ""),
    }
    assert {row["model"] for row in data["entries"] if row["kind"] == "plan"} == {"own", "m"}
    sizes = [file.stat().st_size for file in (*entries(cache), cache / "timings.sqlite")]
    assert data["bytes"] == sum(sizes) == sum(row["nbytes"] for row in data["entries"])
    assert (data["folder"], data["foreign"]) == (str(cache), 0)
    assert f"{path_of(cache, 'own.onnx')}\n" in text
    assert "  plan     tuned" in text
    assert "    2 days  x=5,2\n" in text
    assert f"{cache}: 7 entries, " in text


def test_entries_name_their_model_and_their_costs(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(cache.parent)
    monkeypatch.setenv("VTENSOR_COSTS", "declared")
    vtensor("clear")
    use(Path("theirs.onnx"), cache, deterministic=True)
    rows = data_of("list")["entries"]
    assert {row["quality"] for row in rows if row["kind"] == "plan"} == {"declared"}
    assert {row["file"] for row in rows} == {str(cache.parent / "theirs.onnx")}
    Path("link.onnx").symlink_to("theirs.onnx")
    assert count("link.onnx") == 2
    vtensor("clear")
    use(Path("theirs.onnx").read_bytes(), cache)
    assert {row["file"] for row in data_of("list")["entries"]} == {""}
    assert "model from memory m\n" in vtensor("list").stdout


def test_model_restricts_list_and_clear(cache: Path) -> None:
    own = path_of(cache, "own.onnx")
    data = data_of("list", own)
    assert {row["file"] for row in data["entries"]} == {str(own)}
    assert len(data["entries"]) == 4
    removed = {"folder": str(cache), "removed": 4, "bytes": data["bytes"]}
    assert data_of("clear", own) == removed
    assert "0 entries" in vtensor("list", own).stdout
    assert count() == 3
    assert "removed 0 entries" in vtensor("clear", cache / "no such model").stdout


def test_clear_removes_entries_and_nothing_else(cache: Path) -> None:
    others = [cache / "mine", cache / FOLDER / "mine", cache / FOLDER / "plan-x-0"]
    for file in others:
        file.write_text("mine")
    link = cache / FOLDER / f"plan-{'0' * 32}-0"
    link.symlink_to(others[0])
    assert data_of("list")["foreign"] == 3
    assert "and 3 other files, which sessions do not read" in vtensor("list").stdout
    assert "removed 7 entries, " in vtensor("clear").stdout
    assert sorted(entries(cache)) == sorted([*others[1:], link])
    assert [file.read_text() for file in others] == ["mine"] * 3
    assert count() == 0
    assert data_of("clear")["removed"] == 0
    use(cache.parent / "theirs.onnx", cache)
    assert count() == 2
    with Session(cache.parent / "theirs.onnx", cache_dir=cache, threads=1) as session:
        for size in (5, 6, 5):
            x = np.full((size, 2), 3, np.float32)
            assert (session.run(None, {"x": x})[0] == 9).all()
            assert vtensor("clear").exit_code == 0


@pytest.mark.parametrize("kind", ["model", "surface", "plan"])
def test_verify_names_damaged_entries(kind: str, cache: Path) -> None:
    assert data_of("verify")["damaged"] == 0
    assert "7 entries, 0 damaged\n" in vtensor("verify").stdout
    file = entries(cache, kind)[0]
    file.write_bytes(file.read_bytes()[:-1])
    ran = vtensor("verify")
    assert ran.exit_code == 1
    assert f"{file}: its digest or its format is wrong\n" in ran.stdout
    assert "7 entries, 1 damaged\n" in ran.stdout
    assert f"to fix: vtensor cache clear --damaged --cache-dir {cache}\n" in ran.stdout
    data = data_of("verify", exit_code=1)
    assert [row["path"] for row in data["entries"] if row["problem"]] == [str(file)]
    assert data["damaged"] == 1
    assert "damaged: vtensor cache verify says why\n" in vtensor("list").stdout
    assert data_of("clear", "--damaged")["removed"] == 1
    assert data_of("verify")["damaged"] == 0
    assert count() == 6


def test_verify_sees_damage_of_every_kind(cache: Path) -> None:
    """Any changed byte is seen, and no changed field is more than a line of the report."""
    random, files = Random(7), entries(cache)
    sound = [file.read_bytes() for file in files]
    kinds = [file.name.partition("-")[0] for file in files]
    other = [next(s for s, k in zip(sound, kinds, strict=True) if k != kind) for kind in kinds]
    by_byte = [by_bytes(entry, [one], random, 3) for entry, one in zip(sound, other, strict=True)]
    for damage in zip(*by_byte, strict=True):
        for file, (_, entry) in zip(files, damage, strict=True):
            file.write_bytes(entry)
        assert data_of("verify", exit_code=1)["damaged"] == len(files), [what for what, _ in damage]
    by_field = [by_fields(entry, random, 10, kinds=True) for entry in sound]
    for damage in zip(*by_field, strict=False):
        for file, (_, entry) in zip(files, damage, strict=True):
            file.write_bytes(entry)
        assert vtensor("verify").exit_code in (0, 1)
        assert "7 entries, " in vtensor("list").stdout
    for file, entry in zip(files, sound, strict=True):
        file.write_bytes(entry)
    first, second, *_ = entries(cache, "plan")
    first.write_bytes(second.read_bytes())
    assert "it is an entry of another name" in vtensor("verify").stdout


@pytest.mark.parametrize("name", ROWS_VERIFIED)
def test_entries_of_networks_are_sound(name: str, tmp_path: Path) -> None:
    row = ROWS[name]()
    model = row.write(tmp_path / "net.onnx", 0)
    with Session(model, cache_dir=tmp_path / "cache", **row.options) as session:
        for feeds in row.feeds(0)[:2]:
            session.run(row.outputs, feeds)
    data = data_of("verify", "--cache-dir", tmp_path / "cache")
    assert {row["kind"] for row in data["entries"]} - {"weights"} == {"model", "plan"}


def resigned(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the data of a plan, with a right digest."""
    head, newline, blob = file.read_bytes().partition(b"\n")[2].partition(b"\n")
    data = json.loads(head)
    change(data)
    Entries(file.parent.parent).write(file.name, json.dumps(data).encode() + newline + blob)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda plan: plan["counts"].append(1), id="a slot more"),
        pytest.param(lambda plan: plan["counts"].__setitem__(0, 1 << 50), id="slots without end"),
        pytest.param(
            lambda plan: plan["memory"]["rows"].append([99, 0, 0, 0, 0]), id="a row of no kind"
        ),
        pytest.param(
            lambda plan: plan["inputs"][0].__setitem__(1, "no type"), id="an element type"
        ),
        pytest.param(lambda plan: plan.update(regions=plan["regions"] + 1), id="a constant more"),
        pytest.param(lambda plan: plan.pop("guards"), id="no guards"),
    ],
)
def test_verify_decodes_plans_without_their_models(
    change: Callable[[dict[str, Any]], object], cache: Path
) -> None:
    file = plan_of(cache)
    resigned(file, lambda data: change(data["plan"]))
    data = data_of("verify", exit_code=1)
    assert [row["path"] for row in data["entries"] if row["problem"]] == [str(file)]
    use(cache.parent / "own.onnx", cache, deterministic=True)  # it answers all the same


def test_plan_of_another_build_is_sound(cache: Path) -> None:
    older = {"vtensor.runtime._replay": "older"}
    resigned(plan_of(cache), lambda data: data["plan"].update(builds=older))
    assert data_of("verify")["damaged"] == 0


def test_names_of_files_are_shown_safely(cache: Path) -> None:
    file = entries(cache, "plan")[0]
    resigned(file, lambda data: data.update(file="/net\x1b[2J\n\udc80.onnx"))
    text = vtensor("list").stdout
    assert "\x1b" not in text
    assert "'/net\\x1b[2J\\n\\udc80.onnx'\n" in text
    resigned(file, lambda data: data.update(file="a\0b"))
    assert vtensor("list", "a").exit_code == 0
    assert "it names no file" in vtensor("verify").stdout


def test_file_of_a_killed_writer_is_damaged_once_it_is_old(cache: Path) -> None:
    left = cache / FOLDER / f"plan-{'0' * 32}-0.123.456"
    left.write_bytes(b"half")
    assert data_of("verify")["damaged"] == 0, "its writer may be at work"
    assert data_of("clear")["removed"] == 7
    assert left.exists()
    os.utime(left, (0, 0))
    assert "its writer was stopped" in vtensor("verify").stdout
    assert data_of("clear")["removed"] == 1
    assert not left.exists()


def test_times_may_be_locked_or_damaged(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timings, "PATIENCE", 0.05)
    file = cache / "timings.sqlite"
    with sqlite3.connect(file) as base:
        base.execute("BEGIN EXCLUSIVE")
        assert data_of("verify")["damaged"] == 0
        assert "cannot be read now: database is locked" in vtensor("list").stdout
        ran = vtensor("clear")
        assert ran.exit_code == 1
        assert "InputError: " in ran.stderr
        assert "timings.sqlite: cannot be removed: database is locked" in ran.stderr
    base.close()
    file.write_bytes(b"broken" * 1000)
    (cache / "timings.broken").write_bytes(b"older")
    assert data_of("verify", exit_code=1)["damaged"] == 2
    assert data_of("clear")["removed"] == 2
    assert not file.exists()
    use(cache.parent / "own.onnx", cache, tune=True, tolerance=0)
    assert "timings" in {row["kind"] for row in data_of("list")["entries"]}


def of_others(cache: Path) -> None:
    (cache / FOLDER).chmod(0o777)


def a_link(cache: Path) -> None:
    (cache / FOLDER).rename(cache / "elsewhere")
    (cache / FOLDER).symlink_to("elsewhere")


def a_file(cache: Path) -> None:
    cache.rename(cache.with_name("moved"))
    cache.touch()


@pytest.mark.parametrize("spoil", [of_others, a_link, a_file])
@pytest.mark.parametrize("command", ["list", "clear", "verify"])
def test_folder_that_no_session_uses_is_an_error(
    command: str, spoil: Callable[[Path], None], cache: Path
) -> None:
    for empty in (cache.parent / "none", cache.parent / "empty"):
        if empty.name == "empty":
            empty.mkdir()
        ran = vtensor(command, "--cache-dir", empty)
        assert ran.exit_code == 0
        assert "0 " in ran.stdout
        assert not list(empty.glob("*"))
    assert not (cache.parent / "none").exists()
    spoil(cache)
    ran = vtensor(command)
    assert ran.exit_code == 1
    assert f"InputError: {cache}: the cache cannot be read: " in ran.stderr
    assert "to fix: name a folder" in ran.stderr
    left = [file for file in cache.parent.rglob("*-*") if file.is_file() and not file.is_symlink()]
    assert len(left) == 6


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to read-only folders")
def test_read_only_folder_is_listed_and_not_cleared(cache: Path) -> None:
    (cache / FOLDER).chmod(0o500)
    try:
        assert count() == 7
        ran = vtensor("clear")
        assert ran.exit_code == 1
        assert "cannot be removed: Permission denied" in ran.stderr
    finally:
        (cache / FOLDER).chmod(0o700)


def test_cache_that_is_off_is_listed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VTENSOR_CACHE", "off")
    assert count() == 7
    monkeypatch.setenv("VTENSOR_CACHE", "perhaps")
    assert "must be on or off" in vtensor("list").stderr
    assert count("--cache-dir", cache) == 7


def test_commands_work_while_entries_are_written(cache: Path) -> None:
    payloads = {file.name: file.read_bytes().partition(b"\n")[2] for file in entries(cache)}
    over = threading.Event()

    def write() -> None:
        writer = Entries(cache)
        while not over.is_set():
            for name, payload in payloads.items():
                writer.write(name, payload)

    writers = [threading.Thread(target=write) for _ in range(3)]
    for writer in writers:
        writer.start()
    try:
        for _ in range(5):
            for command in ("list", "verify", "clear"):
                assert vtensor(command).exit_code == 0, command
    finally:
        over.set()
        for writer in writers:
            writer.join()
    assert data_of("verify")["damaged"] == 0
