"""Plans that are kept as they run: who takes them, and when they are made anew."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from libdesc.registry import only_own
from ops import (
    Conv2D,
    Mul,
)
from optimizer.pipeline import simplify
from tests.libraries.scratch import scratch_registry
from tests.runtime import packed_nets
from tests.runtime.packed_nets import NETS, written
from vtensor import Graph, Session, save_onnx
from vtensor.errors import BudgetError
from vtensor.frontends import export, surface
from vtensor.report import plan_dict
from vtensor.runtime import program_notes, programs
from vtensor.runtime.entries import FOLDER, Entries
from vtensor.runtime.feeds import noise
from vtensor.runtime.graphs import Graphs
from vtensor.runtime.plan_entry import PlanEntry
from vtensor.runtime.programs import KeptPlan

Array = np.ndarray[Any, Any]
Data = dict[str, Any]


def run(path: Path | bytes, cache: Path | None, **options: Any) -> tuple[Session, Array]:
    """A session and what it answers."""
    session = Session(path, threads=1, cache_dir=cache, **options)
    [found] = session.run(None, noise(session.inputs, {}))
    return session, found


def kept(path: Path, cache: Path, **options: Any) -> Array:
    """Have a plan kept; what it answers."""
    run(path, cache, **options)
    session, found = run(path, cache, **options)
    assert not isinstance(session.plan, KeptPlan)
    return found


def entry(cache: Path) -> Path:
    """That of the only plan."""
    [found] = (cache / FOLDER).glob("program-*")
    return found


@pytest.fixture(autouse=True)
def _nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process may have registered operators; the networks here have none."""
    monkeypatch.setattr(programs, "only_own", lambda: True)


