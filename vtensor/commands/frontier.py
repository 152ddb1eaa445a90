"""``vtensor frontier``: the time and the error of plans for several tolerances."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from vtensor.benchmark.peer import peer_at
from vtensor.benchmark.race import Advance, RaceSettings
from vtensor.benchmark.report import Case, measure
from vtensor.commands.bench import PEERS, chosen
from vtensor.commands.given import InputOption, ValueOption, make_feeds
from vtensor.commands.shared import (
    CacheOption,
    CalibrateOption,
    DebugOption,
    ExternalDataOption,
    FiniteOption,
    IsaOption,
    JsonOption,
    LibrariesOption,
    LoadOptions,
    MaxBytesOption,
    Mix,
    ModelArgument,
    Opened,
    Passes,
    PinOption,
    ReferenceOption,
    ShapeOption,
    ThreadsOption,
    errors,
    opened,
    print_json,
    progress,
)
from vtensor.errors import InputError
from vtensor.language.wording import counted, reason
from vtensor.pictures.files import write_file
from vtensor.pictures.frontier import frontier_picture
from vtensor.report import MEGABYTE

if TYPE_CHECKING:
    from vtensor.runtime.planning.frontier import Frontier, PeerPoint

#: The seconds of timed runs of each peer, and the most seconds to wait for an answer of it.
PEER_SECONDS, PEER_LIMIT_SECONDS = 2.0, 120.0

#: The width of the table in characters, if standard output is no terminal.
WIDTH = 160

_COLUMNS = ("ms", "of strict", "error", "expected", "weights MB", "Transforms", "approximate")


def frontier(
    model: ModelArgument,
    tolerances: Annotated[
        str, typer.Option(help="Largest errors of results, with commas; 0 is always added.")
    ] = "0,1e-6,3e-6,1e-5,1e-4,1e-3",
    also: Annotated[
        list[Path] | None,
        typer.Option(
            help="Another model of the same network, such as a quantised one. May be repeated."
        ),
    ] = None,
    runs: Annotated[int, typer.Option(help="The number of timed runs of each plan.")] = 20,
    svg: Annotated[
        Path | None, typer.Option("--svg", "-o", help="Draw time over error to this SVG file.")
    ] = None,
    plans: Annotated[
        Path | None, typer.Option(help="Write a lock file for each plan into this folder.")
    ] = None,
    peers: Annotated[
        str, typer.Option(help="The engines to compare with, as installed; empty for none.")
    ] = ",".join(PEERS),
    inputs: InputOption = None,
    value: ValueOption = None,
    shape: ShapeOption = None,
    threads: ThreadsOption = None,
    finite: FiniteOption = False,
    calibrate: CalibrateOption = None,
    isa: IsaOption = "max",
    libraries: LibrariesOption = None,
    pin: PinOption = None,
    reference: ReferenceOption = True,
    max_bytes: MaxBytesOption = None,
    external_data_root: ExternalDataOption = None,
    cache: CacheOption = True,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Make a plan for each tolerance, and show the time and the error of each plan.

    Plans are chosen by measured times and timed in turns. Their errors are measured against strict
    kernels, on other inputs than those used to choose them. Tolerances with the same choice share a
    plan. Further points are a plan for each approximate form by itself, a plan in bf16 if this
    processor is faster in it, the models of --also, and each installed peer, in its default
    precision. An input without --input or --value gets random numbers from a fixed seed.
    """
    from vtensor.runtime.planning.frontier import tolerances_of
    from vtensor.runtime.tuning.profile import check_runs

    limits = LoadOptions(reference, max_bytes, external_data_root)
    passes = Passes.parse("all", "", True, cache, 0.0, finite)
    mix = Mix.parse(libraries, pin)
    with errors(debug):
        bounds = tolerances_of(numbers_of(tolerances))
        wanted = chosen(peers, PEERS, "peer") if peers else {}
        check_runs(runs)  # errors of options come before any measurement
        names = names_of(model, also or [])
        with ExitStack() as stack:

            def load(file: Path) -> Opened:
                return stack.enter_context(
                    opened(file, shape, threads, passes, isa, limits, mix, inputs, value, calibrate)
                )

            loaded = load(model)
            others = {name: load(file).session for name, file in names.items()}
            session = loaded.session
            feeds, _ = make_feeds(session.inputs, loaded.arrays, loaded.pictures, "imagenet")
            named = (*loaded.arrays, *loaded.pictures)
            user_feeds = {name: feeds[name] for name in named if name in feeds}
            with progress(f"frontier of {model.name}") as advance:
                result = session.frontier(
                    bounds, user_feeds, runs=runs, progress=advance, also=others
                )
                case = Case(model.stem, model, feeds)
                timed = measured_peers(case, wanted, session.threads, runs, advance)
                result = replace(result, peers=tuple(timed))
            files = write_plans(result, model.stem, plans) if plans is not None else []
            if svg is not None:
                write_file(svg, frontier_picture(result, model.stem))
        if result.note:
            print(f"note: {result.note}", file=sys.stderr)
        for file in [*files, *([svg] if svg is not None else [])]:
            print(f"wrote {file}", file=sys.stderr if as_json else sys.stdout)
        if as_json:
            data = result.to_dict() | {"model": model.stem}
            for row, file in zip(data["points"], files, strict=False):
                row["plan"] = str(file)
            print_json(data)
        else:
            _print(result, model.stem)


