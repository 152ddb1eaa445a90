"""``vtensor bench``: models beside the peers that run them, in alternating rounds."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.console import Console

from vtensor.benchmark.agreement import BOUNDS
from vtensor.benchmark.machine import machine
from vtensor.benchmark.peer import HINTS, Hint, Precision
from vtensor.benchmark.plot import check_plot, plot
from vtensor.benchmark.race import Settings
from vtensor.benchmark.report import Case, Report, Row, failed, measure, report_of
from vtensor.benchmark.table import notes, tables
from vtensor.commands.given import ValueOption, make_feeds, read_arrays
from vtensor.commands.shared import (
    DebugOption,
    JsonOption,
    ShapeOption,
    ThreadsOption,
    errors,
    graph_of,
    overriding,
    parse_shapes,
    print_json,
    progress,
)
from vtensor.errors import InputError
from vtensor.frontends.onnx import Model
from vtensor.runtime.execution.executor import Executor
from vtensor.storage.inputs import Port

#: Columns that a table takes.
WIDTH = 132

K = TypeVar("K", bound=str)
V = TypeVar("V")

#: Places of the peers that run ONNX files, by the names of ``--peers``.
PEERS = {
    "openvino": "vtensor.benchmark.openvino:OpenVINO",
    "onnxruntime": "vtensor.benchmark.onnxruntime:OnnxRuntime",
}

PrecisionOption = Annotated[str, typer.Option(help="Of the peers, with commas: f32,bf16.")]
RoundsOption = Annotated[int, typer.Option(min=2, help="How often each peer has its turn.")]
SecondsOption = Annotated[
    float, typer.Option(min=0, help="Of timed runs for each peer on each model, over all rounds.")
]
LimitOption = Annotated[
    float, typer.Option(min=0, help="Seconds after which a peer that does not answer is given up.")
]
SeedOption = Annotated[int, typer.Option(min=0, help="Of the peers' order and of the intervals.")]
HintOption = Annotated[
    str, typer.Option(help="latency: runs one by one; throughput: side by side, on a thread each.")
]
PlotOption = Annotated[
    Path | None, typer.Option("--plot", help="Draw the ratios to PATH.png and PATH.svg.")
]


def bench(
    models: Annotated[list[Path], typer.Argument(help="ONNX files.", metavar="MODEL...")],
    peers: Annotated[str, typer.Option(help=f"Of {', '.join(PEERS)}, with commas.")] = ",".join(
        PEERS
    ),
    precision: PrecisionOption = "f32",
    threads: ThreadsOption = None,
    rounds: RoundsOption = 10,
    seconds: SecondsOption = 5.0,
    limit: LimitOption = 120.0,
    seed: SeedOption = 0,
    hint: HintOption = "latency",
    shape: ShapeOption = None,
    value: ValueOption = None,
    to: PlotOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Time models beside OpenVINO and ONNX Runtime: the same threads, precision and inputs.

    Each peer is a process; outputs are compared before anything is timed, then peers run in turns.
    Inputs are seeded noise. Who is absent is named; the exit code is 1 if a peer disagrees or
    fails.
    """
    with errors(debug):
        known, precisions = chosen(peers, PEERS, "peer"), chosen(precision, BOUNDS, "precision")
        counts = hint_of(hint)
        settings = Settings(Executor.of(threads).threads, rounds, seconds, limit, seed, counts)
        cases = [case_of(file, shape, value) for file in models]
        present(cases, known, precisions, settings, to, as_json)


def present(
    cases: Iterable[Case],
    peers: Mapping[str, str],
    precisions: Collection[Precision],
    settings: Settings,
    to: Path | None,
    as_json: bool,
) -> None:
    """Measure, and print tables or JSON; draw, where a plot is asked for.

    What is known when something is raised, or somebody interrupts, is printed first.

    Raises:
        InputError: a plot cannot be drawn; nothing was measured.
        typer.Exit: code 1, a peer disagreed or failed.
    """
    if to:
        check_plot(to)
    about, rows = machine(), list[Row]()  # before we are the load ourselves
    try:
        with progress("benchmark") as advance:
            for row in measure(cases, peers, precisions, settings, advance):
                rows.append(row)  # so those before an error stay
    finally:
        if rows:
            show(report_of(about, settings, rows), to, as_json)
    if failed(rows):
        raise typer.Exit(1)


def show(report: Report, to: Path | None, as_json: bool) -> None:
    """Print a report, and draw it."""
    if as_json:
        print_json(report)
    else:
        console = Console()
        console.width = max(console.width, WIDTH)  # figures that are cut off are none
        console.print(*tables(report), sep="\n\n")
    for note in notes(report):
        print(f"note: {note}", file=sys.stderr)
    if to:
        plot(report, to)


def case_of(file: Path, shape: Sequence[str] | None, value: Sequence[str] | None) -> Case:
    """A model with seeded noise for what no value is given for.

    Raises:
        InputError: sizes are missing, or do not fit.
        ModelError: it is no model that VTensor runs.
    """
    loaded = Model(file)
    arrays, _ = read_arrays(loaded.inputs, None, value, loaded.overridable)
    shapes = {name: array.shape for name, array in arrays.items()} | parse_shapes(shape)
    loaded = overriding(loaded, shapes)
    graph = graph_of(loaded, shapes, arrays)
    ports = []
    for name, (dtype, sizes) in loaded.inputs.items():
        known = graph.values[name].dims.values() if name in graph.values else sizes or ()
        ports.append(Port(name, dtype, tuple(known), ()))
    feeds, _ = make_feeds(ports, arrays, {}, "")
    return Case(file.stem, file, feeds)


def chosen(text: str, known: Mapping[K, V], what: str) -> dict[K, V]:
    """What is known by the names in a text.

    Raises:
        InputError: one of them is not known.

    >>> chosen("b,a", {"a": 1, "b": 2, "c": 3}, "letter")
    {'a': 1, 'b': 2}
    """
    names = set(text.split(","))
    if unknown := sorted(names - known.keys()):
        raise InputError(f"no {what} {', '.join(unknown)}; there are {', '.join(known)}")
    return {name: value for name, value in known.items() if name in names}


def hint_of(text: str) -> Hint:
    """What counts.

    Raises:
        InputError: nobody knows how to measure that.
    """
    for one in HINTS:
        if one == text:
            return one
    raise InputError(f"no hint {text}; there are {', '.join(HINTS)}")
