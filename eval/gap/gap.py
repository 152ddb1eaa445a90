"""How far from the optimum.

``python -m eval.gap``. The layouts of a network are a problem: each node has alternatives, a kernel
of some library with a layout for each operand, and a value that is made in one layout and wanted in
another costs a conversion. The same problems go to rules and searches of other systems and to an
integer program, which proves the optimum. *session's plan* is what a session chooses without
measurements: by an integer program, too, but among fewer alternatives, as it does not list all
kernels. It minimises time, not bytes.

Costs are estimates from rates that libraries declare, except in the table of measured costs
(``--measured``), where each kernel and conversion was timed on one thread. Estimates tell a
conversion from none, and reference code from a kernel. They do not tell kernels of one library
apart, except that a kernel which the library did not choose is charged a tenth of the chosen one's
time. Constants are converted ahead of time and cost nothing.

The networks are the twelve, those of the package ``onnx``, and the models of today that were made,
in three mixes under three caps. [layout-problem.md](../../docs/layout-problem.md) has the format,
and how to score another solver; the solvers' docstrings say what they leave out of each rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from statistics import geometric_mean, median
from threading import Lock
from typing import Any

from eval.drawing import drawn
from eval.experiment import Scope, Store
from eval.gap import cells
from eval.gap.cells import ESTIMATED, MEASURED, NONE, OPTIMUM, PLAN, RANDOM
from eval.gap.solvers import SOLVERS
from eval.markdown import percent, picture, table, told
from eval.processes import capable
from eval.processes import measure as run
from eval.store import Row
from vtensor.runtime.execution.processors import available_threads

NAME = "gap"
TITLE = "How far from the optimum"
KEY = ("network", "cap", "mix", "costs")

#: The titles of the three groups of problems.
ESTIMATES, MEASUREMENTS = "Networks, estimated costs", "Networks, measured costs"
RANDOMS = "Random problems"

#: The caps and the number of random problems.
CAPS, COUNT = ("sse41", "avx2", "max"), 20

#: The ticks of the picture, in percent.
PERCENTS = (0, 0.1, 1, 10, 100)

#: A cost within this fraction of the optimum counts as the optimum.
EQUAL = cells.ROUNDING


def measure(scope: Scope, store: Store, costs: str = ESTIMATED) -> None:
    """Solve the problems whose rows the store lacks; a process for each network and cap.

    If ``scope.only`` has names of networks, it is these. Quick scopes take the scope's networks and
    two random problems. Processes run side by side if ``costs`` are estimated, as then nothing is
    measured but the processor's time.
    """
    timed = costs == MEASURED
    kept, quick = store.table(NAME, KEY, of_one_commit=True), scope.size is not None
    names = [*scope.networks] if quick else cells.networks()
    if not timed:
        names = [*randoms(2 if quick else COUNT), *names]
    caps = [cap for cap in (scope.caps if quick else CAPS) if cap in capable()]
    names = [*scope.only] or names
    drawn_up = [name for name in names if name.startswith(RANDOM)]
    wanted: list[tuple[list[str], str, tuple[str, ...]]]
    wanted = [(drawn_up, NONE, (NONE,))] if drawn_up else []
    wanted += [([n], cap, scope.mixes) for n in names if n not in drawn_up for cap in caps]
    lock, done = Lock(), count()

    def add(row: Row) -> None:
        with lock:
            kept.add([row])

    def solve(names: Sequence[str], cap: str, mixes: Sequence[str]) -> None:
        with lock:
            store.advance(f"{names[-1]} {cap}", next(done), len(wanted))
            keys = [
                {"network": name, "cap": cap, "mix": mix, "costs": costs}
                for name in names
                for mix in mixes
            ]
            missing = store.missing(kept, keys)
        if missing and not store.late:
            parts = [dict.fromkeys(key[part] for key in missing) for part in ("network", "mix")]
            arguments = [cap, *map(",".join, parts), str(scope.size or 0), costs]
            run("eval.gap.cells", arguments, add)

    with ThreadPoolExecutor(1 if timed else available_threads()) as pool:
        futures = [pool.submit(solve, *cell) for cell in wanted]
        try:
            for future in futures:
                future.result()
        finally:  # after an error or an interrupt, no further one begins
            pool.shutdown(wait=False, cancel_futures=True)


def randoms(number: int = COUNT) -> list[str]:
    """Return the names of random problems."""
    return [f"{RANDOM}{seed}" for seed in range(number)]


def section(store: Store) -> Iterator[str]:
    """Yield the tables over networks and over random problems, and the picture."""
    yield told(__doc__)
    runs = store.table(NAME, KEY).runs
    if any(run["machine"].get("load_average", 0) > 1 for run in runs):
        yield "Other programs ran when this was measured: the processor's time of solvers is rough."
    kept = [row for row in store.table(NAME, KEY) if "failed" not in row]
    failed = {row["network"] for row in store.table(NAME, KEY) if "failed" in row}
    groups = _groups(kept)
    for title, rows in groups.items():
        yield f"**{title}: {len(rows)} problems.**"
        yield _by_solver(rows)
    if real := groups.get(ESTIMATES):
        yield _proofs(kept)
        yield "Largest gap in estimated time of each network, over its mixes and caps:"
        yield _by_network(real)
    plot(store, groups)
    yield picture(NAME, "how far each solver is from the optimum, a dot for each problem")
    if failed:
        yield f"Not planned in some mix, and left out there: {', '.join(sorted(failed))}."


def _groups(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return rows by title: of networks with estimated and with measured costs, and of random
    problems; without those that have none.
    """
    groups: dict[str, list[Row]] = {ESTIMATES: [], MEASUREMENTS: [], RANDOMS: []}
    for row in rows:
        drawn_up = row["network"].startswith(RANDOM)
        timed = row.get("costs") == MEASURED
        groups[RANDOMS if drawn_up else MEASUREMENTS if timed else ESTIMATES].append(row)
    return {title: group for title, group in groups.items() if group}


