"""What becomes of a good model: names, order, folding, opsets, symbolic sizes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.frontends.support import Array, agree, f32, model, runtime
from vtensor import Session, load_onnx
from vtensor.errors import InputError, UnsupportedOperatorError
from vtensor.frontends.onnx import Model


def ops(graph: object) -> list[str]:
    """The graph's operators in order."""
    return [node.op_name for node in graph.nodes.values()]  # type: ignore[attr-defined]


def test_all_ways_in_give_the_same_graph(tmp_path: Path) -> None:
    proto = model("g (float[2] x) => (float[2] y) { y = Add(x, w) }", w=f32(2))
    path = tmp_path / "g.onnx"
    onnx.save(proto, path)
    texts = {
        str(load_onnx(source)) for source in (proto, proto.SerializeToString(), path, str(path))
    }
    assert len(texts) == 1


def test_names_of_values_and_nodes() -> None:
    text = """g (float[1, 2, 4, 4] x) => (float[1, 2, 4, 4] out) {
        [conv] a = Conv <pads = [1, 1, 1, 1]> (x, w, b)
        [b] c = Relu(a)
        [again] d = Relu(c)
        [again] e = Relu(d)
        [out] out = Conv <pads = [1, 1, 1, 1]> (e, w, b)
    }"""
    graph = load_onnx(model(text, w=f32(2, 2, 3, 3), b=f32(2)))
    rows = [(node.name, node.op_name, *node.outputs) for node in graph.nodes.values()]
    assert rows == [
        ("conv", "Conv2D", "conv"),
        ("conv:biasadd", "BiasAdd", "a"),
        ("b:1", "Relu", "c"),  # the model has a value b, which is no output of this node
        ("again", "Relu", "d"),
        ("again:1", "Relu", "e"),
        ("out:conv2d", "Conv2D", "out:conv2d"),
        ("out", "BiasAdd", "out"),
    ]
    assert graph.outputs == {"out": "out"}


@pytest.mark.parametrize("name", ["a", "b", "split"])
def test_a_node_of_several_outputs_may_have_the_name_of_any(name: str) -> None:
    text = f"""g (float[1, 6] x) => (float[1, 3] p, float[1, 3] q) {{
        [{name}] a, b = Split <axis = 1> (x, sizes)
        p = Relu(a)
        q = Neg(b)
    }}"""
    made = model(text, sizes=np.array([3, 3]))
    x = f32(1, 6)
    p, q = Session(made).run(None, {"x": x})
    np.testing.assert_array_equal(p, np.maximum(x[:, :3], 0))
    np.testing.assert_array_equal(q, -x[:, 3:])


def test_an_operator_between_may_not_take_a_values_name() -> None:
    text = """g (float[1, 2, 4, 4] n) => (float[1, 2, 4, 4] y) {
        [n] y = Conv <pads = [1, 1, 1, 1]> (n, w, b)
    }"""
    graph = load_onnx(model(text, w=f32(2, 2, 3, 3), b=f32(2)))
    assert [n.name for n in graph.nodes.values()] == ["n:1", "n:1:biasadd"]


def test_nodes_in_any_order() -> None:
    proto = model("g (float[2] x) => (float[2] y) { a = Relu(x) b = Add(a, a) y = Relu(b) }")
    nodes = list(proto.graph.node)[::-1]
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)
    graph = load_onnx(proto)
    assert ops(graph) == ["Relu", "Add", "Relu"]
    agree(model("g (float[2] x) => (float[2] y) { a = Relu(x) y = Add(a, a) }"), {"x": f32(2)})


def test_initializers_may_be_inputs() -> None:
    proto = model("g (float[2] x, float[2] w) => (float[2] y) { y = Add(x, w) }", w=f32(2))
    graph = load_onnx(proto)
    assert (graph.inputs, list(graph.constants)) == (["x"], ["w"])


def test_weights_are_not_copied() -> None:
    proto = model("g (float[2, 3] x) => (float[2, 3] y) { y = Add(x, w) }", w=f32(2, 3))
    loaded = Model(proto)
    first, second = loaded.graph().constants["w"], loaded.graph().constants["w"]
    assert np.shares_memory(first, second)
    assert not first.flags.owndata


def test_constants_of_one_value_do_not_tie_dims_together() -> None:
    text = """g (float[2, 3] x, float[3, 2] z) => (float[2, 3] y, float[3, 2] u) {
        y = Add(x, w) v = Transpose <perm = [0, 1]> (z) u = Mul(v, w2)
    }"""
    proto = model(text, w=f32(1), w2=f32(1))
    for node in proto.graph.node:
        node.input[:] = ["w" if name == "w2" else name for name in node.input]
    del proto.graph.initializer[1]
    graph = load_onnx(proto)
    assert set(graph.values["x"].dims).isdisjoint(graph.values["z"].dims)
    agree(proto, {"x": f32(2, 3), "z": f32(3, 2)})


