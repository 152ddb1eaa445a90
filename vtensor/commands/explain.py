"""``vtensor explain``: the cause, the cost and the remedy of every conversion."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from optimizer.choice.alternatives import alternatives
from resolver.explain import bytes_of_a_run, explain_node, explain_transforms, refusals
from vtensor.commands.alternatives import alternative_dict, alternative_lines
from vtensor.commands.given import ValueOption
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
    progress,
)
from vtensor.language.wording import counted
from vtensor.report import MEGABYTE, Line, certificate_dict, certificate_lines, rewritten_lines
from vtensor.runtime.planning.tolerance import DEFAULT_TOLERANCE

if TYPE_CHECKING:
    from resolver.lowered import Certificate, LoweredGraph, OpNode
    from vtensor.language.graph import Node

#: Words for what the time of a node is based on, a measurement or an estimate.
BASIS_WORDS = {
    "measured": "measured",
    "calibrated": "estimated from the machine's measured peaks",
    "declared": "estimated from what libraries declare",
}


def explain(
    model: ModelArgument,
    node: Annotated[
        str, typer.Option(help="Explain only this node, or the node that makes this value.")
    ] = "",
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
    others: Annotated[
        bool,
        typer.Option(
            "--alternatives/--no-alternatives",
            help="Search for the cheapest change that would remove each conversion.",
        ),
    ] = True,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Explain every conversion: its cause, its cost, and what would remove it.

    With --node, explain one node: its library and layouts, and why other libraries declined it.
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
            values=value,
            calibrate=calibrate,
        ) as loaded,
    ):
        graphs = [plan.graph for plan in loaded.session.plans]
        if node:
            having = [graph for graph in graphs if _has(graph, node)]
            row = explain_node([*having, *graphs][0], node)
            if as_json:
                print_json(row)
            else:
                print_lines(_node_lines(row))
            return
        warned = {"warnings": [*loaded.warnings]}
        rows = [{**explain_dict(graph, model.stem, others), **warned} for graph in graphs]
        if as_json:
            print_json(rows[0] if len(rows) == 1 else {"segments": rows})
        else:
            for data, graph in zip(rows, graphs, strict=True):
                print_lines(_lines(data, graph.certificate))


def _has(graph: LoweredGraph, name: str) -> bool:
    """Return whether a graph has a node or a value of this name."""
    return any(name in (node.name, *node.outputs) for node in graph.nodes)


def explain_dict(graph: LoweredGraph, name: str, others: bool) -> dict[str, Any]:
    """Return, for ``--json``, the Transforms of a run, totals, and why libraries declined nodes.

    Args:
        graph: the plan's lowered graph.
        name: the model's name.
        others: whether to search for a change that would remove each Transform, with a progress
            display on standard error.
    """
    rows = explain_transforms(graph)
    if others and rows:
        by_transform = _alternatives(graph, len(rows))
        rows = [row | by_transform.get(row["node"], {}) for row in rows]
    moved, total = sum(row["bytes"] for row in rows), bytes_of_a_run(graph)
    return {
        "model": name,
        "passes": list(graph.passes),
        "rewritten": dict(graph.rewritten),
        "certificate": certificate_dict(graph.certificate),
        "transforms": rows,
        "added": [
            {"node": node.name, "operator": node.op_name, "text": graph.notes[node.name]}
            for step in graph.operators
            for node in cast("tuple[OpNode | Node, ...]", (step, *step.followers))
            if node.name in graph.notes
        ],
        "transform_bytes": moved,
        "bytes_of_a_run": total,
        "share": moved / total if total else 0.0,
        "ahead_of_time": sum(1 for _ in graph.ahead()),
        "declined": refusals(graph),
    }


def _alternatives(graph: LoweredGraph, count: int) -> dict[str, dict[str, Any]]:
    nodes = {node.name: node for node in graph.operators}
    rows = {}
    with progress("searching for alternatives") as advance:
        for number, alternative in enumerate(alternatives(graph), 1):
            advance(f"{number} of {count}")
            rows[alternative.transform.name] = alternative_dict(alternative, nodes)
    return rows


def _lines(data: dict[str, Any], certificate: Certificate | None) -> Iterator[Line]:
    moved = f"{data['transform_bytes'] / MEGABYTE:.2f} MB, {data['share']:.1%}"
    yield Line("head", f"{data['model']}: {counted(len(data['transforms']), 'Transform')} a run")
    total = f"{data['bytes_of_a_run'] / MEGABYTE:.2f} MB"
    yield Line("", f"  they read and write {moved} of the {total} that all nodes do")
    yield from rewritten_lines(data["rewritten"])
    yield from certificate_lines(certificate)
    yield Line("note", f"  {data['ahead_of_time']} more of constants, done once while loading")
    yield from (Line("ref", f"  warning: {text}") for text in data["warnings"])
    for row in data["transforms"]:
        yield from _transform_lines(row)
    if data["added"]:
        yield Line("head", "nodes that were added, or that are computed in another type")
    for row in data["added"]:
        yield Line("", f"  {row['node']} ({row['operator']}): {row['text']}")
    if data["declined"]:
        yield Line("head", "libraries that declined")
    for row in data["declined"]:
        count = len(row["nodes"])
        yield Line("", f"  {count} x {row['operator']} by {row['library']}: {row['reason']}")
        yield Line("note", f"      {', '.join(row['nodes'][:8])}{', ...' if count > 8 else ''}")


def _transform_lines(row: dict[str, Any]) -> Iterator[Line]:
    sizes = " ".join(f"{dim}={size}" for dim, size in row["sizes"].items())
    cost = f"{row['bytes'] / MEGABYTE:.2f} MB ({row['share']:.1%})"
    text = f"{row['node']}: {row['source']} -> {row['target']}, {cost} on {row['library']}"
    yield Line("transform", text)
    yield Line("", f"    value     {row['value']} : {row['dtype']} {sizes}")
    producer = row["produced_by"]
    for asked in row["required_by"]:
        if asked["at"]:
            node = f"{asked['operator']} {asked['node']} on {asked['library']}"
            operand, any_layout = f"{asked['operand']}, at {asked['at']}", asked["asked"] == ["ANY"]
            words = "decided   for" if any_layout else "required  by"
            asks = ", which asks for ANY" * any_layout
            yield Line("", f"    {words} {node}, of {operand}{asks}")
        else:
            yield Line("", f"    required  by the caller, as output {asked['node']}")
    kind = producer["operator"] or "input"
    yield Line("", f"    produced  by {kind} {producer['node']}, in {row['source']}")
    if "forbidden_by" in row:
        yield from alternative_lines(row)


def _node_lines(row: dict[str, Any]) -> Iterator[Line]:
    if "operands" not in row:
        yield from _transform_lines(row)
        return
    yield Line("head", f"{row['operator']} {row['node']} runs on {row['library']}")
    if row["merged"]:
        yield Line("note", f"  it does the work of {', '.join(row['merged'])}, too")
    yield from (Line("why", f"  why: {text}") for text in row["notes"])
    if row["ns"] is not None:
        kernel = row["kernel"] or "its library decides"
        yield Line("note", f"  {BASIS_WORDS[row['basis']]}: {row['ns'] / 1e3:.1f} us as {kernel}")
    if row["error"] is not None:
        error, factor, added = (f"{row['error'][key]:.2g}" for key in ("own", "gain", "added"))
        text = f"its error is {error}, amplified {factor} times in the results: {added}"
        yield Line("note", f"  approximate: {text}")
    for operand in row["operands"]:
        sizes = " ".join(f"{dim}={size}" for dim, size in operand["sizes"].items())
        yield Line("", f"  {operand['role']} = {operand['value']} : {operand['dtype']} {sizes}")
        asked = ", ".join(operand["asked"])
        yield Line("", f"      {operand['layout']}; {asked} was asked for at {operand['at']}")
    for refusal in row["declined"]:
        library = f"{refusal['priority']} {refusal['library']}"
        yield Line("ref", f"  declined: {library}: {refusal['reason']}")
    if not row["declined"]:
        yield Line("note", "  no library declined it")
