"""Latency next to another process that takes a core, and under a quota of processors.

``python -m eval.busy``. If other processes use the cores as well, threads that spin while they wait
take time from the thread that they wait for. Each engine runs in a process of its own and has turns
in each round: one with the machine to itself (*idle*), one next to a process that never sleeps
(*busy*). The first quarter of a second of each turn is not timed, nor are the first three seconds
of each process, in which VTensor measures kernels in the background. *p50* is the median of the
turns' medians. *p99 / p50* is the 99th percentile of the runs, each divided by the median of its
turn: a virtual machine may have another speed in the next turn, which would otherwise decide the
percentile. *p99* is the product of both. *busy / idle* is the ratio of the medians of two turns,
the median over rounds. ``--quota 1.5``, which the report uses, adds turns of one more process of
each engine in a control group that may use 1.5 processors (*quota*), if this process may create
such a group. ``--spin N`` adds VTensor with ``GOMP_SPINCOUNT=N``: a waiting thread sleeps after N
turns of libgomp's waiting loop. By default VTensor's threads wait for 10,000 turns, and for 100
once VTensor notices other processes. Models named after the command replace the report's.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from eval.experiment import Again, Folder, Full, Quick, Scope, Store, alone
from eval.markdown import table as markdown
from eval.markdown import told
from eval.quota import Group, limited
from eval.start import here, written
from vtensor.benchmark.messages import Timed
from vtensor.benchmark.peer import Array, Task
from vtensor.benchmark.race import OUR_PRECISION, OURS, Contender
from vtensor.commands.bench import PEERS, LimitOption, RoundsOption, SecondsOption, case_of, chosen
from vtensor.commands.shared import (
    DebugOption,
    JsonOption,
    ShapeOption,
    ThreadsOption,
    errors,
    print_json,
)
from vtensor.errors import InputError
from vtensor.runtime.execution.executor import Executor

NAME = "busy"
TITLE = "Beside another process"
KEY = ("model", "engine")
#: The report's networks: a run of the first takes about a millisecond, of the second twenty times
#: that.
NETWORKS = ("mobilenet_v2", "resnet50")
ROUNDS, SECONDS, LIMIT_S = 6, 36.0, 120.0

#: Untimed seconds at the beginning of a turn. In them an engine notices whether the process that
#: never sleeps runs.
SETTLES = 0.25

#: Untimed seconds of runs before the first turn of a process.
WARMS = 3.0

#: The conditions of turns: the engine has the machine to itself, or another process never sleeps.
CONDITIONS = ("idle", "busy")

#: The condition in which a control group limits the processors, and the report's limit.
UNDER, QUOTA = "quota", 1.5

#: The columns of the report's table and of the command's table; the columns in ms come first.
MS_HEADS = tuple(
    f"{condition} {what}" for condition in (*CONDITIONS, UNDER) for what in ("p50", "p99")
)
HEADS = (
    *MS_HEADS,
    *(f"{condition} p99 / p50" for condition in (*CONDITIONS, UNDER)),
    "busy / idle",
)

BURNS = "while True: pass"


@dataclass
class Row:
    """The times of one engine on one model.

    Attributes:
        model, engine: the names of the model and of the engine.
        reason: why the engine was not timed; empty if it was.
        turns: by condition (``idle``, ``busy``, ``quota``), a list of turns; a turn has the seconds
            of each of its runs.
    """

    model: str
    engine: str
    reason: str = ""
    turns: dict[str, list[Sequence[float]]] = field(default_factory=dict)

    def figures(self) -> dict[str, float]:
        """Return the number in each column of the table, by the names in ``HEADS``; times in ms.

        Columns of a condition without turns are left out.
        """
        figures: dict[str, float] = {}
        usual = dict[str, Array]()
        for condition, turns in self.turns.items():
            usual[condition] = p50 = np.array([np.median(seconds) for seconds in turns])
            runs = [
                np.asarray(seconds) / middle for seconds, middle in zip(turns, p50, strict=True)
            ]
            slow = float(np.percentile(np.concatenate(runs), 99))
            figures[f"{condition} p50"] = float(np.median(p50)) * 1e3
            figures[f"{condition} p99"] = slow * figures[f"{condition} p50"]
            figures[f"{condition} p99 / p50"] = slow
        idle, busy = (usual.get(condition, np.empty(0)) for condition in CONDITIONS)
        if 0 < len(busy) == len(idle):
            figures["busy / idle"] = float(np.median(busy / idle))
        return figures


def measure(scope: Scope, store: Store) -> None:
    """Time VTensor and its peers on the networks whose rows the store lacks.

    The networks are ``NETWORKS``, or all of the scope if it has ``every_model``. If the scope's
    ``peers`` is False, nothing is timed.
    """
    if not scope.peers:
        return
    kept, names = store.table(NAME, KEY), scope.networks if scope.every_model else NETWORKS
    places = {**OURS, **{name: PEERS[name] for name in here() if name in PEERS}}
    for number, name in enumerate(names):
        if store.late or not store.missing(kept, [{"model": name, "engine": next(iter(OURS))}]):
            continue
        store.advance(f"{name} beside another process", number, len(names))
        with TemporaryDirectory() as folder, _quota_if_any() as group:
            file = Path(folder) / "model.onnx"
            task = Task(file, written(name, scope, file), scope.threads, OUR_PRECISION)
            rows = measured(name, task, engines(places, (), LIMIT_S), ROUNDS, SECONDS, group)
        kept.add(
            {"model": row.model, "engine": row.engine, "reason": row.reason or None} | row.figures()
            for row in rows
        )


@contextmanager
def _quota_if_any() -> Iterator[Group | None]:
    """Yield a control group that may use ``QUOTA`` processors.

    If this process cannot make one, a note is printed and None is yielded.
    """
    with ExitStack() as stack:
        group: Group | None = None
        try:
            group = stack.enter_context(limited(QUOTA))
        except InputError as error:
            print(f"note: {error}", file=sys.stderr)
        yield group


def section(store: Store) -> Iterator[str]:
    """Yield the report's text and table, with a line for each engine and model."""
    yield told(__doc__)
    lines = list[Sequence[object]]()
    for row in store.table(NAME, KEY):
        cells = (_cell(row, head) for head in HEADS)
        lines.append([row["model"], row["engine"], *cells])
    yield markdown(
        ["model", "engine", *(f"{head}, ms" for head in MS_HEADS), *HEADS[len(MS_HEADS) :]], lines
    )


