"""Models that are written, checked, and run elsewhere."""

from __future__ import annotations

import numpy as np
import onnx

from tests.frontends.support import Array, runtime
from tests.operators.tables.cases import Case
from vtensor import Graph
from vtensor.frontends.export import export
from vtensor.language.dtype import from_numpy

__all__ = ["NEWEST", "RUNTIME", "Array", "bare", "checked", "graph_of", "runtime"]

#: The newest opset that ONNX has, and the newest that ONNX Runtime takes.
NEWEST, RUNTIME = onnx.defs.onnx_opset_version(), 26


def graph_of(case: Case) -> tuple[Graph, dict[str, Array]]:
    """Return a graph of one node, and what its inputs are given."""
    graph, feeds, operands = Graph("case"), {}, []
    for index, given in enumerate(case.given()):
        if given.constant:
            operands.append(graph.constant(given.array, given.dims, f"c{index}"))
        else:
            name, dtype = f"x{index}", from_numpy(given.array.dtype)
            operands.append(graph.input(name, given.extents, dtype))
            feeds[name] = np.asarray(given.array)
    results = graph.add(case.op, *operands, name="op")
    for value in results if isinstance(results, tuple) else (results,):
        graph.output(value)
    return graph.seal(), feeds


def checked(graph: Graph, opset: int) -> onnx.ModelProto:
    """Return the model of a graph, once ONNX's checker and shape inference have passed it."""
    model = export(graph, opset)
    onnx.checker.check_model(model, full_check=True)
    return model


def bare(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model without the graph's text, so that its nodes alone are read."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.metadata_props[:]
    return copy
