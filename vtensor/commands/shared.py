"""The common parts of the commands: options, error messages, sessions and output."""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from libdesc.onnx_reference import LIBRARY as REFERENCE
from vtensor.commands.given import read_arrays
from vtensor.errors import (
    EdgesNeeded,
    InputError,
    SegmentsNeededError,
    ValuesNeededError,
    VTensorError,
)
from vtensor.isa import CAPS, limit_isa
from vtensor.language.dtype import ITEMSIZE
from vtensor.language.records import dataclass, replace
from vtensor.report import Line
from vtensor.runtime.planning.library_options import preferences_of
from vtensor.runtime.planning.tolerance import DEFAULT_TOLERANCE
from vtensor.storage.inputs import noise

if TYPE_CHECKING:
    from vtensor.frontends.onnx import Model
    from vtensor.language.graph import Graph
    from vtensor.runtime.session import Session
    from vtensor.storage.inputs import Array

#: The terminal style of each kind of ``Line``.
STYLES = {"head": "bold", "transform": "red", "why": "dim red", "ref": "yellow", "note": "dim"}

ModelArgument = Annotated[Path, typer.Argument(help="An ONNX file.", metavar="MODEL")]
ShapeOption = Annotated[
    list[str] | None,
    typer.Option("--shape", help="The sizes of an input: x=1,3,224,224. May be repeated."),
]
ThreadsOption = Annotated[
    int | None, typer.Option(help="The number of kernel threads; default: all processors.")
]
OptimizeOption = Annotated[
    str, typer.Option(help="A level (none, lho, ewo, all), or names of passes with commas.")
]
ObjectiveOption = Annotated[
    str,
    typer.Option(
        help="Minimise shared (bytes moved) or paper (edges that convert); default: the level's."
    ),
]
TuneOption = Annotated[
    bool, typer.Option("--tune", help="Measure kernels and conversions, and minimise the time.")
]
ToleranceOption = Annotated[
    float,
    typer.Option(
        help="With --tune: the largest error of results, relative to their largest number; 0: none."
    ),
]
PrecisionOption = Annotated[
    str,
    typer.Option(help="The precision of f32 values: f32, or bf16 where that is faster."),
]
FiniteOption = Annotated[
    bool, typer.Option("--finite", help="Promise that no number in a run is infinite or NaN.")
]
CalibrateOption = Annotated[
    list[str] | None,
    typer.Option(
        "--calibrate",
        help="An array to measure errors on, written as for --input. May be repeated.",
    ),
]
IsaOption = Annotated[
    str, typer.Option(help=f"A cap on the instruction set: {', '.join(CAPS)} (no cap).")
]
ReferenceOption = Annotated[
    bool,
    typer.Option(
        "--reference/--no-reference",
        help="Run operators that VTensor lacks on onnx.reference, slowly, or refuse the model.",
    ),
]
LibrariesOption = Annotated[
    str | None,
    typer.Option(help="Libraries to try, in order: eigen,onednn; NumPy is tried last."),
]
PinOption = Annotated[
    list[str] | None,
    typer.Option(
        "--pin", help="The library of an operator or a node: Relu=eigen. May be repeated."
    ),
]
MaxBytesOption = Annotated[
    int | None,
    typer.Option(help="The most bytes of memory to use; default: three quarters of the machine's."),
]
ExternalDataOption = Annotated[
    Path | None,
    typer.Option(
        "--external-data-root",
        help="The folder that external data may be read from; default: the model's.",
    ),
]
CacheOption = Annotated[
    bool,
    typer.Option(
        "--cache/--no-cache",
        help="Read and write plans in the user's cache, or in $VTENSOR_CACHE_DIR.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON to standard output.")]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


class LoadOptions(NamedTuple):
    """Options for loading a model; each field is the parameter of ``load_onnx`` with the same
    name.
    """

    reference: bool
    max_bytes: int | None
    external_data_root: Path | None


class Passes(NamedTuple):
    """Options of the optimiser, the cache, the tolerance and the precision.

    Each field is the parameter of ``Session`` with the same name; ``cache_dir`` is False for no
    cache.
    """

    optimize: str | list[str]
    objective: str
    tune: bool = False
    cache_dir: bool = True
    tolerance: float = DEFAULT_TOLERANCE
    finite: bool = False
    precision: str = "f32"

    @classmethod
    def parse(
        cls,
        optimize: str,
        objective: str,
        tune: bool = False,
        cache: bool = True,
        tolerance: float = DEFAULT_TOLERANCE,
        finite: bool = False,
        precision: str = "f32",
    ) -> Passes:
        """Return the options; ``optimize`` is a level, or names of passes with commas.

        >>> Passes.parse("lho,share", "shared").optimize
        ['lho', 'share']
        """
        names = optimize.split(",") if "," in optimize else optimize
        return cls(names, objective, tune, cache, tolerance, finite, precision)


