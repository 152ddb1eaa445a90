"""``vtensor frontier``: time against error, a point for each plan."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

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
    Limits,
    MaxBytesOption,
    Mix,
    ModelArgument,
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
    from vtensor.runtime.planning.frontier import Frontier

#: Columns that the table takes where there is no terminal.
WIDTH = 160

_COLUMNS = ("ms", "of strict", "off by", "expected", "weights MB", "Transforms", "inexact")


def frontier(
    model: ModelArgument,
    tolerances: Annotated[
        str, typer.Option(help="What results may be off by, with commas; 0 is always among them.")
    ] = "0,1e-6,3e-6,1e-5,1e-4,1e-3",
    runs: Annotated[int, typer.Option(help="Runs of each plan that count, in turns.")] = 20,
    svg: Annotated[
        Path | None, typer.Option("--svg", "-o", help="Draw time over error to this file.")
    ] = None,
    plans: Annotated[
        Path | None, typer.Option(help="Write a lock file for each plan into this folder.")
    ] = None,
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
    """Make a plan for each tolerance, and show what each takes and how far its results are off.

    Plans are made from measured times, compared with strict kernels on inputs that nothing was
    chosen on, and timed in turns. Tolerances for which the same is chosen are one plan. What is not
    given by --input or --value is made up of seeded random numbers.
    """
    from vtensor.runtime.planning.frontier import tolerances_of
    from vtensor.runtime.tuning.profile import check_runs

    limits = Limits(reference, max_bytes, external_data_root)
    passes = Passes.parse("all", "", True, cache, 0.0, finite)
    mix = Mix.parse(libraries, pin)
    with errors(debug):
        wanted = tolerances_of(numbers_of(tolerances))
        check_runs(runs)  # what is wrong is said before anything is measured
        with opened(
            model, shape, threads, passes, isa, limits, mix, inputs, value, calibrate
        ) as given:
            session = given.session
            feeds, _ = make_feeds(session.inputs, given.arrays, given.pictures, "imagenet")
            own = {one: feeds[one] for one in (*given.arrays, *given.pictures) if one in feeds}
            with progress(f"frontier of {model.name}") as advance:
                found = session.frontier(wanted, own, runs=runs, progress=advance)
            files = write_plans(found, model.stem, plans) if plans is not None else []
            if svg is not None:
                write_file(svg, frontier_picture(found, model.stem))
        if found.note:
            print(f"note: {found.note}", file=sys.stderr)
        for file in [*files, *([svg] if svg is not None else [])]:
            print(f"wrote {file}", file=sys.stderr if as_json else sys.stdout)
        if as_json:
            data = found.to_dict() | {"model": model.stem}
            for row, file in zip(data["points"], files, strict=False):
                row["plan"] = str(file)
            print_json(data)
        else:
            _print(found, model.stem)


def numbers_of(text: str) -> list[float]:
    """Numbers with commas between them.

    Raises:
        InputError: something is none.

    >>> numbers_of("0,1e-5")
    [0.0, 1e-05]
    """
    try:
        return [float(one) for one in text.split(",")] if text.strip() else []
    except ValueError:
        raise InputError(f"--tolerances {text}: write numbers with commas: 0,1e-5,1e-3") from None


def write_plans(found: Frontier, name: str, folder: Path) -> list[Path]:
    """Write each plan into a folder, by its smallest tolerance: ``NAME.1e-5.toml``.

    Raises:
        InputError: the folder, or a file in it, cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise InputError(f"{folder}: cannot be made: {reason(error)}") from error
    files = []
    for point in found.points:
        files.append(folder / f"{name}.{point.name.partition(',')[0]}.toml")
        write_file(files[-1], found.lock(point).text())
    return files


def _print(found: Frontier, name: str) -> None:
    console, strict, best = Console(), found.points[0], found.best
    turns = f"{counted(len(strict.runs), 'run')} of each plan on {counted(found.threads, 'thread')}"
    caption = "medians; * : no other plan is as fast at as small an error"
    table = Table(title=Text(f"{name}: {turns}"), caption=caption, box=None, padding=(0, 1))
    table.add_column("tolerance")
    for title in _COLUMNS:
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("forms", overflow="fold")
    for one in found.points:
        forms = ", ".join(f"{count} x {form}" for form, count in one.forms.items())
        nodes = len(one.plan.graph.operators)
        table.add_row(
            f"{one.name}{' *' * (one in best)}",
            f"{one.ns / 1e6:.3f}",
            f"{one.ns / strict.ns:.2f}",
            f"{one.error:.1e}" if one.forms else "strict",
            f"{one.expected:.1e}" if one.forms else "",
            f"{one.weights / MEGABYTE:.1f}",
            str(len(one.plan.conversions)),
            f"{sum(one.forms.values())} of {nodes}",
            Text(forms),
        )
    if not console.is_terminal:
        console.width = max(console.width, WIDTH)
    console.print(table)
