"""The picture of a frontier: the time of each plan over its error."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from math import ceil, floor, inf, log10
from typing import TYPE_CHECKING
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from vtensor.language.wording import counted
from vtensor.pictures.legend import STROKES
from vtensor.pictures.svg import MARGIN, asset, draw_text, numbers, text_of

if TYPE_CHECKING:
    from vtensor.runtime.planning.frontier import Frontier, PeerPoint, Point

#: In pixels: the size of the picture; the margins of the plot to the left, above and below; the
#: width of the column for error 0.
WIDTH, HEIGHT = 760, 460
LEFT, TOP, BELOW, STRICT = 100, 90, 70, 70

#: The radius of a point in pixels; the top of the time axis as a multiple of the slowest time; and
#: a distance from the right end in pixels: nearer points have their name on the left.
RADIUS, HEADROOM, EDGE = 5, 1.12, 120

#: The height of a line of text, and the most width of a character, in pixels.
LINE, CHARACTER = 13, 8

#: The exponents of ten at the ends of the error axis if no plan has an error.
DEFAULT_DECADES = (-7, -3)


def frontier_picture(frontier: Frontier, name: str) -> str:
    """Return the picture of a frontier as SVG.

    The horizontal axis is the error, logarithmic, with a column for errors of 0; the vertical axis
    is the time, from 0 on. The points of plans that no other plan beats in both time and error are
    filled and joined by a line. Other engines are squares.

    Args:
        frontier: the plans with their times and errors.
        name: the model's name, for the title.
    """
    root = Element("svg", xmlns="http://www.w3.org/2000/svg", style="background: white")
    SubElement(root, "style").text = asset("picture.css")
    draw_text(root, "heading", MARGIN, MARGIN, f"{name}: time against error")
    runs = counted(len(frontier.points[0].runs), "run")
    subtitle = f"median of {runs} on {counted(frontier.threads, 'thread')}, plans in turns"
    draw_text(root, "key", MARGIN, MARGIN + 20, subtitle)
    first, last = _decades(frontier)
    times = [*(point.ns for point in frontier.points), *(peer.ns for peer in frontier.peers)]
    top_ns = max(1, *times) * HEADROOM
    right, foot = WIDTH - MARGIN, HEIGHT - BELOW

    def x_of(error: float) -> float:
        if not error:
            return LEFT + STRICT / 2
        part = min(1, (log10(error) - first) / (last - first))  # min puts NaN at the right end, too
        return LEFT + STRICT + part * (right - LEFT - STRICT)

    def y_of(ns: float) -> float:
        return foot - ns / top_ns * (foot - TOP)

    _draw_axes(root, first, last, top_ns, x_of, y_of)
    places = [(x_of(point.error), y_of(point.ns)) for point in frontier.points]
    places += [(x_of(peer.error), y_of(peer.ns)) for peer in frontier.peers]
    names = [(x - RADIUS, x + RADIUS, y + RADIUS) for x, y in places]
    best = frontier.best
    corners = [(x_of(point.error), y_of(point.ns)) for point in best]
    line = " L".join(f"{x:g} {y:g}" for x, y in corners)
    SubElement(root, "path", {"class": "arrow", "d": f"M{line}", "stroke": STROKES[0]})
    names += [(x, x, y + 4) for x, y in _along(corners)]
    for peer in frontier.peers:
        _draw_peer(root, peer, x_of(peer.error), y_of(peer.ns), names)
    for point in frontier.points:
        _draw_point(root, point, x_of(point.error), y_of(point.ns), point in best, names)
    size = numbers(width=WIDTH, height=HEIGHT)
    root.attrib |= {**size, "viewBox": f"0 0 {size['width']} {size['height']}"}
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _along(corners: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Yield places in pixels along a line, at most ``RADIUS`` apart horizontally."""
    for (x, y), (next_x, next_y) in pairwise(corners):
        count = ceil((next_x - x) / RADIUS)
        for number in range(count):
            part = number / count
            yield x + part * (next_x - x), y + part * (next_y - y)


def _decades(frontier: Frontier) -> tuple[int, int]:
    """Return (left, right): the exponents of the powers of ten at the ends of the error axis."""
    all_errors = [
        *(point.error for point in frontier.points),
        *(peer.error for peer in frontier.peers),
    ]
    errors = [error for error in all_errors if 0 < error < inf]
    if not errors:
        return DEFAULT_DECADES
    first, last = floor(log10(min(errors))), ceil(log10(max(errors)))
    return first, max(last, first + 1)


