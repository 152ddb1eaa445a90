"""``vtensor plan --sizes``: in which sizes one plan is good, and what changes at each border."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
from typer.testing import CliRunner, Result

from optimizer.choice.bound import total_ns
from optimizer.pipeline import optimise, pass_names, simplify
from optimizer.settings import Settings
from ptensor.layout import Layout
from resolver.evaluate import resolve
from resolver.extend import extend
from resolver.lowered import LoweredGraph
from tests.frontends.support import f32, model
from tests.runtime.opened import NETWORKS
from vtensor import Graph
from vtensor.cli import app
from vtensor.errors import DimError, InputError
from vtensor.runtime.planning.intervals import Interval, intervals
from vtensor.runtime.planning.networks import Networks
from vtensor.runtime.planning.options import Options
from vtensor.runtime.planning.refine import SLACK

#: What each network is fed, and the sizes that are gone through.
FED = {
    "mobile": (2, 9, 9),
    "transformer": (2, 9),
    "detector": (1, 9, 9),
    "reader": (2, 8, 9),
    "attention": (2, 9),
    "squeeze": (2, 9, 9),
    "places": (2,),
    "queries": (2,),
}
SIZES = {
    "mobile": "n=1..3,w=1..12",
    "transformer": "n=1..3,s=1..9",
    "detector": "h=1..9",
    "reader": "n=1..3,w=0..9",
    "attention": "n=1..3,s=1..9",
    "squeeze": "n=1..3,h=1..9",
    "places": "n=1..9",
    "queries": "n=1..9",
}

SMALL = "g (float[n, 3, h, w] x) => (float[n, 4, a, b] y) { c = Conv(x, k) y = Relu(c) }"


def vtensor(*arguments: object) -> Result:
    """Run the command."""
    return CliRunner().invoke(app, ["plan", *map(str, arguments)])


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A convolution that pictures of fewer than five rows or columns cannot have."""
    file = tmp_path / "small.onnx"
    onnx.save(model(SMALL, k=f32(4, 3, 5, 5)), str(file))
    return file


def covered(found: list[Interval]) -> list[int]:
    """The sizes of intervals, in order."""
    return [size for one in found for size in range(one.first, one.last + 1)]


def own(graph: Graph, delivery: dict[str, Layout]) -> LoweredGraph:
    """What is chosen for a graph by itself."""
    return optimise(extend(resolve(simplify(graph)), delivery))


def delivered(c: int) -> Graph:
    """A sum whose output is delivered in blocks."""
    from ops import Relu

    g = Graph("delivered")
    g.output(g.add(Relu(), g.input("x", {"N": 2, "C": c, "H": 1, "W": 1}), name="y"))
    return g.seal()


def test_an_interval_ends_where_transforms_are_needed_elsewhere() -> None:
    delivery = {"y": Layout("NCHW8c")}
    options = Options(pass_names("all"), delivery=delivery)
    found = intervals(range(1, 18), delivered, options)
    assert covered(found) == [*range(1, 18)]
    for one in found:
        for size in range(one.first, one.last + 1):
            alone = own(delivered(size), delivery)
            assert sum(1 for _ in alone.transforms()) == one.transforms
    before, behind = (next(one for one in found if one.last >= size) for size in (7, 8))
    assert before is not behind
    assert "Transforms" in behind.why
    assert behind.changes


def test_no_plan_of_its_own_spares_more_than_is_said() -> None:
    proto, speeds = NETWORKS["attention"]().proto, Settings().speeds
    from vtensor.frontends.onnx import Model

    loaded, options = Model(proto), Options(pass_names("all"), settings=Settings(speeds=speeds))
    found = intervals(range(1, 10), lambda s: loaded.graph({"x": (2, s, 16)}), options)
    assert covered(found) == [*range(1, 10)]
    for one in found:
        assert one.behind is None or one.behind <= SLACK + 1e-9
        assert bool(one.why) == (one is not found[0])


