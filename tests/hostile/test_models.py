"""Models that do not hang together, are slow or deep, or whose operators cannot take their data."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

from tests.frontends.support import f32, model
from vtensor import Session, load_onnx
from vtensor.errors import DimError, InputError, InvokerError, ModelError, VTensorError
from vtensor.language.tensor import VTensor

ADD = "tiny (float[2, 3] x) => (float[2, 3] y) { y = Add(x, w) }"


def broken(change: Callable[[ModelProto, TensorProto, NodeProto], object]) -> ModelProto:
    """A sum, once changed."""
    proto = model(ADD, w=f32(2, 3))
    change(proto, proto.graph.initializer[0], proto.graph.node[0])
    return proto


def sized(tensor: TensorProto, *dims: int) -> None:
    tensor.ClearField("dims")
    tensor.dims.extend(dims)


def typed_field(tensor: TensorProto, field: str, values: Sequence[float]) -> None:
    tensor.ClearField("raw_data")
    getattr(tensor, field).extend(values)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda p, w, n: sized(w, -2, -3), "negative size"),
        (lambda p, w, n: sized(w, 2**33, 2**33), "cannot be read"),
        (lambda p, w, n: sized(w, 2**40), "cannot be read"),
        (lambda p, w, n: sized(w, *[1] * 70, 2, 3), "cannot be read"),
        (lambda p, w, n: setattr(w, "raw_data", w.raw_data + b"1"), "cannot be read"),
        (lambda p, w, n: setattr(w, "raw_data", b""), "cannot be read"),
        (lambda p, w, n: typed_field(w, "float_data", [1.0, 2.0]), "cannot be read"),
        (lambda p, w, n: typed_field(w, "int64_data", [1] * 6), "cannot be read"),
        (lambda p, w, n: setattr(w, "data_type", 99), "cannot be read"),
        (lambda p, w, n: setattr(w, "name", "other"), "'w', which is defined nowhere"),
        (lambda p, w, n: p.graph.initializer.append(w), "two initializers are called 'w'"),
        (lambda p, w, n: n.input.append("x"), "not as ONNX defines it"),
        (lambda p, w, n: n.output.append("z"), "not as ONNX defines it"),
        (lambda p, w, n: n.ClearField("input"), "not as ONNX defines it"),
        (lambda p, w, n: n.ClearField("output"), "'y' is defined nowhere"),
        (lambda p, w, n: setattr(w, "data_type", 6), "do not fit"),
        (lambda p, w, n: p.graph.node.append(n), "'y' is defined twice"),
    ],
)
def test_damage_is_refused(change: Callable[..., object], complaint: str) -> None:
    with pytest.raises(ModelError, match=complaint):
        load_onnx(broken(change))


def test_what_an_output_declares_is_not_believed() -> None:
    proto = broken(lambda p, w, n: None)
    proto.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 7
    x = f32(2, 3)
    with Session(proto) as session:
        assert session.outputs[0].shape == (2, 3)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], x + f32(2, 3))


@pytest.mark.parametrize("size", ["2", "n"])
def test_an_output_of_another_element_type_than_it_declares_is_refused(size: str) -> None:
    text = f"g (float[{size}, 3] x) => (int64[{size}, 3] y) {{ y = Relu(x) }}"
    with pytest.raises(ModelError, match=r"'g': output 'y' is declared s64, and what .* is f32"):
        load_onnx(model(text), shapes={"x": (2, 3)})


def test_an_output_of_another_rank_than_it_declares_is_refused() -> None:
    text = "g (float[2, 3] x, int64[1] a) => (float[2] y) { y = ReduceSum<keepdims = 1>(x, a) }"
    with (
        Session(model(text)) as session,
        pytest.raises(ModelError, match="is declared with 1 dims, and has 2"),
    ):
        session.run(None, {"x": f32(2, 3), "a": np.array([0])})


SMALL = "g (float[2, 2] x, int64[2, 1] i) => (float[a, b] y) "
MANY = "g (float[5, 2] x, int64[6000] i) => (float[a, b] y) { y = Gather(x, i) }"
#: Models that ONNX does not survive, or that would take for ever, and why they are refused.
REFUSED = [
    (
        "g (float[1] x, int64[65] s) => (float[a] y) { y = Expand(x, s) }",
        "65 dims; 64 are the most",
    ),
    (f"g (float[{', '.join('1' * 65)}] x) => (float[1] y) {{ y = Relu(x) }}", "has 65 dims"),
    (SMALL + "{ y = LayerNormalization<axis = 9223372036854775807>(x, w) }", "is no axis"),
    (SMALL + "{ y, z = Split<num_outputs = 1>(x) }", "it has 2 outputs"),
    (SMALL + '{ y = Einsum<equation = "a...b...">(x) }', "none between"),
    (SMALL + '{ y = Einsum<equation = "ab">(x, x) }', "none between"),
    (SMALL + '{ y = Einsum<equation = "' + "aaaa," * 40 + '!">(x) }', "equation"),
    (SMALL + "{ y = GatherND<batch_dims = -3>(x, i) }", "is -3"),
    (MANY.replace("6000", "2000000000").replace("Gather", "Expand"), "."),
]


@pytest.mark.parametrize(("text", "why"), REFUSED)
def test_what_onnx_does_not_survive_does_not_reach_it(text: str, why: str) -> None:
    with pytest.raises(ModelError, match=why):
        load_onnx(model(text, opset=18, w=f32(2)))


def test_a_long_row_of_integers_is_data() -> None:
    x, i = f32(5, 2), np.arange(6000) % 5
    with Session(model(MANY)) as session:
        assert session.outputs[0].shape == (6000, 2)
        np.testing.assert_array_equal(session.run(None, {"x": x, "i": i})[0], x[i])


def chain(length: int) -> ModelProto:
    nodes = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(length)]
    x = helper.make_tensor_value_info("v0", TensorProto.FLOAT, [4])
    y = helper.make_tensor_value_info(f"v{length}", TensorProto.FLOAT, [4])
    graph = helper.make_graph(nodes, "chain", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_a_long_chain_loads_without_recursion_and_in_no_squared_time() -> None:
    begin = time.process_time()
    assert len(load_onnx(chain(6000)).nodes) == 6000
    assert time.process_time() - begin < 60


def test_a_long_chain_runs() -> None:
    x = f32(4)
    with Session(chain(1500), threads=1) as session:
        np.testing.assert_array_equal(session.run(None, {"v0": x})[0], np.maximum(x, 0))


def calling(count: int, calls: int, last: str) -> ModelProto:
    """Functions each of which calls the next one so many times."""
    proto = broken(lambda p, w, n: n.CopyFrom(helper.make_node("F0", ["x"], ["y"], domain="own")))
    opsets = [helper.make_opsetid("own", 1), helper.make_opsetid("", 17)]
    for i in range(count):
        op, domain = (f"F{i + 1}", "own") if i + 1 < count else (last, "own" * (last != "Relu"))
        names = ["a", *(f"t{k}" for k in range(calls - 1)), "b"]
        nodes = [helper.make_node(op, [a], [b], domain=domain) for a, b in pairwise(names)]
        proto.functions.append(helper.make_function("own", f"F{i}", ["a"], ["b"], nodes, opsets))
    proto.opset_import.append(opsets[0])
    return proto


def test_functions_that_double_each_other_are_counted() -> None:
    assert len(load_onnx(calling(5, 2, "Relu")).nodes) == 32
    with pytest.raises(ModelError, match="more than 131072 nodes"):
        load_onnx(calling(40, 2, "Relu"))


def by_another_name() -> ModelProto:
    """A function that calls itself by another name of its domain."""
    proto = calling(1, 1, "F0")
    [function] = proto.functions
    function.domain, function.name = "ai.onnx", "F"
    for node in (function.node[0], proto.graph.node[0]):
        node.domain, node.op_type = "", "F"
    return proto


def of_two_inputs() -> ModelProto:
    """A call with more inputs than the function has."""
    proto = calling(1, 1, "Relu")
    proto.graph.node[0].input.append(proto.graph.node[0].input[0])
    return proto


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: calling(2, 1, "F0"), r"call themselves: (F1, F0, F1|F0, F1, F0)"),
        (by_another_name, "call themselves: F, F"),
        (of_two_inputs, r"the function takes 1 input$"),
    ],
)
def test_calls_that_cannot_be_expanded_are_refused(make: Callable[[], Any], why: str) -> None:
    with pytest.raises(ModelError, match=why):
        load_onnx(make())


def nested(depth: int) -> bytes:
    """A model's bytes with a graph in an attribute in a node in a graph, ..."""
    body = b""
    for _ in range(depth):
        for tag in (0x32, 0x2A, 0x0A):
            body = bytes([tag]) + _varint(len(body)) + body
    head = ModelProto(ir_version=8, opset_import=[helper.make_opsetid("", 17)])
    return bytes(head.SerializeToString()) + b"\x3a" + _varint(len(body)) + body


