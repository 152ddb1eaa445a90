"""What is kept on disk of plans: who takes it, who does not, and that answers stay as they are."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from ops import Add, Conv2D, MatMul, MaxPool, Relu
from optimizer.pipeline import simplify
from resolver.evaluate import resolutions
from resolver.stored import from_plain_data, plain_data
from tests.runtime.opened import NETWORKS
from tests.runtime.test_better import settled
from vtensor import Graph, Session, save_onnx
from vtensor.cli import app
from vtensor.errors import InputError, UnsoundPlanError
from vtensor.report import plan_dict
from vtensor.runtime import entries, strategy_cache
from vtensor.runtime.entries import Entries
from vtensor.runtime.executor import Executor
from vtensor.runtime.feeds import noise
from vtensor.runtime.plan import Plan

Data = dict[str, Any]


def network(blocks: int = 2, step: int = 1) -> Graph:
    """Convolutions with a sum behind each, which want layouts of their own, and a pool."""
    g, random = Graph("net"), np.random.default_rng(0)
    x = g.input("x", {"N": 1, "C": 16, "H": 8, "W": 8})
    for number in range(blocks):
        array = random.standard_normal((16, 16, 3, 3), np.float32) / 12
        w = g.constant(array, "O I h w", f"w{number}")
        y = g.add(Conv2D(pads=(1, 1, 1, 1)), x, w, name=f"conv{number}")
        x = g.add(Relu(), g.add(Add(), x, y, name=f"sum{number}"), name=f"relu{number}")
    g.output(g.add(MaxPool(kernel_shape=(2, 2), strides=(step, step)), x, name="pool"), "y")
    return g


def opened(graph: Graph, folder: Path | bool | None, **options: Any) -> tuple[Session, Any, bool]:
    """A session, what it answers, and whether it has chosen anything itself."""
    before = resolutions()
    session = Session(graph, threads=1, cache_dir=folder, **options)
    [answer] = session.run(None, noise(session.inputs, {}))
    return session, answer, resolutions() > before


def files(folder: Path) -> list[Path]:
    """The entries of a cache."""
    return sorted((folder / entries.FOLDER).iterdir())


@pytest.mark.parametrize(
    "options", [{}, {"pin": {"sum1": "numpy"}}, {"output_layouts": {"y": "NHWC"}}]
)
def test_another_session_takes_what_was_chosen(tmp_path: Path, options: Data) -> None:
    first, wanted, chose = opened(network(), tmp_path, **options)
    again, found, chose_again = opened(network(), tmp_path, **options)
    assert (chose, chose_again) == (True, False)
    assert {**plan_dict(again, "net"), "origin": None} == {
        **plan_dict(first, "net"),
        "origin": None,
    }
    assert str(again.plan.graph) == str(first.plan.graph)
    assert again.plan.taken_from is None
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_kept_reads_back_as_it_was(name: str) -> None:
    network = NETWORKS[name]()
    [sizes] = network.sizes(1, 1)
    with Session(network.proto, threads=1) as session:
        feeds = network.feeds(*sizes)
        session.run(None, feeds)
        chosen, source = session.plan.graph, session._runner.open().source
        graph = simplify(source.graph({name: one.shape for name, one in feeds.items()}, {}))
    data = json.loads(json.dumps(plain_data(chosen)))
    read = from_plain_data(data, graph, chosen.delivery, chosen.preferences, chosen.passes)
    assert str(read) == str(chosen)
    assert [node.name for node in read.nodes] == [node.name for node in chosen.nodes]
    assert plain_data(read) == plain_data(chosen)


def test_other_sizes_take_it_in_another_session_too(tmp_path: Path) -> None:
    mobile = NETWORKS["mobile"]()
    before = resolutions()
    plans = []
    for sizes in ((1, 16, 16), (2, 32, 24), (1, 16, 16)):
        feeds = mobile.feeds(*sizes)
        with Session(mobile.proto, threads=1, cache_dir=tmp_path) as session:
            [found] = session.run(None, feeds)
            plans.append(session.plan)
        with Session(mobile.proto, threads=1) as session:
            [wanted] = session.run(None, feeds)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    assert [plan.taken_from for plan in plans] == [None, {"x": (1, 3, 16, 16)}, None]
    assert resolutions() - before == 1 + len(plans)  # one of ours, and those without a cache


#: What an entry is kept for; with any other it is not found.
OTHERS: dict[str, Callable[[pytest.MonkeyPatch], tuple[Graph, Data]]] = {
    "parameters": lambda _: (network(step=2), {}),
    "nodes": lambda _: (network(3), {}),
    "pins": lambda _: (network(), {"pin": {"sum0": "eigen"}}),
    "libraries": lambda _: (network(), {"libraries": ["eigen"]}),
    "passes": lambda _: (network(), {"optimize": ["all", "-fuse"]}),
    "version": lambda patch: _patched(patch, "vtensor.runtime.strategy_cache.__version__", "9"),
    "processor": lambda patch: _patched(
        patch, "vtensor.runtime.strategy_cache.processor", lambda: "another"
    ),
    "instruction sets": lambda patch: _patched(patch, "vtensor.isa._chosen", "avx2"),
    "a library's version": lambda patch: _patched(
        patch, "libdesc.library.RegisteredLibrary.version", lambda _: "4.0"
    ),
    "code": lambda patch: _patched(
        patch, "vtensor.runtime.strategy_cache.code_state", lambda: (1, 1)
    ),
    "format": lambda patch: _patched(patch, "vtensor.runtime.entries.FORMAT", b"vtensor 2"),
}


def _patched(patch: pytest.MonkeyPatch, name: str, value: object) -> tuple[Graph, Data]:
    patch.setattr(name, value)
    return network(), {}


@pytest.mark.parametrize("what", OTHERS)
def test_what_is_kept_for_others_is_not_taken(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(network(), tmp_path)
    graph, options = OTHERS[what](monkeypatch)
    session, found, chose = opened(graph, tmp_path, **options)
    if what == "parameters":  # as in other sizes: what was chosen serves, but is not its own
        assert session.plan.taken_from is None
    else:
        assert chose
    np.testing.assert_array_equal(found, opened(graph, None, **options)[1])


def test_a_damaged_or_cut_entry_is_made_anew(tmp_path: Path) -> None:
    _, wanted, _ = opened(network(32), tmp_path)
    [entry] = files(tmp_path)
    sound = entry.read_bytes()
    assert len(sound) > 3 * 4096
    places = [*range(0, len(sound), 4096), len(sound) - 1]
    damaged = [sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :] for at in places]
    for text in [*damaged, *(sound[:at] for at in places), sound + b" "]:
        entry.write_bytes(text)
        _, found, chose = opened(network(32), tmp_path)
        assert chose
        np.testing.assert_array_equal(found, wanted)
        assert Entries(tmp_path).read(entry.name)


def _node(data: Data, name: str) -> list[Any]:
    return next(row for row in data["chosen"]["nodes"] if row[1] == name)


def _set(place: Any, value: Any, *path: Any) -> None:
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value


#: What somebody may have written, by what is wrong about it; rows are as ``plain_data`` has them.
HOSTILE: dict[str, Callable[[Data], None]] = {
    "no choice": lambda data: _set(data, None, "chosen"),
    "versions": lambda data: _set(data, {"onednn": "0"}, "versions"),
    "no burden": lambda data: _set(data, "much", "burden"),
    "other inputs": lambda data: _set(data, [["z", [1, 16, 8, 8], None]], "inputs"),
    "no rows": lambda data: _set(data, {}, "chosen", "nodes"),
    "a kind of node": lambda data: _set(_node(data, "pool"), "system", 0),
    "no such node": lambda data: _set(_node(data, "pool"), "pole", 1),
    "a node less": lambda data: data["chosen"]["nodes"].remove(_node(data, "conv0")),
    "a node twice": lambda data: data["chosen"]["nodes"].append(_node(data, "conv0")),
    "another order": lambda data: data["chosen"]["nodes"].reverse(),
    "another edge": lambda data: _set(_node(data, "conv1"), ["x", "w1"], 2),
    "no such value": lambda data: _set(_node(data, "conv1"), ["nobody", "w1"], 2),
    "no such library": lambda data: _set(_node(data, "conv1"), "cuda", 3),
    "an unable library": lambda data: _set(_node(data, "conv1"), "onnx_reference", 3),
    "a layout of others": lambda data: _set(_node(data, "conv1"), "ABCD", 4, 0),
    "no layout": lambda data: _set(_node(data, "conv1"), "((", 4, 0),
    "a layout more": lambda data: _node(data, "conv1")[4].append("NCHW"),
    "another layout": lambda data: _set(_node(data, "conv1"), "WHNC", 4, 0),
    "an encoding": lambda data: _set(data, "NCHW:bf16", "chosen", "values", -1, 3),
    "a place far out": lambda data: _set(_node(data, "conv1"), [10**9], 5),
    "a place before": lambda data: _set(_node(data, "conv1"), [-1], 5),
    "a kernel": lambda data: _set(_node(data, "conv1"), "rm -rf", 7),
    "a basis": lambda data: _set(_node(data, "conv1"), "revealed", 9),
    "followers": lambda data: _set(_node(data, "conv1"), 10**9, 11),
    "other sizes": lambda data: _set(data, {"N": -1}, "chosen", "values", 0, 2),
    "another type": lambda data: _set(data, "f64", "chosen", "values", 0, 1),
    "an output more": lambda data: _set(data, "x", "chosen", "outputs", "z"),
    "another output": lambda data: _set(data, "x", "chosen", "outputs", "y"),
    "a certificate": lambda data: _set(data, ["time"], "chosen", "certificate"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_somebody_else_may_have_written_is_refused(
    what: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fresh, wanted, _ = opened(network(), tmp_path)
    [entry] = files(tmp_path)
    sound = entry.read_bytes()
    data = json.loads(sound.partition(b"\n")[2])
    HOSTILE[what](data)
    Entries(tmp_path).write(entry.name, json.dumps(data).encode())
    assert entry.read_bytes() != sound
    session, found, chose = opened(network(), tmp_path)
    assert chose
    assert str(session.plan.graph) == str(fresh.plan.graph)
    np.testing.assert_array_equal(found, wanted)
    assert "what the cache has for it is not taken" in caplog.text
    assert not opened(network(), tmp_path)[2]


def test_the_checker_looks_at_what_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(network(), tmp_path)
    checked = []
    monkeypatch.setattr(strategy_cache, "sound", lambda lowered, *_: checked.append(lowered))
    session, _, chose = opened(network(), tmp_path)
    assert not chose
    assert checked == [session.plan.graph]

    def unsound(*_: object) -> None:
        raise UnsoundPlanError("it is not")

    monkeypatch.setattr(strategy_cache, "sound", unsound)
    assert opened(network(), tmp_path)[2]


def test_an_entry_under_another_name_is_none(tmp_path: Path) -> None:
    opened(network(), tmp_path)
    [entry] = files(tmp_path)
    opened(network(3), tmp_path)
    [other] = {*files(tmp_path)} - {entry}
    entry.replace(other)
    assert opened(network(3), tmp_path)[2]


def _link(entry: Path) -> None:
    entry.rename(entry.parent.parent / "aside")
    entry.symlink_to(entry.parent.parent / "aside")


def _pipe(entry: Path) -> None:
    entry.unlink()
    os.mkfifo(entry)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda entry: entry.chmod(0o620),
        lambda entry: os.chown(entry, 1, -1),
        _link,
        _pipe,
    ],
    ids=["written by others", "of another", "a link", "a pipe"],
)
def test_a_foreign_entry_is_not_read(spoil: Callable[[Path], None], tmp_path: Path) -> None:
    _, wanted, _ = opened(network(), tmp_path)
    [entry] = files(tmp_path)
    spoil(entry)
    _, found, chose = opened(network(), tmp_path)
    assert chose
    np.testing.assert_array_equal(found, wanted)
    assert not opened(network(), tmp_path)[2]  # which is made anew


def test_a_folder_is_the_users_own(tmp_path: Path) -> None:
    opened(network(), tmp_path / "new" / "cache")
    folder = tmp_path / "new" / "cache" / entries.FOLDER
    assert {one.stat().st_mode & 0o777 for one in (folder, folder.parent)} == {0o700}
    assert {one.stat().st_mode & 0o777 for one in folder.iterdir()} == {0o600}


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("ends", ["closed", "dropped"])
@pytest.mark.parametrize("when", ["made", "run"])
def test_a_folder_that_was_removed_stays_away(
    named: bool,
    ends: str,
    when: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nothing is said either; a session that is made afterwards makes the folder anew."""
    mobile, folder = NETWORKS["mobile"](), tmp_path / "cache"
    (folder / entries.FOLDER).mkdir(0o700, parents=True)
    _users(folder, monkeypatch)
    session = Session(mobile.proto, threads=1, cache_dir=folder if named else True)
    if when == "run":
        session.run(None, mobile.feeds(1, 8, 8))
    shutil.rmtree(folder)
    for sizes in ((1, 8, 8), (1, 8, 8), (2, 8, 8), (1, 16, 8)):
        session.run(None, mobile.feeds(*sizes))
    if ends == "closed":
        session.close()
    del session
    settled()
    assert not folder.exists()
    assert not caplog.records
    with Session(mobile.proto, threads=1, cache_dir=folder) as session:
        session.run(None, mobile.feeds(1, 8, 8))
    assert files(folder)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("spoil", [lambda one: one.chmod(0o777), lambda one: os.chown(one, 1, 1)])