@pytest.fixture(params=["inside", "beside", "in nodes"])
def beside(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights are in the model, in a file beside it, or in nodes of the model."""
    if request.param == "beside":
        monkeypatch.setattr(export, "BESIDE_BYTES", 0)
    if request.param == "in nodes":
        monkeypatch.setattr(packed_nets, "write", packed_nets.with_weights_in_nodes)


@pytest.mark.usefixtures("beside")
@pytest.mark.parametrize("name", NETS)
def test_a_kept_plan_gives_the_same_bits(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(name, tmp_path / "net.onnx")
    wanted = kept(path, tmp_path)
    fresh = run(path, None)[0]
    with monkeypatch.context() as patch:  # neither a graph nor a strategy is looked at
        patch.setattr("vtensor.language.graph.Graph.parse", None)
        patch.setattr(Graphs, "given", None)
        session, found = run(path, tmp_path)
    assert isinstance(session.plan, KeptPlan)
    np.testing.assert_array_equal(found, wanted)
    assert str(session.plan.graph) == str(fresh.plan.graph)
    assert session.plan.anew == fresh.plan.anew
    assert [one.kernels for one in session.plan.steps] == [one.kernels for one in fresh.plan.steps]
    assert session.memory == fresh.memory
    own, other = (plan_dict(one, "net") for one in (session, fresh))
    own["certificate"] = other["certificate"]  # which says how long the solver took
    assert own.pop("origin") == {"way": "specialised", "cached": True}
    assert other.pop("origin") == {"way": "planned", "cached": False}
    assert own == other
    assert session.values == fresh.values
    assert session.lock().text() == fresh.lock().text()


@pytest.mark.parametrize("name", ["folded", "joined", "transformer"])
def test_so_it_does_on_several_threads_and_lanes(name: str, tmp_path: Path) -> None:
    path = written(name, tmp_path / "net.onnx")
    several: list[Data] = [{"threads": 2}, {"threads": 2, "streams": 2}]
    for options in several:
        answers = []
        for _ in range(3):
            session = Session(path, cache_dir=tmp_path, **options)
            feeds = noise(session.inputs, {})
            answers += [session.run(None, feeds)[0] for _ in range(3)]
        assert isinstance(session.plan, KeptPlan)
        for one in answers:
            np.testing.assert_array_equal(one, answers[0])


def test_bytes_of_a_model_are_known_as_well(tmp_path: Path) -> None:
    data = written("folded", tmp_path / "net.onnx").read_bytes()
    wanted = [run(data, tmp_path)[1] for _ in range(2)][-1]
    session, found = run(data, tmp_path)
    assert isinstance(session.plan, KeptPlan)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.usefixtures("beside")
def test_large_weights_are_those_of_now(tmp_path: Path) -> None:
    path = written("plain", tmp_path / "net.onnx")
    before = kept(path, tmp_path)
    written("plain", path, seed=1)
    session, found = run(path, tmp_path)
    assert isinstance(session.plan, KeptPlan)
    assert not np.array_equal(found, before)
    np.testing.assert_array_equal(found, run(path, None)[1])
    assert session.plan.steps


@pytest.mark.usefixtures("beside")
@pytest.mark.parametrize("name", ["small", "folded"])
def test_small_weights_are_part_of_the_model(name: str, tmp_path: Path) -> None:
    path = written(name, tmp_path / "net.onnx")
    kept(path, tmp_path)
    written(name, path, seed=1)
    session, found = run(path, tmp_path)
    assert not isinstance(session.plan, KeptPlan)
    np.testing.assert_array_equal(found, run(path, None)[1])


def test_a_weight_that_must_not_be_folded_is_not(tmp_path: Path) -> None:
    """What it is multiplied by would make it infinite: the plan is made anew, without folding."""
    path = tmp_path / "net.onnx"

    def net(large: float) -> None:
        g = Graph("net")
        x = g.input("x", {"N": 1, "C": 64, "H": 4, "W": 4})
        w = g.constant(np.full((64, 64, 3, 3), large, np.float32), "O I h w")
        y = g.add(Conv2D(), x, w)
        g.output(g.add(Mul(), y, g.constant(np.full(64, 1e30, np.float32), "C")), "y")
        save_onnx(g, path)

    net(1e-3)
    kept(path, tmp_path)
    assert isinstance(run(path, tmp_path)[0].plan, KeptPlan)
    net(1e10)
    session, found = run(path, tmp_path)
    assert not isinstance(session.plan, KeptPlan)
    np.testing.assert_array_equal(found, run(path, None)[1])


@pytest.mark.parametrize("name", ["folded", "small"])
def test_damage_is_made_anew(name: str, tmp_path: Path) -> None:
    path = written(name, tmp_path / "net.onnx")
    wanted, place = kept(path, tmp_path), entry(tmp_path)
    whole = place.read_bytes()
    for at in {*range(0, len(whole), 4096), len(whole) - 1}:
        for damaged in (whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :], whole[:at]):
            place.write_bytes(damaged)
            session, found = run(path, tmp_path)
            assert not isinstance(session.plan, KeptPlan)
            np.testing.assert_array_equal(found, wanted)
            assert place.read_bytes() == whole


def _path(data: Data) -> list[str]:
    """The names that lead to a native function."""
    constants = data["natives"]["constants"]
    return next(one["path"] for one in constants if isinstance(one, dict) and "path" in one)


#: What an entry may say beside the truth.
ODD: Mapping[str, Callable[[Data], object]] = {
    "another name": lambda data: data.update(name="program-0"),
    "another build": lambda data: data["builds"].update({"libdesc.onednn._onednn": ["0"]}),
    "no build": lambda data: data["builds"].clear(),
    "a smaller arena": lambda data: data.update(arena=0),
    "a negative arena": lambda data: data.update(arena=-64),
    "less room for weights": lambda data: data.update(weights=64),
    "a place behind the end": lambda data: data["steps"][0][1][0].__setitem__(1, 1 << 40),
    "a place before the begin": lambda data: data["steps"][0][1][0].__setitem__(1, -64),
    "a place that is not aligned": lambda data: data["steps"][0][1][0].__setitem__(1, 1),
    "no region": lambda data: data["steps"][0][1][0].__setitem__(0, 99),
    "a slot less": lambda data: data["steps"][0][1].pop(),
    "a step that is none": lambda data: data["steps"][0].__setitem__(0, 99),
    "a descriptor as a step": lambda data: data["steps"][0].__setitem__(0, 0),
    "another function": lambda data: _path(data).__setitem__(-1, "nothing"),
    "a hidden function": lambda data: _path(data).__setitem__(-1, "__class__"),
    "another module": lambda data: _path(data).__setitem__(0, "os"),
    "another library": lambda data: _path(data).__setitem__(0, "libdesc.numpy._numpy"),
    "other arguments": lambda data: data["natives"]["rows"][-1].__setitem__(3, []),
    "a row less": lambda data: data["natives"]["rows"].pop(),
    "no native things": lambda data: data.update(natives={}),
    "another weight": lambda data: data["large"][0].update(name="other"),
    "another shape": lambda data: data["large"][0].update(shape=[3]),
    "a weight beyond": lambda data: data["large"][0].update(begin=1 << 40),
    "a weight before": lambda data: data["large"][0].update(begin=-64),
    "a smaller weight": lambda data: data["large"][0].update(nbytes=64),
    "a factor beyond": lambda data: data["large"][0]["changes"][0].__setitem__(1, 1 << 40),
    "a factor of another shape": lambda data: data["large"][0]["changes"][0].__setitem__(0, [7]),
    "no step that packs": lambda data: data["large"][0].update(native=99),
    "other slots": lambda data: data["large"][0].update(slots=["source", "source"]),
    "no scratch": lambda data: data["large"][0].update(slots=["source", "target", -1]),
    "weights beyond all memory": lambda data: data.update(weights=1 << 60),
    "other memory of slots": lambda data: data.update(slots="0" * 32),
    "scratch beyond all memory": lambda data: data["large"][0].update(
        slots=["source", "target", 1 << 60]
    ),
    "small ones beyond": lambda data: data["small"][0].__setitem__(2, 1 << 40),
    "other inputs": lambda data: data["inputs"][0].__setitem__(1, "f99"),
    "another layout": lambda data: data["inputs"][0].__setitem__(3, "N C X"),
    "no outputs": lambda data: data.update(outputs=[["y", data["inputs"][0], 7]]),
    "an input of another size": lambda data: data["inputs"][0][2][0].__setitem__(1, 8),
    "an input of another name": lambda data: data["inputs"][0].__setitem__(0, ""),
    "an input with another dim": lambda data: data["inputs"][0][2][1].__setitem__(0, "D"),
    "no steps": lambda data: data.update(steps=[]),
    "a step less": lambda data: data["steps"].pop(),
    "no inputs": lambda data: data.update(inputs=[]),
    "an output of another name": lambda data: data["outputs"][0].__setitem__(0, "z"),
    "an output of another type": lambda data: data["outputs"][0][1].__setitem__(1, "s32"),
    "an output of another size": lambda data: data["outputs"][0][1][2][1].__setitem__(1, 1),
    "an output with another dim": lambda data: data["outputs"][0][1][2][0].__setitem__(0, "D"),
    "larger memory of an output": lambda data: data["own"][0][1][0].__setitem__(1, 4),
    "bytes of another small one": lambda data: data["small"][0].__setitem__(2, 0),
    "constants in another order": lambda data: data["constants"].reverse(),
    "a constant less": lambda data: data["constants"].pop(),
    "slots the other way round": lambda data: data["large"][0]["slots"].reverse(),
    "no place of a rule": lambda data: data.update(applied=[["fold"]]),
    "nothing": lambda data: data.clear(),
}


@pytest.mark.parametrize("what", ODD)
def test_an_entry_that_says_something_else_is_made_anew(what: str, tmp_path: Path) -> None:
    path = written("folded", tmp_path / "net.onnx")
    wanted, place = kept(path, tmp_path), entry(tmp_path)
    entries, whole = Entries(tmp_path), place.read_bytes()
    head, _, blob = (entries.read(place.name) or b"").partition(b"\n")
    data = json.loads(head)
    ODD[what](data)
    entries.write(place.name, json.dumps(data).encode() + b"\n" + blob)
    session, found = run(path, tmp_path)
    assert not isinstance(session.plan, KeptPlan)
    np.testing.assert_array_equal(found, wanted)
    assert place.read_bytes() == whole


#: What a plan is kept for; with any other it is not taken.
OTHERS: Mapping[str, Data] = {
    "threads": {"threads": 2},
    "passes": {"optimize": ["all", "-fuse"]},
    "libraries": {"libraries": ["eigen"]},
    "delivery": {"output_layouts": {"y": "NHWC"}},
    "entry": {"input_layouts": {"x": "NHWC"}},
}


@pytest.mark.parametrize("what", OTHERS)
def test_other_options_have_another_plan(what: str, tmp_path: Path) -> None:
    path = written("folded", tmp_path / "net.onnx")
    kept(path, tmp_path)
    options = {"threads": 1, **OTHERS[what]}
    for _ in range(3):
        session = Session(path, cache_dir=tmp_path, **options)
    assert isinstance(session.plan, KeptPlan)
    assert len([*(tmp_path / FOLDER).glob("program-*")]) == 2


@pytest.mark.parametrize("what", ["processor", "isa_cap"])
def test_another_machine_has_another_plan(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written("folded", tmp_path / "net.onnx")
    kept(path, tmp_path)
    monkeypatch.setattr(programs, what, lambda: "another")
    assert not isinstance(run(path, tmp_path)[0].plan, KeptPlan)


def test_other_distributions_have_another_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written("folded", tmp_path / "net.onnx")
    kept(path, tmp_path)
    folder = tmp_path / "site"
    (folder / "other-1.0.dist-info").mkdir(parents=True)
    with monkeypatch.context() as patch:
        patch.syspath_prepend(folder)
        assert not isinstance(run(path, tmp_path)[0].plan, KeptPlan)
    assert isinstance(run(path, tmp_path)[0].plan, KeptPlan)
    monkeypatch.setenv("VTENSOR_SOMETHING", "else")
    assert not isinstance(run(path, tmp_path)[0].plan, KeptPlan)


def test_in_a_registry_that_was_changed_no_plan_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "only_own", only_own)
    path = written("folded", tmp_path / "net.onnx")
    with scratch_registry():
        for _ in range(3):
            assert not isinstance(run(path, tmp_path)[0].plan, KeptPlan)
    assert not [*(tmp_path / FOLDER).glob("program-*")]


def test_a_smaller_budget_is_told_as_ever(tmp_path: Path) -> None:
    path = written("folded", tmp_path / "net.onnx")
    kept(path, tmp_path)
    with pytest.raises(BudgetError, match="the budget is 999"):
        Session(path, threads=1, cache_dir=tmp_path, max_bytes=999)


def test_steps_of_python_are_not_kept_nor_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written("folded", tmp_path / "net.onnx")
    options = {"pin": {"Conv2D": "numpy"}}
    wanted = kept(path, tmp_path, **options)
    assert json.loads(Entries(tmp_path).read(entry(tmp_path).name) or b"").keys() == {"name"}
    monkeypatch.setattr(PlanEntry, "_payload", None)
    session, found = run(path, tmp_path, **options)
    assert not isinstance(session.plan, KeptPlan)
    np.testing.assert_array_equal(found, wanted)


def test_a_plan_that_is_too_large_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written("folded", tmp_path / "net.onnx")
    monkeypatch.setattr(program_notes, "MOST", 1000)
    wanted = kept(path, tmp_path)
    monkeypatch.setattr(PlanEntry, "_payload", None)
    session, found = run(path, tmp_path)
    assert not isinstance(session.plan, KeptPlan)
    np.testing.assert_array_equal(found, wanted)


def test_a_model_of_many_small_arrays_is_read_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written("small", tmp_path / "net.onnx")
    monkeypatch.setattr(surface, "MOST_SMALL", 1000)
    for _ in range(3):
        assert not isinstance(run(path, tmp_path)[0].plan, KeptPlan)
    assert not [*(tmp_path / FOLDER).glob("surface-*")]


def test_large_arrays_at_which_somebody_looked_are_part_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written("folded", tmp_path / "net.onnx")
    run(path, tmp_path)

    def looking(graph: Graph, *given: Any, **named: Any) -> Graph:
        assert all(one.size for one in graph.constants.values())
        return simplify(graph, *given, **named)

    with monkeypatch.context() as patch:
        patch.setattr("vtensor.runtime.planning.simplify", looking)
        assert not isinstance(run(path, tmp_path)[0].plan, KeptPlan)
    assert isinstance(run(path, tmp_path)[0].plan, KeptPlan)
    written("folded", path, seed=1)
    session, found = run(path, tmp_path)
    assert not isinstance(session.plan, KeptPlan)
    np.testing.assert_array_equal(found, run(path, None)[1])


@pytest.mark.parametrize("closes", [True, False])
@pytest.mark.parametrize("is_kept", [True, False])
def test_a_plan_is_gone_with_its_session(is_kept: bool, closes: bool, tmp_path: Path) -> None:
    path = written("folded", tmp_path / "net.onnx")
    if is_kept:
        kept(path, tmp_path)
    gc.collect()
    gc.disable()
    try:
        session, _ = run(path, tmp_path)
        assert isinstance(session.plan, KeptPlan) == is_kept
        plan = weakref.ref(session.plan)
        if closes:
            session.close()
        del session
        assert plan() is None
    finally:
        gc.enable()


def test_other_values_and_layouts_are_planned_beside_it(tmp_path: Path) -> None:
    path = written("residual", tmp_path / "net.onnx")
    kept(path, tmp_path)
    session, found = run(path, tmp_path)
    assert isinstance(session.plan, KeptPlan)
    feeds = noise(session.inputs, {})
    inner = session.values[-2]
    got = session.run([inner, "y"], feeds)
    np.testing.assert_allclose(got[1], found, rtol=1e-5, atol=1e-6)
    last = np.asarray(feeds["x"]).transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2)
    [other] = session.run(None, {"x": last})
    np.testing.assert_allclose(other, found, rtol=1e-5, atol=1e-6)
