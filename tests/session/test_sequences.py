"""Sequences between numeric parts of a model: each part has native plans of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.frontends.support import f32, model, runtime, same_as_runtime
from tests.libraries.command import data_of
from vtensor import Session
from vtensor.errors import InputError

#: An image's features in parts of a fed size, one of which goes on.
CHOSEN = """g (float[1, 3, 8, 8] x, int64 size, int64 i) => (float[b, c, h, w] y, int64 n) {
    a = Conv<pads = [1, 1, 1, 1]>(x, w1) f = Relu(a) s = SplitToSequence<axis = 2>(f, size)
    n = SequenceLength(s) e = SequenceAt(s, i)
    b = Conv<pads = [1, 1, 1, 1]>(e, w2) y = Relu(b) }"""

#: Three numeric parts, with sequences between them; the last reads values of all.
JOINED = """g (float[1, 3, 8, 8] x, int64 size, int64 i) => (float[b, c, h, w] y) {
    a = Conv<pads = [1, 1, 1, 1]>(x, w1) f = Relu(a) s = SplitToSequence<axis = 2>(f, size)
    q = SequenceInsert(s, f, i) j = ConcatFromSequence<axis = 2>(q)
    b = Conv<pads = [1, 1, 1, 1]>(j, w2) g = Relu(b) t = SplitToSequence<axis = 2>(g, size)
    e = SequenceErase(t, i) k = ConcatFromSequence<axis = 0, new_axis = 0>(e)
    p = MatMul(k, w3) m = ReduceMean<axes = [0, 2, 3], keepdims = 1>(f)
    c = Constant<value_float = 2.0>() z = Mul(p, c) y = Add(z, m) }"""

#: Elements with data-decided sizes, and a sequence as an output.
FOUND = """g (float[n, 4] x) => (float[k, 5] y, seq(float[m, 5]) r) <int64[1] axis = {0}> {
    h = MatMul(x, w) i = NonZero(h) t = Transpose(i) v = GatherND(h, t) s = SequenceConstruct(v, v)
    l = SequenceLength(s) u = SplitToSequence<axis = 0, keepdims = 1>(h)
    o = ConcatFromSequence<axis = 0>(u) y = Tanh(o) d = Mul(y, y) r = SplitToSequence(d, l) }"""

WEIGHTS = {"w1": f32(8, 3, 3, 3), "w2": f32(8, 8, 3, 3, seed=1), "w3": f32(8, 5, seed=2)}


def feed(size: int, i: int) -> dict[str, Any]:
    """Return a feed of a model with fed sizes."""
    return {"x": f32(1, 3, 8, 8), "size": np.array(size), "i": np.array(i)}


def check_native(session: Session, parts: int) -> None:
    """Check that there are plans of so many parts, and that no step of them is Python."""
    steps = [step for plan in session.plans for step in plan.steps if step.kernels]
    assert len(session.plans) == parts
    assert {step.library for step in steps} <= {"onednn", "eigen", "winograd", "narrow"}
    assert not any(step.python for step in steps)


def test_both_sides_of_a_sequence_are_planned() -> None:
    proto = model(CHOSEN, w1=WEIGHTS["w1"], w2=WEIGHTS["w2"])
    with Session(proto) as session:
        for size, i in ((2, 1), (2, 3), (4, -1), (8, 0), (3, 2)):
            same_as_runtime(session, proto, feed(size, i), 1e-4)
        check_native(session, 2)
        operators = [step.op for plan in session.plans for step in plan.steps if step.kernels]
        assert operators.count("Conv2D + Relu") == 2
        assert session.run(["n"], feed(3, 0))[0] == 3
        with pytest.raises(InputError, match="position 4 in a sequence of 4"):
            session.run(None, feed(2, 4))
        same_as_runtime(session, proto, feed(2, 1), 1e-4)


@pytest.mark.usefixtures("caching")
def test_three_parts_share_values_and_come_from_the_cache(tmp_path: Path) -> None:
    proto = model(JOINED, **WEIGHTS)
    for cached in (False, True):
        with Session(proto, cache_dir=tmp_path) as session:
            for size, i in ((4, 0), (4, 1), (2, 2)):
                same_as_runtime(session, proto, feed(size, i), 1e-3)
                if not i:
                    assert {plan.origin.cached for plan in session.plans} == {cached}
            check_native(session, 3)


def test_parts_may_be_cut_where_data_decide_sizes() -> None:
    proto = model(FOUND, w=f32(4, 5))
    with Session(proto) as session:
        for rows in (3, 5, 1):
            x = f32(rows, 4)
            mine, theirs = session.run(None, {"x": x}), runtime(proto, {"x": x})
            for array, other in zip([mine[0], *mine[1]], [theirs[0], *theirs[1]], strict=True):
                np.testing.assert_allclose(array, other, 1e-4, 1e-5)


def test_commands_show_the_parts_around_a_sequence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vtensor.runtime.tuning.profile.peaks_of", lambda _: None)
    file = tmp_path / "m.onnx"
    onnx.save(model(CHOSEN, w1=WEIGHTS["w1"], w2=WEIGHTS["w2"]), file)
    values = ["--value", "size=2", "--value", "i=1", "--json"]
    for command in ("plan", "explain"):
        assert len(data_of(command, str(file), *values)["segments"]) == 2
    steps = data_of("profile", str(file), "--runs", "1", *values)["steps"]
    assert sum(row["operator"] == "Conv2D + Relu" for row in steps) == 2
    assert data_of("compare", str(file), *values)["equal"]


def test_pins_name_nodes_of_any_part() -> None:
    proto = model(CHOSEN, w1=WEIGHTS["w1"], w2=WEIGHTS["w2"])
    proto.graph.node[5].name = "late"
    with Session(proto, pin={"late": "eigen"}) as session:
        same_as_runtime(session, proto, feed(2, 1), 1e-4)
        steps = {step.node.name: step.library for plan in session.plans for step in plan.steps}
        assert steps["late"] == "eigen"
