"""What is computed at load is what would have been computed in a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper

from libdesc.registry import registry
from optimizer.integers import decoded
from ptensor.blas import on_one_thread
from tests.export.support import RUNTIME, Array, bare, graph_of
from tests.frontends.support import agree, model, run_once
from tests.libraries.slow import ALL
from tests.operators.tables.cases import CASES
from vtensor import Graph, load_onnx
from vtensor.errors import UnsupportedOperatorError
from vtensor.frontends.export import export
from vtensor.language.operators import OPERATORS

registry()
Way = Callable[[Array, str, ModelProto], Array]
WRITTEN = sorted(name for name in CASES if OPERATORS[name].write)


def expanded(array: Array, name: str, proto: ModelProto) -> Array:
    """Replace a value of a model by a part of an array, broadcast; return the array's new value."""
    part = array[:1] if array.ndim else array
    for key, values in ((f"{name}:part", part), (f"{name}:sizes", np.array(array.shape, "i8"))):
        proto.graph.initializer.append(numpy_helper.from_array(values, key))
    node = helper.make_node("Expand", [f"{name}:part", f"{name}:sizes"], [name])
    proto.graph.node.insert(0, node)
    return np.broadcast_to(part, array.shape)


def filled(array: Array, name: str, proto: ModelProto) -> Array:
    """Replace a value of a model by one number in all places: a view of a single element."""
    element = array.reshape(-1)[:1] if array.size else np.ones(1, array.dtype)
    sizes = numpy_helper.from_array(np.array(array.shape, "i8"), f"{name}:sizes")
    proto.graph.initializer.append(sizes)
    value = numpy_helper.from_array(element)
    node = helper.make_node("ConstantOfShape", [f"{name}:sizes"], [name], value=value)
    proto.graph.node.insert(0, node)
    return np.broadcast_to(element.reshape(()), array.shape)


def fed(graph: Graph, arrays: Mapping[str, Array]) -> tuple[Graph, dict[str, Array]]:
    """Return the one node of a graph with all of its operands as inputs, and their arrays."""
    [node] = graph.nodes.values()
    copy = Graph("fed")
    for name in dict.fromkeys(node.inputs):
        copy.input(name, graph.values[name].dims, graph.values[name].dtype)
    results = copy.add(node.op, *(copy.values[name] for name in node.inputs), name="op")
    for value in results if isinstance(results, tuple) else (results,):
        copy.output(value)
    feeds = {name: arrays.get(name, graph.constants.get(name)) for name in copy.inputs}
    return copy.seal(), {name: np.asarray(array) for name, array in feeds.items()}


def folded(graph: Graph, feeds: Mapping[str, Array], way: Way) -> None:
    """Compare a graph of broadcast constants, which is computed at load, with a run."""
    proto = bare(export(graph, RUNTIME))
    del proto.graph.input[:]
    arrays = {name: way(array, name, proto) for name, array in feeds.items()}
    loaded = decoded(load_onnx(proto))  # integers that stand for numbers are loaded as they are
    assert not loaded.nodes
    copy, operands = fed(graph, arrays)
    # As constants are computed, in the same order of sums.
    expected = on_one_thread(lambda: run_once(copy, operands, threads=1, libraries=["numpy"]))
    for name, want in zip(loaded.outputs.values(), expected, strict=True):
        have = loaded.constants[name]
        assert (have.dtype, have.shape) == (want.dtype, want.shape)
        close = have.astype(np.float64), want.astype(np.float64)  # other orders of summation
        np.testing.assert_allclose(*close, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("way", [expanded, filled])
@pytest.mark.parametrize("name", WRITTEN)
def test_every_operator_on_broadcast_constants(name: str, way: Way) -> None:
    count = 0
    for case in CASES[name]:
        with suppress(UnsupportedOperatorError):  # ONNX has no words for some cases
            folded(*graph_of(case), way)
            count += 1
        if count == (4 if ALL else 2):
            break
    assert count


@pytest.mark.parametrize("axis", [0, 1])
def test_places_among_many_as_exporters_write_token_types(axis: int) -> None:
    text = f"""g (int64[batch, seq] ids) => (int64[batch, seq] y) {{
        n = Shape<start=0, end=1>(ids) sizes = Concat<axis=0>(n, long) types = Expand(buffer, sizes)
        where = Shape(ids) places = Expand(positions, where)
        picked = GatherElements<axis={axis}>(types, places) y = Add(ids, picked) }}"""
    long, positions = (512, [[2, 0, 1]]) if axis else (3, [[0] * 3])
    buffer = np.arange(long).reshape(1, long) % 7
    weights = {"buffer": buffer, "positions": np.array(positions), "long": np.array([long])}
    proto = model(text, **weights)
    for batch in (2, 3, 200):
        agree(proto, {"ids": np.arange(3 * batch).reshape(batch, 3)})
