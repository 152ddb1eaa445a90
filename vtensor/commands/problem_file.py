"""``vtensor plan --problem``: write the layout problem of a model as JSON.

``docs/layout-problem.md`` describes the format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from vtensor.commands.given import read_arrays
from vtensor.commands.shared import (
    LoadOptions,
    Mix,
    Passes,
    graph_of,
    overriding,
    parse_shapes,
    progress,
)
from vtensor.errors import InputError
from vtensor.isa import limit_isa

if TYPE_CHECKING:
    from vtensor.language.graph import Graph

ProblemOption = Annotated[
    Path | None,
    typer.Option("--problem", help="Write the layout problem to this JSON file, and plan nothing."),
]


class ProblemArguments(NamedTuple):
    """The arguments of ``vtensor plan --problem``.

    Attributes:
        model: the ONNX file.
        shape, value: texts of these options.
        threads: the number of kernel threads; None for all processors.
        isa: the limit of the instruction set; ``max`` for none.
        passes, limits, mix: further options.
    """

    model: Path
    shape: Sequence[str] | None
    value: Sequence[str] | None
    threads: int | None
    passes: Passes
    isa: str
    limits: LoadOptions
    mix: Mix


def write_problem(request: ProblemArguments, file: Path) -> None:
    """Write the layout problem of a model.

    Raises:
        VTensorError: the model cannot be read, an option is wrong, or the file cannot be written.
    """
    from vtensor.frontends.onnx import Model

    if request.isa != "max":
        limit_isa(request.isa)
    with progress(f"reading {request.model.name}") as advance:
        model = Model(request.model, **request.limits._asdict())
        arrays, _ = read_arrays(model.inputs, None, request.value, model.overridable)
        shapes = {name: array.shape for name, array in arrays.items()} | parse_shapes(request.shape)
        model = overriding(model, shapes)
        graph = graph_of(model, shapes, arrays)
        about = {"model": request.model.stem, "cap": request.isa}
        advance("alternatives and optima")
        text = problem_text_of(graph, about, request.passes, request.mix, request.threads)
    try:
        file.write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:  # ValueError: a path that no file can have
        raise InputError(f"{file}: the problem cannot be written there: {error}") from error
    print(f"wrote {file}")


def problem_text_of(
    graph: Graph,
    about: Mapping[str, Any],
    passes: Passes,
    mix: Mix,
    threads: int | None = None,
    time_limit: float | None = None,
) -> str:
    """Return the text of the problem file of a graph.

    Args:
        graph: the network.
        about: what the file says of its origin; the mix and the passes are added.
        passes, mix: as a session takes them. With ``passes.tune``, costs are measured, else they
            are estimated from the rates that libraries declare, and do not depend on the machine.
        threads: the number of kernel threads; None for all processors.
        time_limit: seconds of the solver for each optimum; None is the default, 0 writes no optima.

    Raises:
        NoInvokerError: no library runs a node, or the pinned one declines it.
    """
    from optimizer.choice.posed import posed
    from optimizer.choice.problem_data import problem_data, problem_text
    from optimizer.settings import TIME_LIMIT
    from vtensor.language.operators import info_of
    from vtensor.runtime.execution.executor import Executor
    from vtensor.runtime.planning.choosing import resolved_of, simplified
    from vtensor.runtime.planning.options import Options

    options = Options.of(
        Executor.of(threads),
        optimize=passes.optimize,
        objective=passes.objective,
        tune=passes.tune,
        **mix._asdict(),
        reference=True,
        progress=None,
        deterministic=True,
        precision=passes.precision,
    )
    resolved = resolved_of(simplified(graph, options), options)
    problem = posed(resolved, options.passes, options.settings.clock)
    names = {name for node in graph.nodes.values() for name in (node.name, info_of(node.op).name)}
    pins = {name: library for name, library in mix.pin.items() if name in names}
    origin = {"libraries": mix.libraries, "pin": pins, "passes": passes.optimize}
    limit = TIME_LIMIT if time_limit is None else time_limit
    return problem_text(problem_data(problem, {**about, **origin}, limit))