class Mix(NamedTuple):
    """The libraries of a session; each field is the parameter of ``Session`` with the same name.

    Attributes:
        libraries: the libraries to try, in order; None for all.
        pin: the library that must run an operator or a node, by the name of the operator or node.
    """

    libraries: list[str] | None
    pin: dict[str, str]

    @classmethod
    def parse(cls, libraries: str | None, pins: Sequence[str] | None) -> Mix:
        """Return the options that texts of the command line give.

        Args:
            libraries: libraries with commas, such as ``eigen,onednn``; None for all.
            pins: a text such as ``Relu=eigen`` for each pin.

        Raises:
            InputError: a pin has another form.

        >>> Mix.parse("eigen,onednn", ["Relu=eigen", "conv1=numpy"])
        Mix(libraries=['eigen', 'onednn'], pin={'Relu': 'eigen', 'conv1': 'numpy'})
        """
        pin = {}
        for text in pins or []:
            key, _, library = text.rpartition("=")
            if not (key and library):
                raise InputError(f"--pin {text}: write it as OPERATOR=LIBRARY or NODE=LIBRARY")
            pin[key] = library
        return cls(None if libraries is None else libraries.split(","), pin)


@contextmanager
def errors(debug: bool, code: int = 1) -> Iterator[None]:
    """Print a VTensor error inside the block as a message, and exit with ``code``.

    If ``debug``, the error is not caught, so that its traceback is printed.
    """
    try:
        yield
    except VTensorError as error:
        if debug:
            raise
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        raise typer.Exit(code) from None


@dataclass(frozen=True)
class Opened:
    """A session with the inputs from the command line.

    Attributes:
        session: the session.
        arrays: the given arrays, by name of the input.
        pictures: the files of the given pictures, by name of the input.
        warnings: nodes whose sizes differ from ONNX's shape inference, a line for each.
    """

    session: Session
    arrays: Mapping[str, Array]
    pictures: Mapping[str, str]
    warnings: Sequence[str] = ()


@contextmanager
def opened(
    model: Path,
    shape: Sequence[str] | None,
    threads: int | None,
    passes: Passes,
    isa: str,
    limits: LoadOptions,
    mix: Mix,
    files: Sequence[str] | None = None,
    values: Sequence[str] | None = None,
    calibrate: Sequence[str] | None = None,
) -> Iterator[Opened]:
    """Open a session on a model, with a progress display on standard error; close it at the end.

    Open sizes of inputs come from the given arrays and from ``shape``. If values of an input decide
    shapes, they come from its array.

    Args:
        model: the ONNX file.
        shape: texts of ``--shape``.
        threads: the number of kernel threads; None for all processors.
        passes, limits, mix: further options.
        isa: the limit of the instruction set; ``max`` for none.
        files: texts of ``--input``.
        values: texts of ``--value``.
        calibrate: texts of ``--calibrate``.

    Raises:
        VTensorError: the model cannot be read or planned, or an option is wrong.
    """
    from vtensor.frontends.onnx import Model
    from vtensor.runtime.session import Session

    if isa != "max":  # "max" needs no cap, so it may also follow a loaded library
        limit_isa(isa)
    reference = limits.reference and preferences_of(*mix).allows(REFERENCE)
    with progress(f"loading {model.name}") as advance:
        options: dict[str, Any] = {
            "threads": threads,
            **passes._asdict(),
            **mix._asdict(),
            "progress": advance,
            "deterministic": True,  # a plan that is shown or saved must not be provisional
        }
        try:
            loaded = Model(model, **limits._replace(reference=reference)._asdict())
        except EdgesNeeded:
            graph: Graph | Path = model
            session, differing = Session(model, **options, **limits._asdict()), dict[str, str]()
            inputs = {
                port.name: (port.dtype, None if port.any_rank else port.shape)
                for port in session.inputs
                if port.dtype in ITEMSIZE
            }
            arrays, pictures = read_arrays(inputs, files, values)
            shapes = {name: array.shape for name, array in arrays.items()} | parse_shapes(shape)
        else:
            arrays, pictures = read_arrays(loaded.inputs, files, values, loaded.overridable)
            shapes = {name: array.shape for name, array in arrays.items()} | parse_shapes(shape)
            loaded = overriding(loaded, {*shapes, *pictures})
            graph = graph_or_file(loaded, model, shapes, arrays)
            measured_on, others = read_arrays(loaded.inputs, calibrate, None)
            if others:
                text = f"--calibrate {', '.join(others.values())}: give arrays, not pictures"
                raise InputError(text)
            of_file = limits._asdict() if graph is model else {"max_bytes": limits.max_bytes}
            session = Session(graph, **options, **of_file, calibrate=measured_on)
            differing = loaded.differences
    with session:
        if graph is model:
            run_once(session, shapes, arrays)
        yield Opened(session, arrays, pictures, [*differing.values()])


