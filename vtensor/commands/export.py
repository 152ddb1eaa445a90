"""``vtensor export``: write a model to a new ONNX file, with constants folded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vtensor.commands.given import ValueOption, read_arrays
from vtensor.commands.shared import (
    DebugOption,
    ExternalDataOption,
    JsonOption,
    MaxBytesOption,
    ModelArgument,
    ShapeOption,
    errors,
    graph_of,
    overriding,
    parse_shapes,
    print_json,
)
from vtensor.language.wording import counted


def export(
    model: ModelArgument,
    out: Annotated[Path, typer.Argument(help="The ONNX file to write.", metavar="OUT")],
    opset: Annotated[
        int, typer.Option(help="The opset to write: a version of ONNX's operators, from 17 on.")
    ] = 17,
    shape: ShapeOption = None,
    value: ValueOption = None,
    max_bytes: MaxBytesOption = None,
    external_data_root: ExternalDataOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Write a model to a new ONNX file, with the given sizes fixed and its constants computed."""
    from vtensor.frontends.export import save_onnx
    from vtensor.frontends.onnx import Model

    with errors(debug):
        loaded = Model(model, False, max_bytes=max_bytes, external_data_root=external_data_root)
        arrays, _ = read_arrays(loaded.inputs, None, value, loaded.overridable)
        shapes = {name: array.shape for name, array in arrays.items()} | parse_shapes(shape)
        loaded = overriding(loaded, shapes)
        graph = graph_of(loaded, shapes, arrays)
        save_onnx(graph, out, opset=opset)
        numbers = sum(array.size for array in graph.constants.values())
        if as_json:
            row = {"model": str(out), "opset": opset, "nodes": len(graph.nodes)}
            print_json({**row, "constants": len(graph.constants), "parameters": numbers})
        else:
            size = f"{counted(len(graph.nodes), 'node')}, {counted(int(numbers), 'parameter')}"
            print(f"{out}: opset {opset}, {size}")
