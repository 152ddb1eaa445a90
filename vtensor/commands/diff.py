"""``vtensor diff``: list the differences between two plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from vtensor.commands.given import ValueOption, read_arrays
from vtensor.commands.shared import (
    DebugOption,
    ExternalDataOption,
    IsaOption,
    JsonOption,
    MaxBytesOption,
    errors,
    graph_or_file,
    overriding,
    print_json,
    progress,
    run_once,
)
from vtensor.errors import InputError
from vtensor.isa import limit_isa
from vtensor.language.wording import counted
from vtensor.runtime.lock.diff import Difference, differences
from vtensor.runtime.lock.lock_file import Lock

#: The suffix of a lock file; any other file is a model.
SUFFIX = ".toml"

#: The width of the table in characters, if standard output is no terminal.
WIDTH = 160

#: The exit codes of ``diff`` for plans that differ, and for an error.
DIFFERENT, TROUBLE = 1, 2

PlanArgument = Annotated[Path, typer.Argument(help="A lock file; one of the two may be a model.")]


def diff(
    a: PlanArgument,
    b: PlanArgument,
    value: ValueOption = None,
    isa: IsaOption = "max",
    max_bytes: MaxBytesOption = None,
    external_data_root: ExternalDataOption = None,
    costs: Annotated[
        bool, typer.Option("--costs/--no-costs", help="Compare the costs of nodes, too.")
    ] = True,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Compare two lock files, or a lock file with the present plan of a model.

    A model is planned with the options, sizes and threads of the lock file. Times within 10 % of
    each other are equal. The exit code is 0 if the plans agree, 1 if they differ, and 2 if they
    cannot be compared.
    """
    with errors(debug, TROUBLE):
        lock_files = [file for file in (a, b) if file.suffix == SUFFIX]
        if not lock_files:
            raise InputError(
                f"{a}, {b}: neither is a lock file ({SUFFIX}); write one: vtensor lock"
            )
        if isa != "max":
            limit_isa(isa)
        locks = {file: Lock.read(file) for file in lock_files}
        for model in {a, b} - locks.keys():
            like = locks[lock_files[0]]
            locks[model] = _planned(model, like, value, max_bytes, external_data_root)
        differing = differences(locks[a], locks[b], costs)
        if as_json:
            rows = [asdict(difference) for difference in differing]
            print_json({"a": str(a), "b": str(b), "equal": not differing, "differences": rows})
        else:
            _print(differing, str(a), str(b))
        if differing:
            raise typer.Exit(DIFFERENT)


def _planned(
    model: Path,
    like: Lock,
    values: Sequence[str] | None,
    max_bytes: int | None,
    external_data_root: Path | None,
) -> Lock:
    """Plan a model with the options, sizes and threads of a lock file.

    Return the plan as a ``Lock``, the content of a lock file.

    Args:
        model: the ONNX file.
        like: the content of the lock file.
        values: texts of ``--value``.
        max_bytes: limit of the memory, in bytes; None is a Session's default.
        external_data_root: folder of external data; None is the model's folder.
    """
    from vtensor.frontends.onnx import Model
    from vtensor.runtime.session import Session

    options = like.options
    with progress(f"planning {model.name}") as advance:
        loaded = Model(
            model, options.reference, max_bytes=max_bytes, external_data_root=external_data_root
        )
        arrays, _ = read_arrays(loaded.inputs, None, values, loaded.overridable)
        loaded = overriding(loaded, {*like.choices.inputs, *arrays})
        inputs = {name: row for name, row in like.choices.inputs.items() if name in loaded.inputs}
        shapes = {name: tuple(row.dims.values()) for name, row in inputs.items()}
        shapes |= {name: array.shape for name, array in arrays.items()}
        graph = graph_or_file(loaded, model, shapes, arrays)
        names = loaded.inputs if isinstance(graph, Path) else graph.inputs
        layouts = {name: str(inputs[name].layout) for name in names if name in inputs}
        with Session(
            graph,
            external_data_root=external_data_root if graph is model else None,
            threads=like.threads,
            input_layouts=layouts,
            max_bytes=max_bytes,
            progress=advance,
            **options.options(),
        ) as session:
            if graph is model:
                run_once(session, shapes, arrays)
            return session.lock()


def _print(differing: Sequence[Difference], a: str, b: str) -> None:
    console = Console(soft_wrap=False)
    if not differing:
        print(f"{a} and {b} agree")
        return
    table = Table(box=None, pad_edge=False)
    for title in ("about", "name", "what", a, b):
        table.add_column(Text(title), overflow="fold")
    for row in differing:
        cells = (row.about, row.name, row.field, row.a, row.b)
        table.add_row(*(Text("-" if cell is None else cell) for cell in cells))
    if not console.is_terminal:
        console.width = max(console.width, WIDTH)
    console.print(table)
    print(counted(len(differing), "difference"))
