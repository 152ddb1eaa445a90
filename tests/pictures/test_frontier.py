"""A frontier drawn: each plan is a point, where its time and its error say."""

from __future__ import annotations

from itertools import combinations
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.pictures.support import HOSTILE
from tests.pictures.test_pictures import SVG, loads
from vtensor.pictures.frontier import frontier_picture
from vtensor.pictures.svg import text_of
from vtensor.runtime.planning.frontier import Frontier, Point

NONE: Any = None


def point(ns: int, error: float, *tolerances: float, form: str = "winograd F(2x2,3x3)") -> Point:
    """A point of two inexact nodes, or of none where there is no error."""
    forms = {form: 2} if error else {}
    return Point(tolerances, NONE, forms, 2 * error, error, (ns, ns - 1, ns + 1), 0)


def frontier(*points: Point, name: str = "net") -> Frontier:
    """A frontier of these points."""
    return Frontier(name, 2, points, "", NONE)


def points_of(svg: str) -> dict[str | None, ElementTree.Element]:
    """The points of a picture, by what stands beside them."""
    groups = ElementTree.fromstring(svg).iterfind(f".//{SVG}g[@class='point']")
    return {one.findtext(f"{SVG}text"): one for one in groups}


def test_points_are_where_time_and_error_say() -> None:
    found = frontier(
        point(10_000_000, 0.0, 0.0, 1e-6),
        point(9_000_000, 5e-6, 1e-5),
        point(9_500_000, 5e-5, 1e-4),  # slower than one that is off by less
        point(5_000_000, 5e-4, 1e-3),
    )
    assert [one.tolerances[0] for one in found.best] == [0.0, 1e-5, 1e-3]
    svg = frontier_picture(found, "net")
    drawn = points_of(svg)
    assert [*drawn] == ["0, 1e-6", "1e-5", "1e-4", "1e-3"]
    rings = [one.find(f"{SVG}circle") for one in drawn.values()]
    x, y = ([float(ring.attrib[key]) for ring in rings if ring is not None] for key in ("cx", "cy"))
    assert x == sorted(x)
    assert x[2] - x[1] == pytest.approx(x[3] - x[2], abs=0.01)  # a decade each
    assert y[3] > y[1] > y[2] > y[0]  # fast ones are below
    assert (y[1] - y[3]) / (y[3] - y[0]) == pytest.approx((9 - 5) / (5 - 10), rel=1e-3)
    filled = [ring.attrib["fill"] != "white" for ring in rings if ring is not None]
    assert filled == [True, True, False, True]
    hint = drawn["1e-3"].findtext(f"{SVG}title")
    told = "5.000 ms; off by 5.0e-04, 1.0e-03 expected; 2 x winograd F(2x2,3x3)"
    assert hint == f"tolerance 1e-3: {told}"
    texts = [one.text for one in ElementTree.fromstring(svg).iter(f"{SVG}text")]
    assert {"0", "1e-6", "1e-5", "1e-4", "1e-3", "ms", "2", "10"} <= {*texts}
    assert "median of 3 runs on 2 threads, plans in turns" in texts


#: By class of a text: pixels of its letters, and where its place is on it.
LETTERS = {"heading": (18, 0.0), "key": (12, 0.0), "figures": (11, 1.0), "tick": (10, 0.5)}


def box_of(text: ElementTree.Element) -> tuple[float, float, float, float]:
    """Left, top, right and foot of a text whose letters are as wide as most are."""
    size, anchor = LETTERS[text.attrib["class"]]
    width, x, foot = (
        0.55 * size * len(text.text or ""),
        float(text.attrib["x"]),
        float(text.attrib["y"]),
    )
    return x - anchor * width, foot - size * 0.8, x + (1 - anchor) * width, foot


def test_no_text_lies_on_another_or_outside() -> None:
    """Not even where two plans take and err nearly the same."""
    points = [point(10_000_000, 0.0, 0.0, 1e-6), point(9_990_000, 0.0, 2e-6)]
    points += [point(9_000_000 + n, 5e-6 * (1 + n / 100), 10.0**-n) for n in range(1, 5)]
    points += [point(5_000_000, 5e-4, 1e-3), point(5_010_000, 5.1e-4, 2e-3)]
    root = ElementTree.fromstring(frontier_picture(frontier(*points), "net"))
    boxes = [(one.text, box_of(one)) for one in root.iter(f"{SVG}text")]
    wide, high = (float(root.attrib[key]) for key in ("width", "height"))
    for name, (left, top, right, foot) in boxes:
        assert 0 <= left < right <= wide, name
        assert 0 <= top < foot <= high, name
    for (name, one), (other, two) in combinations(boxes, 2):
        apart = one[2] <= two[0] or two[2] <= one[0] or one[3] <= two[1] or two[3] <= one[1]
        assert apart, f"{name} lies on {other}"


def test_the_strict_plan_alone_is_drawn_too() -> None:
    [(name, one)] = points_of(frontier_picture(frontier(point(1, 0.0, 0.0)), "net")).items()
    assert name == "0"
    assert one.findtext(f"{SVG}title") == "tolerance 0: 0.000 ms; strict"


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_only_names(name: str) -> None:
    svg = frontier_picture(frontier(point(2, 0.0, 0.0), point(1, 1e-6, 1e-5, form=name)), name)
    root = ElementTree.fromstring(svg)
    assert root.findtext(f"{SVG}text") == f"{text_of(name)}: time against error"
    assert not root.findall(f".//{SVG}script")
    assert not loads(svg)
