"""The command line: ``vtensor run`` and ``vtensor plan``; ``commands/`` has the other commands."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vtensor.commands.bench import bench
from vtensor.commands.cache import cache
from vtensor.commands.compare import compare
from vtensor.commands.diff import diff
from vtensor.commands.explain import explain
from vtensor.commands.export import export
from vtensor.commands.frontier import frontier
from vtensor.commands.given import InputOption, ValueOption, difference_of, make_feeds
from vtensor.commands.listing import dispatcher, libs, ops
from vtensor.commands.lock import lock
from vtensor.commands.plan_sizes import SizesArguments, SizesOption, show
from vtensor.commands.problem_file import ProblemArguments, ProblemOption, write_problem
from vtensor.commands.profile import profile
from vtensor.commands.results import described, lines
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
    ObjectiveOption,
    OptimizeOption,
    Passes,
    PinOption,
    PrecisionOption,
    ReferenceOption,
    ShapeOption,
    ThreadsOption,
    ToleranceOption,
    TuneOption,
    errors,
    opened,
    print_json,
    print_lines,
    write_npz,
)
from vtensor.errors import InputError, PeerError
from vtensor.image import PREPROCESS
from vtensor.language.user_files import read_text
from vtensor.language.wording import counted
from vtensor.pictures.files import write_pictures
from vtensor.report import notes, plan_dict, plan_lines
from vtensor.runtime.planning.tolerance import DEFAULT_TOLERANCE, PRECISIONS

if TYPE_CHECKING:
    from vtensor.runtime.session import Session
    from vtensor.storage.inputs import Array

app = typer.Typer(
    help="Run ONNX models on x86 CPUs, and show the layout, kernel and precision of every tensor.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command()
def run(
    model: ModelArgument,
    inputs: InputOption = None,
    value: ValueOption = None,
    shape: ShapeOption = None,
    threads: ThreadsOption = None,
    optimize: OptimizeOption = "all",
    objective: ObjectiveOption = "",
    tune: TuneOption = False,
    tolerance: ToleranceOption = DEFAULT_TOLERANCE,
    precision: PrecisionOption = "f32",
    finite: FiniteOption = False,
    calibrate: CalibrateOption = None,
    isa: IsaOption = "max",
    libraries: LibrariesOption = None,
    pin: PinOption = None,
    reference: ReferenceOption = True,
    max_bytes: MaxBytesOption = None,
    external_data_root: ExternalDataOption = None,
    cache: CacheOption = True,
    labels: Annotated[
        Path | None, typer.Option(help="A text file of class names, one on each line.")
    ] = None,
    preprocess: Annotated[
        str, typer.Option(help=f"Preprocessing of pictures: {', '.join(PREPROCESS)}.")
    ] = "imagenet",
    top: Annotated[int, typer.Option(min=1, help="The number of classes to show.")] = 5,
    repeat: Annotated[
        int, typer.Option(min=1, help="The number of timed runs, after a first one.")
    ] = 5,
    save: Annotated[Path | None, typer.Option(help="Write all outputs to this .npz file.")] = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Run a model: print its outputs, and the median latency of a few more runs.

    An input without --input or --value gets random numbers from a fixed seed, and is listed.
    """
    limits = LoadOptions(reference, max_bytes, external_data_root)
    passes = Passes.parse(optimize, objective, tune, cache, tolerance, finite, precision)
    with (
        errors(debug),
        opened(
            model,
            shape,
            threads,
            passes,
            isa,
            limits,
            Mix.parse(libraries, pin),
            inputs,
            value,
            calibrate,
        ) as loaded,
    ):
        names, session = _labels(labels), loaded.session
        feeds, made_up = make_feeds(session.inputs, loaded.arrays, loaded.pictures, preprocess)
        answers = session.run(None, feeds)
        latency_ms = _latency_ms(session, feeds, repeat)
        outputs = dict(zip((port.name for port in session.outputs), answers, strict=True))
        if save is not None:
            _save(save, outputs)
        rows = described(session.inputs, outputs, top, names)
        for note in notes(session.plan):
            print(f"note: {note}", file=sys.stderr)
        if as_json:
            print_json(_run_dict(model, session, rows, latency_ms, made_up))
        else:
            _print_run(session, rows, latency_ms, made_up)