def _varint(number: int) -> bytes:
    rows = []
    while number > 127:
        rows.append(number & 127 | 128)
        number >>= 7
    return bytes([*rows, number])


@pytest.mark.parametrize("depth", [1, 30, 100, 3000])
def test_graphs_in_graphs_are_refused(depth: int) -> None:
    with pytest.raises(ModelError, match=r"delivers no output|no ONNX model"):
        load_onnx(nested(depth))


@pytest.mark.parametrize("shapes", [3, {"x": 3}, {"x": (2**70, 3)}, {"x": ("2", 3)}, {"x": "23"}])
def test_shapes_that_are_none_are_refused(shapes: Any) -> None:
    with pytest.raises(InputError, match=r"shapes=|not a sequence of sizes|is no size"):
        load_onnx(model("g (float[n, 3] x) => (float[n, 3] y) { y = Neg(x) }"), shapes=shapes)


def test_text_that_is_none_is_refused() -> None:
    proto = model('g (float[2] x) => (float[a] y) { y = Einsum<equation = "a->a">(x) }')
    proto.graph.node[0].attribute[0].s = b"\xc3\xa9->\xc3\xa9"
    with pytest.raises(ModelError, match="no plain text"):
        load_onnx(proto)


# Parameters and data: refused by type, or cut off as ONNX says

