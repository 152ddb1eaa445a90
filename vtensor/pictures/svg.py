"""Scenes as SVG elements, and as one SVG picture with a legend."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files
from itertools import pairwise
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from vtensor.pictures.legend import Legend, make_legend
from vtensor.pictures.scene import Box, Scene

#: The size of a box, and the distance from one row to the next, in pixels.
WIDTH, HEIGHT, PITCH = 192, 36, 64
#: The margin around a scene, in pixels.
MARGIN = 40

#: The width in pixels of the band at the left end of a box that has a form.
BAND = 5

#: The characters that XML 1.0 forbids, even if they are escaped.
_FORBIDDEN = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

#: The corners of a Transform's outline.
_HEXAGON = (
    f"0,{HEIGHT / 2} 12,0 {WIDTH - 12},0 {WIDTH},{HEIGHT / 2} {WIDTH - 12},{HEIGHT} 12,{HEIGHT}"
)


def text_of(name: str) -> str:
    """Return a name with U+FFFD in place of each character that XML forbids.

    >>> text_of("a\\x00b")
    'a\ufffdb'
    """
    return _FORBIDDEN.sub("\ufffd", name)


def asset(name: str) -> str:
    """Return the text of a file in this package."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def svg_picture(scenes: Sequence[Scene]) -> str:
    """Return a picture of scenes side by side, each below its title, with a legend on top."""
    legend = make_legend(scenes)
    root = Element("svg", xmlns="http://www.w3.org/2000/svg", style="background: white")
    SubElement(root, "style").text = asset("picture.css")
    x, height = 0.0, 0.0
    x_legend = draw_legend(SubElement(root, "g", transform=f"translate({MARGIN} {MARGIN})"), legend)
    for scene in scenes:
        left, width, tall = extent(scene)
        place = f"translate({x - left:g} {3 * MARGIN})"
        draw_text(root, "heading", x + MARGIN, 2.5 * MARGIN, scene.title)
        draw_scene(SubElement(root, "g", transform=place), scene, legend)
        x, height = x + width, max(height, tall + 3 * MARGIN)
    size = numbers(width=max(x, x_legend + 2 * MARGIN), height=height)
    root.attrib |= {**size, "viewBox": f"0 0 {size['width']} {size['height']}"}
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def extent(scene: Scene) -> tuple[float, float, float]:
    """Return the left end, the width and the height of a scene, with its margins, in pixels."""
    left = min(scene.x, default=0.0) - WIDTH / 2 - MARGIN
    right = max(scene.x, default=0.0) + WIDTH / 2 + MARGIN
    bends = [x for arrow in scene.arrows for x in arrow.bends]
    left, right = min([left, *bends]), max([right, *bends])
    return left, right - left, (max(scene.rows, default=0) + 1) * PITCH + MARGIN


def draw_scene(parent: Element, scene: Scene, legend: Legend) -> None:
    """Add a scene's arrows, then its boxes, to an element, each in the scene's order."""
    for arrow in scene.arrows:
        ends = arrow.source, arrow.target
        first, last = (scene.rows[end] for end in ends)
        source, target = (scene.x[end] for end in ends)
        rows = range(first, last + 1) if arrow.bends else (first, last)
        stroke = legend.layouts[arrow.layout]
        points = zip((source, *arrow.bends, target), rows, strict=True)
        line = SubElement(parent, "path", {"class": "arrow", "d": path(list(points))})
        line.set("stroke", stroke.colour)
        line.set("stroke-dasharray", stroke.dashes)
        SubElement(line, "title").text = text_of(arrow.hint)
    for box, x, row in zip(scene.boxes, scene.x, scene.rows, strict=True):
        place = f"translate({x - WIDTH / 2:g} {row * PITCH})"
        group = SubElement(parent, "g", {"class": f"box {box.kind}", "transform": place})
        _draw_box(group, box, legend)


