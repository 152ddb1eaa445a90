"""Fig. 11(a): latencies compared with the layout-aware baseline.

``python -m eval.figures.latency``; ``--only vgg19,sse41,tensorflow --again`` measures one cell
again. The baseline has VTensor's kernels and threads; only its layouts are handled in another way,
inside its operators. All engines run in turns in one process, with a clock around each step (0.1 us
each); a run lasts from the begin of its first step to the end of its last one. *ewo* is the paper's
VTensor (resolver, LHO, EWO); *all* has every pass, and so fuses operators, too. In TensorFlow's mix
*all* turns BatchNorm into BiasAdd, which the mix gives to Eigen: with blocked layouts that costs
conversions. A gain is (t_base - t) / t_base: of mean times as in the paper, and as the median over
pairs of turns, with its 95 % interval. A gain whose interval reaches further than 2 % is *not
shown*.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

import typer

from eval.drawing import bars, drawn
from eval.experiment import Scope, Store, selecting
from eval.figures.cells import groups
from eval.figures.cells import measure as measure_cells
from eval.figures.paper import paper
from eval.figures.timing import INEXACT, INNER, MIXES, Gain, gain, mean_gain
from eval.figures.timing import table as timings
from eval.markdown import milliseconds, percent, picture, table, told
from eval.networks import NAMES
from eval.store import Row
from vtensor.benchmark.agreement import BOUNDS

NAME = "timings"
TITLE = "Latency (Fig. 11)"


def measure(scope: Scope, store: Store) -> None:
    """Measure the cells of batch size 1 of which the store lacks a row."""
    measure_cells(scope, store, groups(scope))


def section(store: Store) -> Iterator[str]:
    """Yield the comparison with the baseline, and what was left out."""
    rows = timings(store).rows(batch=1)
    yield told(__doc__)
    gains = like_for_like(rows)
    yield from _like_for_like(rows, gains)
    if gains:
        plot(gains, store)
        yield picture("latency", "gains of each network over the baseline")
    yield left_out(rows, {})
    said = paper("latency", "gpu", "mean")
    yield (
        f"Fig. 11(b), GPU, where the paper gains {said} %, is not repeated: there is no description"
        " of cuDNN here yet."
    )


Found = dict[tuple[str, str], dict[str, dict[str, Gain | None]]]


def like_for_like(rows: Sequence[Row]) -> Found:
    """Return the gains over the baseline of the engines ``ewo`` and ``all``.

    The keys are (cap, mix), in each of them networks, and in each of these engines. A gain is None
    if the engine or the baseline was not timed.
    """
    by = {(row["cap"], row["mix"], row["network"], row["engine"]): row for row in rows}
    gains: Found = {}
    for cap, mix, network, engine in by:
        if engine in ("ewo", "all"):
            base = by.get((cap, mix, network, "baseline"))
            inner = gains.setdefault((cap, mix), {}).setdefault(network, {})
            inner[engine] = gain(base, by[cap, mix, network, engine])
    return gains


def _like_for_like(rows: Sequence[Row], found: Found) -> Iterator[str]:
    said = paper("latency")
    heads = ["cap, mix", "networks", "mean gain, ewo", "least", "most", "mean gain, all"]
    lines: list[list[object]] = []
    for (cap, mix), networks in found.items():
        known = {name: levels.get("ewo") for name, levels in networks.items()}
        gains = {name: gained.mean for name, gained in known.items() if gained}
        if gains:
            least, most = min(gains, key=gains.__getitem__), max(gains, key=gains.__getitem__)
            ends = (f"{percent(gains[end])} ({end})" for end in (least, most))
            whole = mean_gain(levels.get("all") for levels in networks.values())
            mean = percent(fmean(gains.values()))
            lines.append([f"{cap}, {mix}", len(gains), mean, *ends, percent(whole)])
    paper_line = (f"{said[key]} %" for key in ("mean", "least", "most"))
    lines.append(["the paper: SSE4.2, MKL-DNN and Eigen", len(NAMES), *paper_line, None])
    yield table(heads, lines)
    heads = ["network", "baseline, ms", "ewo, ms", "all, ms", "gain of ewo, means"]
    heads += ["medians (95 %)", "gain of all, medians (95 %)"]
    by = {(row["cap"], row["mix"], row["network"], row["engine"]): row for row in rows}
    for (cap, mix), networks in found.items():
        runs = [
            row["runs"] for row in rows if (row["cap"], row["mix"]) == (cap, mix) and row["runs"]
        ]
        yield (
            f"**{cap}, {mix}**: mean and standard deviation of {min(runs, default=0)} to"
            f" {max(runs, default=0)} runs."
        )
        rows_ = list[list[object]]()
        for network, levels in networks.items():
            times = [_spread(by.get((cap, mix, network, e))) for e in ("baseline", "ewo", "all")]
            ewo = levels.get("ewo")
            rows_.append([network, *times, ewo and percent(ewo.mean), ewo, levels.get("all")])
        yield table(heads, rows_)


def _spread(row: Row | None) -> str | None:
    if row is None:
        return None
    if not row["runs"]:
        return str(row["status"])
    return f"{milliseconds(row['mean_s'])} ± {milliseconds(row['std_s'])}"


def left_out(rows: Sequence[Row], others: Mapping[str, str]) -> str:
    """Return a paragraph on the engines' differences from NumPy, and on engines not timed.

    Args:
        rows: the measured rows.
        others: by name, why an engine is not installed.
    """
    lines = [f"- {name}: {why}" for name, why in others.items()]
    for row in rows:
        if row["status"] != "timed":
            who = f"{row['network']}, {row['cap']}, {row['mix']}: {row['engine']}"
            lines.append(f"- {who} {row['status']}: {row['reason']}")
    strict = [row for row in rows if row["runs"] and row["engine"] not in INEXACT]
    worst = max((row["difference"] for row in strict), default=0.0)
    bounds = ", ".join(f"{bound:.0e} for {engine}" for engine, bound in INEXACT.items())
    return (
        f"Everything timed agrees with NumPy's definitions to {worst:.1e} of the largest output,"
        f" but for {', '.join(INEXACT)}; the bound is {BOUNDS['f32']:.0e} or, where a Softmax comes"
        f" last, {INNER:.0e} at its input ({bounds}), and an engine beyond it is not timed."
        + ("\n\nNot timed:\n\n" + "\n".join(lines) if lines else " No engine was left out.")
    )


def plot(found: Found, store: Store) -> None:
    """Draw a panel for each cap, with bars of ewo's gain by network and mix, in percent.

    Args:
        found: the result of ``like_for_like``.
        store: the folder of results.
    """
    caps = list(dict.fromkeys(cap for cap, _ in found))
    with drawn(store.folder / "latency", panels=len(caps)) as panels:
        for axes, cap in zip(panels, caps, strict=True):
            names = list(next(inner for (of_cap, _), inner in found.items() if of_cap == cap))
            of_mix = {
                mix: [found[cap, mix].get(name, {}).get("ewo") for name in names]
                for mix in MIXES
                if (cap, mix) in found
            }
            series = {mix: [*map(_height, gains)] for mix, gains in of_mix.items()}
            ends = {mix: [*map(ends_of, gains)] for mix, gains in of_mix.items()}
            about = f"{cap}: gain of ewo, with its interval"
            bars(axes, names, series, intervals=ends, title=about, ylabel="% of the baseline")


def _height(one: Gain | None) -> float | None:
    return one.median * 100 if one else None


def ends_of(one: Gain | None) -> tuple[float, float] | None:
    """Return both ends of a gain's interval, in percent; None if there is no gain."""
    return (one.low * 100, one.high * 100) if one else None


if __name__ == "__main__":
    typer.run(selecting(sys.modules[__name__]))
