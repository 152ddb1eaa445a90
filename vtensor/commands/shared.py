"""What the commands share: options, errors as messages, sessions, and how they print."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from libdesc.onnx_reference import LIBRARY as REFERENCE
from vtensor.commands.given import read_arrays
from vtensor.errors import InputError, ValuesNeededError, VTensorError
from vtensor.isa import CAPS, limit_isa
from vtensor.language.records import dataclass
from vtensor.report import Line
from vtensor.runtime.planning.library_options import preferences_of
from vtensor.runtime.planning.tolerance import DEFAULT_TOLERANCE

if TYPE_CHECKING:
    from vtensor.frontends.onnx import Model
    from vtensor.language.graph import Graph
    from vtensor.runtime.session import Session
    from vtensor.storage.inputs import Array

STYLES = {"head": "bold", "transform": "red", "why": "dim red", "ref": "yellow", "note": "dim"}

ModelArgument = Annotated[Path, typer.Argument(help="An ONNX file.", metavar="MODEL")]
ShapeOption = Annotated[
    list[str] | None,
    typer.Option("--shape", help="Sizes of an input: x=1,3,224,224. May be repeated."),
]
ThreadsOption = Annotated[int | None, typer.Option(help="Kernel threads; default: all processors.")]
OptimizeOption = Annotated[
    str, typer.Option(help="Level (none, lho, ewo, all) or pass names with commas.")
]
ObjectiveOption = Annotated[
    str,
    typer.Option(
        help="What is minimised: shared (bytes moved) or paper (unlike edges); each level's own."
    ),
]
TuneOption = Annotated[
    bool, typer.Option("--tune", help="Measure kernels and conversions, and minimise their time.")
]
ToleranceOption = Annotated[
    float,
    typer.Option(
        help="With --tune: what results may be off by, relative to their largest; 0: none."
    ),
]
FiniteOption = Annotated[
    bool, typer.Option("--finite", help="Promise that no number is infinite or no number at all.")
]
CalibrateOption = Annotated[
    list[str] | None,
    typer.Option(
        "--calibrate",
        help="What errors are measured on: as --input, arrays alone. May be repeated.",
    ),
]
IsaOption = Annotated[
    str, typer.Option(help=f"Cap on the instruction set: {', '.join(CAPS)} (no cap).")
]
ReferenceOption = Annotated[
    bool,
    typer.Option(
        "--reference/--no-reference", help="Run what VTensor lacks on onnx.reference, slowly."
    ),
]
LibrariesOption = Annotated[
    str | None,
    typer.Option(help="Libraries in the order of trial: eigen,onednn; NumPy takes the rest."),
]
PinOption = Annotated[
    list[str] | None,
    typer.Option(
        "--pin", help="The library of an operator or a node: Relu=eigen. May be repeated."
    ),
]
MaxBytesOption = Annotated[
    int | None, typer.Option(help="Most memory to take; default: three quarters of the machine's.")
]
ExternalDataOption = Annotated[
    Path | None,
    typer.Option(
        "--external-data-root", help="Folder that external data may lie in; default: the model's."
    ),
]
CacheOption = Annotated[
    bool,
    typer.Option(
        "--cache/--no-cache",
        help="Take and keep what was chosen, in the user's cache or $VTENSOR_CACHE_DIR.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON to standard output.")]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


class Limits(NamedTuple):
    """What a model may use, take and read, as ``load_onnx`` has it."""

    reference: bool
    max_bytes: int | None
    external_data_root: Path | None


class Passes(NamedTuple):
    """What is optimised and for what, whether it is kept, and what results may be, as ``Session``
    has it.
    """

    optimize: str | list[str]
    objective: str
    tune: bool = False
    cache_dir: bool = True
    tolerance: float = DEFAULT_TOLERANCE
    finite: bool = False

    @classmethod
    def parse(
        cls,
        optimize: str,
        objective: str,
        tune: bool = False,
        cache: bool = True,
        tolerance: float = DEFAULT_TOLERANCE,
        finite: bool = False,
    ) -> Passes:
        """From a level, or names with commas.

        >>> Passes.parse("lho,share", "shared").optimize
        ['lho', 'share']
        """
        names = optimize.split(",") if "," in optimize else optimize
        return cls(names, objective, tune, cache, tolerance, finite)


class Mix(NamedTuple):
    """Which libraries run what, as ``Session`` has it."""

    libraries: list[str] | None
    pin: dict[str, str]

    @classmethod
    def parse(cls, libraries: str | None, pins: Sequence[str] | None) -> Mix:
        """From ``eigen,onednn`` and ``Relu=eigen`` for each pin.

        Raises:
            InputError: a pin is not of that form.

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
    """An error of ours is a message and this exit code; with --debug it is a traceback."""
    try:
        yield
    except VTensorError as error:
        if debug:
            raise
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        raise typer.Exit(code) from None


