"""Blueprints on disk: other sizes behind a kept plan are planned without any graph."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.frontends.support import f32, model
from tests.runtime.opened import NETWORKS, Network
from tests.runtime.test_better import settled
from tests.runtime.test_blueprint import Made, ordered, settle
from tests.runtime.test_blueprint import programs as noted_programs
from vtensor import Session
from vtensor.errors import BudgetError, InputError
from vtensor.language.rows import CALL, GUARD
from vtensor.runtime import programs
from vtensor.runtime.ahead import Ahead
from vtensor.runtime.better import Better
from vtensor.runtime.blueprint_entries import BlueprintEntries
from vtensor.runtime.drawn import DrawnPlan
from vtensor.runtime.entries import FOLDER, Entries
from vtensor.runtime.graphs import Graphs
from vtensor.runtime.kept_blueprints import KeptBlueprint
from vtensor.runtime.programs import KeptPlan

Array = np.ndarray[Any, Any]
Feeds = Mapping[str, Array]
Data = dict[str, Any]

programs_made = noted_programs  # a fixture

#: Of these no blueprint is kept: ``test_blueprint`` says why none is drawn.
NONE = {"detector"}


@pytest.fixture(autouse=True)
def nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process may have registered operators; the networks here have none."""
    monkeypatch.setattr(programs, "only_own", lambda: True)


def used(path: Path, feeds: Feeds, cache: Path | None, **options: Any) -> Session:
    """A session that has been in use; what was to be measured, chosen and drawn is."""
    session = Session(path, cache_dir=cache, **{"threads": 1, **options})
    session.run(None, feeds)
    session.lock()
    for _ in range(2):
        session.run(None, feeds)
    settle(session)
    return session


def used_often(path: Path, feeds: Feeds, cache: Path) -> Session:
    """A session that has been in use, as far as it came without being asked for a plan."""
    session = Session(path, threads=1, cache_dir=cache)
    for _ in range(3):
        session.run(None, feeds)
    settle(session)
    return session


def kept(path: Path, feeds: Feeds, cache: Path, **options: Any) -> None:
    """Have a plan kept, and blueprints: what the first process chose, the second one keeps."""
    for _ in range(2):
        used(path, feeds, cache, **options).close()


def blueprints(cache: Path) -> list[Path]:
    """The entries of blueprints."""
    return sorted((cache / FOLDER).glob("blueprint-*"))


def written(name: str, folder: Path) -> tuple[Network, Path]:
    network, path = NETWORKS[name](), folder / "net.onnx"
    onnx.save(network.proto, path)
    return network, path


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The keys of which graphs were made."""
    made, make = list[Any](), Graphs.given
    settled()  # what other tests leave may go on for a moment

    def noted(graphs: Graphs, key: Any) -> Any:
        made.append(key)
        return make(graphs, key)

    monkeypatch.setattr(Graphs, "given", noted)
    return made


def started(path: Path, feeds: Feeds, cache: Path, **options: Any) -> Session:
    """A session whose first plan was taken as it was kept."""
    session = Session(path, cache_dir=cache, **{"threads": 1, **options})
    session.run(None, feeds)
    assert isinstance(session.plan, KeptPlan)
    return session


def is_taken(session: Session, feeds: Feeds, graphs: list[Any], wanted: list[Array]) -> bool:
    """Whether the plan of a run is of a blueprint that was kept; it answers as is wanted."""
    graphs.clear()
    found = session.run(None, feeds)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    return isinstance(session.plan, DrawnPlan) and not graphs


@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name: str, tmp_path: Path, graphs: list[Any], programs_made: list[Made]) -> None:
    network, path = written(name, tmp_path)
    [first] = (network.feeds(*one) for one in network.sizes(5, 1))
    kept(path, first, tmp_path)
    assert bool(blueprints(tmp_path)) == (name not in NONE)
    session, taken = started(path, first, tmp_path), 0
    plain = Session(path, threads=1, optimize="none", cache_dir=None)
    for feeds in [network.feeds(*sizes) for sizes in network.sizes(6, 12)]:
        answer = plain.run(None, feeds)
        programs_made.clear()
        if is_taken(session, feeds, graphs, answer) and programs_made:
            taken += 1
            drawn, plan = programs_made[-1], session.plan
            assert plan.taken_from is not None
            assert len(plan.recorded) == len(drawn[1])  # made node by node now
            assert ordered(drawn) == ordered(programs_made[-1])
    assert bool(taken) == (name not in NONE)


def test_they_serve_behind_a_size_that_none_of_them_serves(
    tmp_path: Path, graphs: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For that the model is read; to draw others takes a second or so, which is put off here."""
    path, refused = net(tmp_path / "net.onnx"), {"x": f32(5, 64, 9, 8)}
    kept(path, X, tmp_path)
    monkeypatch.setattr(Ahead, "has_run", lambda *_: None)
    serves = KeptBlueprint.serves
    monkeypatch.setattr(KeptBlueprint, "serves", lambda one, at: at[0] != 5 and serves(one, at))
    with started(path, X, tmp_path) as session:
        assert not is_taken(session, refused, graphs, wanted(path, refused))
        assert is_taken(session, OTHER, graphs, wanted(path, OTHER))
        plans = session._runner.plans
        assert plans is not None
        plans._others.forget()
        other = {"x": f32(3, 64, 7, 8)}
        assert not is_taken(session, other, graphs, wanted(path, other))
        assert plans._others.blueprints is not None
        assert not plans._others.blueprints._known


