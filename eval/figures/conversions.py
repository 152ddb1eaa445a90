"""Fig. 13: the conversions that LHO and EWO remove, and the latency that this gains.

``python -m eval.figures.conversions``. A conversion is a Transform that runs each time; Transforms
of constants run once, at load, and do not count. (a) is layout-aware: operators convert inside
themselves, and values between two libraries are NHWC, as in the paper's TensorFlow; (a2) is the
resolver with element-wise operators held at NHWC; (b) to (e) are the levels of passes, (d) the
paper's. MB are bytes read plus written, padding included; ms is the sum of the Transforms' times,
each the median of runs of the Transform alone.

*onednn* is that library alone; *tensorflow* has BiasAdd, Pad and Mean on Eigen, as TensorFlow 1.14,
and the rest on oneDNN; *elementwise* has every element-wise operator on Eigen. Above sse41 oneDNN
mostly prefers NHWC, which the baseline has between libraries, so that little is left to remove.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from statistics import fmean

import typer

from eval.drawing import bars, drawn, legend
from eval.experiment import Scope, Store, command
from eval.figures.converted import LEVELS
from eval.figures.paper import paper
from eval.figures.timing import MIXES, caps
from eval.figures.timing import table as timings
from eval.figures.turns import interval, turn_times
from eval.markdown import percent, picture, table, told
from eval.networks import NAMES
from eval.processes import measure as run_process
from eval.store import Row
from vtensor.benchmark.summary import Ratio

NAME = "conversions"
TITLE = "Conversions removed, and what that gains (Fig. 13)"
KEY = ("network", "cap", "mix", "level")
AWARE, RESOLVED, PAPERS = "(a) aware", "(b) resolver", "(d) + EWO"
#: The objective of EWO: the bytes that Transforms move, where identical Transforms count once.
OBJECTIVE = "shared"
#: The engines between which each part of VTensor saves time, in this order.
STEPS = ("baseline", "none", "ewo")

__all__ = ["MIXES", "counts", "gained", "measure", "removed", "section"]


def measure(scope: Scope, store: Store) -> None:
    """Plan the networks whose rows the store lacks, in a process for each network and cap."""
    kept, todo = store.table(NAME, KEY), list[tuple[str, str, list[str]]]()
    for cap in caps(scope):
        for name in scope.networks:
            keys = [
                {"network": name, "cap": cap, "mix": mix, "level": level}
                for mix in scope.mixes
                for level in LEVELS
            ]
            if missing := store.missing(kept, keys):
                todo.append((cap, name, list(dict.fromkeys(key["mix"] for key in missing))))
    for count, (cap, name, shared) in enumerate(todo):
        if store.late:
            return
        store.advance(f"conversions of {name}, {cap}", count, len(todo))
        rows = list[Row]()
        arguments = (cap, name, ",".join(shared), OBJECTIVE, str(scope.repeats), str(scope.threads))
        run_process("eval.figures.converted", arguments, rows.append)
        kept.add(rows)


def section(store: Store) -> Iterator[str]:
    """Yield tables of the conversions that remain, by cap and mix, and of the latency gained."""
    rows = list(store.table(NAME, KEY))
    yield told(__doc__)
    pairs = [(c, m) for c in dict.fromkeys(row["cap"] for row in rows) for m in MIXES]
    pairs = [pair for pair in pairs if any(within(row, *pair) for row in rows)]
    for cap, mix in pairs:
        yield f"**{cap}, {mix}**: Transforms, MB, ms."
        yield counts([row for row in rows if within(row, cap, mix)])
    if pairs:
        plot(rows, pairs, store)
        yield picture(NAME, "Transforms of a run at each level")
    yield _agreement(store)
    yield from _gains(store)
    said = paper("conversions")
    yield (
        f"The paper: LOO gains {said['least']} to {said['most']} %, {said['mean']} % on average;"
        f" ResNet-152 goes from {said['resnet152']['before']} conversions to"
        f" {said['resnet152']['after']} and gains {said['resnet152']['gain']} %; VGG19 has"
        f" {said['says']['vgg19']}; NasNet-Large has {said['says']['nasnet_large']}."
    )


def within(row: Row, cap: str, mix: str) -> bool:
    """Return whether a row was measured under this cap and in this mix."""
    return bool(row["cap"] == cap and row["mix"] == mix)


def counts(rows: Sequence[Row]) -> str:
    """Return a Markdown table of conversions: a line for each network, a column for each level.

    Two more columns have the status of EWO's solver at level (d), and the paper's numbers.

    Args:
        rows: the rows of one cap and mix.
    """
    by_level = {(row["network"], row["level"]): row for row in rows}
    said, lines = paper("conversions"), []
    papers = {**said["says"], "resnet152": "{before} to {after}".format(**said["resnet152"])}
    for network in dict.fromkeys(name for name, _ in by_level):
        cells = [_cell(by_level.get((network, level))) for level in LEVELS]
        proof = by_level[network, PAPERS]["certificate"]
        proven = f"{proof['status']}, {proof['open_nodes']} open"
        lines.append([network, *cells, proven, papers.get(network)])
    return table(["network", *LEVELS, "(d) proven", "the paper"], lines)


def _cell(row: Row | None) -> str | None:
    if row is None:
        return None
    time = "" if row["seconds"] is None else f"; {row['seconds'] * 1e3:.2f}"
    return f"{row['transforms']}; {row['bytes'] / 1e6:.1f}{time}"


def gained(store: Store, cap: str, mix: str = "tensorflow") -> dict[str, dict[str, Ratio]]:
    """Return by network, and then by part of VTensor, the time that the part saves.

    A saved time is a share of the baseline's: the median over pairs of turns, with its confidence
    interval. The parts are ``DLR`` (the resolver), ``LOO`` (LHO and EWO) and ``all
    three``.
    """
    rows = [row for row in timings(store).rows(batch=1, cap=cap, mix=mix) if row["runs"]]
    by = {(row["network"], row["engine"]): row for row in rows}
    shares = {}
    for name in dict.fromkeys(network for network, _ in by):
        steps = [by[name, level] for level in STEPS if (name, level) in by]
        if len(steps) == len(STEPS):
            base, none, ewo = turn_times(steps)
            saved = {"DLR": base - none, "LOO": none - ewo, "all three": base - ewo}
            shares[name] = {part: interval(seconds / base, 0) for part, seconds in saved.items()}
    return shares


def removed(store: Store, cap: str, mix: str = "tensorflow") -> dict[str, tuple[int, int]]:
    """Return by network how many conversions a run has: at level (a), and at level (d).

    Level (a) is layout-aware, level (d) is after EWO.
    """
    found = numbers(store, cap, mix).items()
    return {name: (row[AWARE], row[PAPERS]) for name, row in found if PAPERS in row}


def numbers(store: Store, cap: str, mix: str) -> dict[str, dict[str, int]]:
    """Return the number of conversions of a run, by network and then by level."""
    by_network: dict[str, dict[str, int]] = {}
    for row in store.table(NAME, KEY).rows(cap=cap, mix=mix):
        by_network.setdefault(row["network"], {})[row["level"]] = row["transforms"]
    return by_network


def _agreement(store: Store) -> str:
    """Return a sentence that compares two numbers of conversions: the baseline's and level (a)'s.

    The baseline's operators convert by themselves; level (a) is a graph with Transforms.
    """
    rows = timings(store).rows(batch=1, engine="baseline")
    counted = {
        (row["cap"], row["mix"], row["network"]): row["conversions"]
        for row in rows
        if row["conversions"] is not None
    }
    aware = {
        (row["cap"], row["mix"], row["network"]): row["transforms"]
        for row in store.table(NAME, KEY).rows(level=AWARE)
    }
    both = [key for key in counted if key in aware]
    differ = [key for key in both if counted[key] != aware[key]]
    said = "; ".join(
        f"{', '.join(key)}: {counted[key]} where (a) has {aware[key]}" for key in differ
    )
    return (
        "The layout-aware operators of the baseline convert as often as (a) on"
        f" {len(both) - len(differ)} of {len(both)} networks that were run."
        + (f" They differ on {said}." if differ else "")
    )


def _gains(store: Store) -> Iterator[str]:
    """Yield, for each cap on the instruction set, a table and a plot of the time that is saved.

    They have the share of the baseline's time that DLR and LOO save, and the numbers
    of conversions before and after these parts.
    """
    seen = list(dict.fromkeys(row["cap"] for row in timings(store)))
    for cap in seen:
        gained_shares, less = gained(store, cap), removed(store, cap)
        if not gained_shares:
            continue
        yield (
            f"**{cap}, tensorflow**: latency gained, as a share of the baseline's time, with its"
            " 95 % interval. *LOO* is LHO and EWO together, the paper's Fig. 13; what DLR gains is"
            " the resolver without passes."
        )
        parts = list(next(iter(gained_shares.values())))
        lines = []
        for name, shares in gained_shares.items():
            before, after = less.get(name, (None, None))
            lines.append([name, *(shown(shares[part]) for part in parts), before, after])
        means = [
            percent(fmean(shares[part].value for shares in gained_shares.values()))
            for part in parts
        ]
        lines.append(["mean", *means, None, None])
        lines.append(
            [f"the paper, {len(NAMES)} networks", None, None, None, *_papers(), None, None]
        )
        yield table(["network", *parts, "conversions before", "after"], lines)
        plot_gains(gained_shares, less, store, cap)
        yield picture(f"gained_{cap}", f"conversions removed and latency gained, {cap}")


def shown(share: Ratio) -> str:
    """Return a share and its confidence interval as text, in percent."""
    return f"{share.value * 100:.1f} ({share.low * 100:.1f} to {share.high * 100:.1f}) %"


def _papers() -> tuple[str, str]:
    return f"{paper('conversions', 'mean')} %", f"{paper('latency', 'mean')} %"


def plot(rows: Sequence[Row], pairs: Sequence[tuple[str, str]], store: Store) -> None:
    """Draw the Transforms of a run: a panel for each cap and mix, a group of bars for each network.

    Args:
        rows: the rows of all caps and mixes.
        pairs: the (cap, mix) of each panel.
        store: the folder of results.
    """
    with drawn(store.folder / NAME, panels=len(pairs), size=(9, 2.8)) as panels:
        for axes, (cap, mix) in zip(panels, pairs, strict=True):
            inner = [row for row in rows if within(row, cap, mix)]
            names = list(dict.fromkeys(row["network"] for row in inner))
            by = {(row["network"], row["level"]): row["transforms"] for row in inner}
            series = {level: [by.get((name, level)) for name in names] for level in LEVELS}
            bars(axes, names, series, title=f"{cap}, {mix}", ylabel="Transforms a run")


def plot_gains(
    found: dict[str, dict[str, Ratio]], less: dict[str, tuple[int, int]], store: Store, cap: str
) -> None:
    """Draw latency gained on the left axis and conversions removed on the right, as in Fig. 13.

    Args:
        found: the result of ``gained``.
        less: the result of ``removed``.
        store: the folder of results.
        cap: the cap on the instruction set.
    """
    with drawn(store.folder / f"gained_{cap}") as [axes]:
        shown_parts = ("LOO", "all three")
        series = {
            part: [100 * share[part].value for share in found.values()] for part in shown_parts
        }
        ends = {
            part: [(100 * share[part].low, 100 * share[part].high) for share in found.values()]
            for part in shown_parts
        }
        title, label = f"{cap}, tensorflow", "% of the baseline gained"
        bars(axes, list(found), series, intervals=ends, title=title, ylabel=label)
        other = axes.twinx()
        dots = [less[name][0] - less[name][1] if name in less else None for name in found]
        other.plot(range(len(found)), dots, "kD", markersize=4, label="conversions removed")
        low, high = axes.get_ylim()
        if high > 0:  # both axes have their 0 at the same height
            most = other.get_ylim()[1]
            other.set_ylim(most * low / high, most)
            other.set_yticks([tick for tick in other.get_yticks() if 0 <= tick <= most])
        other.set_ylabel("conversions removed")
        legend(axes, other)


if __name__ == "__main__":
    typer.run(command(sys.modules[__name__]))
