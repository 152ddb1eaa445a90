"""The paper's twelve networks on other engines, uncapped, at batch 1.

``python -m eval.figures.peers``. *VTensor* is ``Session(model)`` with its defaults; each peer's
time is divided by it (above 1, VTensor is ahead; in brackets the 95 % interval). `/ warm` and
`/ chain`: our run over its convolutions and products alone, with the fastest kernels of our oneDNN,
each in a warm cache, and one after another. A test turn begins with a run that is not counted.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence

import typer

from eval.drawing import bars, drawn
from eval.experiment import Scope, Store, command
from eval.figures.latency import left_out
from eval.figures.timing import INEXACT, OTHERS, SESSION, Group, absent, peers
from eval.figures.timing import measure as measure_groups
from eval.figures.timing import table as timings
from eval.markdown import milliseconds, picture, table, told
from eval.networks import NAMES
from eval.store import Row
from vtensor.benchmark.summary import Logs, log_ratios, mean_ratio
from vtensor.commands.bench import PEERS

NAME = "peers"
TITLE = "Other engines"
#: The cap of the rows, which is none, and their mix of libraries.
CAP, MIX = "max", "priority"


def measure(scope: Scope, store: Store) -> None:
    """Time the networks of which the store lacks a row."""
    others = [name for name in peers() if scope.frameworks or name in PEERS] if scope.peers else []
    engines = (SESSION, *others)
    wanted = [Group(network, 1, CAP, MIX, engines) for network in scope.networks]
    measure_groups(scope, store, wanted, NAME)


def section(store: Store) -> Iterator[str]:
    """Yield a table of times and ratios, a plot, the warm-up stage, and what was left out."""
    rows = list(timings(store, NAME))
    yield told(__doc__)
    yield from _ratios(rows, store)
    yield from _warm_up(rows)
    yield left_out(rows, absent())


def _ratios(rows: Sequence[Row], store: Store) -> Iterator[str]:
    """Yield a table of VTensor's median times and the ratios to them, and a plot of the ratios."""
    by = {(row["network"], row["engine"]): row for row in rows}
    names = [n for n in NAMES if (n, SESSION) in by and by[n, SESSION]["runs"]]
    shown = [peer for peer in OTHERS if any((name, peer) in by for name in names)]
    if not names:
        return
    limits = [kind for kind in ("warm", "chain") if by[names[0], SESSION]["limits_s"].get(kind)]
    lines = list[list[object]]()
    logs = {peer: list[Logs]() for peer in shown}
    for name in names:
        ours, cells = by[name, SESSION], list[object]()
        for peer in shown:
            theirs = by.get((name, peer))
            if theirs and theirs["runs"]:
                count = min(len(theirs["rounds_s"]), len(ours["rounds_s"]))
                logs[peer].append(log_ratios(theirs["rounds_s"][:count], ours["rounds_s"][:count]))
                ratio = mean_ratio(logs[peer][-1:], 0)
                apart = f"; {theirs['difference']:.0e} apart" if peer in INEXACT else ""
                cells.append(f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f}{apart})")
            else:
                cells.append(theirs and theirs["status"])
        bounds = [f"{ours['median_s'] / ours['limits_s'][kind]:.2f}" for kind in limits]
        interval = f"{milliseconds(ours['low_s'])} to {milliseconds(ours['high_s'])}"
        lines.append([name, f"{milliseconds(ours['median_s'])} ({interval})", *cells, *bounds])
    means = [mean_ratio(logs[peer], 0) if logs[peer] else None for peer in shown]
    cells = [mean and f"**{mean.value:.2f}** ({mean.low:.2f} to {mean.high:.2f})" for mean in means]
    lines.append(["geometric mean", None, *cells, *([None] * len(limits))])
    yield table(["network", "VTensor, ms", *shown, *(f"/ {kind}" for kind in limits)], lines)
    yield from _plot(names, by, store)
    behind = [
        f"{peer} on {sum(_log(rounds) < 0 for rounds in logs[peer])} of {len(logs[peer])}"
        for peer in shown
        if any(_log(rounds) < 0 for rounds in logs[peer])
    ]
    yield f"Where we are slower: {', '.join(behind) or 'nowhere'} networks."


def _plot(names: Sequence[str], by: Mapping[tuple[str, str], Row], store: Store) -> Iterator[str]:
    """Draw a plot of each peer's median time divided by VTensor's, and yield its Markdown.

    Peers that ``vtensor bench`` lacks are left out. Nothing is yielded without times of the others.

    Args:
        names: the names of the networks.
        by: the measured rows, by (network, engine).
        store: the folder of results.
    """
    series = {
        peer: [_share(by.get((name, peer)), by[name, SESSION]) for name in names] for peer in PEERS
    }
    if any(any(shares) for shares in series.values()):
        label = "time / VTensor's"
        with drawn(store.folder / "peers") as [axes]:
            bars(axes, names, series, title="above 1 VTensor is ahead", ylabel=label)
            axes.axhline(1, color="black", linewidth=0.8)
        yield picture("peers", "what peers take of VTensor's time on the twelve networks")


def _share(theirs: Row | None, ours: Row) -> float | None:
    return theirs["median_s"] / ours["median_s"] if theirs and theirs["runs"] else None


def _log(logs: Logs) -> float:
    """Return the mean of ``logs``: for each round, log(peer's time / VTensor's time).

    Below 0, the peer is faster.
    """
    return float(logs.mean())


def _warm_up(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a table with the seconds from loading the file to each engine's first output."""
    by = {(row["network"], row["engine"]): row["first_s"] for row in rows}
    by = {key: first for key, first in by.items() if first is not None}
    engines = [engine for engine in (SESSION, *OTHERS) if any(e == engine for _, e in by)]
    names = [name for name in NAMES if any(n == name for n, _ in by)]
    if names:
        yield "**Warm-up stage**: seconds from the file to the first answer, imports included."
        lines = [[name, *(_seconds(by.get((name, e))) for e in engines)] for name in names]
        yield table(["network", *engines], lines)


def _seconds(one: float | None) -> str | None:
    return None if one is None else f"{one:.2f}"


if __name__ == "__main__":
    typer.run(command(sys.modules[__name__]))
