"""``vtensor lock``: write a plan to a file that can be reviewed, compared and run again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vtensor.commands.given import ValueOption
from vtensor.commands.shared import (
    CalibrateOption,
    DebugOption,
    ExternalDataOption,
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
)
from vtensor.language.wording import counted
from vtensor.runtime.planning.tolerance import DEFAULT_TOLERANCE


def lock(
    model: ModelArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help="The TOML file to write.")],
    shape: ShapeOption = None,
    value: ValueOption = None,
    threads: ThreadsOption = None,
    optimize: OptimizeOption = "all",
    objective: ObjectiveOption = "",
    tune: TuneOption = False,
    tolerance: ToleranceOption = DEFAULT_TOLERANCE,
    precision: PrecisionOption = "f32",
    calibrate: CalibrateOption = None,
    isa: IsaOption = "max",
    libraries: LibrariesOption = None,
    pin: PinOption = None,
    reference: ReferenceOption = True,
    max_bytes: MaxBytesOption = None,
    external_data_root: ExternalDataOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Write the plan of a model to a lock file: each node's library, kernel and layouts, and why.

    Session(MODEL, plan=FILE) runs the same plan again, or names the lines that no longer hold.
    """
    limits = LoadOptions(reference, max_bytes, external_data_root)
    passes = Passes.parse(optimize, objective, tune, tolerance=tolerance, precision=precision)
    mix = Mix.parse(libraries, pin)
    with (
        errors(debug),
        opened(
            model,
            shape,
            threads,
            passes,
            isa,
            limits,
            mix,
            values=value,
            calibrate=calibrate,
        ) as loaded,
    ):
        loaded.session.lock().write(out)
        plans = loaded.session.plans
        nodes = sum(len(plan.graph.operators) for plan in plans)
        changes = sum(len(plan.conversions) for plan in plans)
        if as_json:
            print_json({"file": str(out), "nodes": nodes, "transforms": changes})
        else:
            size = f"{counted(nodes, 'node')}, {counted(changes, 'Transform')} a run"
            print(f"{out}: {size}")