def test_shared_constant_under_two_names_is_one_array() -> None:
    text = """g (float[1, 2, 3, 3] x) => (float[1, 2, 3, 3] y) {
        a = Conv(x, k, w) y = Add(a, v)
    }"""
    proto = model(text, k=f32(2, 2, 1, 1), w=f32(2))
    proto.graph.node[1].input[1] = "s"
    proto.graph.node.insert(0, helper.make_node("Reshape", ["w", "t"], ["s"]))
    proto.graph.initializer.append(numpy_helper.from_array(np.array([2, 1, 1]), "t"))
    agree(proto, {"x": f32(1, 2, 3, 3)})


@pytest.mark.parametrize("opset", [9, 13, 17])
def test_shape_arithmetic_leaves_nothing_behind(opset: int) -> None:
    axes = "" if opset >= 13 else "<axes = [0]>"
    more = ", zero" if opset >= 13 else ""
    text = f"""g (float[2, 3, 4] x) => (float[n, m] y) {{
        s = Shape(x)
        n = Gather <axis = 0> (s, i0)
        n1 = Unsqueeze {axes} (n{more})
        rest = ConstantOfShape <value = int64[1] {{-1}}> (one)
        target = Concat <axis = 0> (n1, rest)
        y = Reshape(x, target)
    }}"""
    one, zero = np.array([1], np.int64), np.array([0], np.int64)
    weights = {"i0": np.array(0, np.int64), "one": one, "zero": zero}
    graph = load_onnx(model(text, opset, **weights))
    assert ops(graph) == ["Reshape"]
    assert not graph.constants
    assert list(graph.values["y"].dims.values()) == [2, 12]


def test_folding_keeps_to_data_that_is_known() -> None:
    text = """g (float[2] x) => (float[2] y, float[2] z) {
        c = Constant <value = float[2] {1.0, -2.0}> ()
        d = Relu(c)
        y = Add(x, d)
        z = Add(c, d)
    }"""
    proto = model(text)
    graph = load_onnx(proto)
    assert ops(graph) == ["Add"]
    np.testing.assert_array_equal(graph.constants["d"], [1, 0])
    np.testing.assert_array_equal(graph.constants[graph.outputs["z"]], [2, -2])


def test_random_numbers_are_not_constants() -> None:
    text = "g (float[2] x) => (float[2] y) { r = RandomNormal <shape = [2]> () y = Add(x, r) }"
    with pytest.raises(UnsupportedOperatorError, match="RandomNormal"):
        load_onnx(model(text))


def test_a_filled_constant_takes_no_memory() -> None:
    text = "g (float[1] x) => (float[a] y) { c = ConstantOfShape(s) y = Add(x, c) }"
    graph = load_onnx(model(text, s=np.array([1 << 26], np.int64)))
    assert graph.constants["c"].strides == (0,)


@pytest.mark.parametrize(
    ("text", "outputs"),
    [
        ("g (float[2] x) => (float[2] x) { y = Relu(x) }", {"x": "x"}),
        ("g (float[2] x) => (float[2] w) { y = Relu(x) }", {"w": "w"}),
        ("g (float[2] x) => (float[2] y, float[2] x) { y = Relu(x) }", {"y": "y", "x": "x"}),
        ("g (float[2] x) => (float[2] y) { y = Dropout(x) }", {"y": "y"}),
        ("g (float[2] x) => (float[2] y) { y, mask = Dropout(x) }", {"y": "y"}),
    ],
)
def test_outputs(text: str, outputs: dict[str, str]) -> None:
    graph = load_onnx(model(text, w=f32(2)))
    assert graph.outputs == outputs


def test_functions_are_inlined() -> None:
    text = """
        <ir_version: 8, opset_import: ["" : 17, "local" : 1]>
        g (float[2] x) => (float[2] y) { y = local.twice(x) }
        <domain: "local", opset_import: ["" : 17]>
        twice (a) => (b) { b = Add(a, a) }
    """
    assert ops(load_onnx(onnx.parser.parse_model(text))) == ["Add"]


def test_known_opset_differences() -> None:
    body = "g (float[2, 3, 4] x) => (float[2, 3, 4] y) { y = Softmax <axis = 1> (x) }"
    x = f32(2, 3, 4)
    for opset in (11, 13):
        agree(model(body, opset), {"x": x})
    old, new = (load_onnx(model(body, opset)).nodes["Softmax:0"].op for opset in (11, 13))
    assert old != new