Arrays = dict[str, np.ndarray[Any, Any]]

X = f32(1, 2, 5, 5)
LEAST, MOST = -(2**63), 2**63 - 1


def ints(*numbers: int) -> np.ndarray[Any, Any]:
    return np.array(numbers, np.int64)


def run(body: str, **weights: Any) -> np.ndarray[Any, Any]:
    text = f"g (float[1, 2, 5, 5] x) => (float[a, b, c, d] y) {{ {body} }}"
    with Session(model(text, **weights), threads=1) as session:
        return session.run(None, {"x": X})[0]


def test_it_is_good() -> None:
    # The twin of the refusals: the same networks with parameters that are right.
    w = f32(1, 2, 3, 3)
    assert run("y = Conv<strides = [2, 2], pads = [1, 1, 1, 1]>(x, w)", w=w).shape == (1, 1, 3, 3)
    assert run("y = MaxPool<kernel_shape = [5, 5]>(x)").shape == (1, 2, 1, 1)
    assert run("y = Reshape(x, s)", s=ints(5, -1, 2, 1)).shape == (5, 5, 2, 1)
    assert run("y, z = TopK(x, k)", k=ints(5)).shape == X.shape


FAR = 4611686018427387904
ATTRIBUTES = [
    *("strides = [0, 1]", "strides = [-1, 1]", "dilations = [0, 1]", f"dilations = [{FAR}, 1]"),
    *("pads = [-1, 0, 0, 0]", f"pads = [{FAR}, 0, {FAR}, 0]", "pads = [1099511627776, 0, 0, 0]"),
    *("group = 0", "group = -1", "group = 3", "kernel_shape = [7, 7]"),
]


@pytest.mark.parametrize("attributes", ATTRIBUTES)
@pytest.mark.parametrize("op", ["Conv", "ConvTranspose"])
def test_wrong_attributes_of_convolutions_are_refused(op: str, attributes: str) -> None:
    with pytest.raises(VTensorError):
        run(f"y = {op}<{attributes}>(x, w)", w=f32(2, 2, 3, 3))


