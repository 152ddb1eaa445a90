"""Plots with one style for all of them, each written as PNG and as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: Okabe and Ito's eight colours, which readers with colour blindness can tell apart, and a ninth,
#: since a plot has up to nine series.
COLOURS = (
    *("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999"),
    "#882255",
)
#: The letters for which a legend has room in a row, of which five are an entry's colour.
LETTERS = 110
#: The part of a group's width that its bars take together.
WIDTH = 0.8


@contextmanager
def drawn(path: Path, panels: int = 1, size: tuple[float, float] = (9, 3.6)) -> Iterator[list[Any]]:
    """Yield the axes of panels below one another; save the figure as PNG and SVG at the end.

    Args:
        path: the path of both files, without a suffix.
        panels: the number of panels.
        size: width and height of a panel, in inches.
    """
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    look: dict[Any, Any] = {
        "font.size": 9,
        "svg.fonttype": "none",
        "axes.axisbelow": True,
        "svg.hashsalt": "eval",
    }
    with plt.rc_context(look):
        figure, axes = plt.subplots(
            panels, 1, figsize=(size[0], size[1] * panels), squeeze=False, layout="constrained"
        )
        yield [row[0] for row in axes]
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path.with_suffix(".png"), dpi=130)
        figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
        plt.close(figure)


def bars(
    axes: Any,
    groups: Sequence[str],
    series: Mapping[str, Sequence[float | None]],
    *,
    width: float = 0.0,
    begin: float = -WIDTH / 2,
    colours: Sequence[str] = COLOURS,
    intervals: Mapping[str, Sequence[tuple[float, float] | None]] | None = None,
    **about: str,
) -> None:
    """Draw bars for each group, one for each series; None leaves a gap.

    Args:
        axes: the panel.
        groups: the names of the groups.
        series: the heights of each series, by its name.
        width: above 0, the bars of a group are stacked and have this width; 0 draws them side by
            side. The distance of two groups is 1.
        begin: the left edge of a group's first bar, relative to the group's middle.
        colours: a colour for each series.
        intervals: for series whose bars stand side by side, the ends of the interval that a line
            shows on each bar, by the series' name; None draws no line.
        about: arguments of ``axes.set``, such as ``title`` and ``ylabel``.
    """
    bottom, stacked = [0.0] * len(groups), bool(width)
    width = width or WIDTH / max(1, len(series))
    for place, (label, values) in enumerate(series.items()):
        shift = begin if stacked else begin + place * width
        heights = [0.0 if value is None else value for value in values]
        xs = [index + shift for index in range(len(groups))]
        colour = colours[place % len(colours)]
        axes.bar(xs, heights, width, bottom, align="edge", label=label, color=colour, linewidth=0)
        for x, ends in zip(xs, (intervals or {}).get(label, ()), strict=False):
            if ends is not None:
                axes.vlines(x + width / 2, *ends, color="black", linewidth=0.8)
        if stacked:
            bottom = [below + height for below, height in zip(bottom, heights, strict=True)]
    many = len(groups) > 6
    turned = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"} if many else {}
    axes.set_xticks(range(len(groups)), groups, **turned)
    axes.grid(axis="y", color="0.9")
    axes.axhline(0, color="black", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    if any(not label.startswith("_") for label in series):
        legend(axes)
    if title := about.pop("title", ""):
        axes.set_title(title, loc="left")
    axes.set(**about)


def legend(axes: Any, *others: Any) -> None:
    """Add a legend above a panel, for the series of ``axes`` and of ``others`` in this panel."""
    pairs = [panel.get_legend_handles_labels() for panel in (axes, *others)]
    handles, labels = ([entry for pair in pairs for entry in pair[side]] for side in (0, 1))
    columns = max(1, min(len(labels), LETTERS // (5 + max(map(len, labels)))))
    look = {"fontsize": "small", "frameon": False, "ncols": columns, "borderaxespad": 0.2}
    axes.legend(handles, labels, loc="lower right", bbox_to_anchor=(1, 1), **look)
