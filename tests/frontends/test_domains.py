"""ONNX's own domain, which has two names: each node, function and import may have either."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx.parser
import pytest
from onnx import GraphProto, ModelProto, NodeProto

from vtensor import Session
from vtensor.errors import ModelError

X = np.array([[-1, 2, 3], [4, -5, 6]], np.float32)

TEXTS = {
    "plain": """<ir_version: 8, opset_import: ["" : 18]>
        g (float[2, 3] x) => (float[2, 3] y) {
            two = Constant<value_float = 2.0>()
            r = Relu(x)
            y = Mul(r, two)
        }""",
    "shapes": """<ir_version: 8, opset_import: ["" : 18]>
        g (float[n, 3] x) => (float[n, 3] y) {
            s = Shape(x)
            f = Flatten(x)
            y = Reshape(f, s)
        }""",
    "branches": """<ir_version: 8, opset_import: ["" : 18]>
        g (float[2, 3] x, bool c) => (float[2, 3] y) {
            y = If (c) <
                then_branch = then () => (float[2, 3] a) { a = Neg(x) },
                else_branch = else () => (float[2, 3] b) {
                    d = Constant<value_float = 0.5>()
                    h = Mul(x, d)
                    b = Relu(h)
                }
            >
        }""",
    "loop": """<ir_version: 8, opset_import: ["" : 18]>
        g (float[2, 3] x) => (float[2, 3] y) {
            n = Constant<value_int = 3>()
            y = Loop (n, , x) <body = body (int64 i, bool c, float[2, 3] s)
                => (bool d, float[2, 3] t) { d = Identity(c)  u = Relu(s)  t = Add(u, u) }>
        }""",
    "function": """<ir_version: 8, opset_import: ["" : 18, "own" : 1]>
        g (float[2, 3] x) => (float[2, 3] y) { y = own.twice(x) }
        <opset_import: ["" : 18], domain: "own">
        twice (a) => (b) { r = Relu(a)  b = Add(r, r) }""",
    "onnx's function": """<ir_version: 8, opset_import: ["" : 18]>
        g (float[2, 3] x) => (float[2, 3] y) { y = Celu<alpha = 2.0>(x) }""",
    "reference": """<ir_version: 8, opset_import: ["" : 18]>
        g (float[2, 3] x) => (float[2, 3] y) { r = Det(z)  z = Expand(x, s)
            s = Constant<value_ints = [2, 3]>()  m = ReduceMax<keepdims = 0>(x)  y = Add(x, m) }""",
    "before opset 8": """<ir_version: 3, opset_import: ["" : 6]>
        g (float[2, 3] x) => (float[2, 3] y) { t = Relu(x)  y = Add(t, t) }""",
}


def nodes_of(graph: GraphProto) -> list[NodeProto]:
    found = list[NodeProto]()
    for node in graph.node:
        found.append(node)
        for attribute in node.attribute:
            found += nodes_of(attribute.g)
            for inner in attribute.graphs:
                found += nodes_of(inner)
    return found


def nodes(model: ModelProto) -> list[NodeProto]:
    functions = [node for one in model.functions for node in one.node]
    return nodes_of(model.graph) + functions


def long_nodes(model: ModelProto) -> None:
    for node in nodes(model):
        if not node.domain:
            node.domain = "ai.onnx"


def long_imports(model: ModelProto) -> None:
    for entry in (*model.opset_import, *(e for f in model.functions for e in f.opset_import)):
        if not entry.domain:
            entry.domain = "ai.onnx"


def every_other(model: ModelProto) -> None:
    for number, node in enumerate(nodes(model)):
        if not node.domain and number % 2:
            node.domain = "ai.onnx"


def both(model: ModelProto) -> None:
    long_nodes(model)
    long_imports(model)


def twice_imported(model: ModelProto) -> None:
    every_other(model)
    [version] = [one.version for one in model.opset_import if not one.domain]
    model.opset_import.add(domain="ai.onnx", version=version)


WAYS = (long_nodes, long_imports, every_other, both, twice_imported)


def answer(model: ModelProto) -> list[Any]:
    feeds: dict[str, Any] = {"x": X}
    if len(model.graph.input) > 1:
        feeds["c"] = np.array(False)
    with Session(model, cache_dir=None) as session:
        return session.run(None, feeds)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("text", TEXTS)
def test_both_names_are_the_same(text: str, way: Callable[[ModelProto], None]) -> None:
    model = onnx.parser.parse_model(TEXTS[text])
    [wanted] = answer(model)
    way(model)
    before = model.SerializeToString(deterministic=True)
    [found] = answer(model)
    np.testing.assert_array_equal(found, wanted)
    assert model.SerializeToString(deterministic=True) == before  # the caller's stays as it is


def test_a_domain_that_is_not_imported_is_an_error_still() -> None:
    model = onnx.parser.parse_model(TEXTS["plain"])
    for domain in ("ai.onnx.ml", "AI.ONNX", "ai.onnx "):
        model.graph.node[1].domain = domain
        with pytest.raises(ModelError, match="no operator set"):
            answer(model)