def test_strides_that_no_kernel_can_count_are_refused() -> None:
    """What a library's own checks refuse is an error of ours that names the node."""
    far = f"strides = [{FAR}, 1], dilations = [{FAR}, 1]"
    with pytest.raises(
        InvokerError, match=r"Conv2D 'Conv:0', eigen invoker \(.*convolution.* overflow"
    ):
        run(f"y = Conv<{far}>(x, w)", w=f32(1, 2, 1, 1))


def test_a_kernel_larger_than_the_padded_input_is_refused() -> None:
    with pytest.raises(VTensorError, match="a window of 7 along H does not fit into 5"):
        run("y = Conv(x, w)", w=f32(1, 2, 7, 7))


WINDOWS = [
    *("kernel_shape = [9, 9]", "kernel_shape = [0, 2]", "kernel_shape = [-2, 2]"),
    "kernel_shape = [2, 2], pads = [-1, 0, 0, 0]",
    "kernel_shape = [2, 2], pads = [1099511627776, 0, 0, 0]",
    "kernel_shape = [2, 2], strides = [0, 1]",
]


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("attributes", WINDOWS)
def test_wrong_attributes_of_pools_are_refused(op: str, attributes: str) -> None:
    with pytest.raises(VTensorError):
        run(f"y = {op}<{attributes}>(x)")


@pytest.mark.parametrize(
    ("body", "weights"),
    [
        ("y = Softmax<axis = 9>(x)", {}),
        ("y = Transpose<perm = [0, 0, 1, 2]>(x)", {}),
        ("y = Transpose<perm = [0, 1]>(x)", {}),
        ("y = Transpose<perm = [-1, 0, 1, 2]>(x)", {}),
        ("y = ReduceSum(x, a)", {"a": ints(1, 1)}),
        ("y = ReduceSum(x, a)", {"a": ints(7)}),
        ("y = ReduceMean<axes = [1, -3]>(x)", {}),
        ("y, z = Split<axis = 3>(x, s)", {"s": ints(2, 2)}),
        ("y, z = Split<axis = 3>(x, s)", {"s": ints(-2, 7)}),
        ("y = Reshape(x, s)", {"s": ints(3, 3)}),
        ("y = Reshape(x, s)", {"s": ints(-1, -1)}),
        ("y = Reshape(x, s)", {"s": ints(2**32, 2**32, 50)}),
        ("y = Slice(x, s, e, a, t)", {"s": ints(0), "e": ints(5), "a": ints(3), "t": ints(0)}),
        ("y = Slice(x, s, e, a)", {"s": ints(0, 0), "e": ints(3, 3), "a": ints(3, 3)}),
        ("y, z = TopK(x, k)", {"k": ints(9)}),
        ("y, z = TopK(x, k)", {"k": ints(-1)}),
        ("y = Pad(x, p)", {"p": ints(0, 0, -9, 0, 0, 0, 0, 0)}),
        ("y = Pad(x, p)", {"p": ints(0, 0, LEAST, 0, 0, 0, 0, 0)}),
        ("y = Pad(x, p)", {"p": ints(0, 0, 2**62, 0, 0, 0, 2**62, 0)}),
        ("y = Concat<axis = 1>(x, w)", {"w": f32(1, 2, 5, 6)}),
        ("y = Concat<axis = 1>(x, w)", {"w": f32(2, 5, 6)}),
        ("y = MatMul(x, w)", {"w": f32(4, 6)}),
        ("y = Gemm(x, w)", {"w": f32(5, 6)}),
        ("y = Gather<axis = 3>(x, i)", {"i": ints(9)}),
        *(
            ("y = Resize(x, , s)", {"s": np.array([1, 1, scale, 1], np.float32)})
            for scale in (0, -1, np.nan, np.inf, 1e9, 1e30)
        ),
    ],
)
def test_wrong_parameters_and_data_are_refused(body: str, weights: Arrays) -> None:
    with pytest.raises(VTensorError):
        run(body, **weights)


@pytest.mark.parametrize(
    ("start", "end", "step"),
    [
        *((LEAST, MOST, 1), (MOST, LEAST, -1), (0, 5, MOST)),
        *((5, 0, LEAST + 1), (MOST, MOST, 1), (-2, MOST, 2)),
    ],
)
def test_slices_end_where_the_tensor_does(start: int, end: int, step: int) -> None:
    y = run("y = Slice(x, s, e, a, t)", s=ints(start), e=ints(end), a=ints(3), t=ints(step))
    # NumPy counts from -1 where ONNX means the first: an end before all is None there.
    stop = None if end == LEAST else end
    np.testing.assert_array_equal(y, X[..., slice(start, stop, step)])


