"""Control flow that is decided before a run is gone after loading; the rest is refused."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.frontends.support import Array, agree, f32, model, run_once, same_as_runtime
from tests.libraries.processes import printed
from vtensor import Session, load_onnx
from vtensor.errors import (
    BudgetError,
    EdgesNeeded,
    ModelError,
    UnsupportedOperatorError,
    VTensorError,
)
from vtensor.frontends import expansion

BRANCHES = """If(c) <
    then_branch = a() => (float[m] t) { u = Neg(x) t = Mul(u, w) },
    else_branch = b() => (float[k] t) { t = Concat<axis = 0>(x, x) }
>"""
LOOP = """g (float[3] x, int64 n) => (float[3] y, float[m, 3] z) <bool c = {1}> {
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
    np.testing.assert_array_equal(run_once(proto, {"x": f32(5)})[0], np.tile(f32(5), 2))


@pytest.mark.parametrize("turns", [1, 4])
def test_a_loop_that_counts(turns: int) -> None:
    agree(model(LOOP), {"x": f32(3), "n": np.array(turns)})


def test_a_loop_without_turns() -> None:
    never, feeds = LOOP.replace("c = {1}", "c = {0}"), {"x": f32(3), "n": np.array(4)}
    agree(model(never), feeds)
    with pytest.raises(ModelError, match=r"no iteration, .* no sizes of 'u'"):
        run_once(model(never.replace("float[3] u", "float[p] u")), feeds)


def test_a_loop_that_ends_by_a_condition_that_is_known() -> None:
    text = """g (float[3] x) => (float[3] y)
        <bool c = {1}, int64 zero = {0}, int64 two = {2}, int64 nine = {9}> {
        k, y = Loop(, c, zero, x) < body = b(int64 i, bool d, int64 k, float[3] s)
            => (bool e, int64 l, float[3] t) {
            l = Add(k, two) e = Less(l, nine) t = Add(s, x) } > }"""
    agree(model(text), {"x": f32(3)})
    assert len(load_onnx(model(text)).nodes) < 8


@pytest.mark.parametrize("backwards", [0, 1])
def test_a_scan(backwards: int) -> None:
    text = f"""g (float[3] s, float[3, 4] x, float[2, 4] w) => (float[3] f, float[3, 4] y) {{
        f, y = Scan(s, x, w) < num_scan_inputs = 2, scan_input_axes = [1, 1],
            scan_input_directions = [{backwards}, 0], scan_output_axes = [-1],
            scan_output_directions = [{backwards}],
            body = b(float[3] p, float[3] a, float[2] v) => (float[3] q, float[3] r) {{
                m = ReduceSum(v) r = Add(p, a) q = Mul(r, m) }} > }}"""
    agree(model(text), {"s": f32(3), "x": f32(3, 4, seed=1), "w": f32(2, 4, seed=2)})


def test_loops_inside_of_loops_and_names_are_their_own() -> None:
    text = """g (float[2] x) => (float[2] y) <int64 n = {3}> {
        [out] y = Loop(n, , x) < body = b(int64 i, bool d, float[2] s) => (bool d, float[2] t) {
            [in] t = Loop(n, , s) < body = c(int64 j, bool e, float[2] r) => (bool e, float[2] q) {
                p = Neg(x) q = Add(p, r) } > } > }"""
    proto = model(text)
    agree(proto, {"x": f32(2)})
    nodes = load_onnx(proto).nodes
    assert len(nodes) >= 18
    assert all(name == "y" or name.startswith("out/") for name in nodes), list(nodes)


def test_a_branch_of_another_rank_than_the_output_declares() -> None:
    text = f"g (float[3] x, bool c) => (float[n] y) {{ y = {BRANCHES} }}"
    with pytest.raises(ModelError, match="'y' is declared with 1 dims, and has 2"):
        load_onnx(model(text, w=f32(2, 3)), values={"c": np.array(True)})


NEGATED = f"g (float[3] x, bool n) => (float[m] y) {{ c = Not(n) y = {BRANCHES} }}"


@pytest.mark.parametrize(
    ("text", "weights", "n"),
    [(LOOP, {}, np.array(3)), (NEGATED, {"w": f32(3)}, np.array(True))],
    ids=["loop", "if"],
)
def test_changed_bytes(text: str, weights: dict[str, Array], n: Array) -> None:
    content = model(text, **weights).SerializeToString()
    for at in range(0, len(content), 11):
        changed = bytearray(content)
        changed[at] ^= 1 << at % 8
        with suppress(VTensorError):
            load_onnx(bytes(changed), values={"n": n})


def test_what_data_decides_is_refused_and_says_why() -> None:
    text = f"""g (float[3] x) => (float[n] y) {{
        m = ReduceMax(x) c = IsNaN(m) [if] y = {BRANCHES} }}"""
    with pytest.raises(UnsupportedOperatorError, match="If 'if' : 'c' decides what runs"):
        load_onnx(model(text, w=f32(3)))


#: A condition that the body computes.
UNTIL = "m = ReduceSum<keepdims = 0>(t) e = Less(m, ten)"
ADDED = "body = b(int64 i, bool d, float[3] s) => (bool d, float[3] t) { t = Add(s, x) }"

#: Loops that data decide.
DECIDED_BY_DATA = {
    "condition of the body": f"""y = Loop(, yes, x) < body = b(int64 i, bool d, float[3] s)
        => (bool e, float[3] t) {{ t = Add(s, x) {UNTIL} }} >""",
    "count and condition": f"""y = Loop(two, yes, x) < body = b(int64 i, bool d, float[3] s)
        => (bool e, float[3] t) {{ t = Add(s, x) {UNTIL} }} >""",
    "rows that are collected": f"""z, y = Loop(two, , x) < body = b(int64 i, bool d, float[3] s)
        => (bool e, float[3] t, float[3] u) {{ t = Neg(s) u = Add(t, x) {UNTIL} }} >""",
    "condition outside": f"""m = ReduceSum<keepdims = 0>(x) c = Less(m, ten)
        y = Loop(two, c, x) < {ADDED} >""",
    "count": f"""m = ReduceSum<keepdims = 0>(x) c = Cast<to = 7>(m)
        y = Loop(c, , x) < {ADDED} >""",
    "no turn": """m = ReduceSum<keepdims = 0>(x) c = Less(ten, m) z, y = Loop(two, c, x)
        < body = b(int64 i, bool d, float[3] s) => (bool d, float[3] s, float[3] s) { } >""",
    "a loop in a loop": """y = Loop(two, , x)
        < body = a(int64 i, bool d, float[3] s) => (bool d, float[3] t) {
            t = Loop(, yes, s) < body = b(int64 j, bool f, float[3] u) => (bool e, float[3] v) {
                v = Add(u, x) m = ReduceSum<keepdims = 0>(v) e = Less(m, ten) } > } >""",
    "a branch in a loop": """y = Loop(two, , x)
        < body = a(int64 i, bool d, float[3] s) => (bool d, float[3] t) {
            m = ReduceSum<keepdims = 0>(s) c = Less(m, ten)
            t = If(c) < then_branch = b() => (float[3] u) { u = Mul(s, x) },
                        else_branch = c() => (float[3] v) { v = Neg(s) } > } >""",
    "sizes": """k = NonZero(x) r = Cast<to = 1>(k) f = Transpose(r)
        y = Scan(f) < num_scan_inputs = 1, body = b(float[1] p) => (float[1] q) {
            q = Neg(p) } >""",
    "a scan that data decide": """n, z = Scan(x, four) < num_scan_inputs = 1,
            scan_input_directions = [1], scan_output_directions = [1], scan_output_axes = [1],
            body = b(float[3] s, float[1] p) => (float[3] t, float[3] u) {
                m = ReduceSum<keepdims = 0>(s) c = Less(m, ten)
                t = If(c) < then_branch = b() => (float[3] g) { g = Add(s, p) },
                            else_branch = c() => (float[3] h) { h = Neg(s) } >
                w = Exp(p) u = Add(w, t) } > y = Concat<axis = 1>(z, z)""",
}


OF_RANK_2 = ("rows that are collected", "no turn", "sizes", "a scan that data decide")


def decided_by_data(nodes: str, size: str) -> str:
    """Return the text of a model whose input is x, of 3 elements, and whose output is y."""
    return f"""g (float[{size}] x) => (float[a] y) <bool yes = {{1}}, float ten = {{10}},
        int64 two = {{2}}, float[4, 1] four = {{1, 2, 3, 4}}> {{ {nodes} }}"""


@pytest.mark.parametrize("name", DECIDED_BY_DATA)
@pytest.mark.parametrize("size", ["3", "n"])
def test_what_data_decide(name: str, size: str) -> None:
    text = decided_by_data(DECIDED_BY_DATA[name], size)
    if name in OF_RANK_2:
        text = text.replace("float[a] y", "float[a, b] y")
    proto = model(text)
    with Session(proto) as session:
        for numbers in ([1, 1, 1], [3, 0, 4], [6, 5, 0]):
            same_as_runtime(session, proto, {"x": np.array(numbers, np.float32)})


SEQUENCES = {
    "sequences": """e = SequenceEmpty<dtype = 1>() f = SequenceInsert(e, x)
        y = ConcatFromSequence<axis = 0>(f)""",
    "a sequence that a loop fills": """e = SequenceEmpty<dtype = 1>()
        s = Loop(two, , e) < body = b(int64 i, bool d, seq(float[]) q)
            => (bool d, seq(float[]) p) { r = Gather(x, i) p = SequenceInsert(q, r) } >
        y = ConcatFromSequence<axis = 0, new_axis = 1>(s)""",
}


def test_a_sequence_of_known_tensors_is_gone() -> None:
    proto = model(decided_by_data(SEQUENCES["sequences"], "3"))
    assert [node.op_name for node in load_onnx(proto).nodes.values()] == ["Concat"]
    with Session(proto) as session:
        same_as_runtime(session, proto, {"x": f32(3)}, 0)


def test_a_sequence_that_a_loop_fills_is_no_value_of_a_graph() -> None:
    proto = model(decided_by_data(SEQUENCES["a sequence that a loop fills"], "3"))
    with pytest.raises(EdgesNeeded, match="sequences, optional values or maps"):
        load_onnx(proto)
    with Session(proto) as session:
        same_as_runtime(session, proto, {"x": f32(3)}, 0)


def test_a_sequence_that_a_loop_fills_obeys_the_budget() -> None:
    proto = model(
        """g (float[3] x, int64 n) => (float[a] y) {
        e = SequenceEmpty<dtype = 1>()
        s = Loop(n, , e) < body = b(int64 i, bool d, seq(float[]) q)
            => (bool d, seq(float[]) p) { r = Neg(x) p = SequenceInsert(q, r) } >
        y = ConcatFromSequence<axis = 0>(s) }"""
    )
    with Session(proto, max_bytes=1 << 13) as session:
        with pytest.raises(BudgetError, match=r"Loop .*turns take more than 8192 bytes"):
            session.run(None, {"x": f32(3), "n": np.array(1_000_000)})
        same_as_runtime(session, proto, {"x": f32(3), "n": np.array(3)}, 0)


def test_what_a_process_reads_first_may_have_sequences(tmp_path: Path) -> None:
    """Before any operator is known."""
    onnx.save(model(decided_by_data(SEQUENCES["sequences"], "3")), tmp_path / "first.onnx")
    code = "import sys, vtensor; vtensor.Session(sys.argv[1]); print('read')"
    assert printed("-c", code, tmp_path / "first.onnx").split() == ["read"]


def test_a_loop_whose_condition_follows_from_a_fed_number() -> None:
    proto = model(
        """g (float[3] x, int64 k) => (float[3] y)
        <bool yes = {1}, int64 one = {1}, int64 zero = {0}> {
        j, y = Loop(, yes, k, x) < body = b(int64 i, bool d, int64 u, float[3] s)
            => (bool e, int64 v, float[3] t) {
            v = Sub(u, one) e = Greater(v, zero) t = Add(s, x) } > }"""
    )
    with Session(proto) as session:
        for turns in (3, 1, 5):
            same_as_runtime(session, proto, {"x": f32(3), "k": np.array(turns)}, 0)


def test_a_scan_over_what_a_fed_shape_decides() -> None:
    proto = model(
        """g (float[12] x, int64[2] s) => (float[a, b] y) {
        z = Reshape(x, s) y = Scan(z) < num_scan_inputs = 1,
            body = b(float[k] p) => (float[k] q) { q = Neg(p) } > }"""
    )
    with Session(proto) as session:
        for shape in ([3, 4], [6, 2], [3, 4]):
            same_as_runtime(session, proto, {"x": f32(12), "s": np.array(shape)}, 0)


THEN = "then_branch = a() => (float[3] t) { t = Neg(x) }"
ELSE = "else_branch = b() => (float[3] t) { t = Relu(x) }"
ROW = "body = a(float r) => (float q) { q = Neg(r) }"
DAMAGED = [
    (f"y = If(yes) < {THEN} >", "no attribute 'else_"),
    (f"y = If(both) < {THEN}, {ELSE} >", "'both' must be one number: .2,."),
    (f"y, z = If(yes) < {THEN}, {ELSE} >", "graph 'a' delivers 1 value, not 2"),
    (f"y = Loop(both, , x) < {ADDED} >", "'both' must be one number: .2,."),
    ("y = Loop(two, , x)", "Required attribute 'body' is missing"),
    (f"y = Scan(x) < num_scan_inputs = 2, {ROW} >", "scans 2 inputs, and has 1"),
    (f"y = Scan(x) < num_scan_inputs = 0, {ROW} >", "scans 0 inputs, and has 1"),
    (f"y = Scan(x) < {ROW} >", "'num_scan_inputs'"),
    (
        f"y = Scan(x) < num_scan_inputs = 1, scan_input_axes = [4], {ROW} >",
        "'x' has no axis 4: .3,",
    ),
]


@pytest.mark.parametrize(("nodes", "complaint"), DAMAGED)
def test_damaged_control_flow_says_what_is_wrong(nodes: str, complaint: str) -> None:
    text = f"""g (float[3] x) => (float[a] y)
        <bool yes = {{1}}, int64[2] both = {{1, 1}}, int64 two = {{2}}> {{ {nodes} }}"""
    with pytest.raises(ModelError, match=complaint):
        Session(model(text))


def test_a_branch_is_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expansion, "MAX_LOOP_NODES", 1)
    text = f"g (float[3] x) => (float[3] y) <bool c = {{1}}> {{ y = {BRANCHES} }}"
    agree(model(text, w=f32(3)), {"x": f32(3)})


