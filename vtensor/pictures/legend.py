"""Colours of libraries, forms and layouts: safe for the colour-blind, and never the only sign.

Colour is never the only sign, since a box also shows the names of its library and its form, and the
arrows of each layout have another dash pattern.

Source: Okabe and Ito, "Color Universal Design", 2008; boxes have tints on which dark text is
readable, and vermilion is for Transforms. Bands of forms: Tol, "Colour Schemes", 2021, dark ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from vtensor.language.records import dataclass
from vtensor.pictures.scene import Scene

TINTS = ("#a8d8f5", "#f7d999", "#a5dcc8", "#ecc3da", "#f6f0a6", "#d5d5d5")
STROKES = ("#0072b2", "#c98500", "#009e73", "#b8558f", "#3a3a3a", "#56b4e9")
BANDS = ("#332288", "#882255", "#117733", "#44546a", "#1a1a1a")
DASHES = ("none", "9 3", "3 3", "12 3 3 3")


class Stroke(NamedTuple):
    """The colour and the dash pattern of a layout's arrows."""

    colour: str
    dashes: str


@dataclass(frozen=True)
class Legend:
    """The tint (box colour) of each library, the band colour of each form, and the stroke of each
    layout.

    The keys are names, the most frequent first. A form is a ``Box.form``: an approximate kernel or
    encodings.
    """

    libraries: Mapping[str, str]
    forms: Mapping[str, str]
    layouts: Mapping[str, Stroke]


def make_legend(scenes: Sequence[Scene]) -> Legend:
    """Return one legend for several scenes."""
    boxes = [box for scene in scenes for box in scene.boxes]
    libraries = Counter(box.library for box in boxes if box.library)
    forms = Counter(box.form for box in boxes if box.form)
    layouts = Counter(arrow.layout for scene in scenes for arrow in scene.arrows)
    strokes = [
        Stroke(STROKES[i % len(STROKES)], DASHES[i % len(DASHES)]) for i in range(len(layouts))
    ]
    return Legend(
        _coloured(libraries, TINTS),
        _coloured(forms, BANDS),
        dict(zip((name for name, _ in layouts.most_common()), strokes, strict=True)),
    )


def _coloured(names: Counter[str], colours: Sequence[str]) -> dict[str, str]:
    by_count = enumerate(names.most_common())
    return {name: colours[place % len(colours)] for place, (name, _) in by_count}
