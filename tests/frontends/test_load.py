"""What becomes of a good model: names, order, folding, opsets, symbolic sizes."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper

from tests.frontends.support import Array, agree, f32, model, run_once, same_as_runtime
from vtensor import Graph, Session, load_onnx
from vtensor.errors import InputError
from vtensor.frontends.onnx import Model


def ops(graph: Graph) -> list[str]:
    """Return the graph's operators in order."""
    return [node.op_name for node in graph.nodes.values()]


def test_weights_are_not_copied() -> None:
    loaded = Model(model("g (float[2, 3] x) => (float[2, 3] y) { y = Add(x, w) }", w=f32(2, 3)))
    first, second = loaded.graph().constants["w"], loaded.graph().constants["w"]
    assert np.shares_memory(first, second)
    assert not first.flags.owndata


def test_names_of_values_and_nodes() -> None:
    text = """g (float[1, 2, 4, 4] x) => (float[1, 2, 4, 4] out) {
        [conv] a = Conv<pads = [1, 1, 1, 1]>(x, w, b)
        [b] c = Relu(a)
        [again] d = Relu(c)
        [again] e = Relu(d)
        [out] out = Conv<pads = [1, 1, 1, 1]>(e, w, b)
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
    text = f"""g (float[1, 6] x) => (float[1, 3] p, float[1, 3] q) <int64[2] sizes = {{3, 3}}> {{
        [{name}] a, b = Split<axis = 1>(x, sizes) p = Relu(a) q = Neg(b) }}"""
    x = f32(1, 6)
    p, q = run_once(model(text), {"x": x})
    np.testing.assert_array_equal(p, np.maximum(x[:, :3], 0))
    np.testing.assert_array_equal(q, -x[:, 3:])


def test_an_operator_between_may_not_take_a_values_name() -> None:
    text = """g (float[1, 2, 4, 4] n) => (float[1, 2, 4, 4] y) {
        [n] y = Conv<pads = [1, 1, 1, 1]>(n, w, b) }"""
    graph = load_onnx(model(text, w=f32(2, 2, 3, 3), b=f32(2)))
    assert [n.name for n in graph.nodes.values()] == ["n:1", "n:1:biasadd"]


def test_nodes_in_any_order() -> None:
    proto = model("g (float[2] x) => (float[2] y) { y = Relu(b) b = Add(a, a) a = Relu(x) }")
    assert ops(load_onnx(proto)) == ["Relu", "Add", "Relu"]


def test_constants_of_one_value_do_not_tie_dims_together() -> None:
    text = """g (float[2, 3] x, float[3, 2] z) => (float[2, 3] y, float[3, 2] u) {
        y = Add(x, w) v = Transpose<perm = [0, 1]>(z) u = Mul(v, w) }"""
    proto = model(text, w=f32(1))
    values = load_onnx(proto).values
    assert set(values["x"].dims).isdisjoint(values["z"].dims)
    agree(proto, {"x": f32(2, 3), "z": f32(3, 2)})


def test_shared_constant_under_two_names_is_one_array() -> None:
    text = """g (float[1, 2, 3, 3] x) => (float[1, 2, 3, 3] y) <int64[3] t = {2, 1, 1}> {
        s = Reshape(w, t) a = Conv(x, k, w) y = Add(a, s) }"""
    agree(model(text, k=f32(2, 2, 1, 1), w=f32(2)), {"x": f32(1, 2, 3, 3)})


@pytest.mark.parametrize("opset", [9, 13, 17])
def test_shape_arithmetic_leaves_nothing_behind(opset: int) -> None:
    unsqueeze = "Unsqueeze(n, zero)" if opset >= 13 else "Unsqueeze<axes = [0]>(n)"
    text = f"""g (float[2, 3, 4] x) => (float[n, m] y)
        <int64 i0 = {{0}}, int64[1] one = {{1}}, int64[1] zero = {{0}}> {{
        s = Shape(x) n = Gather<axis = 0>(s, i0) n1 = {unsqueeze}
        rest = ConstantOfShape<value = int64[1] {{-1}}>(one)
        target = Concat<axis = 0>(n1, rest) y = Reshape(x, target) }}"""
    graph = load_onnx(model(text, opset))
    assert ops(graph) == ["Reshape"]
    assert not graph.constants
    assert list(graph.values["y"].dims.values()) == [2, 12]


def test_folding_keeps_to_data_that_is_known() -> None:
    text = """g (float[2] x) => (float[2] y, float[2] z) {
        c = Constant<value = float[2] {1.0, -2.0}>() d = Relu(c) y = Add(x, d) z = Add(c, d) }"""
    graph = load_onnx(model(text))
    assert ops(graph) == ["Add"]
    np.testing.assert_array_equal(graph.constants["d"], [1, 0])
    np.testing.assert_array_equal(graph.constants[graph.outputs["z"]], [2, -2])


def test_a_filled_constant_takes_no_memory() -> None:
    text = "g (float[1] x) => (float[a] y) { c = ConstantOfShape(s) y = Add(x, c) }"
    graph = load_onnx(model(text, s=np.array([1 << 26], np.int64)))
    assert graph.constants["c"].strides == (0,)


@pytest.mark.parametrize(
    ("outputs", "nodes", "names"),
    [
        ("float[2] x", "y = Relu(x)", "x"),
        ("float[2] w", "y = Relu(x)", "w"),
        ("float[2] y, float[2] x", "y = Relu(x)", "yx"),
        ("float[2] y", "y = Dropout(x)", "y"),
        ("float[2] y", "y, mask = Dropout(x)", "y"),
    ],
)
def test_outputs(outputs: str, nodes: str, names: str) -> None:
    graph = load_onnx(model(f"g (float[2] x) => ({outputs}) {{ {nodes} }}", w=f32(2)))
    assert graph.outputs == {name: name for name in names}


def test_known_opset_differences() -> None:
    protos = [
        model("g (float[2, 3, 4] x) => (float[2, 3, 4] y) { y = Softmax<axis = 1>(x) }", opset)
        for opset in (11, 13)
    ]
    for proto in protos:
        agree(proto, {"x": f32(2, 3, 4)})
    old, new = (load_onnx(proto).nodes["Softmax:0"].op for proto in protos)
    assert old != new
    for node, opset in (("Squeeze<axes = [2]>(x)", 11), ("Squeeze(x, a)", 13)):
        text = f"g (float[1, 2, 1] x) => (float[1, 2] y) <int64[1] a = {{-1}}> {{ y = {node} }}"
        agree(model(text, opset), {"x": f32(1, 2, 1)})


#: Shapes of the inputs and the output, and nodes, of which some give one dim to two axes.
TRICKY = {
    "x + x^T": ("3,3", "3,3", "t = Transpose(x) y = Add(x, t)"),
    "x^T + x": ("3,3", "3,3", "t = Transpose(x) y = Add(t, x)"),
    "x x": ("3,3", "3,3", "y = MatMul(x, x)"),
    "x x^T": ("3,3", "3,3", "t = Transpose(x) y = MatMul(x, t)"),
    "x^T x": ("3,3", "3,3", "t = Transpose(x) y = MatMul(t, x)"),
    "x x x": ("3,3", "3,3", "t = MatMul(x, x) y = MatMul(t, x)"),
    "Gram matrix and x": (
        "3,3",
        "3,3",
        "t = Transpose(x) m = MatMul(x, t) s = Add(m, x) y = MatMul(s, t)",
    ),
    "batched": ("2,3,4 4,5", "2,3,5", "y = MatMul(x, z)"),
    "left of a batch": ("3,4 2,4,5", "2,3,5", "y = MatMul(x, z)"),
    "attention": (
        "2,3,4 2,3,4",
        "2,3,4",
        "t = Transpose<perm=[0,2,1]>(z) s = MatMul(x, t) p = Softmax<axis=-1>(s) y = MatMul(p, z)",
    ),
    "self-attention": (
        "2,3,3",
        "2,3,3",
        "t = Transpose<perm=[0,2,1]>(x) s = MatMul(x, t) p = Softmax<axis=-1>(s) r = Add(p, x)"
        " y = MatMul(r, x)",
    ),
    "broadcast": ("2,3,4 3,1", "2,3,4", "y = Add(x, z)"),
    "broadcast left": ("1,4 3,1", "3,4", "y = Mul(x, z)"),
    "diagonal broadcast": (
        "3,3 3",
        "3,3",
        "t = Transpose(x) s = Add(x, t) u = Add(s, z) y = MatMul(u, s)",
    ),
    "scalar": ("2,3", "2,3", "y = Mul(one, x)"),
    "Gemm": ("4,2 3,4", "2,3", "y = Gemm<transA=1, transB=1>(x, z, row)"),
    "channels last": (
        "1,4,4,2",
        "1,4,4,2",
        "t = Transpose<perm=[0,3,1,2]>(x) r = MaxPool<kernel_shape=[1,1]>(t)"
        " u = Transpose<perm=[0,2,3,1]>(r) y = Add(u, x)",
    ),
    "image turned": (
        "1,2,4,4",
        "1,2,4,4",
        "t = Transpose<perm=[0,1,3,2]>(x) r = Conv(t, w) s = Conv(x, w) y = Add(r, s)",
    ),
    "channels turned": (
        "2,2,2,2",
        "2,2,2,2",
        "t = Transpose<perm=[3,2,1,0]>(x) r = Conv(t, w) s = Conv(x, w)"
        " m = Add(r, s) n = Add(m, x) y = Conv(n, w)",
    ),
    "flattened": ("2,3,4", "2,2", "f = Flatten(x) y = MatMul(f, tall)"),
    "output transposed": ("2,3", "3,2", "y = Transpose(x)"),
}
WEIGHTS = {"one": np.float32(3), "row": f32(3), "w": f32(2, 2, 1, 1), "tall": f32(12, 2)}


def tricky(name: str) -> tuple[ModelProto, dict[str, Array]]:
    """Return a model and its feeds."""
    given, delivered, nodes = TRICKY[name]
    shapes = dict(zip("xz", given.split(), strict=False))
    inputs = ", ".join(f"float[{shape}] {key}" for key, shape in shapes.items())
    used: dict[str, Any] = {
        key: np.asarray(array) for key, array in WEIGHTS.items() if re.search(rf"\b{key}\b", nodes)
    }
    proto = model(f"g ({inputs}) => (float[{delivered}] y) {{ {nodes} }}", **used)
    return proto, {
        key: f32(*map(int, shape.split(",")), seed=seed)
        for seed, (key, shape) in enumerate(shapes.items())
    }


@pytest.mark.parametrize("name", TRICKY)
def test_names_never_change_values(name: str) -> None:
    agree(*tricky(name))


@pytest.mark.parametrize("seed", range(40))
def test_names_never_change_values_of_random_networks(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lines, known = [], ["x", "z"]
    for index in range(rng.integers(2, 9)):
        a, b = rng.choice(known, 2)
        call = rng.choice(
            [
                f"Transpose<perm = [0, 2, 1]>({a})",
                f"Transpose<perm = [{', '.join(map(str, rng.permutation(3)))}]>({a})",
                f"MatMul({a}, {b})",
                f"Add({a}, {b})",
                f"Mul({a}, row)",
                f"MatMul({a}, square)",
                f"Softmax<axis = {rng.integers(3)}>({a})",
                f"Relu({a})",
            ]
        )
        known.append(f"v{index}")
        lines.append(f"v{index} = {call}")
    outputs = ", ".join(f"float[3,3,3] {name}" for name in dict.fromkeys((known[-1], "v0")))
    text = f"g (float[3,3,3] x, float[3,3,3] z) => ({outputs}) {{ {' '.join(lines)} }}"
    proto = model(text, row=f32(3), square=f32(3, 3))
    agree(proto, {"x": f32(3, 3, 3), "z": f32(3, 3, 3, seed=1)})


def test_renames_only_where_they_are_needed() -> None:
    for name, operators in (("batched", ["MatMul"]), ("broadcast", ["Add"])):
        assert ops(load_onnx(tricky(name)[0])) == operators
    assert ops(load_onnx(tricky("x + x^T")[0])).count("Add") == 1
    assert "Rename" in ops(load_onnx(tricky("x x")[0]))


SYMBOLIC = """g (float[batch, 3, side, side] x) => (float[batch, n] y) {
    c = Conv<pads = [1, 1, 1, 1]>(x, w) r = Relu(c) p = GlobalAveragePool(r)
    s = Shape<end = 2>(p) y = Reshape(p, s) }"""


def test_symbolic_sizes() -> None:
    proto = model(SYMBOLIC, w=f32(5, 3, 3, 3))
    loaded = Model(proto)
    assert loaded.inputs == {"x": ("f32", (None, 3, None, None))}
    assert not loaded.static
    [port], [answer] = loaded.ports()
    assert (port.shape, port.dims) == ((None, 3, None, None), ("N", "C", "H", "W"))
    assert len(answer.dims) == len(answer.shape) == 2
    with Session(proto, libraries=["numpy"]) as session:
        for batch, side in ((1, 4), (3, 7)):
            graph = loaded.graph({"x": (batch, 3, side, side)})
            assert tuple(graph.values["x"].dims) == port.dims
            expected = dict(zip(answer.dims, (batch, 5), strict=True))
            assert graph.values[graph.outputs["y"]].dims == expected
            same_as_runtime(session, proto, {"x": f32(batch, 3, side, side)}, 1e-5, 0)


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


def with_sizes_named(name: str, text: str) -> ModelProto:
    """Build a model of two inputs whose first sizes are all called so."""
    proto = model(f"g (float[a, 3] x, float[b, 3] z) => (float[c, 3] y) {{ y = {text}(x, z) }}")
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = name
    return proto


@pytest.mark.parametrize("name", ["?", "*", "-1", "None", "none", "unknown", "UNK", "__", ""])
def test_sizes_without_a_name_are_each_their_own(name: str) -> None:
    proto = with_sizes_named(name, "Concat<axis = 0>")
    agree(proto, {"x": f32(2, 3), "z": f32(5, 3)})
    with pytest.raises(InputError, match=r"'z' has symbolic sizes \(\?, 3\)"):
        load_onnx(proto, shapes={"x": (2, 3)})


@pytest.mark.parametrize("name", ["n", "unk__7", "batch_size", "None_1", "dynamic_axes_1", "a*b"])
def test_a_name_is_one_size(name: str) -> None:
    proto = with_sizes_named(name, "Add")
    with pytest.raises(InputError, match=re.escape(f"input 'z': {name} is 5 here and 2 in")):
        load_onnx(proto, shapes={"x": (2, 3), "z": (5, 3)})
    assert load_onnx(proto, shapes={"x": (2, 3)}).values["z"].size("D0") == 2


IF = """y = If(k) < then_branch = t() => (float[2, 3] o) { o = Neg(x) },
                    else_branch = e() => (float[2, 3] o) { o = Abs(x) } >"""
#: Constants that are rows of one where numbers are meant, or the other way round, and nodes.
ROWS_OF_ONE = [
    ("float[1] a = {-0.5}, float[1] b = {0.5}", "y = Clip(x, a, b)"),
    ("float[1] a = {-0.5}", "y = Clip(x, a)"),
    ("float[1] a = {0}, float[1] b = {6}", "y = Clip(x, a, b)"),
    ("int64[4] p = {1, 0, 0, 1}, float[1] v = {2}", "y = Pad(x, p, v)"),
    ("int64[1] d = {4}, float[2] v = {0, 1}", "t = Cast<to = 7>(x) y = OneHot(t, d, v)"),
    ("int64[1] k = {1}", "y = CumSum(x, k)"),
    ("int64[1] k = {1}", "y = Trilu(x, k)"),
    ("bool[1] k = {1}", IF),
    (
        "float[1] s = {0.1}, uint8[1] z = {3}",
        "q = QuantizeLinear(x,s,z) y = DequantizeLinear(q,s,z)",
    ),
    ("int64 k = {1}", "y = Unsqueeze(x, k)"),
]


@pytest.mark.parametrize("fed", [False, True])
@pytest.mark.parametrize(("constants", "nodes"), ROWS_OF_ONE)
def test_rows_of_one_that_stand_for_numbers(constants: str, nodes: str, fed: bool) -> None:
    sizes = "a, b, c" if "OneHot" in nodes or "Unsqueeze" in nodes else "a, b"
    proto = model(f"g (float[2, 3] x) => (float[{sizes}] y) <{constants}> {{ {nodes} }}")
    feeds: dict[str, Array] = {"x": f32(2, 3)}
    for tensor in [*proto.graph.initializer] if fed else []:
        array = numpy_helper.to_array(tensor)
        if array.size == 1:
            declared = helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            proto.graph.input.append(declared)
            proto.graph.initializer.remove(tensor)
            feeds[tensor.name] = array
    agree(proto, feeds)


def test_ranges_between_rows_of_one() -> None:
    text = "g (float[1] a, float[1] b, float[1] c) => (float[n] y) { y = Range(a, b, c) }"
    feeds = {name: np.array([n], np.float32) for name, n in (("a", 1), ("b", 7), ("c", 2))}
    np.testing.assert_array_equal(run_once(model(text), feeds)[0], [1, 3, 5])
