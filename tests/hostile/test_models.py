"""Models that do not hang together, are made to be slow, or deep."""

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
from vtensor.errors import InputError, ModelError

ADD = "tiny (float[2, 3] x) => (float[2, 3] y) { y = Add(x, w) }"


def broken(change: Callable[[ModelProto, TensorProto, NodeProto], object]) -> ModelProto:
    """A sum, once changed."""
    proto = model(ADD, w=f32(2, 3))
    change(proto, proto.graph.initializer[0], proto.graph.node[0])
    return proto


def sized(tensor: TensorProto, *dims: int) -> None:
    """Declare other sizes."""
    tensor.ClearField("dims")
    tensor.dims.extend(dims)


def typed_field(tensor: TensorProto, field: str, values: Sequence[float]) -> None:
    """Put values into a typed field instead of raw data."""
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
def test_damage(change: Callable[..., object], complaint: str) -> None:
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
def test_an_output_of_another_element_type_than_it_declares(size: str) -> None:
    text = f"g (float[{size}, 3] x) => (int64[{size}, 3] y) {{ y = Relu(x) }}"
    with pytest.raises(ModelError, match=r"'g': output 'y' is declared s64, and what .* is f32"):
        load_onnx(model(text), shapes={"x": (2, 3)})


def test_an_output_of_another_rank_than_it_declares() -> None:
    text = "g (float[2, 3] x, int64[1] a) => (float[2] y) { y = ReduceSum<keepdims = 1>(x, a) }"
    with (
        Session(model(text)) as session,
        pytest.raises(ModelError, match="is declared with 1 dims, and has 2"),
    ):
        session.run(None, {"x": f32(2, 3), "a": np.array([0])})


def test_more_dims_than_numpy_has() -> None:
    text = "g (float[1] x, int64[65] s) => (float[a] y) { y = Expand(x, s) }"
    with pytest.raises(ModelError, match="has 65 dims; 64 are the most"):
        load_onnx(model(text))
    wide = f"g (float[{', '.join('1' * 65)}] x) => (float[1] y) {{ y = Relu(x) }}"
    with pytest.raises(ModelError, match="has 65 dims"):
        load_onnx(model(wide))


def chain(length: int) -> ModelProto:
    """One operator many times."""
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


def test_functions_that_double_each_other() -> None:
    assert len(load_onnx(calling(5, 2, "Relu")).nodes) == 32
    with pytest.raises(ModelError, match="more than 131072 nodes"):
        load_onnx(calling(40, 2, "Relu"))


def test_functions_that_call_themselves() -> None:
    with pytest.raises(
        ModelError, match=r"call themselves: F1, F0, F1|call themselves: F0, F1, F0"
    ):
        load_onnx(calling(2, 1, "F0"))


def test_a_function_that_calls_itself_by_another_name_of_its_domain() -> None:
    proto = calling(1, 1, "F0")
    [function] = proto.functions
    function.domain, function.name = "ai.onnx", "F"
    function.node[0].domain, function.node[0].op_type = "", "F"
    proto.graph.node[0].domain, proto.graph.node[0].op_type = "", "F"
    with pytest.raises(ModelError, match="call themselves: F, F"):
        load_onnx(proto)


def test_a_call_with_more_inputs_than_the_function_has() -> None:
    proto = calling(1, 1, "Relu")
    proto.graph.node[0].input.append(proto.graph.node[0].input[0])
    with pytest.raises(ModelError, match=r"the function takes 1 input$"):
        load_onnx(proto)


def test_an_equation_that_could_be_read_in_many_ways() -> None:
    text = "g (float[2] x) => (float[2] y) { y = Einsum<equation = '" + "aaaa," * 40 + "!'>(x) }"
    with pytest.raises(ModelError, match="equation"):
        load_onnx(model(text.replace("'", '"')))


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
def test_graphs_in_graphs(depth: int) -> None:
    with pytest.raises(ModelError, match=r"delivers no output|no ONNX model"):
        load_onnx(nested(depth))


@pytest.mark.parametrize(
    "node",
    [
        "y = LayerNormalization<axis = 9223372036854775807>(x, w)",
        "y, z = Split<num_outputs = 1>(x)",
        'y = Einsum<equation = "a...b...">(x)',
        'y = Einsum<equation = "ab">(x, x)',
        "y = GatherND<batch_dims = -3>(x, i)",
    ],
)
def test_what_onnx_does_not_survive_does_not_reach_it(node: str) -> None:
    text = f"g (float[2, 2] x, int64[2, 1] i) => (float[a, b] y) {{ {node} }}"
    with pytest.raises(ModelError, match=r"is no axis|it has 2 outputs|none between|is -3"):
        load_onnx(model(text, opset=18, w=f32(2)))


def test_a_long_row_of_integers_is_data() -> None:
    text = "g (float[5, 2] x, int64[6000] i) => (float[a, b] y) { y = Gather(x, i) }"
    proto = model(text)
    x, i = f32(5, 2), np.arange(6000) % 5
    with Session(proto) as session:
        assert session.outputs[0].shape == (6000, 2)
        np.testing.assert_array_equal(session.run(None, {"x": x, "i": i})[0], x[i])
    with pytest.raises(ModelError):
        load_onnx(model(text.replace("6000", "2000000000").replace("Gather", "Expand")))


@pytest.mark.parametrize("shapes", [3, {"x": 3}, {"x": (2**70, 3)}, {"x": ("2", 3)}, {"x": "23"}])
def test_shapes_that_are_none_are_refused(shapes: Any) -> None:
    with pytest.raises(InputError, match=r"shapes=|not a sequence of sizes|is no size"):
        load_onnx(model("g (float[n, 3] x) => (float[n, 3] y) { y = Neg(x) }"), shapes=shapes)


def test_text_that_is_none() -> None:
    proto = model('g (float[2] x) => (float[a] y) { y = Einsum<equation = "a->a">(x) }')
    proto.graph.node[0].attribute[0].s = b"\xc3\xa9->\xc3\xa9"
    with pytest.raises(ModelError, match="no plain text"):
        load_onnx(proto)