@pytest.mark.parametrize("opset", [11, 13])
def test_squeeze_takes_axes_both_ways(opset: int) -> None:
    if opset < 13:
        proto = model("g (float[1,2,1] x) => (float[1,2] y) { y = Squeeze <axes = [2]> (x) }", 11)
    else:
        axes = np.array([-1], np.int64)
        proto = model("g (float[1,2,1] x) => (float[1,2] y) { y = Squeeze(x, a) }", 13, a=axes)
    agree(proto, {"x": f32(1, 2, 1)})


TRICKY = {
    "x + x^T": "g (float[3, 3] x) => (float[3, 3] y) { t = Transpose(x) y = Add(x, t) }",
    "x^T + x": "g (float[3, 3] x) => (float[3, 3] y) { t = Transpose(x) y = Add(t, x) }",
    "x x": "g (float[3, 3] x) => (float[3, 3] y) { y = MatMul(x, x) }",
    "x x^T": "g (float[3, 3] x) => (float[3, 3] y) { t = Transpose(x) y = MatMul(x, t) }",
    "x^T x": "g (float[3, 3] x) => (float[3, 3] y) { t = Transpose(x) y = MatMul(t, x) }",
    "x x x": "g (float[3, 3] x) => (float[3, 3] y) { t = MatMul(x, x) y = MatMul(t, x) }",
    "Gram matrix and x": """g (float[3, 3] x) => (float[3, 3] y) {
        t = Transpose(x) m = MatMul(x, t) s = Add(m, x) y = MatMul(s, t)
    }""",
    "batched": "g (float[2, 3, 4] x, float[4, 5] z) => (float[2, 3, 5] y) { y = MatMul(x, z) }",
    "left of a batch": """g (float[3, 4] x, float[2, 4, 5] z) => (float[2, 3, 5] y) {
        y = MatMul(x, z)
    }""",
    "attention": """g (float[2, 3, 4] q, float[2, 3, 4] k) => (float[2, 3, 4] y) {
        t = Transpose <perm = [0, 2, 1]> (k) s = MatMul(q, t) p = Softmax <axis = -1> (s)
        y = MatMul(p, k)
    }""",
    "self-attention": """g (float[2, 3, 3] q) => (float[2, 3, 3] y) {
        t = Transpose <perm = [0, 2, 1]> (q) s = MatMul(q, t) p = Softmax <axis = -1> (s)
        r = Add(p, q) y = MatMul(r, q)
    }""",
    "broadcast": "g (float[2, 3, 4] x, float[3, 1] z) => (float[2, 3, 4] y) { y = Add(x, z) }",
    "broadcast left": "g (float[1, 4] x, float[3, 1] z) => (float[3, 4] y) { y = Mul(x, z) }",
    "diagonal broadcast": """g (float[3, 3] x, float[3] z) => (float[3, 3] y) {
        t = Transpose(x) s = Add(x, t) u = Add(s, z) y = MatMul(u, s)
    }""",
    "scalar": "g (float[2, 3] x) => (float[2, 3] y) { y = Mul(one, x) }",
    "Gemm": """g (float[4, 2] x, float[3, 4] z) => (float[2, 3] y) {
        y = Gemm <transA = 1, transB = 1> (x, z, row)
    }""",
    "channels last": """g (float[1, 4, 4, 2] x) => (float[1, 4, 4, 2] y) {
        t = Transpose <perm = [0, 3, 1, 2]> (x) r = MaxPool <kernel_shape = [1, 1]> (t)
        u = Transpose <perm = [0, 2, 3, 1]> (r) y = Add(u, x)
    }""",
    "image turned": """g (float[1, 2, 4, 4] x) => (float[1, 2, 4, 4] y) {
        t = Transpose <perm = [0, 1, 3, 2]> (x) r = Conv(t, w) s = Conv(x, w) y = Add(r, s)
    }""",
    "channels turned": """g (float[2, 2, 2, 2] x) => (float[2, 2, 2, 2] y) {
        t = Transpose <perm = [3, 2, 1, 0]> (x) r = Conv(t, w) s = Conv(x, w)
        m = Add(r, s) n = Add(m, x) y = Conv(n, w)
    }""",
    "flattened": """g (float[2, 3, 4] x) => (float[2, 2] y) {
        f = Flatten(x) y = MatMul(f, tall)
    }""",
    "output transposed": "g (float[2, 3] x) => (float[3, 2] y) { y = Transpose(x) }",
}


