"""A frontier drawn: the time of each plan over its error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import ceil, floor, inf, log10
from typing import TYPE_CHECKING
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from vtensor.language.wording import counted
from vtensor.pictures.legend import STROKES
from vtensor.pictures.svg import MARGIN, asset, draw_text, numbers, text_of

if TYPE_CHECKING:
    from vtensor.runtime.planning.frontier import Frontier, Point

#: In pixels: all of it; what stands left of the field, above it and below; the column of error 0.
WIDTH, HEIGHT = 760, 460
LEFT, TOP, BELOW, STRICT = 100, 90, 70, 70

#: The radius of a point; how far above the slowest one the field goes; so near to its right end
#: names stand to the left.
RADIUS, ROOM, EDGE = 5, 1.12, 120

#: The height of a line of text, and what a character of it takes at most.
LINE, CHARACTER = 13, 8

#: Decades of errors where no plan has any.
NOTHING = (-7, -3)


def frontier_picture(frontier: Frontier, name: str) -> str:
    """A frontier as SVG: errors to the right, a decade a step, those of 0 in a column of their own;
    times upwards, from 0 on. What no other plan is ahead of is filled, and joined by a line.
    """
    root = Element("svg", xmlns="http://www.w3.org/2000/svg", style="background: white")
    SubElement(root, "style").text = asset("picture.css")
    draw_text(root, "heading", MARGIN, MARGIN, f"{name}: time against error")
    runs = counted(len(frontier.points[0].runs), "run")
    about = f"median of {runs} on {counted(frontier.threads, 'thread')}, plans in turns"
    draw_text(root, "key", MARGIN, MARGIN + 20, about)
    first, last = _decades(frontier)
    most = max(1, *(one.ns for one in frontier.points)) * ROOM
    right, foot = WIDTH - MARGIN, HEIGHT - BELOW

    def x_of(error: float) -> float:
        if not error:
            return LEFT + STRICT / 2
        part = min(1, (log10(error) - first) / (last - first))  # no number at all is at the end
        return LEFT + STRICT + part * (right - LEFT - STRICT)

    def y_of(ns: float) -> float:
        return foot - ns / most * (foot - TOP)

    _draw_axes(root, first, last, most, x_of, y_of)
    best = frontier.best
    line = " L".join(f"{x_of(one.error):g} {y_of(one.ns):g}" for one in best)
    SubElement(root, "path", {"class": "arrow", "d": f"M{line}", "stroke": STROKES[0]})
    names = list[tuple[float, float, float]]()
    for one in frontier.points:
        _draw_point(root, one, x_of(one.error), y_of(one.ns), one in best, names)
    size = numbers(width=WIDTH, height=HEIGHT)
    root.attrib |= {**size, "viewBox": f"0 0 {size['width']} {size['height']}"}
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _decades(frontier: Frontier) -> tuple[int, int]:
    """The powers of ten between which errors are."""
    errors = [one.error for one in frontier.points if 0 < one.error < inf]
    if not errors:
        return NOTHING
    first, last = floor(log10(min(errors))), ceil(log10(max(errors)))
    return first, max(last, first + 1)


def _draw_axes(
    root: Element,
    first: int,
    last: int,
    most: float,
    x_of: Callable[[float], float],
    y_of: Callable[[float], float],
) -> None:
    foot, right = y_of(0), WIDTH - MARGIN
    frame = numbers(x=LEFT, y=TOP, width=right - LEFT, height=foot - TOP)
    SubElement(root, "rect", {"class": "frame", **frame})
    column = {"class": "axis", "d": f"M{LEFT + STRICT} {TOP}V{foot:g}", "stroke-dasharray": "3 3"}
    SubElement(root, "path", column)
    ticks = [(0.0, "0"), *((10.0**power, f"1e{power}") for power in range(first, last + 1))]
    for error, text in ticks:
        SubElement(root, "path", {"class": "axis", "d": f"M{x_of(error):g} {foot:g}v5"})
        draw_text(root, "tick", x_of(error), foot + 18, text)
    what = "error relative to the largest element, measured against strict kernels on fresh inputs"
    draw_text(root, "figures", right, foot + 40, what)
    for ns in _steps(most):
        SubElement(root, "path", {"class": "axis", "d": f"M{LEFT} {y_of(ns):g}h-5"})
        draw_text(root, "figures", LEFT - 10, y_of(ns) + 4, f"{ns / 1e6:g}")
    draw_text(root, "figures", LEFT - 10, TOP - 12, "ms")


def _steps(most: float) -> Iterator[float]:
    """Round times up to the largest: five to ten of them."""
    step = 10.0 ** floor(log10(most))
    step = next(step / by for by in (1, 2, 5, 10) if most >= 5 * step / by)
    for number in range(int(most / step) + 1):
        yield number * step


def _draw_point(
    root: Element,
    point: Point,
    x: float,
    y: float,
    best: bool,
    names: list[tuple[float, float, float]],
) -> None:
    """Draw a point with its name, above which no other one stands; ``names`` has where they are:
    their left and right ends and their feet.
    """
    group = SubElement(root, "g", {"class": "point"})
    forms = ", ".join(f"{count} x {form}" for form, count in point.forms.items())
    off = f"off by {point.error:.1e}, {point.expected:.1e} expected; {forms}"
    hint = f"tolerance {point.name}: {point.ns / 1e6:.3f} ms; {off if forms else 'strict'}"
    SubElement(group, "title").text = text_of(hint)
    fill = STROKES[0] if best else "white"
    place = numbers(cx=x, cy=y, r=RADIUS)
    SubElement(group, "circle", {**place, "fill": fill, "stroke": STROKES[0], "stroke-width": "2"})
    aside, width = RADIUS + 4, CHARACTER * len(point.name)
    right = x < WIDTH - MARGIN - EDGE
    left = x + aside if right else x - aside - width
    foot = y - aside
    while any(
        left < end and begin < left + width and abs(foot - other) < LINE
        for begin, end, other in names
    ):
        foot -= LINE
    names.append((left, left + width, foot))
    draw_text(
        group, "key" if right else "figures", x + aside if right else x - aside, foot, point.name
    )