def test_somebody_elses_folder(
    named: bool,
    spoil: Callable[[Path], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, wanted, _ = opened(network(), tmp_path)
    spoil(tmp_path / entries.FOLDER)
    if named:
        with pytest.raises(InputError, match="not the user's alone"):
            Session(network(), cache_dir=tmp_path)
        return
    _users(tmp_path, monkeypatch)
    for _ in range(2):
        _, found, chose = opened(network(), True)
        assert chose
        np.testing.assert_array_equal(found, wanted)
    assert caplog.text.count("without a cache") == 1  # said once


def _users(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VTENSOR_CACHE", "on")
    monkeypatch.setenv("VTENSOR_CACHE_DIR", str(folder))
    entries._say.cache_clear()


@pytest.mark.parametrize("folder", ["file", "file/below", "/proc/no/folder"])
def test_a_folder_that_there_cannot_be(
    folder: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"cache_dir=.* cannot be used"):
        Session(network(), cache_dir=tmp_path / folder)
    _users(tmp_path / folder, monkeypatch)
    opened(network(), True)
    opened(network(), True)
    assert caplog.text.count("without a cache") == 1


@pytest.mark.parametrize("wrong", [3, "", b"folder", ["folder"]])
def test_what_is_no_folder_is_refused(wrong: Any) -> None:
    with pytest.raises(InputError, match="cache_dir="):
        Session(network(), cache_dir=wrong)


def test_the_variable_is_on_or_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VTENSOR_CACHE", "sometimes")
    with pytest.raises(InputError, match="VTENSOR_CACHE='sometimes' must be on or off"):
        Session(network())


def test_without_a_cache_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _users(tmp_path, monkeypatch)
    for off in (None, False):
        Session(network(), threads=1, cache_dir=off)
    assert [*tmp_path.iterdir()] == []
    Session(network(), threads=1)
    assert len(files(tmp_path)) == 1


@pytest.mark.parametrize("command", ["run", "plan", "explain", "profile"])
def test_commands_keep_what_they_choose_unless_told_not_to(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _users(tmp_path / "cache", monkeypatch)
    save_onnx(network(), tmp_path / "net.onnx")
    given = [command, str(tmp_path / "net.onnx"), "--threads", "1"]
    assert CliRunner().invoke(app, [*given, "--no-cache"]).exit_code == 0
    assert not (tmp_path / "cache").exists()
    assert CliRunner().invoke(app, given).exit_code == 0
    assert len(files(tmp_path / "cache")) == 1


def test_the_oldest_entries_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entries, "MOST_IN_ALL", 3000)
    kept = Entries(tmp_path)
    for number in range(4):
        kept.write(f"a{number}", bytes(900))
        os.utime(tmp_path / entries.FOLDER / f"a{number}", (number, number))
        if number == 2:
            assert kept.read("a0") == bytes(900)  # which makes it the youngest
    assert [one.name for one in files(tmp_path)] == ["a0", "a2", "a3"]
    assert kept.names("a")[0] == "a0"


def test_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No entry, no remains, and the answer; said once."""
    # Python would cut compiled modules off as well, which other tests then import.
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    save_onnx(network(), tmp_path / "net.onnx")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ran = _process(tmp_path, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1])))
    text, said = ran.communicate()
    assert ran.returncode == 0, said
    assert said.count("without a cache") == 1
    assert files(tmp_path / "cache") == []
    [wanted] = Session(network(), threads=1).run(None, {"x": np.ones((1, 16, 8, 8), np.float32)})
    assert text.split() == [wanted.tobytes().hex()] * 2


SCRIPT = """
import sys, numpy as np
from vtensor import Session
for _ in range(2):
    session = Session(sys.argv[1], threads=1, cache_dir=sys.argv[2])
    [y] = session.run(None, {"x": np.ones((1, 16, 8, 8), np.float32)})
    print(y.tobytes().hex())
"""


def _process(folder: Path, limit: Callable[[], None] | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, folder / "net.onnx", folder / "cache"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=limit,  # it starts no thread
    )


def test_two_processes_make_the_same_entry(tmp_path: Path) -> None:
    """Names, and with them entries, are the same in every process."""
    save_onnx(network(), tmp_path / "net.onnx")
    running = [_process(tmp_path) for _ in range(2)]
    told = [one.communicate() for one in running]
    assert [one.returncode for one in running] == [0, 0], told
    assert len({line for text, _ in told for line in text.split()}) == 1
    assert [said for _, said in told] == ["", ""]
    kept = {entry: entry.read_bytes() for entry in files(tmp_path / "cache")}
    plans = [one for one in kept if one.name.startswith(("program-", "surface-"))]
    assert len(kept) - len(plans) == 2, "one of the model, one of its strategy"
    settled()  # what other tests left is over
    before = resolutions()
    Session(tmp_path / "net.onnx", threads=1, cache_dir=tmp_path / "cache")
    assert resolutions() == before
    now = {entry: entry.read_bytes() for entry in files(tmp_path / "cache")}
    assert now | kept == now
    assert len(now) == 4, "and the plan as it runs, and what it is the plan of"


@pytest.mark.parametrize("best", [0, -1], ids=["with its times", "without them"])
def test_what_was_tuned_is_not_measured_again(
    best: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also not where the plan without measured times was the fastest."""

    def found_fastest(plans: Sequence[Plan], executor: Executor) -> tuple[Plan, Sequence[float]]:
        return plans[best], [1.0 for _ in plans]

    monkeypatch.setenv("VTENSOR_CACHE_DIR", str(tmp_path / "times"))
    monkeypatch.setattr("vtensor.runtime.planning.fastest", found_fastest)
    first, wanted, _ = opened(network(), tmp_path, tune=True, tolerance=0)
    for name in ("node_ns", "transform_ns"):
        monkeypatch.setattr(f"vtensor.runtime.tuning.{name}", _never)
    monkeypatch.setattr("vtensor.runtime.planning.fastest", _never)
    again, found, chose = opened(network(), tmp_path, tune=True, tolerance=0)
    assert not chose
    assert {**plan_dict(again, "net"), "origin": None} == {
        **plan_dict(first, "net"),
        "origin": None,
    }
    np.testing.assert_array_equal(found, wanted)
    monkeypatch.undo()
    assert opened(network(), tmp_path)[2]  # without it, the choice is another one


def test_what_was_tuned_for_other_sizes_is_not_taken(tmp_path: Path) -> None:
    """Times were measured for those: here they are others, and so may be what is fastest."""
    mobile, taken = NETWORKS["mobile"](), []
    for sizes in ((1, 16, 16), (2, 32, 24)):
        with Session(mobile.proto, threads=1, cache_dir=tmp_path, tune=True, tolerance=0) as one:
            one.run(None, mobile.feeds(*sizes))
            taken.append(one.plan.taken_from)
    assert taken == [None, None]


def _never(*_: object) -> None:
    raise AssertionError("it is known already")


def test_a_constant_that_may_decide_is_part_of_the_name(tmp_path: Path) -> None:
    def scaled(factor: float) -> Graph:
        g = Graph("scaled")
        x = g.input("x", {"N": 1, "C": 3})
        g.output(g.add(Add(), x, g.constant(np.full(3, factor, np.float32), "C")), "y")
        return g

    for factor, count in ((1.0, 1), (2.0, 2), (1.0, 2)):
        opened(scaled(factor), tmp_path)
        assert len(files(tmp_path)) == count


def test_weights_of_another_training_take_it(tmp_path: Path) -> None:
    def product(seed: int) -> Graph:
        g = Graph("product")
        x = g.input("x", {"N": 4, "I": 32})
        w = np.random.default_rng(seed).standard_normal((32, 32), np.float32)
        g.output(g.add(MatMul(over="I"), x, g.constant(w, "I O", "w")), "y")
        return g

    opened(product(1), tmp_path)
    _, found, chose = opened(product(2), tmp_path)
    assert not chose
    np.testing.assert_array_equal(found, opened(product(2), None)[1])


def test_the_digest_of_the_code_changes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for inside in (tmp_path / name / "inside" for name in entries._PACKAGES):
        inside.mkdir(parents=True)
        (inside / "code.py").touch()
    monkeypatch.setattr(entries, "__file__", str(tmp_path / "vtensor" / "x" / "y.py"))
    state = entries.code_state.__wrapped__  # nothing is remembered
    before = state()
    os.utime(tmp_path / "ops" / "inside" / "code.py", (2**33, 2**33))
    assert state() != before