def names_of(model: Path, others: Sequence[Path]) -> dict[str, Path]:
    """Return the files of other models by name: the file's name without its suffix, and without the
    name of the first model before it.

    Raises:
        InputError: two files have the same name.

    >>> [*names_of(Path("net.onnx"), [Path("int8/net.qdq.onnx"), Path("other.onnx")])]
    ['qdq', 'other']
    """
    names = dict[str, Path]()
    for file in others:
        name = file.stem.removeprefix(model.stem).lstrip("._-") or file.stem
        if name in names:
            raise InputError(f"--also {file}: {names[name]} has the same name; rename one of them")
        names[name] = file
    return names


def measured_peers(
    case: Case, peers: Mapping[str, str], threads: int, runs: int, advance: Advance
) -> Iterator[PeerPoint]:
    """Yield a point for each peer that is installed and runs the model.

    For a peer that is installed and was not timed, a note on standard error says why.

    Args:
        case: the model and its inputs.
        peers: the places of the peers, by name.
        threads: the number of threads of a run.
        runs: the number of rounds, from 2 to 10, among which ``PEER_SECONDS`` are divided.
        advance: called with a text that says what happens next.
    """
    from vtensor.runtime.planning.frontier import PeerPoint

    present = {name: place for name, place in peers.items() if not peer_at(place).absent()}
    if not present:
        return
    settings = RaceSettings(threads, max(2, min(runs, 10)), PEER_SECONDS, PEER_LIMIT_SECONDS, 0)
    for row in measure([case], present, ["default"], settings, advance):
        if row["peer"] not in present:
            continue
        if not row["times"]:
            print(f"note: {row['peer']} {row['status']}: {row['reason']}", file=sys.stderr)
        else:
            name = f"{row['peer']} {row['version']}"
            yield PeerPoint(name, row["times"]["median_s"] * 1e9, row["difference"])


def numbers_of(text: str) -> list[float]:
    """Return the numbers in the text of ``--tolerances``, which are separated by commas.

    Raises:
        InputError: a part is no number.

    >>> numbers_of("0,1e-5")
    [0.0, 1e-05]
    """
    try:
        return [float(number) for number in text.split(",")] if text.strip() else []
    except ValueError:
        raise InputError(f"--tolerances {text}: write numbers with commas: 0,1e-5,1e-3") from None


def write_plans(frontier: Frontier, name: str, folder: Path) -> list[Path]:
    """Write a lock file for each plan into a folder, and return the files.

    A file has the name of the plan's smallest tolerance, or of the point: ``NAME.1e-5.toml``.

    Raises:
        InputError: the folder, or a file in it, cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise InputError(f"{folder}: cannot be made: {reason(error)}") from error
    files = []
    for point in frontier.points:
        own = point.name.partition(",")[0].replace(" ", "-")
        files.append(folder / f"{name}.{own}.toml")
        write_file(files[-1], frontier.lock(point).text())
    return files


def _print(frontier: Frontier, name: str) -> None:
    console, strict, best = Console(), frontier.points[0], frontier.best
    runs, threads = counted(len(strict.runs), "run"), counted(frontier.threads, "thread")
    caption = "medians; * : no other plan is as fast at as small an error"
    title = Text(f"{name}: {runs} of each plan on {threads}")
    table = Table(title=title, caption=caption, box=None, padding=(0, 1))
    table.add_column("tolerance: forms")
    for column in _COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("kernels", overflow="fold")
    for point in frontier.points:
        forms = ", ".join(f"{count} x {form}" for form, count in point.forms.items())
        nodes = len(point.plan.graph.operators)
        table.add_row(
            f"{point.label}{' *' * (point in best)}",
            f"{point.ns / 1e6:.3f}",
            f"{point.ns / strict.ns:.2f}",
            "strict" if point is strict else f"{point.error:.1e}",
            f"{point.expected:.1e}" if point.expected else "",
            f"{point.weights / MEGABYTE:.1f}",
            str(len(point.plan.conversions)),
            f"{sum(point.forms.values())} of {nodes}",
            Text(forms),
        )
    for peer in frontier.peers:
        cells = (f"{peer.ns / 1e6:.3f}", f"{peer.ns / strict.ns:.2f}", f"{peer.error:.1e}")
        table.add_row(peer.name, *cells, *[""] * 4, "its default precision; errors of outputs")
    if not console.is_terminal:
        console.width = max(console.width, WIDTH)
    console.print(table)