def test_a_loop_of_many_turns_is_not_unrolled() -> None:
    with Session(model(LOOP)) as session:
        for count in (10, 3000, 3):
            same_as_runtime(session, model(LOOP), {"x": f32(3), "n": np.array(count)}, 1e-7)


@pytest.mark.parametrize("condition", ["Not(no)", "Identity(d)"])
def test_a_loop_without_end_is_refused(condition: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expansion, "MAX_LOOP_NODES", 100)
    text = f"""g (float[3] x) => (float[3] y) <bool yes = {{1}}, bool no = {{0}}> {{
        y = Loop(, yes, x) < body = b(int64 i, bool d, float[3] s) => (bool e, float[3] t) {{
            t = Add(s, x) e = {condition} }} > }}"""
    with pytest.raises(ModelError, match="always true: it never ends"):
        Session(model(text))


def test_a_loop_whose_condition_follows_from_sizes_may_be_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(expansion, "MAX_LOOP_NODES", 100)
    proto = model(
        """g (float[k] x) => (float[k] y) <bool yes = {1}> {
        s = Shape(x) n = Squeeze(s)
        y = Loop(, yes, x) < body = b(int64 i, bool d, float[k] s) => (bool e, float[k] t) {
            t = Add(s, x) e = Less(i, n) } > }"""
    )
    with Session(proto) as session:
        for length in (3, 200, 50):
            same_as_runtime(session, proto, {"x": f32(length)}, 1e-6)