@app.command()
def plan(
    model: ModelArgument,
    shape: ShapeOption = None,
    value: ValueOption = None,
    threads: ThreadsOption = None,
    optimize: OptimizeOption = "all",
    objective: ObjectiveOption = "",
    tune: TuneOption = False,
    tolerance: ToleranceOption = DEFAULT_TOLERANCE,
    precision: PrecisionOption = "f32",
    finite: FiniteOption = False,
    calibrate: CalibrateOption = None,
    isa: IsaOption = "max",
    libraries: LibrariesOption = None,
    pin: PinOption = None,
    reference: ReferenceOption = True,
    max_bytes: MaxBytesOption = None,
    external_data_root: ExternalDataOption = None,
    cache: CacheOption = True,
    html: Annotated[
        Path | None, typer.Option(help="Draw the plan to this HTML file, for a browser.")
    ] = None,
    svg: Annotated[Path | None, typer.Option(help="Draw the plan to this SVG file.")] = None,
    sizes: SizesOption = "",
    problem: ProblemOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Show the plan of a model: a line for each step, and the reason of each Transform.

    With --precision bf16, measure as well what results are off by, from those of a plan in f32.
    With --html or --svg, draw the plan before and after the optimiser's passes instead. With
    --sizes, plan for each size, and show which sizes share a plan and what changes in between.
    With --problem, write the choice of layouts as a problem for other solvers.
    """
    limits = LoadOptions(reference, max_bytes, external_data_root)
    passes = Passes.parse(optimize, objective, tune, cache, tolerance, finite, precision)
    if problem:
        with errors(debug):
            if html or svg or calibrate or sizes or as_json:
                text = "--problem goes with none of --html, --svg, --calibrate, --sizes, --json"
                raise InputError(text)
            mix = Mix.parse(libraries, pin)
            write_problem(
                ProblemArguments(model, shape, value, threads, passes, isa, limits, mix), problem
            )
        return
    if sizes:
        with errors(debug):
            if html or svg or calibrate:
                raise InputError("--sizes goes with none of --html, --svg, --calibrate")
            mix = Mix.parse(libraries, pin)
            show(
                SizesArguments(model, sizes, shape, value, threads, passes, isa, limits, mix),
                as_json,
            )
        return
    opened_with = partial(
        opened,
        model,
        shape,
        threads,
        isa=isa,
        limits=limits,
        mix=Mix.parse(libraries, pin),
        values=value,
        calibrate=calibrate,
    )
    with errors(debug), opened_with(passes=passes) as loaded:
        session, error = loaded.session, None
        if PRECISIONS[precision] in session.plan.passes:
            strict = passes._replace(precision="f32", tune=False, tolerance=0.0)
            with opened_with(passes=strict) as other, suppress(PeerError):
                # With sizes that data decide, rounding may find more or fewer elements.
                error = difference_of(other.session, session, loaded.arrays)
        pictures = write_pictures(session.plans, model.stem, html=html, svg=svg)
        for file in pictures:
            print(f"wrote {file}", file=sys.stderr if as_json else sys.stdout)
        if as_json:
            print_json(plan_dict(session, model.stem, error))
        elif not pictures:
            print_lines(plan_lines(session, model.stem, error))


def _save(file: Path, outputs: Mapping[str, Array]) -> None:
    """Write the outputs to an ``.npz`` file.

    Args:
        file: the path; ``.npz`` is appended if it is missing.
        outputs: the arrays by name of the output.

    Raises:
        InputError: the file cannot be written.
    """
    file = Path(f"{str(file).removesuffix('.npz')}.npz")
    try:
        write_npz(file, outputs)
    except (OSError, ValueError) as error:  # ValueError: a path that no file can have
        raise InputError(f"{file}: outputs cannot be written there: {error}") from error


def _labels(file: Path | None) -> list[str]:
    if file is None:
        return []
    try:
        return read_text(file).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read as labels: {error}") from error


def _latency_ms(session: Session, feeds: Mapping[str, Array], repeat: int) -> list[float]:
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        session.run(None, feeds)
        times.append((time.perf_counter() - begin) * 1e3)
    return times


def _run_dict(
    model: Path,
    session: Session,
    rows: Mapping[str, Any],
    latency_ms: Sequence[float],
    made_up: Sequence[str],
) -> dict[str, Any]:
    return {
        "model": model.stem,
        "threads": session.threads,
        "latency_ms": {"median": statistics.median(latency_ms), "all": list(latency_ms)},
        "conversions": len(session.conversions),
        "seeded_inputs": list(made_up),
        "outputs": rows,
    }


def _print_run(
    session: Session,
    rows: Mapping[str, Mapping[str, Any]],
    latency_ms: Sequence[float],
    made_up: Sequence[str],
) -> None:
    for name in made_up:
        print(f"{name}: seeded random numbers (give --input {name}=FILE for your own)")
    for name, row in rows.items():
        print("\n".join(lines(name, row)))
    runs, threads = counted(len(latency_ms), "run"), counted(session.threads, "thread")
    changes = counted(len(session.conversions), "layout conversion")
    median = f"{statistics.median(latency_ms):.2f} ms, median of {runs} on {threads}"
    print(f"latency: {median}; {changes} a run")


for command in (
    bench,
    profile,
    explain,
    frontier,
    lock,
    diff,
    compare,
    export,
    libs,
    ops,
    dispatcher,
):
    app.command()(command)
app.add_typer(cache, name="cache")


def main() -> None:
    """Run the ``vtensor`` command."""
    app()


if __name__ == "__main__":
    main()