def test_those_of_provisional_choices_serve_until_others_are_there(
    tmp_path: Path, graphs: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vtensor.runtime.options.speeds_asked_for", lambda: dict)
    monkeypatch.setattr(Better, "wait", lambda one, _: setattr(one, "_wait_s", 1e9))
    path, feeds = net(tmp_path / "net.onnx"), {"x": f32(1, 64, 5, 8)}
    other = {"x": f32(2, 64, 6, 8)}
    wanted = Session(path, threads=1, optimize="none", cache_dir=None).run(None, other)
    for count in range(2):
        with used_often(path, feeds, tmp_path) as session:
            assert session.plan.provisional
        names = [one.name for one in (tmp_path / FOLDER).glob("*blueprint-*")]
        assert names, f"process {count}"
        assert all(one.startswith("first-") for one in names)
    with started(path, feeds, tmp_path) as session:
        assert is_taken(session, other, graphs, wanted)
        provisional = [session.plan.provisional]
        assert session.lock().text()  # which makes the measured plan of this size
        provisional.append(session.plan.provisional)
        assert provisional == [True, False]
        for one, want in zip(session.run(None, other), wanted, strict=True):
            np.testing.assert_allclose(one, want, rtol=1e-4, atol=1e-5)
        for rows in (3, 4):  # what was measured goes before what was chosen provisionally
            session.run(None, {"x": f32(rows, 64, 7, 8)})
            assert session.lock().text()
            assert not session.plan.provisional
    monkeypatch.undo()
    monkeypatch.setattr(programs, "only_own", lambda: True)
    kept(path, feeds, tmp_path)
    assert blueprints(tmp_path)
    with Session(path, threads=1, cache_dir=tmp_path) as session:
        session.run(None, feeds)  # of the other size's blueprint, or as it was kept
        assert not session.plan.provisional
        assert is_taken(session, other, graphs, wanted)
        assert not session.plan.provisional


@pytest.mark.parametrize("draws", [True, False])
def test_those_of_provisional_choices_serve_behind_a_measured_plan(
    tmp_path: Path, graphs: list[Any], monkeypatch: pytest.MonkeyPatch, draws: bool
) -> None:
    """As long as there are no others: to read the model takes far longer."""
    path, feeds = net(tmp_path / "net.onnx"), {"x": f32(1, 64, 5, 8)}
    other = {"x": f32(2, 64, 6, 8)}
    wanted = Session(path, threads=1, optimize="none", cache_dir=None).run(None, other)
    monkeypatch.setattr("vtensor.runtime.options.speeds_asked_for", lambda: dict)
    monkeypatch.setattr(Better, "wait", lambda one, _: setattr(one, "_wait_s", 1e9))
    for _ in range(2):
        used_often(path, feeds, tmp_path).close()
    with monkeypatch.context() as patch:
        patch.setattr(BlueprintEntries, "keep", lambda *_: None)
        kept(path, feeds, tmp_path)
    assert not blueprints(tmp_path)
    assert [*(tmp_path / FOLDER).glob("first-blueprint-*")]
    if not draws:
        monkeypatch.setattr("vtensor.runtime.strategies._draw", None)
    with started(path, feeds, tmp_path) as session:
        provisional = [session.plan.provisional]
        assert is_taken(session, other, graphs, wanted)
        provisional.append(session.plan.provisional)
        assert session.lock().text()  # which makes the measured plan of this size
        provisional.append(session.plan.provisional)
        plans = session._runner.plans
        assert plans is not None
        for _ in range(2):
            session.run(None, feeds)
        settle(session)
        assert (plans._others._behind is None) == draws
    assert provisional == [False, True, False]


def net(path: Path, seed: int = 0) -> Path:
    """Write a model with weights that are packed, folded and read as they lie, a position for each
    row, and a constant that is spread over the batch.
    """
    body = """
        c = Conv<pads = [1, 1, 1, 1]>(x, k) r = Relu(c) f0 = Transpose<perm = [0, 2, 3, 1]>(r)
        rows = Shape<start = 1, end = 2>(f0) wide = Concat<axis = 0>(one, rows, one, many)
        at = Expand(position, wide) f = Add(f0, at) p = MatMul(f, w) y = Mul(p, half)
    """
    weights: dict[str, Any] = {
        "k": f32(64, 64, 3, 3, seed=seed) / 24,
        "w": f32(64, 320, seed=seed) / 8,
        "position": f32(1, 1, 1, 64),
        "half": np.array(0.5, np.float32),
        "one": np.array([1]),
        "many": np.array([64]),
    }
    text = f"net (float[n, 64, h, 8] x) => (float[n, h, 8, 320] y) {{ {body} }}"
    onnx.save(model(text, 17, **weights), path)
    return path


X, OTHER = {"x": f32(2, 64, 8, 8)}, {"x": f32(3, 64, 6, 8)}


def wanted(path: Path, feeds: Feeds) -> list[Array]:
    """What a session without a cache answers."""
    return Session(path, threads=1, cache_dir=None).run(None, feeds)


@pytest.mark.parametrize("streams", [1, 2])
def test_on_several_threads_and_lanes(streams: int, tmp_path: Path, graphs: list[Any]) -> None:
    path, options = net(tmp_path / "net.onnx"), {"threads": 2, "streams": streams}
    kept(path, X, tmp_path, **options)
    session = started(path, X, tmp_path, **options)
    assert is_taken(session, OTHER, graphs, wanted(path, OTHER))


def test_constants_that_depend_on_sizes_are_made_anew(tmp_path: Path, graphs: list[Any]) -> None:
    path = net(tmp_path / "net.onnx")
    kept(path, X, tmp_path)
    session = started(path, X, tmp_path)
    for n, h in ((3, 6), (2, 9), (4, 7)):
        feeds = {"x": f32(n, 64, h, 8)}
        assert is_taken(session, feeds, graphs, wanted(path, feeds))


def test_weights_are_those_of_now_and_packed_once(tmp_path: Path, graphs: list[Any]) -> None:
    path = net(tmp_path / "net.onnx")
    kept(path, X, tmp_path)
    net(path, seed=1)
    session = started(path, X, tmp_path)
    have = session._runner.open()._workspace.weights
    before = have.nbytes
    assert is_taken(session, OTHER, graphs, wanted(path, OTHER))
    assert have.nbytes - before < 1 << 14  # of small ones there is another copy


def test_one_is_kept_once(tmp_path: Path) -> None:
    path = net(tmp_path / "net.onnx")
    kept(path, X, tmp_path)
    [place] = blueprints(tmp_path)
    whole = place.read_bytes()
    for feeds in (X, OTHER):
        used(path, feeds, tmp_path)
    assert blueprints(tmp_path)[0].read_bytes() == whole


def test_behind_one_nothing_is_read_nor_drawn(tmp_path: Path, graphs: list[Any]) -> None:
    path = net(tmp_path / "net.onnx")
    kept(path, X, tmp_path)
    session = started(path, X, tmp_path)
    graphs.clear()
    for _ in range(3):
        session.run(None, X)
    settle(session)
    assert not graphs


def test_whoever_asks_has_what_others_have(tmp_path: Path, graphs: list[Any]) -> None:
    path = net(tmp_path / "net.onnx")
    kept(path, X, tmp_path)
    session = started(path, X, tmp_path)
    assert is_taken(session, OTHER, graphs, wanted(path, OTHER))
    plan = session.plan
    assert plan.taken_from == {"x": (2, 64, 8, 8)}
    assert plan.steps
    assert session.lock().text()
    np.testing.assert_allclose(session.run(["y"], OTHER)[0], wanted(path, OTHER)[0], rtol=1e-4)


def test_a_smaller_budget_is_told_as_ever(tmp_path: Path) -> None:
    path = net(tmp_path / "net.onnx")
    limit = 3_000_000
    kept(path, X, tmp_path, max_bytes=limit)
    session = started(path, X, tmp_path, max_bytes=limit)
    with pytest.raises(BudgetError):
        session.run(None, {"x": f32(64, 64, 64, 8)})
    with pytest.raises(InputError):
        session.run(None, {"x": f32(2, 9, 8, 8)})
    assert session.run(None, X)


def test_damage_is_made_anew(tmp_path: Path) -> None:
    path = net(tmp_path / "net.onnx")
    kept(path, X, tmp_path)
    [place], answer = blueprints(tmp_path), wanted(path, OTHER)
    whole = place.read_bytes()
    for at in {*range(0, len(whole), 4096), len(whole) - 1}:
        for damaged in (whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :], whole[:at]):
            place.write_bytes(damaged)
            session = started(path, X, tmp_path)
            for one, other in zip(session.run(None, OTHER), answer, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
            session.close()


def _without(name: str) -> Callable[[Data], None]:
    return lambda data: data.pop(name)


def _set(name: str, value: Any) -> Callable[[Data], None]:
    return lambda data: data.update({name: value})


def _row(kind: int, change: Callable[[list[Any]], None]) -> Callable[[Data], None]:
    """Change the first row of a kind, of all traces of calls."""

    def changed(data: Data) -> None:
        for one in data["calls"]:
            for row in [row for row in one["rows"]["rows"] if row[0] == kind][:1]:
                change(row)

    return changed


def _constant(one: Any) -> Callable[[Data], None]:
    """Let the function that is called first be something else."""

    def changed(data: Data) -> None:
        for call in data["calls"]:
            rows = call["rows"]
            for row in [row for row in rows["rows"] if row[0] == CALL][:1]:
                rows["constants"][-1 - row[2]] = one

    return changed


#: What an entry may say beside the truth.
ODD: Mapping[str, Callable[[Data], None]] = {
    **{f"without {name}": _without(name) for name in ("calls", "steps", "own", "proven")},
    **{
        f"{name} that is none": _set(name, value)
        for name in ("outline", "trace", "rows", "counts", "piece", "begin", "region", "pieces")
        for value in (None,)
    },
    "another name": _set("name", "another"),
    "other builds": _set("builds", {}),
    "weights beyond all memory": _set("weights", 1 << 60),
    "no steps": _set("steps", []),
    "places beyond the arena": lambda data: data["begin"].__setitem__(0, 10**6),
    "a row of no kind": _row(CALL, lambda row: row.__setitem__(0, 99)),
    "an operation that there is not": _row(GUARD, lambda row: row.__setitem__(2, 99)),
    "operands that there are not": _row(CALL, lambda row: row.__setitem__(3, [10**6])),
    "what is nobody else's": _constant({"path": ["libdesc.onednn._onednn", "__dict__"]}),
    "a module of Python's": _constant({"path": ["os", "getcwd"]}),
    "a function of Python's": _constant({"function": "os:getcwd"}),
    "a function that has no name": _constant({"function": "libdesc.tracing:pure_function"}),
    "a text": _constant(["text"]),
    "what nodes make ahead of runs": _constant({"function": "ops._elements:Max"}),
    "a layout that is none": lambda data: data["inputs"][0].__setitem__(3, "[[bad"),
    "an element type that is none": lambda data: data["outputs"][0][1].__setitem__(1, "f99"),
    "a weight that is of no kind": lambda data: data["large"][0].update(kind=["f99", [], "??"]),
    "more than all memory": lambda data: data["outline"].update(
        constants=[[1 << 60], {"list": [[1]]}], rows=[[0, 1, 2, -1, -2]], count=2
    ),
}


def test_what_it_reads_of_a_kept_plan_is_counted(
    tmp_path: Path, graphs: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vtensor.runtime.plans.PLANS_KEPT", 1)
    path = net(tmp_path / "net.onnx")
    kept(path, X, tmp_path)
    session = started(path, X, tmp_path)
    have = session._runner.open()._workspace.weights
    before = have.nbytes
    for n in (3, 4, 5):
        feeds = {"x": f32(n, 64, 6, 8)}
        assert is_taken(session, feeds, graphs, wanted(path, feeds))
    assert have.nbytes >= before


@pytest.mark.parametrize("what", ODD)
def test_an_entry_that_says_something_else_is_not_taken(
    what: str, tmp_path: Path, graphs: list[Any]
) -> None:
    path = net(tmp_path / "net.onnx")
    kept(path, X, tmp_path)
    [place] = blueprints(tmp_path)
    entries = Entries(tmp_path)
    head, _, blob = (entries.read(place.name) or b"").partition(b"\n")
    data = json.loads(head)
    ODD[what](data)
    entries.write(place.name, json.dumps(data).encode() + b"\n" + blob)
    session = started(path, X, tmp_path)
    assert not is_taken(session, OTHER, graphs, wanted(path, OTHER))


def test_other_options_have_others(tmp_path: Path) -> None:
    path = net(tmp_path / "net.onnx")
    kept(path, X, tmp_path)
    others: list[Data] = [{"optimize": ["all", "-fuse"]}, {"threads": 2}]
    for count, options in enumerate(others, 2):
        kept(path, X, tmp_path, **options)
        assert len({one.name.rpartition("-")[0] for one in blueprints(tmp_path)}) == count


def test_deterministic_sessions_have_plans_of_their_own(tmp_path: Path, graphs: list[Any]) -> None:
    path = net(tmp_path / "net.onnx")
    kept(path, X, tmp_path)
    with Session(path, threads=1, cache_dir=tmp_path, deterministic=True) as session:
        session.run(None, X)
        graphs.clear()
        session.run(None, OTHER)
        assert graphs
