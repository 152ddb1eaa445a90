"""Control flow that is decided before a run is gone after loading; the rest is refused."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.frontends.support import Array, agree, f32, model, runtime
from vtensor import Session, load_onnx
from vtensor.errors import BudgetError, ModelError, UnsupportedOperatorError, VTensorError
from vtensor.frontends import expansion

BRANCHES = """If(c) <
    then_branch = a() => (float[m] t) { u = Neg(x) t = Mul(u, w) },
    else_branch = b() => (float[k] t) { t = Concat<axis = 0>(x, x) }
>"""
LOOP = """g (float[3] x, int64 n) => (float[3] y, float[m, 3] z) {
    y, z = Loop(n, c, x) < body = b(int64 i, bool d, float[3] s)
        => (bool d, float[3] t, float[3] u) {
        f = Cast<to = 1>(i) t = Add(s, f) u = Mul(t, x)
    } >
}"""


@pytest.mark.parametrize("choice", [True, False])
def test_the_branch_that_is_taken(choice: bool) -> None:
    text = f"g (float[3] x, bool c) => (float[n] y) {{ [if] y = {BRANCHES} }}"
    feeds = {"x": f32(3), "c": np.array(choice)}
    agree(model(text, w=f32(3, seed=1)), feeds)
    graph = load_onnx(model(text, w=f32(3)), values={"c": feeds["c"]})
    operators = {node.op_name for node in graph.nodes.values()}
    assert operators - {"Rename"} == [{"Concat"}, {"Neg", "Mul"}][choice]


def test_a_condition_on_shapes() -> None:
    text = f"g (float[n] x) => (float[m] y) {{ s = Size(x) c = Less(s, four) y = {BRANCHES} }}"
    proto = model(text, w=f32(3, seed=1), four=np.array(4))
    agree(proto, {"x": f32(3)})
    with Session(proto) as session:
        [y] = session.run(None, {"x": f32(5)})
    np.testing.assert_array_equal(y, np.tile(f32(5), 2))


@pytest.mark.parametrize("turns", [1, 4])
def test_a_loop_that_counts(turns: int) -> None:
    agree(model(LOOP, c=np.array(True)), {"x": f32(3), "n": np.array(turns)})


def test_a_loop_without_turns() -> None:
    agree(model(LOOP, c=np.array(False)), {"x": f32(3), "n": np.array(4)})
    proto = model(LOOP.replace("float[3] u", "float[p] u"), c=np.array(False))
    with (
        Session(proto) as session,
        pytest.raises(ModelError, match=r"no iteration, .* no sizes of 'u'"),
    ):
        session.run(None, {"x": f32(3), "n": np.array(4)})


def test_a_loop_that_ends_by_a_condition_that_is_known() -> None:
    text = """g (float[3] x) => (float[3] y) {
        k, y = Loop(, c, zero, x) < body = b(int64 i, bool d, int64 k, float[3] s)
            => (bool e, int64 l, float[3] t) {
            l = Add(k, two) e = Less(l, nine) t = Add(s, x)
        } >
    }"""
    weights = {"zero": np.array(0), "two": np.array(2), "nine": np.array(9), "c": np.array(True)}
    agree(model(text, 17, **weights), {"x": f32(3)})
    assert len(load_onnx(model(text, 17, **weights)).nodes) < 8


@pytest.mark.parametrize("backwards", [0, 1])
def test_a_scan(backwards: int) -> None:
    text = f"""g (float[3] s, float[3, 4] x, float[2, 4] w) => (float[3] f, float[3, 4] y) {{
        f, y = Scan(s, x, w) < num_scan_inputs = 2, scan_input_axes = [1, 1],
            scan_input_directions = [{backwards}, 0], scan_output_axes = [-1],
            scan_output_directions = [{backwards}],
            body = b(float[3] p, float[3] a, float[2] v) => (float[3] q, float[3] r) {{
                m = ReduceSum(v) r = Add(p, a) q = Mul(r, m)
            }} >
    }}"""
    agree(model(text), {"s": f32(3), "x": f32(3, 4, seed=1), "w": f32(2, 4, seed=2)})


def test_loops_inside_of_loops_and_names_are_their_own() -> None:
    text = """g (float[2] x) => (float[2] y) {
        [out] y = Loop(n, , x) < body = b(int64 i, bool d, float[2] s) => (bool d, float[2] t) {
            [in] t = Loop(n, , s) < body = c(int64 j, bool e, float[2] r) => (bool e, float[2] q) {
                p = Neg(x) q = Add(p, r)
            } >
        } >
    }"""
    proto = model(text, n=np.array(3))
    agree(proto, {"x": f32(2)})
    nodes = load_onnx(proto).nodes
    assert len(nodes) >= 18
    assert all(name == "y" or name.startswith("out/") for name in nodes), list(nodes)


def test_a_branch_of_another_rank_than_the_output_declares() -> None:
    text = f"g (float[3] x, bool c) => (float[n] y) {{ y = {BRANCHES} }}"
    proto = model(text.replace("Neg(x) t = Mul(u, w)", "Neg(x) t = Mul(u, w2)"), w2=f32(2, 3))
    with pytest.raises(ModelError, match="'y' is declared with 1 dims, and has 2"):
        load_onnx(proto, values={"c": np.array(True)})


@pytest.mark.parametrize(
    ("text", "weights", "n"),
    [
        (LOOP, {"c": np.array(True)}, 3),
        (
            f"g (float[3] x, bool n) => (float[m] y) {{ c = Not(n) y = {BRANCHES} }}",
            {"w": f32(3)},
            True,
        ),
    ],
    ids=["loop", "if"],
)
def test_changed_bytes(text: str, weights: dict[str, Array], n: int) -> None:
    content = model(text, 17, **weights).SerializeToString()
    for at in range(0, len(content), 11):
        changed = bytearray(content)
        changed[at] ^= 1 << at % 8
        with suppress(VTensorError):
            load_onnx(bytes(changed), values={"n": np.array(n)})


def test_what_data_decides_is_refused_and_says_why() -> None:
    text = "g (float[3] x) => (float[n] y) { m = ReduceMax(x) c = IsNaN(m) [if] y = " + BRANCHES
    with pytest.raises(UnsupportedOperatorError, match="If 'if' : 'c' decides what runs"):
        load_onnx(model(text + "}", w=f32(3)))


#: Loops and the like that data decide: nodes, and what is said of them.
DECIDED_BY_DATA = {
    "condition of the body": (
        """y = Loop(, yes, x) < body = b(int64 i, bool d, float[3] s) => (bool e, float[3] t) {
            t = Add(s, x) m = ReduceSum<keepdims = 0>(t) e = Less(m, ten) } >""",
        "Loop 'Loop:0' : 'Loop:0/0/e' decides what runs",
    ),
    "count and condition": (
        """y = Loop(two, yes, x) < body = b(int64 i, bool d, float[3] s) => (bool e, float[3] t) {
            t = Add(s, x) m = ReduceSum<keepdims = 0>(t) e = Less(m, ten) } >""",
        "Loop 'Loop:0' : 'Loop:0/0/e' decides what runs",
    ),
    "rows that are collected": (
        """z, y = Loop(two, , x) < body = b(int64 i, bool d, float[3] s)
            => (bool e, float[3] t, float[3] u) {
            t = Neg(s) u = Add(t, x) m = ReduceSum<keepdims = 0>(t) e = Less(m, ten) } >""",
        "Loop 'Loop:0' : 'Loop:0/0/e' decides what runs",
    ),
    "condition outside": (
        """m = ReduceSum<keepdims = 0>(x) c = Less(m, ten) y = Loop(two, c, x) <
            body = b(int64 i, bool d, float[3] s) => (bool d, float[3] t) { t = Add(s, x) } >""",
        "Loop 'Loop:2' : 'c' decides what runs",
    ),
    "count": (
        """m = ReduceSum<keepdims = 0>(x) c = Cast<to = 7>(m) y = Loop(c, , x) <
            body = b(int64 i, bool d, float[3] s) => (bool d, float[3] t) { t = Add(s, x) } >""",
        "Loop 'Loop:2' : 'c' decides what runs",
    ),
    "a loop in a loop": (
        """y = Loop(two, , x) < body = a(int64 i, bool d, float[3] s) => (bool d, float[3] t) {
            t = Loop(, yes, s) < body = b(int64 j, bool f, float[3] u) => (bool e, float[3] v) {
                v = Add(u, x) m = ReduceSum<keepdims = 0>(v) e = Less(m, ten) } > } >""",
        "Loop 'Loop:0/0/Loop:[0-9]' .of Loop 'Loop:0'. : .* decides what runs",
    ),
    "sizes": (
        """k = NonZero(x) r = Cast<to = 1>(k) f = Transpose(r)
            y = Scan(f) < num_scan_inputs = 1, body = b(float[1] p) => (float[1] q) {
                q = Neg(p) } >""",
        "NonZero 'NonZero:0' : the sizes of output 0",
    ),
    "sequences": (
        """e = SequenceEmpty<dtype = 1>() f = SequenceInsert(e, x)
            y = ConcatFromSequence<axis = 0>(f)""",
        "SequenceEmpty 'SequenceEmpty:0' : output 0 .'e'. is no tensor",
    ),
}


@pytest.mark.parametrize("name", DECIDED_BY_DATA)
@pytest.mark.parametrize("size", ["3", "n"])
def test_what_data_decide_is_a_typed_error(name: str, size: str) -> None:
    nodes, complaint = DECIDED_BY_DATA[name]
    text = f"g (float[{size}] x) => (float[a] y) {{ {nodes} }}"
    proto = model(text, yes=np.array(True), ten=np.array(10, np.float32), two=np.array(2))
    with (
        pytest.raises(UnsupportedOperatorError, match=complaint),
        Session(proto) as session,
    ):
        session.run(None, {"x": f32(3)})


def test_a_list_that_a_loop_fills_is_a_typed_error() -> None:
    tensors, body_of = helper.make_tensor_value_info, helper.make_tensor_sequence_value_info
    flag, floats = TensorProto.BOOL, TensorProto.FLOAT
    nodes = [
        helper.make_node("Gather", ["x", "i"], ["r"]),
        helper.make_node("SequenceInsert", ["q", "r"], ["p"]),
        helper.make_node("Identity", ["c"], ["d"]),
    ]
    given = [
        tensors("i", TensorProto.INT64, []),
        tensors("c", flag, []),
        body_of("q", floats, None),
    ]
    made = [tensors("d", flag, []), body_of("p", floats, None)]
    outer = [
        helper.make_node("SequenceEmpty", [], ["e"], dtype=floats),
        helper.make_node(
            "Loop", ["n", "", "e"], ["s"], body=helper.make_graph(nodes, "b", given, made)
        ),
        helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0, new_axis=1),
    ]
    count = numpy_helper.from_array(np.array(3), "n")
    x, y = tensors("x", floats, [3, 2]), tensors("y", floats, [3, 2])
    graph = helper.make_graph(outer, "g", [x], [y], [count])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    with pytest.raises(UnsupportedOperatorError, match=r"SequenceEmpty .* is no tensor"):
        Session(proto)


def test_a_loop_whose_condition_follows_from_a_fed_number() -> None:
    text = """g (float[3] x, int64 k) => (float[3] y) {
        j, y = Loop(, yes, k, x) < body = b(int64 i, bool d, int64 u, float[3] s)
            => (bool e, int64 v, float[3] t) {
            v = Sub(u, one) e = Greater(v, zero) t = Add(s, x) } >
    }"""
    proto = model(text, yes=np.array(True), one=np.array(1), zero=np.array(0))
    with Session(proto) as session:
        for turns in (3, 1, 5):
            feeds = {"x": f32(3), "k": np.array(turns)}
            np.testing.assert_allclose(session.run(None, feeds)[0], runtime(proto, feeds)[0])


def test_a_scan_over_what_a_fed_shape_decides() -> None:
    text = """g (float[12] x, int64[2] s) => (float[a, b] y) {
        z = Reshape(x, s) y = Scan(z) < num_scan_inputs = 1,
            body = b(float[k] p) => (float[k] q) { q = Neg(p) } >
    }"""
    with Session(model(text)) as session:
        for shape in ([3, 4], [6, 2], [3, 4]):
            feeds = {"x": f32(12), "s": np.array(shape)}
            np.testing.assert_array_equal(
                session.run(None, feeds)[0], runtime(model(text), feeds)[0]
            )


@pytest.mark.parametrize(
    ("nodes", "complaint"),
    [
        ("y = If(yes) < then_branch = a() => (float[3] t) { t = Neg(x) } >", "no attribute 'else_"),
        (
            "y = If(both) < then_branch = a() => (float[3] t) { t = Neg(x) }, "
            "else_branch = b() => (float[3] t) { t = Relu(x) } >",
            "'both' must be one number: .2,.",
        ),
        (
            "y, z = If(yes) < then_branch = a() => (float[3] t) { t = Neg(x) }, "
            "else_branch = b() => (float[3] t) { t = Relu(x) } >",
            "graph 'a' delivers 1 value, not 2",
        ),
        (
            "y = Loop(both, , x) < body = a(int64 i, bool d, float[3] s) => (bool d, float[3] t) "
            "{ t = Neg(s) } >",
            "'both' must be one number: .2,.",
        ),
        ("y = Loop(two, , x)", "Required attribute 'body' is missing"),
        (
            "y = Scan(x) < num_scan_inputs = 2, body = a(float r) => (float q) { q = Neg(r) } >",
            "scans 2 inputs, and has 1",
        ),
        (
            "y = Scan(x) < num_scan_inputs = 0, body = a(float r) => (float q) { q = Neg(r) } >",
            "scans 0 inputs, and has 1",
        ),
        ("y = Scan(x) < body = a(float r) => (float q) { q = Neg(r) } >", "'num_scan_inputs'"),
        (
            "y = Scan(x) < num_scan_inputs = 1, scan_input_axes = [4], "
            "body = a(float r) => (float q) { q = Neg(r) } >",
            "'x' has no axis 4: .3,.",
        ),
    ],
)
def test_damaged_control_flow_says_what_is_wrong(nodes: str, complaint: str) -> None:
    text = f"g (float[3] x) => (float[a] y) {{ {nodes} }}"
    proto = model(text, yes=np.array(True), both=np.array([1, 1]), two=np.array(2))
    with pytest.raises(ModelError, match=complaint):
        Session(proto)


def test_a_branch_is_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expansion, "MAX_LOOP_NODES", 1)
    text = f"g (float[3] x) => (float[3] y) {{ y = {BRANCHES} }}"
    agree(model(text, c=np.array(True), w=f32(3)), {"x": f32(3)})


def test_a_loop_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expansion, "MAX_LOOP_NODES", 100)
    proto, x = model(LOOP, c=np.array(True)), f32(3)
    for turns, complaint in ((10, None), (10**12, "more than 100 nodes")):
        feeds = {"x": x, "n": np.array(turns)}
        with Session(proto, libraries=["numpy"]) as session:
            if complaint is None:
                np.testing.assert_allclose(session.run(None, feeds)[0], runtime(proto, feeds)[0])
                continue
            with pytest.raises(ModelError, match=complaint):
                session.run(None, feeds)


WEIGHTS_OF_A_BODY = {
    "initializer": "<float[5] w = {1, 2, 3, 4, 5}> { t = Add(s, w) }",
    "node": "{ w = Constant<value = float[5] {1, 2, 3, 4, 5}>() t = Add(s, w) }",
    "attribute": "{ w = Constant<value_floats = [1.0, 2.0, 3.0, 4.0, 5.0]>() t = Add(s, w) }",
}


@pytest.mark.parametrize("how", WEIGHTS_OF_A_BODY)
def test_a_weight_of_a_body_is_held_once(how: str) -> None:
    text = """g (float[5] x) => (float[5] y) {
        y = Loop(n, , x) < body = b(int64 i, bool d, float[5] s) => (bool d, float[5] t) BODY >
    }"""
    proto = model(text.replace("BODY", WEIGHTS_OF_A_BODY[how]), n=np.array(7))
    agree(proto, {"x": f32(5)})
    assert [array.shape for array in load_onnx(proto, max_bytes=30).constants.values()] == [(5,)]


def test_what_every_turn_computes_is_counted() -> None:
    text = """g (float[5] x) => (float[5] y) {
        y = Loop(n, , x) < body = b(int64 i, bool d, float[5] s) => (bool d, float[5] t)
            <float[5] w = {1, 2, 3, 4, 5}> { v = Neg(w) t = Add(s, v) } >
    }"""
    proto = model(text, n=np.array(7))
    load_onnx(proto, max_bytes=20 * 8 + 8 * 8 + 8)
    with pytest.raises(BudgetError, match="beside"):
        load_onnx(proto, max_bytes=20 * 7)
