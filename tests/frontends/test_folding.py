"""What is computed at load is what would have been computed in a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from libdesc.onnx_reference.node import OneNode
from libdesc.registry import registry
from ptensor.blas import on_one_thread
from tests.export.support import RUNTIME, Array, bare, graph_of
from tests.frontends.support import agree, model
from tests.operators.cases import CASES
from vtensor import Graph, Session, load_onnx
from vtensor.errors import UnsupportedOperatorError
from vtensor.frontends.export import export
from vtensor.language.operators import OPERATORS

registry()
Way = Callable[[Array, str, ModelProto], Array]
WRITTEN = sorted(name for name in CASES if OPERATORS[name].write)


def expanded(array: Array, name: str, proto: ModelProto) -> Array:
    """Make a value of a model what a part of an array is broadcast to."""
    part = array[:1] if array.ndim else array
    for key, values in ((f"{name}:part", part), (f"{name}:sizes", np.array(array.shape, "i8"))):
        proto.graph.initializer.append(numpy_helper.from_array(values, key))
    node = helper.make_node("Expand", [f"{name}:part", f"{name}:sizes"], [name])
    proto.graph.node.insert(0, node)
    return np.broadcast_to(part, array.shape)


def filled(array: Array, name: str, proto: ModelProto) -> Array:
    """Make a value of a model one number in all places: a view of a single element."""
    element = array.reshape(-1)[:1] if array.size else np.ones(1, array.dtype)
    proto.graph.initializer.append(
        numpy_helper.from_array(np.array(array.shape, "i8"), f"{name}:sizes")
    )
    value = numpy_helper.from_array(element)
    node = helper.make_node("ConstantOfShape", [f"{name}:sizes"], [name], value=value)
    proto.graph.node.insert(0, node)
    return np.broadcast_to(element.reshape(()), array.shape)


def fed(graph: Graph, arrays: Mapping[str, Array]) -> tuple[Graph, dict[str, Array]]:
    """The one node of a graph, all of its operands inputs, and what a run is to be given."""
    [node] = graph.nodes.values()
    made = Graph("fed")
    for name in dict.fromkeys(node.inputs):
        made.input(name, graph.values[name].dims, graph.values[name].dtype)
    results = made.add(node.op, *(made.values[name] for name in node.inputs), name="op")
    for value in results if isinstance(results, tuple) else (results,):
        made.output(value)
    feeds = {name: arrays.get(name, graph.constants.get(name)) for name in made.inputs}
    return made.seal(), {name: np.asarray(array) for name, array in feeds.items()}


def folded(graph: Graph, feeds: Mapping[str, Array], way: Way) -> None:
    """A graph whose inputs are broadcast constants."""
    proto = bare(export(graph, RUNTIME))
    del proto.graph.input[:]
    arrays = {name: way(array, name, proto) for name, array in feeds.items()}
    loaded = load_onnx(proto)
    assert not loaded.nodes
    again, given = fed(graph, arrays)
    with Session(again, threads=1, libraries=["numpy"]) as session:
        # As constants are computed, in the same order of sums.
        expected = on_one_thread(lambda: session.run(None, given))
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
        graph, feeds = graph_of(case)
        with suppress(UnsupportedOperatorError):  # ONNX has no words for some cases
            folded(graph, feeds, way)
            count += 1
        if count == 4:
            break
    assert count


@pytest.mark.parametrize("axis", [0, 1])
def test_places_among_many_as_exporters_write_token_types(axis: int) -> None:
    text = """g (int64[batch, seq] ids) => (int64[batch, seq] y) {
        n = Shape<start=0, end=1>(ids)
        sizes = Concat<axis=0>(n, long)
        types = Expand(buffer, sizes)
        where = Shape(ids)
        places = Expand(positions, where)
        picked = GatherElements<axis=AXIS>(types, places)
        y = Add(ids, picked)
    }"""
    buffer = np.arange(512).reshape(1, 512) % 7
    weights: dict[str, Any] = {
        "buffer": buffer,
        "positions": np.array([[2, 0, 1]]),
        "long": np.array([512]),
    }
    if axis == 0:
        weights |= {"buffer": buffer[:, :3], "positions": np.array([[0] * 3])}
        weights["long"] = np.array([3])
    proto = model(text.replace("AXIS", str(axis)), **weights)
    for batch in (2, 3, 200):
        agree(proto, {"ids": np.arange(3 * batch).reshape(batch, 3)})


@pytest.mark.parametrize(
    ("start", "limit", "delta"),
    [(np.int64(2), 9, 3), (np.int32(5), -4, -2), (np.float32(0.1), 1, 0.3), (np.int64(3), 3, 1)],
)
def test_range_needs_no_evaluator_of_onnx(
    monkeypatch: pytest.MonkeyPatch, start: Any, limit: float, delta: float
) -> None:
    """The evaluator gives the same, and takes a tenth of a second to import."""
    given = [np.asarray(one, start.dtype) for one in (start, limit, delta)]
    node = helper.make_node("Range", ["start", "limit", "delta"], ["y"])
    [want] = ReferenceEvaluator(node).run(None, dict(zip(node.input, given, strict=True)))
    proto = helper.make_model(
        helper.make_graph(
            [node, helper.make_node("Add", ["x", "y"], ["z"])],
            "range",
            [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(start.dtype), [1])],
            [
                helper.make_tensor_value_info(
                    "z", helper.np_dtype_to_tensor_dtype(start.dtype), ["n"]
                )
            ],
            [
                numpy_helper.from_array(one, name)
                for name, one in zip(node.input, given, strict=True)
            ],
        ),
        ir_version=9,
        opset_imports=[helper.make_opsetid("", 17)],
    )
    monkeypatch.delattr(OneNode, "evaluator")
    [found] = load_onnx(proto).constants.values()
    np.testing.assert_array_equal(found, want)
    assert found.dtype == start.dtype
