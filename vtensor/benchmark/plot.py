"""The picture of a report: each peer's time relative to VTensor's, with intervals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from vtensor.benchmark.race import OUR_PRECISION
from vtensor.benchmark.report import Report
from vtensor.errors import InputError

#: Okabe and Ito's colours, which are safe for the colour-blind.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")

#: The height of all bars of a model together, as a fraction of the distance between models.
_BAR = 0.8


def check_plot(path: Path) -> None:
    """Check that a plot can be written to a path.

    Raises:
        InputError: matplotlib is not installed, or the folder does not exist.
    """
    if find_spec("matplotlib") is None:
        raise InputError("--plot needs matplotlib: pip install vtensor-layouts[plot]")
    if not path.parent.is_dir():
        raise InputError(f"--plot {path}: there is no folder {path.parent}")


def plot(report: Report, path: Path) -> list[Path]:
    """Draw a figure with a panel for each precision, and return the files that are written.

    Args:
        report: the report.
        path: the path of the figure; its suffix is replaced by ``.png`` and by ``.svg``.
    """
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    groups = list(dict.fromkeys(mean["group"] for mean in report["means"])) or [""]
    peers = list(dict.fromkeys(mean["peer"] for mean in report["means"]))
    models = list(dict.fromkeys(row["model"] for row in report["rows"]))
    size = (6.4 * len(groups), 1.6 + (len(models) + 1) * (0.16 + 0.17 * len(peers)))
    with plt.rc_context({"font.size": 9, "svg.fonttype": "none", "axes.axisbelow": True}):
        figure, [panels] = plt.subplots(
            1, len(groups), figsize=size, squeeze=False, sharey=True, layout="constrained"
        )
        for axes, group in zip(panels, groups, strict=True):
            for place, peer in enumerate(peers):
                _bars(axes, _ratios(report, group, peer, models), place, len(peers), peer)
            _finish(axes, group, models)
        subtitle = report["machine"]["processor"], f"{report['settings']['threads']} threads"
        handles, labels = panels[0].get_legend_handles_labels()
        figure.suptitle(", ".join(subtitle), fontsize=9, color="0.35")
        figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
        files = [path.with_suffix(f".{kind}") for kind in ("png", "svg")]
        for file in files:
            figure.savefig(file, dpi=160)
        plt.close(figure)
    return files


def _ratios(
    report: Report, group: str, peer: str, models: Sequence[str]
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield (line, ratio) for each line of a panel on which a peer has a ratio of times.

    A line is an index from the top, from 0. There is one for each model, and a last one for the
    mean over models.

    Args:
        report: the report.
        group: the precision.
        peer: the peer's name.
        models: the names of the models, from the top.
    """
    for row in report["rows"]:
        if (row["group"], row["peer"]) == (group, peer) and row["ratio"]:
            yield models.index(row["model"]), row["ratio"]
    for mean in report["means"]:
        if (mean["group"], mean["peer"]) == (group, peer):
            yield len(models), mean


def _bars(
    axes: Any, ratios: Iterable[tuple[int, Mapping[str, Any]]], place: int, count: int, peer: str
) -> None:
    """Draw a bar from 1 to the ratio of times, with its interval, for each of a peer's ratios.

    If a bar extends to the right of 1, the peer is slower than VTensor.

    Args:
        axes: the panel, of matplotlib.
        ratios: the pairs of ``_ratios``.
        place: the index of the peer among the peers, which decides the bars' colour and their place
            in a line.
        count: the number of peers.
        peer: the peer's name.
    """
    height = _BAR / count
    label, colour = peer, _COLOURS[place % len(_COLOURS)]
    for line, ratio in ratios:
        y, value = line + (place + 0.5) * height - _BAR / 2, ratio["value"]
        spread = [[value - ratio["low"]], [ratio["high"] - value]]
        axes.barh(y, value - 1, height * 0.86, 1, color=colour, label=label, linewidth=0)
        axes.errorbar(value, y, xerr=spread, color="0.2", linewidth=0.8, capsize=1.5)
        right = value >= 1
        axes.annotate(
            f"{value:.2f}",
            (ratio["high"] if right else ratio["low"], y),
            xytext=(3 if right else -3, 0),
            textcoords="offset points",
            ha="left" if right else "right",
            va="center",
            fontsize=7,
            color="0.25",
        )
        label = "_"  # not in the legend, which has one entry for each peer


def _finish(axes: Any, group: str, models: Sequence[str]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    title = group if group == OUR_PRECISION else f"{group}, VTensor in {OUR_PRECISION}"
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.set_xlim(min(low, 1 / 1.5) / 1.15, max(high, 1.5) * 1.15)
    axes.xaxis.set_major_locator(LogLocator(10, (1, 1.5, 2, 3, 5, 7)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.axvline(1, color="black", linewidth=1)
    axes.axhline(len(models) - 0.5, color="0.5", linewidth=0.6)
    axes.set_yticks(range(len(models) + 1), [*models, "geometric mean"])
    axes.set_ylim(len(models) + 0.5, -0.5)
    axes.grid(axis="x", color="0.9")
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set(title=title, xlabel="time of a run, VTensor = 1 (right: VTensor is faster)")
