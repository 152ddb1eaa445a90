"""Models that are written, checked, and run elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime

from tests.operators.cases import Case
from vtensor import Graph
from vtensor.frontends.export import export
from vtensor.language.dtype import from_numpy

Array = np.ndarray[Any, Any]

#: The newest opset that ONNX has, and the newest that ONNX Runtime takes.
NEWEST, RUNTIME = onnx.defs.onnx_opset_version(), 26


def graph_of(case: Case) -> tuple[Graph, dict[str, Array]]:
    """A graph of one node, and what its inputs are given."""
    graph, feeds, operands = Graph("case"), {}, []
    for index, given in enumerate(case.given()):
        if given.constant:
            operands.append(graph.constant(given.array, given.dims, f"c{index}"))
        else:
            name, dtype = f"x{index}", from_numpy(given.array.dtype)
            operands.append(graph.input(name, given.extents, dtype))
            feeds[name] = np.asarray(given.array)
    made = graph.add(case.op, *operands, name="op")
    for value in made if isinstance(made, tuple) else (made,):
        graph.output(value)
    return graph.seal(), feeds


def checked(graph: Graph, opset: int) -> onnx.ModelProto:
    """The model of a graph, once ONNX's own checker and its shape inference have passed it."""
    model = export(graph, opset)
    onnx.checker.check_model(model, full_check=True)
    return model


def bare(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without the graph's text, so that its nodes alone are read."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.metadata_props[:]
    return copy


def runtime(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """ONNX Runtime's answers."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return [np.asarray(answer) for answer in session.run(None, dict(feeds))]
