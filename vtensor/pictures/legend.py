"""Colours of libraries and layouts: safe for the colour-blind, and never the only sign.

A box names its library, arrows of a layout have a dash pattern of their own.

Source: Okabe and Ito, "Color Universal Design", 2008; for boxes in tints that dark text is read on.
Its vermilion is left to Transforms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from vtensor.pictures.scene import Scene

TINTS = ("#a8d8f5", "#f7d999", "#a5dcc8", "#ecc3da", "#f6f0a6", "#d5d5d5")
STROKES = ("#0072b2", "#c98500", "#009e73", "#b8558f", "#3a3a3a", "#56b4e9")
DASHES = ("none", "9 3", "3 3", "12 3 3 3")


class Stroke(NamedTuple):
    """How the arrows of a layout are drawn."""

    colour: str
    dashes: str


@dataclass(frozen=True)
class Legend:
    """The tint of each library and the stroke of each layout, the most frequent ones first."""

    libraries: Mapping[str, str]
    layouts: Mapping[str, Stroke]


def make_legend(scenes: Sequence[Scene]) -> Legend:
    """One legend for pictures that are looked at together."""
    libraries = Counter(box.library for scene in scenes for box in scene.boxes if box.library)
    layouts = Counter(arrow.layout for scene in scenes for arrow in scene.arrows)
    strokes = [
        Stroke(STROKES[i % len(STROKES)], DASHES[i % len(DASHES)]) for i in range(len(layouts))
    ]
    return Legend(
        {name: TINTS[i % len(TINTS)] for i, (name, _) in enumerate(libraries.most_common())},
        dict(zip((name for name, _ in layouts.most_common()), strokes, strict=True)),
    )
