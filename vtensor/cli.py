"""The command line: ``vtensor run`` and ``vtensor plan``."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from vtensor.errors import InputError, VTensorError
from vtensor.image import PREPROCESS, image_for
from vtensor.isa import CAPS, limit_isa
from vtensor.report import Line, plan_dict, plan_lines
from vtensor.runtime.feeds import Array, Port

if TYPE_CHECKING:
    from vtensor.runtime.session import Session

app = typer.Typer(
    help="Run ONNX models, and see how: operators without layouts, layouts resolved for them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

STYLES = {"head": "bold", "transform": "red", "why": "dim red", "ref": "yellow", "note": "dim"}

ModelArgument = Annotated[Path, typer.Argument(help="An ONNX file.", metavar="MODEL")]
ShapeOption = Annotated[
    list[str] | None,
    typer.Option("--shape", help="Sizes of an input: x=1,3,224,224. May be repeated."),
]
ThreadsOption = Annotated[int | None, typer.Option(help="Kernel threads; default: all processors.")]
OptimizeOption = Annotated[str, typer.Option(help="Level (none, all) or pass names with commas.")]
IsaOption = Annotated[
    str, typer.Option(help=f"Cap on the instruction set: {', '.join(CAPS)} (no cap).")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON to standard output.")]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


@app.command()
def run(
    model: ModelArgument,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", help="A picture or .npy file, or name=FILE. May be repeated."),
    ] = None,
    shape: ShapeOption = None,
    threads: ThreadsOption = None,
    optimize: OptimizeOption = "all",
    isa: IsaOption = "max",
    labels: Annotated[Path | None, typer.Option(help="Class names, one a line.")] = None,
    preprocess: Annotated[
        str, typer.Option(help=f"For pictures: {', '.join(PREPROCESS)}.")
    ] = "imagenet",
    top: Annotated[int, typer.Option(min=1, help="How many classes to show.")] = 5,
    repeat: Annotated[int, typer.Option(min=1, help="Timed runs after a first one.")] = 5,
    save: Annotated[Path | None, typer.Option(help="Write all outputs to this .npz file.")] = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Run a model once for its answer and a few times more for its latency.

    Without --input a seeded random one is used.
    """
    with _errors(debug), _session(model, shape, threads, optimize, isa) as session:
        names = _labels(labels)
        feeds = make_feeds(session.inputs, inputs or [], preprocess, parse_shapes(shape))
        answers = session.run(None, feeds)
        latency_ms = _latency_ms(session, feeds, repeat)
        outputs = dict(zip((port.name for port in session.outputs), answers, strict=True))
        if save is not None:
            _save(save, outputs)
        rows = {name: top_classes(array, top, names) for name, array in outputs.items()}
        if as_json:
            _print_json(_run_dict(model, session, outputs, rows, latency_ms))
        else:
            _print_run(session, outputs, rows, latency_ms, seeded=not inputs)


