"""``vtensor plan --sizes``: in which sizes one plan is good, and what changes at each border."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest

from ops import Relu
from optimizer.choice.bound import total_ns
from optimizer.pipeline import optimise, pass_names, simplify
from optimizer.settings import Settings
from ptensor.layout import Layout
from resolver.evaluate import resolve
from resolver.extend import extend
from resolver.lowered import LoweredGraph
from tests.frontends.support import f32, model
from tests.libraries.command import data_of, vtensor
from tests.runtime.opened import NETWORKS
from vtensor import Graph
from vtensor.errors import DimError
from vtensor.frontends.onnx import Model
from vtensor.runtime.planning.intervals import Interval, intervals
from vtensor.runtime.planning.networks import Networks
from vtensor.runtime.planning.options import Options
from vtensor.runtime.planning.refine import SLACK

#: For each network the sizes of its feeds, and the sizes that are gone through.
SIZES = {
    "mobile": ((2, 9, 9), "n=1..3,w=1..12"),
    "transformer": ((2, 9), "n=1..3,s=1..9"),
    "detector": ((1, 9, 9), "h=1..9"),
    "reader": ((2, 8, 9), "n=1..3,w=0..9"),
    "attention": ((2, 9), "n=1..3,s=1..9"),
    "squeeze": ((2, 9, 9), "n=1..3,h=1..9"),
    "places": ((2,), "n=1..9"),
    "queries": ((2,), "n=1..9"),
}

#: A convolution, which images of fewer than five rows or columns cannot have.
SMALL = "small (float[n, 3, h, w] x) => (float[n, 4, a, b] y) { c = Conv(x, k) y = Relu(c) }"


def covered(rows: list[Interval]) -> list[int]:
    """Return the sizes of intervals, in order."""
    return [size for row in rows for size in range(row.first, row.last + 1)]


def chosen(graph: Graph, delivery: dict[str, Layout]) -> LoweredGraph:
    """Return the plan of a graph by itself."""
    return optimise(extend(resolve(simplify(graph)), delivery))


def delivered(c: int) -> Graph:
    """Return a graph whose output may be delivered in blocks."""
    g = Graph("delivered")
    g.output(g.add(Relu(), g.input("x", {"N": 2, "C": c, "H": 1, "W": 1}), name="y"))
    return g.seal()


def test_interval_ends_where_transforms_are_needed_elsewhere() -> None:
    delivery = {"y": Layout("NCHW8c")}
    rows = intervals(range(1, 18), delivered, Options(pass_names("all"), delivery=delivery))
    assert covered(rows) == [*range(1, 18)]
    for row in rows:
        for size in range(row.first, row.last + 1):
            transforms = chosen(delivered(size), delivery).transforms()
            assert sum(1 for _ in transforms) == row.transforms
    before, after = (next(row for row in rows if row.last >= size) for size in (7, 8))
    assert before is not after
    assert "Transforms" in after.why
    assert after.changes


def test_no_plan_of_its_own_is_better_than_the_slack() -> None:
    loaded = Model(NETWORKS["attention"]().proto)
    options = Options(pass_names("all"), settings=Settings())
    rows = intervals(range(1, 10), lambda s: loaded.graph({"x": (2, s, 16)}), options)
    assert covered(rows) == [*range(1, 10)]
    for row in rows:
        assert row.behind is None or row.behind <= SLACK + 1e-9
        assert bool(row.why) == (row is not rows[0])


@pytest.mark.parametrize("name", NETWORKS)
def test_traced_graphs_have_the_intervals_of_graphs_from_scratch(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, (fed, sizes) = NETWORKS[name](), SIZES[name]
    onnx.save(network.proto, file := tmp_path / "model.onnx")
    feeds = network.feeds(*fed)
    shapes = [f"{key}={','.join(map(str, array.shape))}" for key, array in feeds.items()]
    asked = ("plan", file, "--shape", *shapes, "--sizes", sizes, "--json")
    traced = vtensor(*asked)
    assert traced.exit_code == 0, traced.output
    monkeypatch.setattr(Networks, "_traced", lambda *_: None)
    assert vtensor(*asked).stdout == traced.stdout


def test_interval_ends_where_another_plan_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were every plan twice as slow as its bound, each size would be asked for its own."""
    asked: list[int] = []
    options = Options(pass_names("all"))

    def optimised(graph: LoweredGraph, *rest: Any) -> LoweredGraph:
        asked.append(1)
        return optimise(graph, *rest)

    module = "vtensor.runtime.planning.intervals"
    monkeypatch.setattr(f"{module}.optimise", optimised)
    monkeypatch.setattr(f"{module}.excess", lambda *_: 0.5)
    rows = intervals(range(16, 20), delivered, options)
    assert len(asked) == 4
    assert len(rows) == 1, "its own plans are the same"
    times = iter([100, 98, 100, 90, 100, 100])
    monkeypatch.setattr(f"{module}.total_ns", lambda *_: next(times))
    rows = intervals(range(16, 20), delivered, options)
    assert [(row.first, row.last) for row in rows] == [(16, 17), (18, 19)]
    assert "10.0% less" in rows[1].why
    assert total_ns(chosen(delivered(16), {}), Settings()) > 0


def test_impossible_sizes_are_listed_and_plans_go_on_after_them(tmp_path: Path) -> None:
    onnx.save(model(SMALL, k=f32(4, 3, 5, 5)), file := tmp_path / "small.onnx")
    asked = ("plan", file, "--shape", "x=1,3,9,9", "--sizes")
    rows = {row["size"]: row for row in data_of(*asked, "h=1..9,n=1..3")["sizes"]}
    first, *others = rows["h"]["intervals"]
    assert (first["first"], first["last"], first["looked"]) == (1, 4, 4)
    assert DimError.__name__ in first["error"]
    assert others[0]["first"] == 5
    assert others[-1]["last"] == 9
    assert not any(row["error"] for row in others)
    assert rows["n"]["others"] == {"h": 1}
    assert all(row["error"] for row in rows["n"]["intervals"]), "at the first height none can be"
    ran = vtensor(*asked, "n=1..4,x[3]=3..9:2")
    assert ran.exit_code == 0, ran.output
    for text in ("small: n=1..4 at x[3]=3: 0 plans", "x[3]=3..9 in steps of 2", "DimError"):
        assert text in ran.stdout
    assert "by estimate" in ran.stdout
