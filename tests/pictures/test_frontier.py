"""The picture of a frontier: each plan is a point at its time and its error."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.pictures.support import HOSTILE
from tests.pictures.test_pictures import SVG, loads
from vtensor.benchmark.report import Case
from vtensor.commands import frontier as command
from vtensor.pictures.frontier import frontier_picture
from vtensor.pictures.svg import text_of
from vtensor.runtime.planning.frontier import Frontier, Point

NONE: Any = None


def point(ns: int, error: float, *tolerances: float, form: str = "winograd F(2x2,3x3)") -> Point:
    """Return a point of two approximate nodes, or of none without an error."""
    forms, kinds = ({form: 2}, ("winograd",)) if error else ({}, ())
    runs = (ns, ns - 1, ns + 1)
    return Point(tolerances, NONE, forms, 2 * error, error, runs, 0, kinds=kinds)


def frontier(*points: Point, name: str = "net") -> Frontier:
    """Return a frontier of these points."""
    return Frontier(name, 2, points, "", NONE)


def points_of(svg: str) -> dict[str | None, ElementTree.Element]:
    """Return the points of a picture by their labels."""
    groups = ElementTree.fromstring(svg).iterfind(f".//{SVG}g[@class='point']")
    return {group.findtext(f"{SVG}text"): group for group in groups}


def test_points_are_at_their_times_and_errors() -> None:
    plans = frontier(
        point(10_000_000, 0.0, 0.0, 1e-6),
        point(9_000_000, 5e-6, 1e-5),
        point(9_500_000, 5e-5, 1e-4),  # slower than one that is off by less
        point(5_000_000, 5e-4, 1e-3),
    )
    assert [plan.tolerances[0] for plan in plans.best] == [0.0, 1e-5, 1e-3]
    svg = frontier_picture(plans, "net")
    drawn = points_of(svg)
    assert [*drawn] == ["0, 1e-6: strict", "1e-5: winograd", "1e-4: winograd", "1e-3: winograd"]
    rings = [ring for group in drawn.values() for ring in group.iterfind(f"{SVG}circle")]
    x, y = ([float(ring.attrib[key]) for ring in rings] for key in ("cx", "cy"))
    assert x == sorted(x)
    assert x[2] - x[1] == pytest.approx(x[3] - x[2], abs=0.01)  # a decade each
    assert y[3] > y[1] > y[2] > y[0]  # fast ones are below
    assert (y[1] - y[3]) / (y[3] - y[0]) == pytest.approx((9 - 5) / (5 - 10), rel=1e-3)
    assert [ring.attrib["fill"] != "white" for ring in rings] == [True, True, False, True]
    hint = drawn["1e-3: winograd"].findtext(f"{SVG}title")
    told = "5.000 ms; off by 5.0e-04, 1.0e-03 expected; 2 x winograd F(2x2,3x3)"
    assert hint == f"tolerance 1e-3: {told}"
    texts = [text.text for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]
    assert {"0", "1e-6", "1e-5", "1e-4", "1e-3", "ms", "2", "10"} <= {*texts}
    assert "median of 3 runs on 2 threads, plans in turns" in texts


#: By class of a text: pixels of its letters, and where its place is on it.
LETTERS = {"heading": (18, 0.0), "key": (12, 0.0), "figures": (11, 1.0), "tick": (10, 0.5)}


def box_of(text: ElementTree.Element) -> tuple[float, float, float, float]:
    """Return left, top, right and foot of a text whose letters have the usual width."""
    size, anchor = LETTERS[text.attrib["class"]]
    width, x, foot = 0.55 * size * len(text.text or ""), *(float(text.attrib[k]) for k in "xy")
    return x - anchor * width, foot - size * 0.8, x + (1 - anchor) * width, foot


def test_no_text_overlaps_another_or_is_outside() -> None:
    """Not even when two plans have nearly the same time and error."""
    points = [point(10_000_000, 0.0, 0.0, 1e-6), point(9_990_000, 0.0, 2e-6)]
    points += [point(9_000_000 + n, 5e-6 * (1 + n / 100), 10.0**-n) for n in range(1, 5)]
    points += [point(5_000_000, 5e-4, 1e-3), point(5_010_000, 5.1e-4, 2e-3)]
    int8 = [Point((), NONE, {}, 0.0, 0.2, (n,), 0, model=f"int8-{n}") for n in (3, 4, 5)]
    points += [replace(plan, runs=(plan.runs[0] * 1_000_000,)) for plan in int8]
    root = ElementTree.fromstring(frontier_picture(frontier(*points), "net"))
    boxes = [(text.text, box_of(text)) for text in root.iter(f"{SVG}text")]
    wide, high = (float(root.attrib[key]) for key in ("width", "height"))
    for name, (left, top, right, foot) in boxes:
        assert 0 <= left < right <= wide, name
        assert 0 <= top < foot <= high, name
    rings = root.iter(f"{SVG}circle")
    places = [[float(ring.attrib[key]) for key in ("cx", "cy")] for ring in rings]
    points_drawn = [("a point", (x - 3, y - 3, x + 3, y + 3)) for x, y in places]
    for (name, a), (other, b) in [*combinations(boxes, 2), *product(boxes, points_drawn)]:
        apart = a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
        assert apart, f"{name} overlaps {other}"


def test_strict_plan_alone_is_drawn() -> None:
    [(name, group)] = points_of(frontier_picture(frontier(point(1, 0.0, 0.0)), "net")).items()
    assert name == "0: strict"
    assert group.findtext(f"{SVG}title") == "tolerance 0: 0.000 ms; strict"


def test_points_are_named_after_what_they_are() -> None:
    strict = point(9, 0.0, 0.0, 1e-6)
    alone = Point((), NONE, {}, 0.0, 1e-5, (8,), 0, form="winograd", kinds=("winograd",))
    rounded = Point((), NONE, {}, 0.0, 1e-3, (7,), 0, precision="bf16", kinds=("bf16",))
    int8 = Point((), NONE, {"narrow": 3}, 0.0, 0.1, (6,), 0, model="qdq", kinds=("u8", "s8"))
    drawn = points_of(frontier_picture(frontier(strict, alone, rounded, int8), "net"))
    assert [*drawn] == ["0, 1e-6: strict", "winograd alone", "bf16", "qdq: u8, s8"]
    hint = drawn["qdq: u8, s8"].findtext(f"{SVG}title")
    assert hint == "qdq: 0.000 ms; off by 1.0e-01; 3 x narrow"


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_only_names(name: str) -> None:
    svg = frontier_picture(frontier(point(2, 0.0, 0.0), point(1, 1e-6, 1e-5, form=name)), name)
    root = ElementTree.fromstring(svg)
    assert root.findtext(f"{SVG}text") == f"{text_of(name)}: time against error"
    assert not root.findall(f".//{SVG}script")
    assert not loads(svg)


def test_a_peer_without_times_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    times, common = {"median_s": 2e-3}, {"version": "1", "difference": 0.5}
    rows = [
        {"peer": "vtensor", "times": times, **common},
        {"peer": "fast", "times": times, **common},
        {"peer": "broken", "times": None, "status": "failed", "reason": "out of paper"},
    ]
    monkeypatch.setattr(command, "measure", lambda *_: rows)
    monkeypatch.setattr(command, "peer_at", lambda _: SimpleNamespace(absent=lambda: None))
    case, peers = Case("net", Path("net.onnx"), {}), {"fast": "", "broken": ""}
    [point] = command.measured_peers(case, peers, 1, 2, print)
    assert (point.name, point.ns, point.error) == ("fast 1", 2e6, 0.5)
    assert capsys.readouterr().err == "note: broken failed: out of paper\n"