def run_once(
    session: Session, shapes: Mapping[str, tuple[int, ...]], arrays: Mapping[str, Array]
) -> None:
    """Run a session once, so that it makes the plans of all segments.

    Args:
        session: the session.
        shapes: shapes of inputs with open sizes, by name.
        arrays: the given arrays, by name; other inputs get random numbers from a fixed seed.
    """
    ports = [replace(port, shape=shapes.get(port.name, port.shape)) for port in session.inputs]
    session.run(None, noise(ports, arrays))


def overriding(model: Model, names: Iterable[str]) -> Model:
    """Return the model with the initializers ``names`` as inputs.

    Names other than those in ``model.overridable`` are ignored.
    """
    overridden = model.overridable.keys() & {*names}
    return model.overriding(overridden) if overridden else model


def graph_of(
    model: Model, shapes: Mapping[str, tuple[int, ...]], arrays: Mapping[str, Array]
) -> Graph:
    """Return the graph of a model; inputs whose values decide shapes become constants.

    Args:
        model: the model.
        shapes: shapes of inputs by name.
        arrays: values of inputs by name.

    Raises:
        ValuesNeededError: the values of an input decide shapes, and ``arrays`` does not have them.
    """
    try:
        return model.graph(shapes)
    except ValuesNeededError as error:
        missing = [name for name in error.names if name not in arrays]
        if missing:
            lines = "".join(f"\n  --value {name}=1,2,3, or --input {name}=FILE" for name in missing)
            raise ValuesNeededError(f"{error}; on the command line{lines}", error.names) from None
        return model.graph(shapes, {name: arrays[name] for name in error.names})


def graph_or_file(
    model: Model, file: Path, shapes: Mapping[str, tuple[int, ...]], arrays: Mapping[str, Array]
) -> Graph | Path:
    """Return the graph of a model; if it runs in segments, its file.

    A session makes a graph for each segment. The other arguments and the errors are those of
    ``graph_of``.
    """
    try:
        return graph_of(model, shapes, arrays)
    except SegmentsNeededError:
        return file


@contextmanager
def progress(title: str) -> Iterator[Any]:
    """Show a progress display on standard error; yield a function that sets its text."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task(title, total=None)
        yield lambda node: bar.update(task, description=f"{title}: {node}")


def parse_shapes(texts: Sequence[str] | None) -> dict[str, tuple[int, ...]]:
    """Return shapes by name of the input, from texts such as ``x=1,3,224,224``.

    Raises:
        InputError: a text has another form.

    >>> parse_shapes(["x=1,3,224,224"])
    {'x': (1, 3, 224, 224)}
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts or []:
        name, equals, sizes = text.rpartition("=")
        parts = sizes.split(",")
        if not equals or not name or not all(part.strip().isdecimal() for part in parts):
            raise InputError(f"--shape {text}: write it as name=1,3,224,224")
        shapes[name] = tuple(int(part) for part in parts)
    return shapes


def print_lines(lines: Iterator[Line]) -> None:
    """Print a report, in colours if standard output is a terminal."""
    console = Console(soft_wrap=True, highlight=False)
    for line in lines:
        console.print(line.text, style=STYLES.get(line.kind), markup=False)


def print_json(data: Mapping[str, Any]) -> None:
    """Print data as JSON to standard output."""
    print(json.dumps(data, indent=2))


def write_npz(file: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays to an ``.npz`` file, by name.

    ``np.savez`` is not used: it takes the names as keyword arguments, so no array could be named
    ``file``.

    Raises:
        OSError: the file cannot be written.
    """
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)
