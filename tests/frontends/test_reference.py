"""Operators that VTensor lacks, on ONNX's reference evaluator; here it lacks what a test says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper
from onnx.reference import ReferenceEvaluator

from libdesc.onnx_reference.node import OneNode
from tests.frontends.support import Array, f32, model
from tests.libraries.command import vtensor
from vtensor import Graph, Session, load_onnx
from vtensor.errors import NativeError, NoInvokerError, UnsupportedOperatorError
from vtensor.frontends import builder, functions
from vtensor.report import plan_dict, plan_lines

Lacking = Callable[..., None]

ELU = "g (float[2, 3] x) => (float[2, 3] y) { z = Relu(x) [last] y = Elu<alpha = 0.5>(z) }"


@pytest.fixture
def lacking(monkeypatch: pytest.MonkeyPatch) -> Lacking:
    """Take operators of ONNX from VTensor."""
    whole = functions.spellings_of

    def take(*op_types: str) -> None:
        monkeypatch.setattr(
            builder,
            "spellings_of",
            lambda node: [] if node.proto.op_type in op_types else whole(node),
        )

    return take


def agree(proto: ModelProto, *arrays: Array) -> Session:
    """Check that a session answers as ONNX's evaluator does; return the session."""
    feeds = dict(zip((value.name for value in proto.graph.input), arrays, strict=True))
    session = Session(proto)
    expected = ReferenceEvaluator(proto).run(None, feeds)
    for mine, other in zip(session.run(None, feeds), expected, strict=True):
        np.testing.assert_array_equal(mine, other, strict=True)
    return session


def test_a_node_runs_and_is_marked(lacking: Lacking) -> None:
    lacking("Elu")
    with agree(model(ELU), f32(2, 3)) as session:
        steps = {step.op: step for step in session.plan.steps}
        assert steps["onnx::Elu"].library == "onnx_reference"
        assert steps["onnx::Elu"].python
        assert steps["Relu"].library != "onnx_reference"
        assert plan_dict(session, "g")["summary"]["onnx_reference_steps"] == 1
        lines = {line.text: line.kind for line in plan_lines(session, "g")}
        assert lines["nodes that run on onnx.reference, slowly: 1 x onnx::Elu"] == "ref"


def test_nothing_is_said_where_nothing_is_lacking() -> None:
    with agree(model("g (float[2] x) => (float[2] y) { y = Relu(x) }"), f32(2)) as session:
        assert not any("onnx.reference," in line.text for line in plan_lines(session, "g"))


FORMS: dict[str, tuple[str, Array]] = {
    "a value twice": ("(float[2] x) => (float[2] y) { y = Add(x, x) }", f32(2)),
    "an input left out": ("(float[4] x) => (float[4] y) { y = Clip(x, , top) }", f32(4)),
    "a constant decides": ("(float[3] x) => (float[2, 3] y) { y = Expand(x, sizes) }", f32(3)),
    "a scalar": ("(float[3, 3] x) => (float y) { y = Det(x) }", f32(3, 3)),
    "truth values": ("(bool[3] x) => (bool[3] y) { y = Not(x) }", np.array([True, False, True])),
    "the second output alone": ("(float[5] x) => (int64[2] i) { v, i = TopK(x, two) }", f32(5)),
    "two": ("(float[5] x) => (int64[2] i, float[2] v) { v, i = TopK(x, two) }", f32(5)),
    "no elements": ("(float[2, 0] x) => (float[2, 0] y) { y = Relu(x) }", f32(2, 0)),
}
WEIGHTS = "<float top = {0.2}, int64[2] sizes = {2, 3}, int64[1] two = {2}, int64 at = {0}>"


def weighed(text: str) -> ModelProto:
    """Build a model with constants."""
    return model("g " + text.replace("{", f"{WEIGHTS} {{", 1))


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_nodes(lacking: Lacking, form: str) -> None:
    text, x = FORMS[form]
    lacking("Add", "Clip", "Expand", "Det", "Not", "TopK", "Relu")
    with agree(weighed(text), x) as session:
        [step] = session.plan.steps
        assert step.library == "onnx_reference"
        assert bool(step.kernels) == bool(x.size), "nothing runs where there is nothing to compute"


def test_other_orders_in_memory_and_fed_shapes(lacking: Lacking) -> None:
    lacking("Elu", "Expand")
    agree(model(ELU), f32(3, 2).T).close()
    text = "g (float[3] x, int64[2] s) => (float[a, b] y) { y = Expand(x, s) }"
    agree(model(text), f32(3), np.array([2, 3])).close()


def test_other_domains() -> None:
    proto = model("g (float[4] x) => (float[4] y) { y = ai.onnx.ml.Binarizer(x) }")
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    with agree(proto, f32(4)) as session:
        assert all(step.library != "onnx_reference" for step in session.plan.steps)


