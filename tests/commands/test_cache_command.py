"""``vtensor cache``: what is listed, removed and verified, in good folders and in bad ones."""

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
from typer.testing import CliRunner, Result

from ops import Relu
from tests.planning.damage import by_bytes, by_fields
from tests.planning.rows import ROWS
from vtensor import Graph, Session, save_onnx
from vtensor.cli import app
from vtensor.storage.entries import FOLDER, Entries

#: Networks whose entries name arrays in every place, constants that depend on sizes, and values.
ROWS_VERIFIED = (
    *("attention", "fixed small in nodes", "fixed residual beside", "computed positions"),
    *("turned cut beside", "packed", "values decide", "any rank"),
)

FOREIGN_MODEL = """
    <ir_version: 8, opset_import: ["" : 17]>
    m (float[N,2] x) => (float[N,2] y) { a = Relu(x) y = Mul(a, a) }
"""


def vtensor(*arguments: object) -> Result:
    """Run the command; an error of its own is a message, never a traceback."""
    ran = CliRunner().invoke(app, [str(argument) for argument in ("cache", *arguments)])
    assert ran.exception is None or type(ran.exception) is SystemExit, ran.exception
    assert ran.exit_code in (0, 1), ran.output
    return ran


def data_of(*arguments: object, exit_code: int = 0) -> Any:
    """What the command says as JSON."""
    ran = vtensor(*arguments, "--json")
    assert ran.exit_code == exit_code, ran.output
    return json.loads(ran.stdout)


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
def made(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, bytes]:
    """The files of a cache that two models led to, one of them written by VTensor."""
    folder = tmp_path_factory.mktemp("made")
    graph = Graph("own")
    graph.output(graph.add(Relu(), graph.input("x", {"N": None, "C": 2})), "y")
    save_onnx(graph, folder / "own.onnx")
    onnx.save(onnx.parser.parse_model(FOREIGN_MODEL), folder / "theirs.onnx")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VTENSOR_CACHE_DIR", str(folder / "cache"))
        patch.delenv("VTENSOR_COSTS")
        use(folder / "own.onnx", folder / "cache", deterministic=True)
        use(folder / "own.onnx", folder / "cache", tune=True, tolerance=0)
        use(folder / "theirs.onnx", folder / "cache", sizes=5)
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }


