"""The picture of a profile: a bar for each operator, and one run from left to right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import log10
from typing import TYPE_CHECKING
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

import numpy as np

from vtensor.language.wording import counted
from vtensor.pictures.legend import STROKES
from vtensor.pictures.svg import MARGIN, asset, draw_text, numbers, text_of

if TYPE_CHECKING:
    from vtensor.runtime.tuning.profile import Group, Profile

#: In pixels: the width of the picture, of the column of names and of the column of figures; the
#: height of a bar with its gap; the height of the picture of one run.
WIDTH, NAMES, FIGURES, PITCH, TALL = 1080, 220, 290, 22, 120

#: The colours of Transforms, which no legend uses, and of gaps between steps.
TRANSFORM, GAP = "#c8102e", "#bbbbbb"


def profile_picture(profile: Profile) -> str:
    """Return the picture of a profile as SVG: bars of time by operator, and below them one run.

    The run is the one whose time is nearest to the median. Each call is a box; its width is the
    call's time, its height how much of the machine's peak it reaches.
    """
    groups = profile.by(lambda step: step.op)
    colours = _colours(profile, groups)
    root = Element("svg", xmlns="http://www.w3.org/2000/svg", style="background: white")
    SubElement(root, "style").text = asset("picture.css")
    draw_text(root, "heading", MARGIN, MARGIN, f"{profile.name}: {profile.run_ns / 1e6:.2f} ms")
    subtitle = (
        f"median of {counted(len(profile.runs), 'run')} on {counted(profile.threads, 'thread')}"
    )
    draw_text(root, "key", MARGIN, MARGIN + 20, subtitle)
    y = 2.0 * MARGIN
    for name, ns, figures in _bars(profile, groups):
        _draw_bar(root, y, name, ns / profile.run_ns, figures, colours.get(name, GAP))
        y += PITCH
    _draw_run(root, y + MARGIN, profile, colours)
    size = numbers(width=WIDTH, height=y + TALL + 3 * MARGIN)
    root.attrib |= {**size, "viewBox": f"0 0 {size['width']} {size['height']}"}
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _colours(profile: Profile, groups: Mapping[str, Group]) -> dict[str, str]:
    """Return a colour for each operator, by name.

    The operators that take the longest have different colours.
    """
    transforms = {profiled.step.op for profiled in profile.steps if profiled.step.is_transform}
    named = [name for name in groups if name not in transforms]
    colours = dict(zip(named, STROKES, strict=False))
    return dict.fromkeys(named, "#8a8a8a") | colours | dict.fromkeys(transforms, TRANSFORM)


def _bars(profile: Profile, groups: Mapping[str, Group]) -> Iterator[tuple[str, float, str]]:
    """Yield (operator, ns, text of the rates that it reaches) of each bar.

    The last bar is the time in which no step runs.
    """
    for name, group in groups.items():
        reached = group.of_peak
        rate = f"{group.gflops:.0f} GFLOP/s, {group.gbytes:.0f} GB/s"
        yield name, group.ns, rate if reached is None else f"{rate}, {reached:.0%} of peak"
    yield "gaps", sum(profile.gaps), "no step runs"


def _draw_bar(root: Element, y: float, name: str, share: float, figures: str, fill: str) -> None:
    room = WIDTH - 2 * MARGIN - NAMES - FIGURES
    draw_text(root, "key", MARGIN, y + 12, name)
    box = numbers(x=MARGIN + NAMES, y=y, width=share * room, height=PITCH - 6)
    SubElement(root, "rect", box, fill=fill)
    draw_text(root, "key", MARGIN + NAMES + share * room + 6, y + 12, f"{share:.1%}")
    draw_text(root, "figures", WIDTH - MARGIN, y + 12, figures)


def _draw_run(root: Element, y: float, profile: Profile, colours: Mapping[str, str]) -> None:
    walls = profile.runs[:, 1] - profile.runs[:, 0]
    index = int(np.abs(walls - profile.run_ns).argmin())
    begin, scale = int(profile.runs[index, 0]), (WIDTH - 2 * MARGIN) / int(walls[index])
    group = SubElement(root, "g", transform=f"translate({MARGIN} {y:g})")
    title = "one run: a call's width is its time, its height its share of the machine's peak"
    draw_text(
        group, "key", 0, -8, title if profile.peaks else "one run: a call's width is its time"
    )
    frame = numbers(x=0, y=0, width=WIDTH - 2 * MARGIN, height=TALL)
    SubElement(group, "rect", {"class": "frame", **frame})
    steps = {profiled.step.node.name: profiled for profiled in profile.steps}
    for (node, library, kernel), (start, end) in zip(
        profile.calls, profile.times[index].tolist(), strict=True
    ):
        profiled = steps[node]
        reached = profiled.of_peak
        height = TALL * min(1.0 if reached is None else reached, 1.0)
        box = numbers(
            x=(start - begin) * scale, y=TALL - height, width=(end - start) * scale, height=height
        )
        part = SubElement(group, "rect", box, fill=colours[profiled.step.op])
        hint = f"{node}: {profiled.step.op} on {library}, {kernel}, {(end - start) / 1e3:.1f} µs"
        SubElement(part, "title").text = text_of(hint)
    _draw_axis(group, int(walls[index]), scale)


def _draw_axis(group: Element, ns: int, scale: float) -> None:
    """Draw an axis of ``ns`` nanoseconds, labelled in ms at round times; ``scale`` is pixels per
    ns.
    """
    step = 10 ** int(log10(ns)) / 2
    for number in range(int(ns / step) + 1):
        x = number * step * scale
        SubElement(group, "path", {"class": "axis", "d": f"M{x:g} {TALL}v5"})
        draw_text(group, "tick", x, TALL + 16, f"{number * step / 1e6:g}")
    draw_text(group, "figures", WIDTH - 2 * MARGIN, TALL + 30, "ms")