WEIGHTS_OF_A_BODY = {
    "initializer": "<float[5] w = {1, 2, 3, 4, 5}> { t = Add(s, w) }",
    "node": "{ w = Constant<value = float[5] {1, 2, 3, 4, 5}>() t = Add(s, w) }",
    "attribute": "{ w = Constant<value_floats = [1.0, 2.0, 3.0, 4.0, 5.0]>() t = Add(s, w) }",
    "computed": "<float[5] w = {1, 2, 3, 4, 5}> { v = Neg(w) t = Add(s, v) }",
}


@pytest.mark.parametrize("how", WEIGHTS_OF_A_BODY)
def test_a_weight_of_a_body_is_held_once_and_what_every_turn_computes_is_counted(how: str) -> None:
    proto = model(
        f"""g (float[5] x) => (float[5] y) <int64 n = {{7}}> {{
        y = Loop(n, , x) < body = b(int64 i, bool d, float[5] s) => (bool d, float[5] t)
            {WEIGHTS_OF_A_BODY[how]} > }}"""
    )
    agree(proto, {"x": f32(5)})
    if how == "computed":
        load_onnx(proto, max_bytes=20 * 8 + 8 * 8 + 8)
        with pytest.raises(BudgetError, match="in addition to"):
            load_onnx(proto, max_bytes=20 * 7)
        return
    constants = load_onnx(proto, max_bytes=30).constants
    assert [array.shape for array in constants.values()] == [(5,)]