def _cell(row: Mapping[str, Any], head: str) -> str | None:
    return f"{row[head]:.2f}" if row.get(head) is not None else None


def main(
    models: Annotated[
        list[Path] | None, typer.Argument(help="ONNX files.", metavar="[MODEL...]")
    ] = None,
    full: Full = False,
    quick: Quick = False,
    again: Again = False,
    to: Folder = None,
    peers: Annotated[str, typer.Option(help=f"Of {', '.join(PEERS)}, with commas.")] = ",".join(
        PEERS
    ),
    spin: Annotated[str, typer.Option(help="Turns of libgomp's waiting loop, with commas.")] = "",
    quota: Annotated[
        float | None, typer.Option(help="Also in a control group of so many processors.")
    ] = None,
    threads: ThreadsOption = None,
    rounds: RoundsOption = ROUNDS,
    seconds: SecondsOption = SECONDS,
    limit: LimitOption = LIMIT_S,
    shape: ShapeOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Time models on an idle machine, next to a process that never sleeps, and under a quota."""
    if not models:
        alone(sys.modules[__name__], Scope.of(full, quick), to, again, as_json)
        return
    with errors(debug), limited(quota) if quota is not None else nullcontext() as group:
        places = {**OURS, **chosen(peers, PEERS, "peer")} if peers else dict(OURS)
        turns = [turn for turn in spin.split(",") if turn]
        rows = list[Row]()
        for file in models:
            case = case_of(file, shape, None)
            task = Task(case.model, case.feeds, Executor.of(threads).threads, OUR_PRECISION)
            contenders = engines(places, turns, limit)
            rows += measured(case.name, task, contenders, rounds, seconds, group)
        if as_json:
            lines = ({"model": row.model, "engine": row.engine} | row.figures() for row in rows)
            print_json({"rows": list(lines)})
        else:
            Console().print(table(rows))
        for row in rows:
            if row.reason:
                print(f"note: {row.model}: {row.engine}: {row.reason}", file=sys.stderr)


def engines(
    places: Mapping[str, str], turns: Sequence[str], limit_s: float
) -> dict[str, Contender]:
    """Return contenders by name; a contender is an engine in a process of its own.

    There is one for each engine, and one of VTensor for each spin count in ``turns``.

    Args:
        places: by name of an engine, its class as ``"module:Class"``.
        turns: spin counts, values of ``GOMP_SPINCOUNT``.
        limit_s: the most seconds to wait for one answer of a contender.
    """
    contenders = {
        name: Contender(name, place, OUR_PRECISION, limit_s) for name, place in places.items()
    }
    for name, place in OURS.items():
        for turn in turns:
            environment = {"GOMP_SPINCOUNT": turn}
            contender = Contender(name, place, OUR_PRECISION, limit_s, environment=environment)
            contenders[f"{name}, spin {turn}"] = contender
    return contenders


def measured(
    model: str,
    task: Task,
    contenders: Mapping[str, Contender],
    rounds: int,
    seconds: float,
    group: Group | None = None,
) -> list[Row]:
    """Time all contenders in turns under each condition, and return a row for each.

    A contender is an engine in a process of its own.

    Args:
        model: the model's name.
        task: the model and its inputs.
        contenders: the contenders by name; they are closed at the end.
        rounds: the number of rounds.
        seconds: the seconds of runs of each contender, over all conditions and rounds.
        group: a control group with a quota, in which each contender has a second process; None
            leaves that condition out.
    """
    rows = {name: Row(model, name) for name in contenders}
    kinds = dict.fromkeys(CONDITIONS, contenders)
    if group is not None:
        kinds[UNDER] = {name: _again(contender) for name, contender in contenders.items()}
    with ExitStack() as stack:
        for condition in (CONDITIONS[0], UNDER):
            with group.inside() if group and condition == UNDER else nullcontext():
                for contender in kinds.get(condition, {}).values():
                    stack.callback(contender.close)
                    contender.enter(task)
                    if contender.worker is not None:
                        contender.ask(WARMS, Timed)
        for _ in range(rounds):
            for condition, able in kinds.items():
                for name, contender in able.items():
                    if contender.worker is None:
                        continue
                    with burning(condition == "busy"):
                        contender.ask(SETTLES, Timed)
                        answer = contender.ask(seconds / rounds / len(kinds), Timed)
                    if answer is not None:
                        rows[name].turns.setdefault(condition, []).append(answer.seconds)
    for able in kinds.values():
        for name, contender in able.items():
            rows[name].reason = rows[name].reason or contender.reason
    return list(rows.values())


def _again(one: Contender) -> Contender:
    """Return a contender with the engine, precision, limit and environment of another one.

    It has no process yet.
    """
    return Contender(one.peer, one.place, one.precision, one.limit_s, environment=one.environment)


@contextmanager
def burning(burns: bool) -> Iterator[None]:
    """Run a process that never sleeps during the block, if ``burns`` is true."""
    if not burns:
        yield
        return
    process = subprocess.Popen([sys.executable, "-c", BURNS])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def table(rows: Sequence[Row]) -> Table:
    """Return a table for the terminal, with a line for each row that has times."""
    result = Table("model", "engine", *HEADS, caption="ms of a run")
    for row in rows:
        figures = row.figures()
        cells = (f"{figures[head]:.2f}" if head in figures else "" for head in HEADS)
        if figures:
            result.add_row(row.model, row.engine, *cells)
    return result


if __name__ == "__main__":
    typer.run(main)
