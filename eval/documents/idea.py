"""Draw the README's picture of the idea: one graph with its layouts before and after.

``python -m eval.documents.idea``. Five nodes run on the libraries that TensorFlow 1.14 gives them,
on the paper's instruction set: *before* with operators that convert for themselves, *after* with
the paper's passes. Both rows of the picture are drawn from plans. The files are
``docs/idea_light.svg`` and ``docs/idea_dark.svg``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

import numpy as np

from ops import Add, BiasAdd, Conv2D, Relu
from resolver.lowered import LoweredGraph, OpNode
from vtensor import Graph, Session
from vtensor.isa import limit_isa

FOLDER = Path(__file__).parents[2] / "docs"
#: The instruction set of the paper's machine, on which oneDNN prefers blocks of channels.
CAP = "sse41"
LIBRARIES = ("onednn", "eigen")
#: TensorFlow 1.14 has no oneDNN kernel of BiasAdd.
PIN = {"BiasAdd": "eigen"}

#: Width and height of a box, and the distance of two boxes' left ends, in pixels.
WIDTH, HEIGHT, PITCH = 72, 36, 86
#: Height of a row (a title and two lanes of boxes), and margin of the picture, in pixels.
ROW, MARGIN = 128, 8
#: By theme, the colours of text, lines and conversions, and the fill of a box by ``Item.kind``.
THEMES = {
    "light": {
        "text": "#1f2328",
        "line": "#59636e",
        "conversion": "#d1242f",
        "onednn": "#cfe4ff",
        "eigen": "#d3f0d6",
        "end": "none",
    },
    "dark": {
        "text": "#e6edf3",
        "line": "#9198a1",
        "conversion": "#ff7b72",
        "onednn": "#1d3a5f",
        "eigen": "#1f4429",
        "end": "none",
    },
}


@dataclass(frozen=True)
class Item:
    """A box of a row.

    Attributes:
        name: the name of the node, or of an input or output of the network.
        kind: ``conversion``, ``end`` (an input or output), or an operator's library.
        lines: the box's two lines of text.
        reads: names of the items whose values it reads.
    """

    name: str
    kind: str
    lines: tuple[str, str]
    reads: tuple[str, ...]


def network() -> Graph:
    """Build y = Add(Conv2D(Relu(a)), a) with a = BiasAdd(Conv2D(x))."""
    graph = Graph("idea")
    x = graph.input("x", {"N": 1, "C": 64, "H": 28, "W": 28})
    kernel = graph.constant(np.ones((64, 64, 3, 3), np.float32), "O I h w")
    bias = graph.constant(np.ones(64, np.float32), "C")
    convolution = Conv2D(pads=(1, 1, 1, 1))
    added = graph.add(BiasAdd(), graph.add(convolution, x, kernel), bias)
    second = graph.add(convolution, graph.add(Relu(), added), kernel)
    graph.output(graph.add(Add(), second, added), "y")
    return graph.seal()


def plan_items(optimize: str) -> list[Item]:
    """Return the boxes of the network's plan, in order of execution.

    Args:
        optimize: the name of a level of optimisation, or of the only pass.
    """
    with Session(
        network(),
        optimize=[optimize],
        libraries=LIBRARIES,
        pin=PIN,
        cache_dir=None,
        deterministic=True,
    ) as session:
        return list(list_items(session.plan.graph))


def list_items(graph: LoweredGraph) -> Iterator[Item]:
    """Yield the boxes of a graph: its inputs, the nodes that run each time, its outputs."""
    makers = {value: value for value in graph.inputs}
    for name in graph.inputs:
        yield Item(name, "end", (name, str(graph.values[name].layout)), ())
    for node in graph.nodes:
        reads = tuple(makers[value] for value in node.inputs if value in makers)
        if not reads:
            continue
        makers |= dict.fromkeys(node.outputs, node.name)
        layout = str(graph.values[node.outputs[0]].layout)
        if isinstance(node, OpNode):
            yield Item(node.name, node.variant.library, (node.op_name, layout), reads)
        else:
            source = str(graph.values[node.inputs[0]].layout)
            yield Item(node.name, "conversion", (f"{source} to", layout), reads)
    for name, value in graph.outputs.items():
        yield Item(
            f"output {name}", "end", (name, str(graph.values[value].layout)), (makers[value],)
        )


def place_items(
    before: Sequence[Item], after: Sequence[Item]
) -> list[dict[str, tuple[float, int]]]:
    """Return for each of two rows the items' columns and lanes (0 lower, 1 upper), by name.

    An item is in the column after the item before it, in the lower lane. A conversion that does not
    read the item before it is in the upper lane, between the item that it reads and the one that
    reads it. An item of ``after`` has the column of the item of ``before`` with the same name.
    """
    lower = [item for item in before if not _is_aside(item, before)]
    columns = {item.name: float(column) for column, item in enumerate(lower)}
    return [_place_row(row, columns) for row in (before, after)]


def _is_aside(item: Item, row: Sequence[Item]) -> bool:
    """Return whether an item is a conversion that does not read the item before it in its row."""
    at = row.index(item)
    return item.kind == "conversion" and row[at - 1].name not in item.reads


def _place_row(row: Sequence[Item], columns: Mapping[str, float]) -> dict[str, tuple[float, int]]:
    ends = [item for item in row if item.kind != "conversion"]
    fixed = {item.name: columns[item.name] for item in ends}
    placed = {name: (column, 0) for name, column in fixed.items()}
    for item in row:
        if item.kind != "conversion":
            continue
        [reader] = [other.name for other in row if item.name in other.reads]
        middle = (fixed[item.reads[0]] + fixed[reader]) / 2
        placed[item.name] = middle, int(_is_aside(item, row))
    return placed


def draw(before: Sequence[Item], after: Sequence[Item], theme: str) -> str:
    """Return the text of an SVG file with both rows; ``theme`` is a key of ``THEMES``."""
    colours = THEMES[theme]
    rows = list(zip((before, after), place_items(before, after), strict=True))
    last = max(column for _, at in rows for column, _ in at.values())
    width, height = round(last * PITCH) + WIDTH + 2 * MARGIN, 2 * ROW + 30
    root = Element(
        "svg", xmlns="http://www.w3.org/2000/svg", width=f"{width}", height=f"{height}",
        viewBox=f"0 0 {width} {height}",
    )  # fmt: skip
    SubElement(root, "title").text = describe(before, after)
    SubElement(root, "style").text = (
        f"text {{ font: 11px Verdana, 'DejaVu Sans', sans-serif; fill: {colours['text']}; "
        "text-anchor: middle; } .head { font-size: 14px; font-weight: bold; text-anchor: start; } "
        ".key { text-anchor: start; } "
        f"path {{ fill: none; stroke: {colours['line']}; stroke-width: 1.5; }}"
    )
    heads = ("Before: each operator converts for itself", "After: planned for the whole graph")
    for number, ((row, at), head) in enumerate(zip(rows, heads, strict=True)):
        group = SubElement(root, "g", transform=f"translate({MARGIN} {number * ROW})")
        SubElement(
            group, "text", {"class": "head", "x": "0", "y": "20"}
        ).text = f"{head}, {count_conversions(row)} conversions"
        _draw_arrows(group, row, at)
        for item in row:
            _draw_box(group, item, at[item.name], colours)
    _draw_key(SubElement(root, "g", transform=f"translate({MARGIN} {2 * ROW + 6})"), colours)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def count_conversions(row: Sequence[Item]) -> int:
    """Return how many boxes of a row are conversions."""
    return sum(item.kind == "conversion" for item in row)


def describe(before: Sequence[Item], after: Sequence[Item]) -> str:
    """Return the picture in words, for readers who do not see it."""
    return (
        f"Five nodes with their memory layouts: {count_conversions(before)} conversions before,"
        f" {count_conversions(after)} after"
    )


def _corner(place: tuple[float, int]) -> tuple[float, float]:
    """Return x and y of the upper left corner of a box, in pixels; ``place`` is (column, lane)."""
    column, lane = place
    return column * PITCH, 76 - 46 * lane


def _draw_arrows(parent: Element, row: Sequence[Item], at: Mapping[str, tuple[float, int]]) -> None:
    """Draw a line from each item to its readers; a line that would cross boxes goes above them.

    Args:
        parent: the element that gets the lines.
        row: the items.
        at: column and lane of each item, by name.
    """
    taken = sorted(column for column, lane in at.values() if not lane)
    for item in row:
        for source in item.reads:
            (x0, y0), (x1, y1) = _corner(at[source]), _corner(at[item.name])
            near = not any(at[source][0] < column < at[item.name][0] for column in taken)
            if y0 == y1 and near:
                line = f"M{x0 + WIDTH:g} {y0 + HEIGHT / 2:g}H{x1 - 1:g}m-5 -4l5 4l-5 4"
            elif y0 == y1:
                top, left, right = y0 - 24, x0 + WIDTH / 2, x1 + WIDTH / 2
                line = f"M{left:g} {y0:g}V{top:g}H{right:g}V{y1 - 1:g}m-4 -5l4 5l4 -5"
            elif y1 < y0:
                line = f"M{x0 + WIDTH / 2:g} {y0:g}V{y1 + HEIGHT / 2:g}H{x1 - 1:g}m-5 -4l5 4l-5 4"
            else:
                right = x1 + WIDTH / 2
                line = f"M{x0 + WIDTH:g} {y0 + HEIGHT / 2:g}H{right:g}V{y1 - 1:g}m-4 -5l4 5l4 -5"
            SubElement(parent, "path", d=line)


def _draw_box(
    parent: Element, item: Item, place: tuple[float, int], colours: Mapping[str, str]
) -> None:
    x, y = _corner(place)
    conversion = item.kind == "conversion"
    stroke = colours["conversion" if conversion else "line"]
    look = {"fill": "none" if conversion else colours[item.kind], "stroke": stroke}
    if conversion:
        look |= {"stroke-width": "2"}
        w, h = WIDTH, HEIGHT
        corners = [(0, h / 2), (8, 0), (w - 8, 0), (w, h / 2), (w - 8, h), (8, h)]
        points = " ".join(f"{x + dx:g},{y + dy:g}" for dx, dy in corners)
        SubElement(parent, "polygon", {"points": points, **look})
    else:
        size = {"x": f"{x:g}", "y": f"{y:g}", "width": f"{WIDTH}", "height": f"{HEIGHT}"}
        look |= {"rx": "18" if item.kind == "end" else "4"}
        SubElement(parent, "rect", {**size, **look})
    for line, down in zip(item.lines, (15, 29), strict=True):
        text = SubElement(parent, "text", x=f"{x + WIDTH / 2:g}", y=f"{y + down:g}")
        text.text = line
        if conversion:
            text.set("style", f"fill: {colours['conversion']}; font-size: 10px")


def _draw_key(parent: Element, colours: Mapping[str, str]) -> None:
    """Draw the legend of the colours."""
    labels = {"onednn": "runs on oneDNN", "eigen": "runs on Eigen", "conversion": "conversion"}
    x = 0
    for kind, label in labels.items():
        look = {"fill": colours[kind], "stroke": colours["line"]}
        if kind == "conversion":
            look = {"fill": "none", "stroke": colours[kind], "stroke-width": "2"}
        SubElement(parent, "rect", {"x": f"{x}", "y": "0", "width": "22", "height": "14", **look})
        SubElement(parent, "text", {"class": "key", "x": f"{x + 30}", "y": "11"}).text = label
        x += 150
    note = "under each operator: the layout of its output"
    SubElement(parent, "text", {"class": "key", "x": f"{x}", "y": "11"}).text = note


def main(folder: Path = FOLDER) -> None:
    """Write the picture in both themes; the process's instruction set is capped to ``CAP``."""
    limit_isa(CAP)
    before, after = plan_items("aware"), plan_items("ewo")
    for theme in THEMES:
        (folder / f"idea_{theme}.svg").write_text(draw(before, after, theme), encoding="utf-8")


if __name__ == "__main__":
    main()