@pytest.fixture
def cache(made: Mapping[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same cache, which a test may change, as the user's own."""
    for name, entry in made.items():
        (tmp_path / name).parent.mkdir(0o700, parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(entry)
        (tmp_path / name).chmod(0o600)
    monkeypatch.setenv("VTENSOR_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def entries(cache: Path, kind: str = "") -> list[Path]:
    """The files of the entries whose names begin so."""
    return sorted((cache / FOLDER).glob(f"{kind}*"))


def where_made(cache: Path, name: str) -> Path:
    """The path of a model when the entries were written."""
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
    assert f"{where_made(cache, 'own.onnx')}\n" in text
    assert "  plan     tuned" in text
    assert "    2 days  x=5,2\n" in text
    assert f"{cache}: 7 entries, " in text


def test_a_declared_plan_is_not_called_measured(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vtensor("clear")
    monkeypatch.setenv("VTENSOR_COSTS", "declared")
    use(cache.parent / "theirs.onnx", cache, deterministic=True)
    [quality] = {row["quality"] for row in data_of("list")["entries"] if row["kind"] == "plan"}
    assert quality == "declared"


def test_a_model_from_memory_has_a_name(cache: Path) -> None:
    vtensor("clear")
    use((cache.parent / "theirs.onnx").read_bytes(), cache)
    assert {row["file"] for row in data_of("list")["entries"]} == {""}
    assert "model from memory m\n" in vtensor("list").stdout


def test_a_relative_path_is_written_down_whole(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vtensor("clear")
    monkeypatch.chdir(cache.parent)
    use(Path("theirs.onnx"), cache)
    assert {row["file"] for row in data_of("list")["entries"]} == {
        str(cache.parent / "theirs.onnx")
    }
    link = cache.parent / "link.onnx"
    link.symlink_to("theirs.onnx")
    assert len(data_of("list", "link.onnx")["entries"]) == 2


def test_a_model_restricts_list_and_clear(cache: Path) -> None:
    own = where_made(cache, "own.onnx")
    data = data_of("list", own)
    assert {row["file"] for row in data["entries"]} == {str(own)}
    assert len(data["entries"]) == 4
    nbytes = data["bytes"]
    assert data_of("clear", own) == {"folder": str(cache), "removed": 4, "bytes": nbytes}
    assert "0 entries" in vtensor("list", own).stdout
    assert len(data_of("list")["entries"]) == 3
    assert "removed 0 entries" in vtensor("clear", cache / "no such model").stdout


def test_clear_removes_what_the_cache_wrote_and_nothing_else(cache: Path) -> None:
    others = [cache / "mine", cache / FOLDER / "mine", cache / FOLDER / "plan-x-0"]
    for file in others:
        file.write_text("mine")
    link = cache / FOLDER / f"plan-{'0' * 32}-0"
    link.symlink_to(others[0])
    assert data_of("list")["foreign"] == 3
    assert "and 3 other files, which sessions do not read" in vtensor("list").stdout
    said = vtensor("clear").stdout
    assert "removed 7 entries, " in said
    assert sorted(entries(cache)) == sorted([*others[1:], link])
    assert [file.read_text() for file in others] == ["mine"] * 3
    assert data_of("list")["entries"] == []
    assert data_of("clear")["removed"] == 0
    use(cache.parent / "theirs.onnx", cache)
    assert len(data_of("list")["entries"]) == 2


def test_a_session_answers_after_clear(cache: Path) -> None:
    with Session(cache.parent / "theirs.onnx", cache_dir=cache, threads=1) as session:
        for sizes in (5, 6, 5):
            x = np.full((sizes, 2), 3, np.float32)
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
    assert len(data_of("list")["entries"]) == 6


def test_damage_of_every_kind(cache: Path) -> None:
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


def test_a_plan_under_another_name_is_damaged(cache: Path) -> None:
    first, second, *_ = entries(cache, "plan")
    first.write_bytes(second.read_bytes())
    assert "it is an entry of another name" in vtensor("verify").stdout


def resigned(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the data of a plan; the digest is right."""
    name, payload = file.name, file.read_bytes().partition(b"\n")[2]
    head, newline, blob = payload.partition(b"\n")
    data = json.loads(head)
    change(data)
    Entries(file.parent.parent).write(name, json.dumps(data).encode() + newline + blob)


@pytest.mark.parametrize("name", ROWS_VERIFIED)
def test_what_networks_lead_to_is_sound(name: str, tmp_path: Path) -> None:
    row = ROWS[name]()
    model = row.write(tmp_path / "net.onnx", 0)
    with Session(model, cache_dir=tmp_path / "cache", **row.options) as session:
        for feeds in row.feeds(0)[:2]:
            session.run(row.outputs, feeds)
    data = data_of("verify", "--cache-dir", tmp_path / "cache")
    assert {row["kind"] for row in data["entries"]} - {"weights"} == {"model", "plan"}


@pytest.mark.parametrize(
    "change",
    [
        lambda plan: plan["counts"].append(1),
        lambda plan: plan["counts"].__setitem__(0, 1 << 50),
        lambda plan: plan["memory"]["rows"].append([99, 0, 0, 0, 0]),
        lambda plan: plan["inputs"][0].__setitem__(1, "no type"),
        lambda plan: plan.update(regions=plan["regions"] + 1),
        lambda plan: plan.pop("guards"),
    ],
    ids=[
        "a slot more",
        "slots without end",
        "a row of no kind",
        "an element type",
        "a constant more",
        "no guards",
    ],
)
def test_a_plan_is_decoded_without_its_model(
    change: Callable[[dict[str, Any]], object], cache: Path
) -> None:
    file = next(one for one in entries(cache, "plan") if b'"plan":{' in one.read_bytes())
    resigned(file, lambda data: change(data["plan"]))
    data = data_of("verify", exit_code=1)
    assert [row["path"] for row in data["entries"] if row["problem"]] == [str(file)]
    use(cache.parent / "own.onnx", cache, deterministic=True)  # it answers all the same


def test_a_plan_of_another_build_is_not_damaged(cache: Path) -> None:
    file = next(one for one in entries(cache, "plan") if b'"plan":{' in one.read_bytes())
    resigned(file, lambda data: data["plan"].update(builds={"vtensor.runtime._replay": "older"}))
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


def test_what_a_killed_writer_left_is_damaged_once_it_is_old(cache: Path) -> None:
    left = cache / FOLDER / f"plan-{'0' * 32}-0.123.456"
    left.write_bytes(b"half")
    assert data_of("verify")["damaged"] == 0, "its writer may be at work"
    assert data_of("clear")["removed"] == 7
    assert left.exists()
    os.utime(left, (0, 0))
    assert "its writer was stopped" in vtensor("verify").stdout
    assert data_of("clear")["removed"] == 1
    assert not left.exists()


def test_times_that_are_broken_and_locked(cache: Path) -> None:
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


@pytest.mark.parametrize("command", ["list", "clear", "verify"])
def test_a_folder_that_is_not_there_holds_nothing(command: str, tmp_path: Path) -> None:
    assert "0 " in vtensor(command, "--cache-dir", tmp_path / "none").stdout
    assert not (tmp_path / "none").exists()
    (tmp_path / "empty").mkdir()
    assert vtensor(command, "--cache-dir", tmp_path / "empty").exit_code == 0
    assert not list((tmp_path / "empty").iterdir())


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
def test_a_folder_that_no_session_uses_is_an_error(
    command: str, spoil: Callable[[Path], None], cache: Path
) -> None:
    spoil(cache)
    ran = vtensor(command)
    assert ran.exit_code == 1
    assert f"InputError: {cache}: the cache cannot be read: " in ran.stderr
    assert "to fix: name a folder" in ran.stderr
    kept = [file for file in cache.parent.rglob("*-*") if file.is_file() and not file.is_symlink()]
    assert len(kept) == 6


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to read-only folders")
def test_a_read_only_folder_is_listed_and_not_cleared(cache: Path) -> None:
    (cache / FOLDER).chmod(0o500)
    try:
        assert len(data_of("list")["entries"]) == 7
        ran = vtensor("clear")
        assert ran.exit_code == 1
        assert "cannot be removed: Permission denied" in ran.stderr
    finally:
        (cache / FOLDER).chmod(0o700)


def test_a_cache_that_is_off_is_listed_all_the_same(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VTENSOR_CACHE", "off")
    assert len(data_of("list")["entries"]) == 7
    monkeypatch.setenv("VTENSOR_CACHE", "perhaps")
    assert "must be on or off" in vtensor("list").stderr
    assert len(data_of("list", "--cache-dir", cache)["entries"]) == 7


def test_others_write_meanwhile(cache: Path) -> None:
    payloads = [file.read_bytes().partition(b"\n")[2] for file in entries(cache)]
    names, over = [file.name for file in entries(cache)], threading.Event()

    def write() -> None:
        own = Entries(cache)
        while not over.is_set():
            for name, payload in zip(names, payloads, strict=True):
                own.write(name, payload)

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