@app.command()
def plan(
    model: ModelArgument,
    shape: ShapeOption = None,
    threads: ThreadsOption = None,
    optimize: OptimizeOption = "all",
    isa: IsaOption = "max",
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Show how a model would run: a line a step, and each Transform with why it is there."""
    with _errors(debug), _session(model, shape, threads, optimize, isa) as session:
        if as_json:
            _print_json(plan_dict(session, model.stem))
        else:
            print_lines(plan_lines(session, model.stem))


@contextmanager
def _errors(debug: bool) -> Iterator[None]:
    """An error of ours is a message and exit code 1; with --debug it is a traceback."""
    try:
        yield
    except VTensorError as error:
        if debug:
            raise
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        raise typer.Exit(1) from None


@contextmanager
def _session(
    model: Path, shape: Sequence[str] | None, threads: int | None, optimize: str, isa: str
) -> Iterator[Session]:
    """A session with a progress display on standard error while it is made."""
    from vtensor.frontends.onnx import load_onnx
    from vtensor.runtime.session import Session

    if isa != "max":  # which needs no cap, and so comes never too late
        limit_isa(isa)
    levels = optimize.split(",") if "," in optimize else optimize
    with progress(f"loading {model.name}") as advance:
        graph = load_onnx(model, shapes=parse_shapes(shape))
        session = Session(graph, threads=threads, optimize=levels, progress=advance)
    with session:
        yield session


@contextmanager
def progress(title: str) -> Iterator[Any]:
    """A progress display on standard error; yields a function to call with what is being done."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task(title, total=None)
        yield lambda node: bar.update(task, description=f"{title}: {node}")


def parse_shapes(given: Sequence[str] | None) -> dict[str, tuple[int, ...]]:
    """``x=1,3,224,224`` for each input.

    Raises:
        InputError: the text is not of that form.

    >>> parse_shapes(["x=1,3,224,224"])
    {'x': (1, 3, 224, 224)}
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for text in given or []:
        name, equals, sizes = text.rpartition("=")
        parts = sizes.split(",")
        if not equals or not name or not all(part.strip().isdecimal() for part in parts):
            raise InputError(f"--shape {text}: write it as name=1,3,224,224")
        shapes[name] = tuple(int(part) for part in parts)
    return shapes


def make_feeds(
    ports: Sequence[Port],
    given: Sequence[str],
    preprocess: str,
    shapes: Mapping[str, tuple[int, ...]],
) -> dict[str, Array]:
    """An array for each input: from its file, or seeded random numbers.

    Raises:
        InputError: a file cannot be read, or belongs to no input.
    """
    files: dict[str, str] = {}
    known = [port.name for port in ports]
    for text in given:
        name, equals, file = text.partition("=")
        if equals and name in known:
            files[name] = file
        elif len(known) == 1:
            files[known[0]] = text
        else:
            raise InputError(f"--input {text}: write name=FILE; inputs are {', '.join(known)}")
    generator = np.random.default_rng(0)
    feeds = {}
    for port in ports:
        sizes = tuple(1 if size is None else size for size in shapes.get(port.name, port.shape))
        if port.name in files:
            feeds[port.name] = _read(files[port.name], sizes, preprocess)
        else:
            from vtensor.dtype import numpy_dtype

            feeds[port.name] = generator.standard_normal(sizes).astype(numpy_dtype(port.dtype))
    return feeds


def _read(file: str, shape: tuple[int, ...], preprocess: str) -> Array:
    if not file.endswith(".npy"):
        return image_for(shape, file, preprocess)
    try:
        array: Array = np.load(file, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: cannot be read as a .npy file: {error}") from error
    return array


def _save(file: Path, outputs: Mapping[str, Array]) -> None:
    try:
        np.savez(file, **outputs)  # type: ignore[arg-type]  # names are whatever the model says
    except OSError as error:
        raise InputError(f"{file}: outputs cannot be written there: {error}") from error


def _labels(file: Path | None) -> list[str]:
    if file is None:
        return []
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read as labels: {error}") from error


def top_classes(array: Array, top: int, labels: Sequence[str]) -> list[list[dict[str, Any]]]:
    """The largest entries of each item of a batch; nothing where an output is no classification."""
    if array.ndim < 2 or array.size == 0 or array[0].size != max(array.shape[1:]):
        return []
    rows = []
    for scores in array.reshape(array.shape[0], -1):
        best = np.argsort(-scores, kind="stable")[:top]
        rows.append(
            [
                {
                    "class": int(index),
                    "label": labels[index] if index < len(labels) else "",
                    "score": float(scores[index]),
                }
                for index in best
            ]
        )
    return rows


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
    outputs: Mapping[str, Array],
    rows: Mapping[str, Any],
    latency_ms: Sequence[float],
) -> dict[str, Any]:
    return {
        "model": model.stem,
        "threads": session.threads,
        "latency_ms": {"median": statistics.median(latency_ms), "all": list(latency_ms)},
        "conversions": len(session.conversions),
        "outputs": {
            name: {"shape": list(array.shape), "dtype": str(array.dtype), "top": rows[name]}
            for name, array in outputs.items()
        },
    }


def _print_run(
    session: Session,
    outputs: Mapping[str, Array],
    rows: Mapping[str, list[list[dict[str, Any]]]],
    latency_ms: Sequence[float],
    seeded: bool,
) -> None:
    if seeded:
        print("input: seeded random numbers (give --input FILE for your own)")
    for name, array in outputs.items():
        print(f"{name}: {array.dtype} {list(array.shape)}")
        for item, best in enumerate(rows[name]):
            for row in best:
                label = row["label"] or f"class {row['class']}"
                print(f"  [{item}] {row['score']:>12.6g}  {label}")
        if not rows[name] and array.size:
            print(f"  min {array.min():.6g}  mean {array.mean():.6g}  max {array.max():.6g}")
    runs = f"median of {len(latency_ms)} runs on {session.threads} threads"
    count = len(session.conversions)
    print(
        f"latency: {statistics.median(latency_ms):.2f} ms, {runs}; {count} layout conversions a run"
    )


def print_lines(lines: Iterator[Line]) -> None:
    """Print a report, coloured where there is a terminal."""
    console = Console(soft_wrap=True, highlight=False)
    for line in lines:
        console.print(line.text, style=STYLES.get(line.kind), markup=False)


def _print_json(data: Mapping[str, Any]) -> None:
    print(json.dumps(data, indent=2))


def main() -> None:
    """The entry point of the ``vtensor`` command."""
    app()


if __name__ == "__main__":
    main()