def path(points: Sequence[tuple[float, int]]) -> str:
    """Return the SVG path of an arrow from the foot of a box through bends to the top of a box.

    Args:
        points: the abscissa in pixels, and the row, of both boxes and of the bends between.
    """
    text = f"M{points[0][0]:g} {points[0][1] * PITCH + HEIGHT}"
    for (x, row), (x_below, row_below) in pairwise(points):
        top, foot = row * PITCH + HEIGHT, row_below * PITCH
        middle = (top + foot) / 2
        text += f"L{x:g} {top}C{x:g} {middle:g} {x_below:g} {middle:g} {x_below:g} {foot}"
    return f"{text}m-4 -6l4 6l4 -6"


def draw_legend(parent: Element, legend: Legend) -> float:
    """Add the legend, in one line, to an element, and return the line's length in pixels.

    It shows libraries, forms, the shape of a Transform, and layouts.
    """
    x = 0.0
    for name, tint in legend.libraries.items():
        SubElement(parent, "rect", numbers(x=x, y=-12, width=26, height=16, rx=3), fill=tint)
        x = _entry(parent, x + 32, name)
    for name, colour in legend.forms.items():
        SubElement(parent, "rect", numbers(x=x, y=-12, width=BAND, height=16), fill=colour)
        x = _entry(parent, x + BAND + 6, name)
    corners = f"{x},-4 {x + 6},-12 {x + 24},-12 {x + 30},-4 {x + 24},4 {x + 6},4"
    SubElement(parent, "polygon", {"class": "outline transform", "points": corners})
    x = _entry(parent, x + 36, "Transform")
    for name, stroke in legend.layouts.items():
        line = SubElement(parent, "path", {"class": "arrow", "d": f"M{x:g} -4h36"})
        line.set("stroke", stroke.colour)
        line.set("stroke-dasharray", stroke.dashes)
        x = _entry(parent, x + 42, name)
    return x


def _entry(parent: Element, x: float, name: str) -> float:
    draw_text(parent, "key", x, 0, name)
    return x + 7.5 * len(name) + 24


def _draw_box(group: Element, box: Box, legend: Legend) -> None:
    SubElement(group, "title").text = text_of(box.hint)
    if box.kind == "transform":
        SubElement(group, "polygon", {"class": "outline", "points": _HEXAGON})
    else:
        round_by = 8 if box.kind == "operator" else HEIGHT / 2
        size = numbers(width=WIDTH, height=HEIGHT, rx=round_by)
        tint = legend.libraries.get(box.library, "white")
        SubElement(group, "rect", {"class": "outline", "fill": tint, **size})
    inset = 8 if box.kind == "operator" else 16
    library, form = _cut(box.library, 12), _cut(box.form, 14)
    if form:
        band = numbers(x=1, y=8, width=BAND, height=HEIGHT - 16)
        SubElement(group, "rect", {"class": "band", "fill": legend.forms[box.form], **band})
        draw_text(group, "form", WIDTH - inset, 15, form)
    room = 22 - len(form)
    title = _begin(box.title, room) if box.kind == "operator" else _cut(box.title, room)
    draw_text(group, "name", inset, 15, title)
    draw_text(group, "note", inset, 29, _cut(box.note, 28 - len(library)))
    draw_text(group, "library", WIDTH - inset, 29, library)


def draw_text(parent: Element, kind: str, x: float, y: float, text: str) -> None:
    """Add a text unless it is empty; its kind is a class of ``picture.css``."""
    if text:
        SubElement(parent, "text", {"class": kind, **numbers(x=x, y=y)}).text = text_of(text)


def numbers(**values: float) -> dict[str, str]:
    """Return numbers as the texts of attributes."""
    return {key: f"{value:g}" for key, value in values.items()}


def _cut(text: str, length: int) -> str:
    """Return a text cut to ``length`` characters: its last ones, by which long names differ."""
    return text if len(text) <= length else "…" + text[1 - length :]


def _begin(text: str, length: int) -> str:
    """Return a text cut to ``length`` characters: its first ones.

    Of the names of fused operators, the first is the main one.
    """
    return text if len(text) <= length else text[: length - 1] + "…"