@pytest.mark.parametrize("name", NETWORKS)
def test_graphs_come_from_those_of_other_sizes_as_in_a_session(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is said is what graphs that are all made by themselves say."""
    network = NETWORKS[name]()
    onnx.save(network.proto, file := tmp_path / "model.onnx")
    shapes = [
        f"{key}={','.join(map(str, one.shape))}" for key, one in network.feeds(*FED[name]).items()
    ]
    asked = (file, "--shape", *shapes, "--sizes", SIZES[name], "--json")
    found = vtensor(*asked)
    assert found.exit_code == 0, found.output
    monkeypatch.setattr(Networks, "_traced", lambda *_: None)
    assert vtensor(*asked).stdout == found.stdout


def test_a_border_is_also_where_another_plan_takes_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were every plan twice as slow as its bound, each size would be asked for its own."""
    asked: list[int] = []
    options = Options(pass_names("all"))

    def optimised(graph: LoweredGraph, *rest: Any) -> LoweredGraph:
        asked.append(1)
        return optimise(graph, *rest)

    monkeypatch.setattr("vtensor.runtime.planning.intervals.optimise", optimised)
    monkeypatch.setattr("vtensor.runtime.planning.intervals.excess", lambda *_: 0.5)
    found = intervals(range(16, 20), delivered, replace(options))
    assert len(asked) == 4
    assert len(found) == 1, "its own plans are the same"
    times = iter([100, 98, 100, 90, 100, 100])
    monkeypatch.setattr("vtensor.runtime.planning.intervals.total_ns", lambda *_: next(times))
    found = intervals(range(16, 20), delivered, options)
    assert [(one.first, one.last) for one in found] == [(16, 17), (18, 19)]
    assert "10.0% less" in found[1].why
    assert total_ns(own(delivered(16), {}), Settings()) > 0


def test_sizes_that_cannot_be_are_said_and_plans_go_on_behind_them(small: Path) -> None:
    ran = vtensor(small, "--shape", "x=1,3,9,9", "--sizes", "h=1..9,n=1..3", "--json")
    assert ran.exit_code == 0, ran.output
    data = json.loads(ran.stdout)
    rows = {row["size"]: row for row in data["sizes"]}
    first, *rest = rows["h"]["intervals"]
    assert (first["first"], first["last"], first["looked"]) == (1, 4, 4)
    assert DimError.__name__ in first["error"]
    assert rest[0]["first"] == 5
    assert rest[-1]["last"] == 9
    assert not any(one["error"] for one in rest)
    assert rows["n"]["others"] == {"h": 1}
    assert all(one["error"] for one in rows["n"]["intervals"]), "at the first height none can be"


def test_it_is_told_in_lines(small: Path) -> None:
    ran = vtensor(small, "--shape", "x=1,3,9,9", "--sizes", "n=1..4,x[3]=3..9:2")
    assert ran.exit_code == 0, ran.output
    assert "small: n=1..4 at x[3]=3: 0 plans" in ran.stdout
    assert "x[3]=3..9 in steps of 2" in ran.stdout
    assert "DimError" in ran.stdout
    assert "by estimate" in ran.stdout


WRONG = {
    "n": "write it as",
    "n=3..1": "names no sizes",
    "n=1..4:0": "names no sizes",
    "n=1..2,n=3..4": "comes twice",
    "n=1..5000": "give a step",
    "m=1..3": "no open size m",
    "x[1]=1..3": "is 3 in the model",
    "n=1..3": "is open, too",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_cannot_be_gone_through_is_refused(text: str, small: Path) -> None:
    more = () if text == "n=1..3" else ("--shape", "x=1,3,9,9")
    ran = vtensor(small, *more, "--sizes", text)
    assert ran.exit_code == 1
    assert InputError.__name__ in ran.stderr
    assert WRONG[text] in ran.stderr


@pytest.mark.parametrize(
    "more", [["--tune"], ["--optimize", "ewo"], ["--html", "p.html"], ["--shape", "z=1"]]
)
def test_intervals_are_of_estimated_times_alone(more: list[str], small: Path) -> None:
    ran = vtensor(small, "--shape", "x=1,3,9,9", "--sizes", "n=1..3", *more)
    assert ran.exit_code == 1
    assert InputError.__name__ in ran.stderr