REFUSED = [
    ("(float[4] x) => (int64[1, n] y) { [n1] y = NonZero(x) }", "'n1' : the sizes of .*'y'"),
    ("(int64[2, 2] x) => (int64[n] y) { y = Unique(x) }", "must be known before a run"),
    ("(float[4] x) => (float[4] y) { y = com.example.Odd(x) }", "com.example::Odd : 1 x"),
    (
        "(float[2] x) => (float[2] y) { r = RandomNormal<shape = [2]>() y = Add(x, r) }",
        "if it had an input",
    ),
    (
        """(float[2] x, float p) => (float[2] y) { q = IsNaN(p)
            y = If(q) < then_branch = a() => (float[2] t) { t = Neg(x) },
                        else_branch = b() => (float[2] e) { e = Relu(x) } > }""",
        "'q' decides what runs",
    ),
]


@pytest.mark.parametrize(("text", "reason"), REFUSED)
def test_what_is_refused_still(lacking: Lacking, text: str, reason: str) -> None:
    lacking("NonZero", "Unique", "RandomNormal", "If")
    proto = weighed(text)
    proto.opset_import.append(helper.make_opsetid("com.example", 1))
    with pytest.raises(UnsupportedOperatorError, match=reason):
        load_onnx(proto)


def test_it_can_be_switched_off(lacking: Lacking) -> None:
    lacking("Elu")
    for load in (
        lambda proto: load_onnx(proto, reference=False),
        lambda proto: Session(proto, reference=False),
        lambda proto: Session(proto, libraries=["numpy"]),
    ):
        with pytest.raises(UnsupportedOperatorError, match="Elu : 1 x, last"):
            load(model(ELU))
    graph = load_onnx(model(ELU))
    with pytest.raises(NoInvokerError, match="onnx::Elu 'last': no library"):
        Session(graph, reference=False)
    with Session(graph, libraries=["numpy", "onnx_reference"]) as session:
        assert {step.library for step in session.plan.steps} == {"numpy", "onnx_reference"}


def test_the_text_of_a_graph(lacking: Lacking) -> None:
    lacking("Elu", "Det")
    graph = load_onnx(model(ELU))
    line = "y = onnx::Elu(node=<onnx::Elu alpha = 0.5>, outputs=(('f32', (('D2', 2), ('D3', 3))),))"
    assert f"{line} z : f32 D2=2 D3=3" in str(graph)
    assert str(Graph.from_networkx(graph.to_networkx())) == str(graph)


def test_long_attributes_are_cut() -> None:
    node = helper.make_node("Det", ["x"], ["y"], long=list(range(1000)))
    data = helper.make_model(helper.make_graph([node], "g", [], [])).SerializeToString()
    assert len(repr(OneNode(data))) < 120


@pytest.mark.parametrize(
    ("result", "complaint"),
    [
        (ValueError("no such thing"), "onnx.reference failed: ValueError: no such thing"),
        (f32(3, 2), "onnx.reference gives float32 \\(3, 2\\), .*says float32 \\(2, 3\\)"),
        (np.zeros((2, 3), np.float64), "onnx.reference gives float64"),
    ],
)
def test_faults_of_the_evaluator_are_typed(
    lacking: Lacking, monkeypatch: pytest.MonkeyPatch, result: object, complaint: str
) -> None:
    def run(self: OneNode, arrays: object) -> list[object]:
        if isinstance(result, Exception):
            raise result
        return [result]

    lacking("Elu")
    monkeypatch.setattr(OneNode, "run", run)
    with (
        Session(model(ELU)) as session,
        pytest.raises(NativeError, match=f"onnx::Elu 'last': {complaint}"),
    ):
        session.run(None, {"x": f32(2, 3)})


def test_an_evaluator_that_writes_to_its_inputs_harms_nobody(
    lacking: Lacking, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(self: OneNode, arrays: list[Array]) -> list[Array]:
        arrays[0][...] += 1
        return [arrays[0]]

    lacking("Elu")
    monkeypatch.setattr(OneNode, "run", run)
    x = f32(2, 3)
    with Session(model(ELU)) as session:
        first, again = (session.run(None, {"x": x}) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(x, f32(2, 3))


def test_the_command_line_says_so(lacking: Lacking, tmp_path: Path) -> None:
    lacking("Elu")
    file, note = tmp_path / "elu.onnx", "nodes that run on onnx.reference, slowly: 1 x onnx::Elu"
    onnx.save(model(ELU), file)
    assert vtensor("run", file).stderr.splitlines() == [f"note: {note}"]
    assert note in vtensor("plan", file).stdout
    for command in ("run", "plan", "explain"):
        ran = vtensor(command, file, "--no-reference")
        assert ran.exit_code == 1
        assert "Elu : 1 x, last" in ran.stderr