def gap(row: Row, solver: str) -> float:
    """Return by which fraction a solver's plan takes longer than the best one, by estimate."""
    least = row["ns"][OPTIMUM]
    return float(row["ns"][solver] / least - 1) if least else 0.0


def excess(row: Row, solver: str) -> float:
    """Return the bytes that a solver's plan moves beyond the fewest possible."""
    return float(row["bytes"][solver] - row["bytes"][OPTIMUM])


def _by_solver(rows: Sequence[Row]) -> str:
    """Return the table with a line for each solver, over some rows."""
    heads = ["solver", "fewest bytes in", "MB above, mean", "MB above, worst", "least time in"]
    heads += ["time above, mean", "time above, worst", "where", "conversions, mean"]
    heads += ["CPU ms, median", "CPU ms, worst"]
    lines = list[list[object]]()
    for solver in _solvers(rows):
        those = [row for row in rows if solver in row["ns"]]
        moved = [excess(row, solver) / 1e6 for row in those]
        gaps = [gap(row, solver) for row in those]
        worst = max(those, key=lambda row: gap(row, solver))
        ms = [row["seconds"][solver] * 1e3 for row in those if solver in row["seconds"]]
        line: list[object] = [solver, percent(_share(moved), 0)]
        line += [f"{sum(moved) / len(moved):.2f}", f"{max(moved):.1f}", percent(_share(gaps), 0)]
        mean = geometric_mean([1 + value for value in gaps]) - 1
        line += [percent(mean, 2), percent(max(gaps)), _where(worst) if max(gaps) > EQUAL else None]
        line.append(f"{sum(row['conversions'][solver] for row in those) / len(those):.1f}")
        line += [f"{median(ms):.0f}", f"{max(ms):.0f}"] if ms else [None, None]
        lines.append(line)
    return table(heads, lines)


def _share(values: Sequence[float]) -> float:
    """Return the share of values that are as good as 0."""
    return sum(value <= EQUAL for value in values) / len(values)


def _where(row: Row) -> str:
    return " ".join(part for part in (row["network"], row["cap"], row["mix"]) if part != NONE)


def _solvers(rows: Sequence[Row]) -> list[str]:
    return [name for name in (*SOLVERS, PLAN) if any(name in row["ns"] for row in rows)]


def _by_network(rows: Sequence[Row]) -> str:
    solvers = [name for name in _solvers(rows) if name != OPTIMUM]
    lines = list[list[object]]()
    for name in dict.fromkeys(row["network"] for row in rows):
        those = [row for row in rows if row["network"] == name]
        gaps = (
            max((gap(row, solver) for row in those if solver in row["ns"]), default=None)
            for solver in solvers
        )
        size = max(those, key=lambda row: row["alternatives"])
        lines.append([name, size["nodes"], size["alternatives"], *map(percent, gaps)])
    return table(["network", "nodes", "alternatives", *solvers], lines)


def _proofs(rows: Sequence[Row]) -> str:
    """Return the sentence on what both integer programs prove."""
    files = [row for row in rows if row["network"].partition("/")[0] != RANDOM.strip("/")]
    both = sum(len(row["certified"]) == 2 for row in files)
    return (
        f"In {both} of {len(files)} cells, the certificate of the optimiser's program, which was"
        " written apart from the one here, has the same optimum in both measures; the score of the"
        " session's plan is exactly what the session reports of it."
    )


def plot(store: Store, groups: Mapping[str, Sequence[Row]]) -> None:
    """Draw the gap in time of each solver, a dot for each problem and a line at the mean; a panel
    for each group of problems.
    """
    with drawn(store.folder / NAME, panels=max(1, len(groups)), size=(9, 3.2)) as panels:
        for axes, (title, rows) in zip(panels, groups.items(), strict=False):
            _dots(axes, title, rows)


def _dots(axes: Any, title: str, rows: Sequence[Row]) -> None:
    solvers = [name for name in _solvers(rows) if name != OPTIMUM]
    for place, solver in enumerate(solvers):
        gaps = sorted(gap(row, solver) * 100 for row in rows if solver in row["ns"])
        xs = [place + 0.6 * (i / max(1, len(gaps) - 1) - 0.5) for i in range(len(gaps))]
        axes.scatter(xs, gaps, s=9, color="#0072B2", alpha=0.5, linewidth=0)
        mean = sum(gaps) / len(gaps)
        axes.hlines(mean, place - 0.35, place + 0.35, color="#D55E00", linewidth=2)
        at_optimum = sum(value <= EQUAL for value in gaps) / len(gaps)
        top = {"xycoords": ("data", "axes fraction"), "ha": "center", "va": "bottom"}
        look = {"fontsize": "small", "color": "0.35"}
        axes.annotate(f"{at_optimum:.0%}", (place, 1.0), **top, **look)
    axes.set_xticks(range(len(solvers)), solvers, rotation=25, ha="right", rotation_mode="anchor")
    axes.set_yscale("symlog", linthresh=0.1)
    axes.set_yticks(PERCENTS, map(str, PERCENTS))
    axes.set_ylim(bottom=-0.01)
    axes.grid(axis="y", color="0.9")
    axes.spines[["top", "right"]].set_visible(False)
    note = "orange: mean; above: share of problems solved to the optimum"
    axes.set_title(f"{title}, {len(rows)} problems ({note})", loc="left", pad=16)
    axes.set_ylabel("time above\nthe optimum, %")
