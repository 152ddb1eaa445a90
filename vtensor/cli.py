"""The command line: ``vtensor run`` and ``vtensor plan``; ``commands/`` holds the others."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from vtensor.commands.explain import explain
from vtensor.commands.listing import dispatcher, libs, ops
from vtensor.commands.shared import (
    DebugOption,
    ExternalDataOption,
    IsaOption,
    JsonOption,
    Limits,
    MaxBytesOption,
    ModelArgument,
    OptimizeOption,
    ReferenceOption,
    ShapeOption,
    ThreadsOption,
    errors,
    opened,
    parse_shapes,
    print_json,
    print_lines,
)
from vtensor.errors import InputError
from vtensor.image import PREPROCESS, image_for
from vtensor.report import plan_dict, plan_lines, reference_note
from vtensor.runtime.feeds import Array, Port

if TYPE_CHECKING:
    from vtensor.runtime.session import Session

app = typer.Typer(
    help="Run ONNX models, and see how: operators without layouts, layouts resolved for them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


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
    reference: ReferenceOption = True,
    max_bytes: MaxBytesOption = None,
    external_data_root: ExternalDataOption = None,
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
    limits = Limits(reference, max_bytes, external_data_root)
    with errors(debug), opened(model, shape, threads, optimize, isa, limits) as session:
        names = _labels(labels)
        feeds = make_feeds(session.inputs, inputs or [], preprocess, parse_shapes(shape))
        answers = session.run(None, feeds)
        latency_ms = _latency_ms(session, feeds, repeat)
        outputs = dict(zip((port.name for port in session.outputs), answers, strict=True))
        if save is not None:
            _save(save, outputs)
        rows = {name: top_classes(array, top, names) for name, array in outputs.items()}
        if note := reference_note(session.plan):
            print(f"note: {note}", file=sys.stderr)
        if as_json:
            print_json(_run_dict(model, session, outputs, rows, latency_ms))
        else:
            _print_run(session, outputs, rows, latency_ms, seeded=not inputs)


@app.command()
def plan(
    model: ModelArgument,
    shape: ShapeOption = None,
    threads: ThreadsOption = None,
    optimize: OptimizeOption = "all",
    isa: IsaOption = "max",
    reference: ReferenceOption = True,
    max_bytes: MaxBytesOption = None,
    external_data_root: ExternalDataOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Show how a model would run: a line a step, and each Transform with why it is there."""
    limits = Limits(reference, max_bytes, external_data_root)
    with errors(debug), opened(model, shape, threads, optimize, isa, limits) as session:
        if as_json:
            print_json(plan_dict(session, model.stem))
        else:
            print_lines(plan_lines(session, model.stem))


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


for command in (explain, libs, ops, dispatcher):
    app.command()(command)


def main() -> None:
    """The entry point of the ``vtensor`` command."""
    app()


if __name__ == "__main__":
    main()
