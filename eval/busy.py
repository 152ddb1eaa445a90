"""Latency beside another process that takes a core, and under a quota of processors.

``python -m eval.busy``. A team of threads that spins while it waits takes the time of the thread
that it waits for, where others use the processors as well. Each engine is a process of its own and
has its turn in each round: once with the machine to itself, once beside a process that never
sleeps. The first quarter of a second of each turn is not timed, nor are the first three seconds of
each process, in which VTensor measures kernels beside runs. Each run is compared with the median of
its turn: a virtual machine may have one speed in one turn and another in the next, and percentiles
of both together tell of that alone. ``--spin`` adds VTensor with so many turns of libgomp's waiting
loop (``GOMP_SPINCOUNT``) after which a thread always sleeps; VTensor itself spins for 10,000, and
for 100 where it notices others. ``--quota 1.5``, which the report asks for, has one more process of
each engine in a control group of so many processors, where this process may make one. *p99 / p50*
says how far the slowest runs are from the usual one, *p99* is so many times *p50*, *busy / idle*
what the other process costs. Other models than the report's are named behind the command.
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
#: One whose run takes about a millisecond, and one of twenty times that.
NETWORKS = ("mobilenet_v2", "resnet50")
ROUNDS, SECONDS, LIMIT_S = 6, 36.0, 120.0

#: For how long each runs untimed at the begin of a turn: it finds out that others came, or left.
SETTLES = 0.25

#: For how long each runs untimed before its first turn.
WARMS = 3.0

#: What else runs, by name: nothing, or a process that never sleeps.
CONDITIONS = ("idle", "busy")

#: Nothing, and processors are limited; to how many in the report.
UNDER, QUOTA = "quota", 1.5

#: The columns of both tables: first those in ms.
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
        model, engine: their names.
        reason: why it was not timed; empty if it was.
        turns: seconds of its runs in each turn, by condition.
    """

    model: str
    engine: str
    reason: str = ""
    turns: dict[str, list[Sequence[float]]] = field(default_factory=dict)

    def figures(self) -> dict[str, float]:
        """Return medians and 99th percentiles in ms by condition, and the ratio of busy to idle."""
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
    """Time two networks, or all of them with ``every_model``, if the scope has peers."""
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
    """Yield a control group with a quota, or None with a note if this process cannot make one."""
    with ExitStack() as stack:
        group: Group | None = None
        try:
            group = stack.enter_context(limited(QUOTA))
        except InputError as error:
            print(f"note: {error}", file=sys.stderr)
        yield group


def section(store: Store) -> Iterator[str]:
    """Yield the table with a line for each engine and model."""
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
    """Return the contenders by name, with VTensor once more for each number of spin turns."""
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
    """Time all contenders in turns under each condition, and return their rows.

    Args:
        model: the model's name.
        task: the model and its inputs.
        contenders: the contenders by name; they are closed at the end.
        rounds: the number of rounds.
        seconds: the seconds of runs of each contender, over all conditions.
        group: a control group with a quota for further processes of the same contenders.
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
    """Return a contender like another one, whose process is its own."""
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
    """Return a table with a line for each engine that was timed."""
    result = Table("model", "engine", *HEADS, caption="ms of a run")
    for row in rows:
        figures = row.figures()
        cells = (f"{figures[head]:.2f}" if head in figures else "" for head in HEADS)
        if figures:
            result.add_row(row.model, row.engine, *cells)
    return result


if __name__ == "__main__":
    typer.run(main)
