"""``vtensor diff``: what two plans do not agree about."""

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
    graph_of,
    overriding,
    print_json,
    progress,
)
from vtensor.errors import InputError
from vtensor.isa import limit_isa
from vtensor.language.wording import counted
from vtensor.runtime.lock.diff import Difference, differences
from vtensor.runtime.lock.lock_file import Lock

#: How the name of a lock file ends; any other file is a model.
SUFFIX = ".toml"

#: Columns that the table takes where there is no terminal.
WIDTH = 160

#: The exit codes of ``diff``.
DIFFERENT, TROUBLE = 1, 2

PlanArgument = Annotated[Path, typer.Argument(help="A lock file, or a model for one of the two.")]


def diff(
    a: PlanArgument,
    b: PlanArgument,
    value: ValueOption = None,
    isa: IsaOption = "max",
    max_bytes: MaxBytesOption = None,
    external_data_root: ExternalDataOption = None,
    costs: Annotated[
        bool, typer.Option("--costs/--no-costs", help="Compare what nodes cost, too.")
    ] = True,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Compare two plans that were written down, or one with what would be planned now.

    A model is planned with the options, sizes and threads of the lock file beside it. The exit code
    is 0 if the plans agree, 1 if not, 2 if they cannot be compared. Times that are within 10 % of
    one another agree.
    """
    with errors(debug, TROUBLE):
        given = [one for one in (a, b) if one.suffix == SUFFIX]
        if not given:
            raise InputError(
                f"{a}, {b}: neither is a lock file ({SUFFIX}); write one: vtensor lock"
            )
        if isa != "max":
            limit_isa(isa)
        locks = {one: Lock.read(one) for one in given}
        for one in {a, b} - locks.keys():
            locks[one] = _planned(one, locks[given[0]], value, max_bytes, external_data_root)
        found = differences(locks[a], locks[b], costs)
        if as_json:
            rows = [asdict(one) for one in found]
            print_json({"a": str(a), "b": str(b), "equal": not found, "differences": rows})
        else:
            _print(found, str(a), str(b))
        if found:
            raise typer.Exit(DIFFERENT)


def _planned(
    model: Path,
    like: Lock,
    values: Sequence[str] | None,
    max_bytes: int | None,
    external_data_root: Path | None,
) -> Lock:
    """What would be chosen now for a model, with the options of a lock file."""
    from vtensor.frontends.onnx import Model
    from vtensor.runtime.session import Session

    options = like.options
    with progress(f"planning {model.name}") as advance:
        loaded = Model(
            model, options.reference, max_bytes=max_bytes, external_data_root=external_data_root
        )
        arrays, _ = read_arrays(loaded.inputs, None, values, loaded.overridable)
        loaded = overriding(loaded, {*like.choices.inputs, *arrays})
        inputs = {name: one for name, one in like.choices.inputs.items() if name in loaded.inputs}
        shapes = {name: tuple(one.dims.values()) for name, one in inputs.items()}
        shapes |= {name: array.shape for name, array in arrays.items()}
        graph = graph_of(loaded, shapes, arrays)
        layouts = {name: str(inputs[name].layout) for name in graph.inputs if name in inputs}
        with Session(
            graph,
            threads=like.threads,
            input_layouts=layouts,
            max_bytes=max_bytes,
            progress=advance,
            **options.options(),
        ) as session:
            return session.lock()


def _print(found: Sequence[Difference], a: str, b: str) -> None:
    console = Console(soft_wrap=False)
    if not found:
        print(f"{a} and {b} agree")
        return
    table = Table(box=None, pad_edge=False)
    for title in ("about", "name", "what", a, b):
        table.add_column(Text(title), overflow="fold")
    for one in found:
        cells = (one.about, one.name, one.field, one.a, one.b)
        table.add_row(*(Text("-" if cell is None else cell) for cell in cells))
    if not console.is_terminal:
        console.width = max(console.width, WIDTH)
    console.print(table)
    print(counted(len(found), "difference"))