@dataclass(frozen=True)
class Opened:
    """A session, and what was given for its inputs: arrays by name, and pictures' files.

    Attributes:
        warnings: how sizes of the model differ from those of ONNX's shape inference, a line a node.
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
    limits: Limits,
    mix: Mix,
    files: Sequence[str] | None = None,
    values: Sequence[str] | None = None,
    calibrate: Sequence[str] | None = None,
) -> Iterator[Opened]:
    """A session with a progress display on standard error while it is made.

    The sizes of what is given are the inputs' sizes, and where values decide shapes they are taken
    from there.
    """
    from vtensor.frontends.onnx import Model
    from vtensor.runtime.session import Session

    if isa != "max":  # which needs no cap, and so comes never too late
        limit_isa(isa)
    reference = limits.reference and preferences_of(*mix).allows(REFERENCE)
    with progress(f"loading {model.name}") as advance:
        loaded = Model(model, **limits._replace(reference=reference)._asdict())
        arrays, pictures = read_arrays(loaded.inputs, files, values, loaded.overridable)
        shapes = {name: array.shape for name, array in arrays.items()} | parse_shapes(shape)
        loaded = overriding(loaded, {*shapes, *pictures})
        graph = graph_of(loaded, shapes, arrays)
        measured_on, others = read_arrays(loaded.inputs, calibrate, None)
        if others:
            raise InputError(f"--calibrate {', '.join(others.values())}: give arrays, no pictures")
        session = Session(
            graph,
            threads=threads,
            **passes._asdict(),
            **mix._asdict(),
            max_bytes=limits.max_bytes,
            calibrate=measured_on,
            progress=advance,
            deterministic=True,  # what is looked at, or written down, is no provisional plan
        )
    with session:
        yield Opened(session, arrays, pictures, [*loaded.differences.values()])


def overriding(model: Model, names: Iterable[str]) -> Model:
    """Return a model that has those of its initializers as inputs that are named."""
    overridden = model.overridable.keys() & {*names}
    return model.overriding(overridden) if overridden else model


def graph_of(
    model: Model, shapes: Mapping[str, tuple[int, ...]], arrays: Mapping[str, Array]
) -> Graph:
    """The graph of a model; values that decide shapes become constants."""
    try:
        return model.graph(shapes)
    except ValuesNeededError as error:
        missing = [name for name in error.names if name not in arrays]
        if missing:
            lines = "".join(f"\n  --value {name}=1,2,3, or --input {name}=FILE" for name in missing)
            raise ValuesNeededError(f"{error}; on the command line{lines}", error.names) from None
        return model.graph(shapes, {name: arrays[name] for name in error.names})


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


def print_lines(lines: Iterator[Line]) -> None:
    """Print a report, coloured where there is a terminal."""
    console = Console(soft_wrap=True, highlight=False)
    for line in lines:
        console.print(line.text, style=STYLES.get(line.kind), markup=False)


def print_json(data: Mapping[str, Any]) -> None:
    """Print data as JSON to standard output."""
    print(json.dumps(data, indent=2))