def test_negative_pads_crop() -> None:
    y = run("y = Pad(x, p)", p=ints(0, 0, -1, -2, 0, 0, 0, 1))
    np.testing.assert_array_equal(y, np.pad(X[:, :, 1:, 2:], [(0, 0)] * 3 + [(0, 1)]))


INDEXED: dict[str, tuple[str, Arrays]] = {
    "Gather": ("float[4] x, int64[2] i", {}),
    "GatherElements": ("float[4] x, int64[2] i", {}),
    "GatherND": ("float[4] x, int64[2, 1] i", {}),
    "ScatterElements": ("float[4] x, int64[2] i, float[2] u", {"u": f32(2)}),
    "ScatterND": ("float[4] x, int64[2, 1] i, float[2] u", {"u": f32(2)}),
}


@pytest.mark.parametrize("op", INDEXED)
@pytest.mark.parametrize("index", [4, -5, MOST, LEAST])
def test_an_index_out_of_range_fails_the_run_and_not_the_plan(op: str, index: int) -> None:
    inputs, more = INDEXED[op]
    names = ", ".join(["x", "i", *more])
    shape = (2, 1) if op.endswith("ND") else (2,)
    feeds = {"x": f32(4), **more}
    with Session(model(f"g ({inputs}) => (float[a] y) {{ y = {op}({names}) }}")) as session:
        with pytest.raises(InputError, match=rf"{op} '\w+:0': eigen:.*index {index} along"):
            session.run(None, {**feeds, "i": ints(1, index).reshape(shape)})
        [y] = session.run(None, {**feeds, "i": ints(1, -1).reshape(shape)})
    expected = f32(4)
    if more:
        expected[[1, -1]] = more["u"]
    np.testing.assert_array_equal(y, expected if more else expected[[1, -1]])


@pytest.mark.parametrize("op", ["Div", "Mod"])
def test_integers_by_zero_do_not_end_the_process(op: str) -> None:
    with Session(model(f"g (int64[3] x, int64[3] i) => (int64[3] y) {{ y = {op}(x, i) }}")) as one:
        [y] = one.run(None, {"x": ints(7, LEAST, 7), "i": ints(0, -1, 2)})
    assert y[2] == (3 if op == "Div" else 1)


def test_a_class_outside_of_one_hot_is_all_off() -> None:
    text = "g (int64[3] i) => (float[3, d] y) { y = OneHot(i, d, v) }"
    with Session(model(text, d=np.array(3), v=np.array([0, 1], np.float32))) as session:
        [y] = session.run(None, {"i": ints(1, 9, -1)})
    np.testing.assert_array_equal(y, [[0, 1, 0], [0, 0, 0], [0, 0, 1]])


def test_a_box_that_spans_the_world_is_refused() -> None:
    text = (
        "g (float[1, 2, 5, 5] x, float[1, 4] b) => (float[r, c, h, w] y)"
        " { y = RoiAlign<output_height = 2, output_width = 2>(x, b, i) }"
    )
    with Session(model(text, i=ints(0)), threads=1) as session:
        boxes = np.array([[0, 0, 4, 4]], np.float32)
        [right] = session.run(None, {"x": X, "b": boxes})
        with pytest.raises(InputError, match=r"RoiAlign '.*a box spans 4e\+09 pixels"):
            session.run(None, {"x": X, "b": boxes * np.float32(1e9)})
        np.testing.assert_array_equal(session.run(None, {"x": X, "b": boxes})[0], right)


def test_a_size_beyond_64_bits_beside_one_of_0_is_refused() -> None:
    for sizes in ({"N": 0, "C": 2**63}, {"N": 2**32, "C": 2**32}):
        with pytest.raises(DimError, match="more bytes than 64 bits can count"):
            VTensor("u8", sizes)
    assert VTensor("u8", {"N": 0, "C": 2**62}).nbytes == 0
