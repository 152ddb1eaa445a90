"""ONNX's own domain, which has two names: each node, function and import may have either."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from onnx import GraphProto, ModelProto, NodeProto

from tests.frontends.support import Array, model, run_once
from vtensor.errors import ModelError

X = np.array([[-1, 2, 3], [4, -5, 6]], np.float32)
HEADER = '<ir_version: 8, opset_import: ["" : 18]> g (float[2, 3] x) => (float[2, 3] y)'

TEXTS = {
    "plain": f"{HEADER} <float two = {{2}}> {{ r = Relu(x) y = Mul(r, two) }}",
    "constant": f"""{HEADER} {{
        two = Constant<value_float = 2.0>() r = Relu(x) y = Mul(r, two) }}""",
    "shapes": f"""{HEADER.replace("2, 3", "n, 3")} {{
        s = Shape(x) f = Flatten(x) y = Reshape(f, s) }}""",
    "branches": f"""{HEADER.replace(")", ", bool c)", 1)} {{
        y = If(c) < then_branch = then() => (float[2, 3] a) {{ a = Neg(x) }},
                    else_branch = else() => (float[2, 3] b) {{
                        d = Constant<value_float = 0.5>() h = Mul(x, d) b = Relu(h) }} > }}""",
    "loop": f"""{HEADER} {{
        n = Constant<value_int = 3>() y = Loop(n, , x) < body = body(int64 i, bool c, float[2, 3] s)
            => (bool d, float[2, 3] t) {{ d = Identity(c) u = Relu(s) t = Add(u, u) }} > }}""",
    "function": f"""{HEADER.replace("18", '18, "own" : 1')} {{ y = own.twice(x) }}
        <opset_import: ["" : 18], domain: "own">
        twice (a) => (b) {{ r = Relu(a) b = Add(r, r) }}""",
    "onnx's function": f"{HEADER} {{ y = Celu<alpha = 2.0>(x) }}",
    "reference": f"""{HEADER} {{ r = Det(z) z = Expand(x, s) s = Constant<value_ints = [2, 3]>()
        m = ReduceMax<keepdims = 0>(x) y = Add(x, m) }}""",
    "before opset 8": f"""{HEADER.replace("8", "3", 1).replace("18", "6")} {{
        t = Relu(x) y = Add(t, t) }}""",
}


def nodes_of(graph: GraphProto) -> Iterator[NodeProto]:
    """Yield the nodes of a graph and of its bodies."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                yield from nodes_of(body)


def long_nodes(proto: ModelProto, step: int = 1) -> None:
    """Give every node, or every other one, the long name."""
    functions = [node for function in proto.functions for node in function.node]
    for number, node in enumerate([*nodes_of(proto.graph), *functions]):
        if not node.domain and number % step == step - 1:
            node.domain = "ai.onnx"


def long_imports(proto: ModelProto) -> None:
    imports = [proto.opset_import, *(function.opset_import for function in proto.functions)]
    for entry in (entry for entries in imports for entry in entries):
        if not entry.domain:
            entry.domain = "ai.onnx"


def every_other(proto: ModelProto) -> None:
    long_nodes(proto, 2)


def both(proto: ModelProto) -> None:
    long_nodes(proto)
    long_imports(proto)


def twice_imported(proto: ModelProto) -> None:
    every_other(proto)
    [version] = [entry.version for entry in proto.opset_import if not entry.domain]
    proto.opset_import.add(domain="ai.onnx", version=version)


def answer(proto: ModelProto) -> Array:
    c = {"c": np.array(False)} if len(proto.graph.input) > 1 else {}
    [y] = run_once(proto, {"x": X, **c}, cache_dir=None)
    return y


@pytest.mark.parametrize("way", [long_nodes, long_imports, every_other, both, twice_imported])
@pytest.mark.parametrize("text", TEXTS)
def test_both_names_are_the_same(text: str, way: Callable[[ModelProto], None]) -> None:
    proto = model(TEXTS[text])
    expected = answer(proto)
    way(proto)
    before = proto.SerializeToString(deterministic=True)
    np.testing.assert_array_equal(answer(proto), expected)
    assert proto.SerializeToString(deterministic=True) == before  # the caller's stays as it is


def test_a_domain_that_is_not_imported_is_an_error_still() -> None:
    proto = model(TEXTS["constant"])
    for domain in ("ai.onnx.ml", "AI.ONNX", "ai.onnx "):
        proto.graph.node[1].domain = domain
        with pytest.raises(ModelError, match="no operator set"):
            answer(proto)
