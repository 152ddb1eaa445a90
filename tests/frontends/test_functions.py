"""Operators that ONNX or the model defines as functions, which run by their bodies; and ONNX's own
domain, which has two names: each node, function and import may have either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from onnx import GraphProto, ModelProto, NodeProto

from tests.frontends.support import Array, agree, f32, model, run_once, runtime
from vtensor import load_onnx
from vtensor.errors import ModelError, SegmentsNeededError, UnsupportedOperatorError

ROTARY = """g (float[2, s, 24] q, float[2, s, 4] k) => (float[2, s, 24] y) {
    [turn] y = RotaryEmbedding<num_heads = 3>(q, k, k) }"""
LOSS = """g (float[3, 4] x, int64[3] t) => (float y, float[3, 4] z) {
    [l] y, z = SoftmaxCrossEntropyLoss<ignore_index = 2>(x, t) }"""
CROP = """g (float[2, 3, 4] x, int64[2] s) => (float[a, b, c] y) {
    y = CenterCropPad<axes = [1, 2]>(x, s) }"""
NEGATED = ("g (float[2] x) => (float[2] y) { y = my.f(x) }", "f (a) => (b) { b = Neg(a) }")


def local(graph: str, *functions: str, opset: int = 17) -> ModelProto:
    """Build a model with functions of its own, in the domain ``my``."""
    header = '<ir_version: 9, opset_import: ["" : 17, "my" : 1]>'
    own = f'<domain: "my", opset_import: ["" : {opset}, "my" : 1]>'
    return model("\n".join([header, graph, *(f"{own} {body}" for body in functions)]))


@pytest.mark.parametrize(
    ("text", "opset", "feeds"),
    [
        (ROTARY, 23, {"q": f32(2, 4, 24), "k": f32(2, 4, 4, seed=1)}),
        (LOSS, 13, {"x": f32(3, 4), "t": np.array([0, 2, 3])}),  # its body calls another one
        (CROP, 18, {"x": f32(2, 3, 4), "s": np.array([2, 6])}),
    ],
    ids=["rotary", "loss", "crop"],
)
def test_a_body_gives_what_the_function_says(
    text: str, opset: int, feeds: dict[str, Array]
) -> None:
    agree(model(text, opset), feeds)


def test_nodes_and_values_are_named_after_the_node_that_called() -> None:
    graph = load_onnx(model(ROTARY, 23), shapes={"q": (2, 4, 24), "k": (2, 4, 4)})
    assert len(graph.nodes) > 10
    assert all(node.name.startswith("turn/") for node in graph.nodes.values())
    assert all(name in "qky" or name.startswith("turn/") for name in graph.values)


def test_a_models_own_functions_nest_and_keep_their_attributes_and_opsets() -> None:
    proto = local(
        "g (float[2, 3] x, float[2, 3] a) => (float[2, 3] y, float[2, 3] z) {"
        " [one] y, z = my.outer<alpha = 0.5>(x, a) }",
        "outer <alpha> (a, b) => (c, b) { d = my.inner<alpha : float = @alpha>(b) c = Add(a, d) }",
        # The axes of ReduceSum were an attribute before opset 13, and alpha is LeakyRelu's own.
        "inner <alpha> (x) => (y) { a = LeakyRelu<alpha : float = @alpha>(x)"
        " s = ReduceSum<axes = [1]>(a) y = Sub(a, s) }",
        opset=11,
    )
    x, a = f32(2, 3), f32(2, 3, seed=1)
    leaky = np.where(a < 0, 0.5 * a, a)
    y, z = run_once(proto, {"x": x, "a": a}, libraries=["numpy"])
    np.testing.assert_allclose(y, x + leaky - leaky.sum(1, keepdims=True), rtol=1e-5)
    np.testing.assert_array_equal(z, a)


def test_a_name_inside_never_meets_one_outside() -> None:
    proto = local(
        "g (float[2] b) => (float[2] y) { n = Neg(b) [f] c = my.f(b) y = Sub(n, c) }",
        "f (a) => (y) { b = Exp(a) y = Mul(b, a) }",
    )
    proto.graph.node[0].output[0] = proto.graph.node[2].input[0] = "f/b"
    x = f32(2)
    [y] = run_once(proto, {"b": x}, libraries=["numpy"])
    np.testing.assert_allclose(y, -x - np.exp(x) * x, rtol=1e-6)


def test_the_models_function_comes_before_onnxs_operator() -> None:
    proto = local("g (float[2] x) => (float[2] y) { y = Abs(x) }", "Abs (a) => (b) { b = Neg(a) }")
    proto.functions[0].domain = ""
    np.testing.assert_array_equal(run_once(proto, {"x": f32(2)})[0], -f32(2))


@pytest.mark.parametrize(
    ("nodes", "error", "complaint"),
    [
        (
            "n = RandomNormalLike(a) b = Add(a, n)",
            UnsupportedOperatorError,
            r"here/RandomNormalLike:0 \(of my::f\)",
        ),
        (
            "n = NonZero(a) c = Size(n) d = Cast<to = 1>(c) b = Add(a, d)",
            SegmentsNeededError,
            r"NonZero 'here/NonZero:0' \(of my::f 'here'\) : only a run knows the sizes",
        ),
        (
            "c = Flatten<axis = 0>(a) b = MatMul(c, a)",
            ModelError,
            r"MatMul 'here/MatMul:1' \(of my::f 'here'\)",
        ),
        ("b = Add(a, x)", ModelError, "the function reads 'x', which is defined nowhere"),
    ],
)
def test_an_error_inside_names_the_node_that_called(
    nodes: str, error: type[Exception], complaint: str
) -> None:
    graph = "g (float[3, 3] x) => (float[3, 3] y) { [here] y = my.f(x) }"
    with pytest.raises(error, match=complaint):
        load_onnx(local(graph, f"f (a) => (b) {{ {nodes} }}"), reference=False)


def test_a_version_that_no_operator_set_has() -> None:
    proto = local(*NEGATED)
    proto.functions[0].opset_import[0].version = 2**40
    with pytest.raises(ModelError, match="there is no version 1099511627776 of domain ''"):
        load_onnx(proto)


def test_ranks_that_are_known_late_do_not_stop_a_body() -> None:
    text = """g (float[2, 12] a, int64[n] s) => (float[r, t, u, w] y) {
        q = Reshape(a, s) y = Attention(q, q, q) }"""
    proto, feeds = model(text, 23), {"a": f32(2, 12), "s": np.array([1, 2, 3, 4])}
    [y], [expected] = run_once(proto, feeds), runtime(proto, feeds)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


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
