"""What approximate kernels gain, under an error that is allowed.

``python -m eval.kernels.forms``. *strict* is ``Session(tune=True, tolerance=0)``: exact kernels,
chosen by measured time. *tolerant* is ``Session(tune=True, tolerance=1e-5)``: approximate kernels
as well, as far as their measured errors allow; the outputs of the whole plan were compared with the
strict plan's. Both run in turns with OpenVINO and ONNX Runtime, whose f32 kernels are direct, and
with MNN, which has Winograd's kernels, too. *apart* is the largest difference of *tolerant* from
NumPy's definitions, relative to the largest output; a Softmax makes all outputs small, so that a
difference of 1e-5 at its input is a larger one after it. Five networks are measured by default, all
with ``--full``.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence

import typer

from eval.drawing import bars, drawn
from eval.experiment import Scope, Store, command
from eval.figures.timing import KEY, STRICT, TOLERANT, Group, peers
from eval.figures.timing import measure as measure_groups
from eval.markdown import milliseconds, picture, table, told
from eval.store import Row
from vtensor.benchmark.summary import Logs, log_ratios, mean_ratio

NAME = "forms"
TITLE = "Time under an error that is allowed"
#: The peers: two with exact kernels, and one with approximate ones.
PEERS = ("openvino", "onnxruntime", "mnn")


def measure(scope: Scope, store: Store) -> None:
    """Time all engines on each network of which the store lacks a row."""
    others = [peer for peer in PEERS if scope.peers and peer in peers()]
    wanted = [
        Group(name, 1, "max", "priority", (STRICT, TOLERANT, *others))
        for name in scope.tuned_networks
    ]
    measure_groups(scope, store, wanted, NAME)


def section(store: Store) -> Iterator[str]:
    """Yield the report's text, a table with a line for each network and the means, and a plot."""
    yield told(__doc__)
    yield from compared(store, NAME)


def compared(store: Store, rows: str) -> Iterator[str]:
    """Yield a table, and a plot of the ratios in it.

    The table has each engine's time, and the time of *tolerant* divided by each other engine's.

    Args:
        store: the folder of results.
        rows: the name of the table of measured rows, and of the plot's file.
    """
    kept = store.table(rows, KEY)
    names = list(dict.fromkeys(row["network"] for row in kept))
    if not names:
        return
    by = {(row["network"], row["engine"]): row for row in kept}
    shown = [engine for engine in PEERS if any((name, engine) in by for name in names)]
    lines, shares = list[Sequence[object]](), dict[str, list[float | None]]()
    logs: dict[str, list[Logs]] = {engine: [] for engine in (STRICT, *shown)}
    for name in names:
        ours = by[name, TOLERANT]
        cells = [time_cell(by.get((name, engine))) for engine in (STRICT, TOLERANT, *shown)]
        ratios = [logs_of(ours, by.get((name, engine))) for engine in (STRICT, *shown)]
        for engine, ratio in zip((STRICT, *shown), ratios, strict=True):
            logs[engine] += [ratio] if ratio is not None else []
            shares.setdefault(engine, []).append(
                math.exp(float(ratio.mean())) if ratio is not None else None
            )
        apart = f"{ours['difference']:.0e}" if ours["difference"] is not None else None
        lines.append([name, *cells, *map(ratio_cell, ratios), apart, ours["conversions"]])
    heads = ["network", "strict, ms", "tolerant, ms", *(f"{engine}, ms" for engine in shown)]
    heads += [f"tolerant / {engine}" for engine in (STRICT, *shown)] + ["apart", "Transforms"]
    means = [_mean(logs[engine]) for engine in (STRICT, *shown)]
    lines.append(["geometric mean", None, None, *[None] * len(shown), *means, None, None])
    yield table(heads, lines)
    with drawn(store.folder / rows) as [axes]:
        series = {f"tolerant / {engine}": shares.get(engine, []) for engine in (STRICT, *shown)}
        bars(axes, names, series, title="below 1 VTensor is ahead", ylabel="time")
        axes.axhline(1, color="black", linewidth=0.8)
    yield picture(rows, "time at tolerance 1e-5, as a share of the others'")


def time_cell(row: Row | None) -> str | None:
    """Return a row's median time in ms, as text, or its status if it was not timed.

    None if there is no row.
    """
    if row is None:
        return None
    return milliseconds(row["median_s"]) if row["runs"] else str(row["status"])


def logs_of(ours: Row, theirs: Row | None) -> Logs | None:
    """Return, for each round, the logarithm of VTensor's time divided by another engine's.

    None if one of the two was not timed.

    Args:
        ours: VTensor's row.
        theirs: the other engine's row; None if there is none.
    """
    if not theirs or not theirs["runs"] or not ours["runs"]:
        return None
    count = min(len(theirs["rounds_s"]), len(ours["rounds_s"]))
    return log_ratios(ours["rounds_s"][:count], theirs["rounds_s"][:count])


def ratio_cell(logs: Logs | None) -> str | None:
    """Return a ratio of times with its 95 % interval, as text; None if ``logs`` is None.

    ``logs`` is the result of ``logs_of``.
    """
    if logs is None:
        return None
    ratio = mean_ratio([logs], 0)
    return f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"


def _mean(logs: Sequence[Logs]) -> str | None:
    return f"**{mean_ratio(logs, 0).value:.2f}**" if logs else None


if __name__ == "__main__":
    typer.run(command(sys.modules[__name__]))
