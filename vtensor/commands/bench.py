"""``vtensor bench``: time models in VTensor and in its peers, in alternating rounds."""

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
from vtensor.benchmark.race import RaceSettings
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

#: The least width of a table in characters.
WIDTH = 142

K = TypeVar("K", bound=str)
V = TypeVar("V")

#: Module and class of each peer that runs ONNX files, by its name in ``--peers``.
PEERS = {
    "openvino": "vtensor.benchmark.openvino:OpenVINO",
    "onnxruntime": "vtensor.benchmark.onnxruntime:OnnxRuntime",
}

PrecisionOption = Annotated[
    str,
    typer.Option(help=f"The precisions of the peers, with commas: some of {', '.join(BOUNDS)}."),
]
RoundsOption = Annotated[int, typer.Option(min=2, help="The number of rounds; peers take turns.")]
SecondsOption = Annotated[
    float, typer.Option(min=0, help="Seconds of timed runs for each peer and model, in all rounds.")
]
LimitOption = Annotated[
    float, typer.Option(min=0, help="Give up a peer that does not answer for so many seconds.")
]
SeedOption = Annotated[
    int, typer.Option(min=0, help="The seed of the peers' order and of the intervals.")
]
HintOption = Annotated[
    str, typer.Option(help="latency: one run at a time; throughput: a run on each thread.")
]
PlotOption = Annotated[
    Path | None, typer.Option("--plot", help="Draw the ratios to PATH.png and PATH.svg.")
]


def bench(
    models: Annotated[list[Path], typer.Argument(help="ONNX files.", metavar="MODEL...")],
    peers: Annotated[
        str, typer.Option(help=f"The peers, with commas: some of {', '.join(PEERS)}.")
    ] = ",".join(PEERS),
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
    """Time models in VTensor, OpenVINO and ONNX Runtime, with equal threads, precision and inputs.

    Each peer is a process. The outputs are compared first; then the peers run in turns. Inputs are
    random numbers from a fixed seed. Peers that are not installed are named. The exit code is 1 if
    a peer fails or its outputs differ.
    """
    with errors(debug):
        known, precisions = chosen(peers, PEERS, "peer"), chosen(precision, BOUNDS, "precision")
        counts = hint_of(hint)
        settings = RaceSettings(Executor.of(threads).threads, rounds, seconds, limit, seed, counts)
        cases = [case_of(file, shape, value) for file in models]
        present(cases, known, precisions, settings, to, as_json)


def present(
    cases: Iterable[Case],
    peers: Mapping[str, str],
    precisions: Collection[Precision],
    settings: RaceSettings,
    to: Path | None,
    as_json: bool,
) -> None:
    """Measure cases, and print tables or JSON; draw a plot if ``to`` names its files.

    If an error or the user interrupts the measurement, the rows that were measured are printed.

    Args:
        cases: the models with their inputs.
        peers: the peers, engines to compare with: module and class, ``MODULE:CLASS``, by the peer's
            name.
        precisions: the precisions of the peers.
        settings: threads, rounds and times.
        to: the plot's files, without their suffixes; None for no plot.
        as_json: whether to print JSON instead of tables.

    Raises:
        InputError: a plot cannot be drawn; nothing was measured.
        typer.Exit: code 1, if a peer fails or its outputs differ.
    """
    if to:
        check_plot(to)
    description, rows = machine(), list[Row]()  # before the measurement loads the machine itself
    try:
        with progress("benchmark") as advance:
            for row in measure(cases, peers, precisions, settings, advance):
                rows.append(row)  # so that the rows before an error are printed
    finally:
        if rows:
            show(report_of(description, settings, rows), to, as_json)
    if failed(rows):
        raise typer.Exit(1)


def show(report: Report, to: Path | None, as_json: bool) -> None:
    """Print a report as tables, or as JSON if ``as_json``.

    If ``to`` names the plot's files (without suffixes), the report is drawn there.
    """
    if as_json:
        print_json(report)
    else:
        console = Console()
        console.width = max(console.width, WIDTH)  # a narrower table would cut off figures
        console.print(*tables(report), sep="\n\n")
    for note in notes(report):
        print(f"note: {note}", file=sys.stderr)
    if to:
        plot(report, to)


def case_of(file: Path, shape: Sequence[str] | None, value: Sequence[str] | None) -> Case:
    """Return a model with its inputs: the given values, else random numbers from a fixed seed.

    Args:
        file: the ONNX file.
        shape: texts of ``--shape``.
        value: texts of ``--value``.

    Raises:
        InputError: sizes are missing, or do not fit.
        ModelError: VTensor cannot read or run the model.
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


def chosen(text: str, known: Mapping[K, V], noun: str) -> dict[K, V]:
    """Return the items of ``known`` whose names are in a text, in the order of ``known``.

    Args:
        text: names with commas.
        known: the items that may be chosen, by name.
        noun: the noun for an item, in errors.

    Raises:
        InputError: a name is not known.

    >>> chosen("b,a", {"a": 1, "b": 2, "c": 3}, "letter")
    {'a': 1, 'b': 2}
    """
    names = set(text.split(","))
    if unknown := sorted(names - known.keys()):
        raise InputError(f"no {noun} {', '.join(unknown)}; there are {', '.join(known)}")
    return {name: value for name, value in known.items() if name in names}


def hint_of(text: str) -> Hint:
    """Return the hint that a text names: ``latency`` or ``throughput``.

    Raises:
        InputError: there is no such hint.
    """
    for hint in HINTS:
        if hint == text:
            return hint
    raise InputError(f"no hint {text}; there are {', '.join(HINTS)}")