@pytest.mark.parametrize("text", TRICKY.values(), ids=TRICKY)
def test_names_never_change_values(text: str) -> None:
    weights: dict[str, Array] = {
        "one": np.array(3, np.float32),
        "row": f32(3),
        "w": f32(2, 2, 1, 1),
        "tall": f32(12, 2),
    }
    read = {name for node in model(text).graph.node for name in node.input}
    proto = model(text, 17, **{name: w for name, w in weights.items() if name in read})
    feeds = {}
    for index, value in enumerate(proto.graph.input):
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        feeds[value.name] = f32(*shape, seed=index)
    agree(proto, feeds)


@pytest.mark.parametrize("seed", range(40))
def test_names_never_change_values_of_random_networks(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lines, known = [], ["x", "z"]
    for index in range(rng.integers(2, 9)):
        a, b = rng.choice(known, 2)
        call = rng.choice(
            [
                f"Transpose <perm = [0, 2, 1]> ({a})",
                f"Transpose <perm = [{', '.join(map(str, rng.permutation(3)))}]> ({a})",
                f"MatMul({a}, {b})",
                f"Add({a}, {b})",
                f"Mul({a}, row)",
                f"MatMul({a}, square)",
                f"Softmax <axis = {rng.integers(3)}> ({a})",
                f"Relu({a})",
            ]
        )
        known.append(f"v{index}")
        lines.append(f"v{index} = {call}")
    text = f"g (float[3,3,3] x, float[3,3,3] z) => (float[3,3,3] {known[-1]}, float[3,3,3] v0)"
    text = text.replace(", float[3,3,3] v0)", ")") if known[-1] == "v0" else text
    proto = model(f"{text} {{ {' '.join(lines)} }}", row=f32(3), square=f32(3, 3))
    agree(proto, {"x": f32(3, 3, 3), "z": f32(3, 3, 3, seed=1)})


def test_renames_only_where_they_are_needed() -> None:
    assert ops(load_onnx(model(TRICKY["batched"]))) == ["MatMul"]
    assert ops(load_onnx(model(TRICKY["x + x^T"]))).count("Add") == 1
    assert ops(load_onnx(model(TRICKY["broadcast"]))) == ["Add"]
    assert "Rename" in ops(load_onnx(model(TRICKY["x x"])))


SYMBOLIC = """g (float[batch, 3, side, side] x) => (float[batch, n] y) {
    c = Conv <pads = [1, 1, 1, 1]> (x, w)
    r = Relu(c)
    p = GlobalAveragePool(r)
    s = Shape <end = 2> (p)
    y = Reshape(p, s)
}"""


def test_symbolic_sizes() -> None:
    loaded = Model(model(SYMBOLIC, w=f32(5, 3, 3, 3)))
    assert loaded.inputs == {"x": ("f32", (None, 3, None, None))}
    assert not loaded.static
    [port], [answer] = loaded.ports()
    assert (port.shape, port.dims) == ((None, 3, None, None), ("N", "C", "H", "W"))
    assert len(answer.dims) == len(answer.shape) == 2
    for batch, side in ((1, 4), (3, 7)):
        graph = loaded.graph({"x": (batch, 3, side, side)})
        assert tuple(graph.values["x"].dims) == port.dims
        assert graph.values[graph.outputs["y"]].dims == dict(
            zip(answer.dims, (batch, 5), strict=True)
        )


def test_symbolic_sizes_run() -> None:
    proto = model(SYMBOLIC, w=f32(5, 3, 3, 3))
    with Session(proto, libraries=["numpy"]) as session:
        for batch, side in ((1, 4), (3, 7)):
            x = f32(batch, 3, side, side)
            [y] = session.run(None, {"x": x})
            np.testing.assert_allclose(y, runtime(proto, {"x": x})[0], rtol=1e-5)


def test_symbols_are_shared_between_inputs() -> None:
    text = "g (float[n, 3] x, float[n, 3] z) => (float[n, 3] y) { y = Add(x, z) }"
    graph = load_onnx(model(text), shapes={"x": (np.int64(4), 3)})
    assert list(graph.values["z"].dims.values()) == [4, 3]
    conflict = "input 'z': n is 5 here and 4 in input 'x'"
    with pytest.raises(InputError, match=conflict):
        load_onnx(model(text), shapes={"x": (4, 3), "z": (5, 3)})
    with Session(model(text)) as session:
        assert [port.shape for port in session.inputs] == [(None, 3)] * 2
        with pytest.raises(InputError, match=conflict):
            session.run(None, {"x": f32(4, 3), "z": f32(5, 3)})
        [y] = session.run(None, {"x": f32(4, 3), "z": f32(4, 3)})
        np.testing.assert_array_equal(y, 2 * f32(4, 3))


@pytest.mark.parametrize("name", ["?", "*", "-1", "None", "none", "unknown", "UNK", "__", ""])
def test_sizes_without_a_name_are_each_their_own(name: str) -> None:
    proto = model(
        "g (float[a, 3] x, float[b, 3] z) => (float[c, 3] y) { y = Concat<axis=0>(x, z) }"
    )
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = name
    agree(proto, {"x": f32(2, 3), "z": f32(5, 3)})
    with pytest.raises(InputError, match=r"'z' has symbolic sizes \(\?, 3\)"):
        load_onnx(proto, shapes={"x": (2, 3)})


@pytest.mark.parametrize("name", ["n", "unk__7", "batch_size", "None_1", "dynamic_axes_1", "a*b"])
def test_a_name_is_one_size(name: str) -> None:
    proto = model("g (float[n, 3] x, float[n, 3] z) => (float[n, 3] y) { y = Add(x, z) }")
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = name
    with pytest.raises(InputError, match=re.escape(f"input 'z': {name} is 5 here and 2 in")):
        load_onnx(proto, shapes={"x": (2, 3), "z": (5, 3)})
    assert load_onnx(proto, shapes={"x": (2, 3)}).values["z"].size("D0") == 2


ROWS_OF_ONE: dict[str, tuple[str, dict[str, Any]]] = {
    "Clip": ("y = Clip(x, a, b)", {"a": np.array([-0.5], "f4"), "b": np.array([0.5], "f4")}),
    "Clip from below": ("y = Clip(x, a)", {"a": np.array([-0.5], "f4")}),
    "Clip as Relu6": ("y = Clip(x, a, b)", {"a": np.array([0], "f4"), "b": np.array([6], "f4")}),
    "Pad": ("y = Pad(x, p, v)", {"p": np.array([1, 0, 0, 1]), "v": np.array([2], "f4")}),
    "OneHot": (
        "t = Cast<to=7>(x) y = OneHot(t, d, v)",
        {"d": np.array([4]), "v": np.array([0, 1], "f4")},
    ),
    "CumSum": ("y = CumSum(x, k)", {"k": np.array([1])}),
    "Trilu": ("y = Trilu(x, k)", {"k": np.array([1])}),
    "If": (
        """y = If(k) <then_branch = t() => (float[2, 3] o) { o = Neg(x) },
            else_branch = e() => (float[2, 3] o) { o = Abs(x) }>""",
        {"k": np.array([True])},
    ),
    "QuantizeLinear": (
        "q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z)",
        {"s": np.array([0.1], "f4"), "z": np.array([3], "u1")},
    ),
    "Unsqueeze, whose axes are a number": ("y = Unsqueeze(x, k)", {"k": np.array(1)}),
}


@pytest.mark.parametrize("fed", [False, True])
@pytest.mark.parametrize("name", ROWS_OF_ONE)
def test_rows_of_one_that_stand_for_numbers(name: str, fed: bool) -> None:
    body, given = ROWS_OF_ONE[name]
    sizes = "a, b, c" if {"OneHot", "Unsqueeze"} & {name.split(",")[0]} else "a, b"
    proto = model(f"g (float[2, 3] x) => (float[{sizes}] y) {{ {body} }}", **given)
    feeds: dict[str, Array] = {"x": f32(2, 3)}
    for tensor in [t for t in proto.graph.initializer if fed and given[t.name].size == 1]:
        declared = helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        proto.graph.input.append(declared)
        proto.graph.initializer.remove(tensor)
        feeds[tensor.name] = given[tensor.name]
    agree(proto, feeds)


def test_ranges_between_rows_of_one() -> None:
    text = "g (float[1] a, float[1] b, float[1] c) => (float[n] y) { y = Range(a, b, c) }"
    with Session(model(text)) as session:
        given = {"a": np.array([1], "f4"), "b": np.array([7], "f4"), "c": np.array([2], "f4")}
        np.testing.assert_array_equal(session.run(None, given)[0], [1, 3, 5])


def test_bf16_and_integers_pass() -> None:
    kinds = {TensorProto.BFLOAT16: "bf16", TensorProto.INT64: "s64", TensorProto.BOOL: "bool"}
    for kind, name in kinds.items():
        proto = model("g (float[2] x) => (float[2] y) { y = Identity(x) }")
        for value in (proto.graph.input[0], proto.graph.output[0]):
            value.type.tensor_type.elem_type = kind
        assert load_onnx(proto).values["x"].dtype == name