def _draw_axes(
    root: Element,
    first: int,
    last: int,
    top_ns: float,
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
    title = "error relative to the largest element, measured against strict kernels on fresh inputs"
    draw_text(root, "figures", right, foot + 40, title)
    for ns in _round_times(top_ns):
        SubElement(root, "path", {"class": "axis", "d": f"M{LEFT} {y_of(ns):g}h-5"})
        draw_text(root, "figures", LEFT - 10, y_of(ns) + 4, f"{ns / 1e6:g}")
    draw_text(root, "figures", LEFT - 10, TOP - 12, "ms")


def _round_times(top_ns: float) -> Iterator[float]:
    """Yield round times from 0 to ``top_ns``, in ns, about five to ten of them."""
    step = 10.0 ** floor(log10(top_ns))
    step = next(step / by for by in (1, 2, 5, 10) if top_ns >= 5 * step / by)
    for number in range(int(top_ns / step) + 1):
        yield number * step


def _draw_point(
    root: Element,
    point: Point,
    x: float,
    y: float,
    best: bool,
    names: list[tuple[float, float, float]],
) -> None:
    """Draw the point of a plan and its name.

    Args:
        root: the picture.
        point: the plan with its time and error.
        x, y: the centre, in pixels.
        best: whether no other plan beats this one in both time and error; the point is then filled.
        names: what no name may cover, as (left end, right end, foot) in pixels: points, the line
            between them, and names that are drawn already; that of this point's name is added.
    """
    group = SubElement(root, "g", {"class": "point"})
    forms = ", ".join(f"{count} x {form}" for form, count in point.forms.items())
    expected = f", {point.expected:.1e} expected" if point.expected else ""
    off = f"off by {point.error:.1e}{expected}; {forms}"
    kind = f"tolerance {point.name}" if point.tolerances else point.name
    hint = f"{kind}: {point.ns / 1e6:.3f} ms; {off if forms else 'strict'}"
    SubElement(group, "title").text = text_of(hint)
    fill = STROKES[0] if best else "white"
    place = numbers(cx=x, cy=y, r=RADIUS)
    SubElement(group, "circle", {**place, "fill": fill, "stroke": STROKES[0], "stroke-width": "2"})
    _draw_name(group, point.label, x, y, names)


def _draw_peer(
    root: Element, peer: PeerPoint, x: float, y: float, names: list[tuple[float, float, float]]
) -> None:
    """Draw another engine as a square, and its name; the arguments are those of ``_draw_point``."""
    group = SubElement(root, "g", {"class": "point"})
    hint = f"{peer.name}, its default precision: {peer.ns / 1e6:.3f} ms, off by {peer.error:.1e}"
    SubElement(group, "title").text = text_of(hint)
    place = numbers(x=x - RADIUS, y=y - RADIUS, width=2 * RADIUS, height=2 * RADIUS)
    SubElement(group, "rect", {**place, "fill": "white", "stroke": STROKES[1], "stroke-width": "2"})
    _draw_name(group, peer.name, x, y, names)


def _draw_name(
    group: Element, name: str, x: float, y: float, names: list[tuple[float, float, float]]
) -> None:
    """Draw the name of a point at the nearest free place above or below it, and a line to the point
    if other names or points are between them.

    Args:
        group: the element that gets the text.
        name: the name.
        x, y: the centre of the point, in pixels.
        names: the places of names, as for ``_draw_point``.
    """
    aside, width = RADIUS + 4, CHARACTER * len(name)
    right = x < WIDTH - MARGIN - EDGE
    left = x + aside if right else x - aside - width

    def is_free(foot: float) -> bool:
        inside = TOP + LINE <= foot <= HEIGHT - BELOW
        return inside and not any(
            left < end and begin < left + width and abs(foot - other) < LINE
            for begin, end, other in names
        )

    above = [y - aside - LINE * number for number in range(HEIGHT // LINE)]
    below = [y + aside + RADIUS + LINE * number for number in range(HEIGHT // LINE)]
    pairs = zip(above, below, strict=True) if right else zip(below, above, strict=True)
    feet = [foot for pair in pairs for foot in pair]
    foot = next(filter(is_free, feet), feet[0])
    names.append((left, left + width, foot))
    place = x + aside if right else x - aside
    if foot not in (above[0], below[0]):
        line = {"class": "axis", "d": f"M{x:g} {y:g}L{place:g} {foot - LINE / 3:g}"}
        group.insert(1, Element("path", line))
    draw_text(group, "key" if right else "figures", place, foot, name)
