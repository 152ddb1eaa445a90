"""Inputs whose values decide shapes: a plan for each value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto

from tests.frontends.support import f32, model, same_as_runtime
from vtensor import Session, load_onnx
from vtensor.errors import (
    BudgetError,
    InputError,
    ModelError,
    UnsupportedOperatorError,
    ValuesNeededError,
    VTensorError,
)
from vtensor.runtime.planning.store import MOST_PLANS

RESHAPE = model("g (float[2, 3, 4] x, int64[2] s) => (float[a, b] y) { y = Reshape(x, s) }")
COMPUTED = model(
    """g (float[n, 3, 4] x, int64[1] s) => (float[a, b] y) <int64[1] rest = {-1}> {
    t = Concat<axis = 0>(s, rest) y = Reshape(x, t) }"""
)
COUNTED = model(
    """g (int64 n, float[4] x) => (int64[a] y, float[4] z) <int64 zero = {0}, int64 one = {1}> {
    y = Range(zero, n, one) z = Relu(x) }"""
)
FILLED = model("g (int64[2] s) => (float[a, b] y) { y = ConstantOfShape(s) }")
RANKS = model("g (float[2, 4] x, int64[k] s) => (float[r, q] y) { y = Reshape(x, s) }")
LONG = model("g (float[2] x, int64[n] s) => (float[a, b] y) { y = Reshape(x, s) }")
SHAPES = ((6, 4), (4, 6), (-1, 3), (0, -1))


def shaped(*shape: int, x: Sequence[int] = (2, 3, 4)) -> dict[str, Any]:
    """Return an array, and the shape that it is to have."""
    return {"x": f32(*x), "s": np.array(shape)}


@pytest.mark.parametrize("libraries", [None, ["numpy"]])
@pytest.mark.parametrize(
    ("proto", "runs"),
    [
        (RESHAPE, [shaped(*shape) for shape in SHAPES]),
        (COMPUTED, [shaped(2, x=(1, 3, 4)), shaped(6), shaped(12)]),
        (COUNTED, [{"n": np.array(count), "x": f32(4)} for count in (3, 5, 0)]),
        (FILLED, [{"s": np.array([2, 3])}]),
    ],
    ids=["shape", "computed shape", "count", "filled shape"],
)
def test_a_value_decides_sizes(
    proto: ModelProto, runs: list[dict[str, Any]], libraries: list[str] | None
) -> None:
    with Session(proto, libraries=libraries) as session:
        assert {port.name for port in session.inputs} == {*runs[0]}
        for feeds in runs:
            same_as_runtime(session, proto, feeds, 0)


def test_values_are_part_of_a_plans_key_and_plans_are_bounded() -> None:
    plans = []
    with Session(RESHAPE) as session:
        for shape in (*SHAPES, *SHAPES):
            session.run(None, shaped(*shape))
            plans.append(session.plan)
        assert plans[:4] == plans[4:]
        assert len(set(map(id, plans))) == len(SHAPES)
        for rows in range(1, 2 * MOST_PLANS + 1):
            if 24 % rows == 0:
                session.run(None, shaped(rows, -1))
        assert len(session._runner.open()) <= MOST_PLANS


def test_the_value_is_read_before_the_run_so_the_array_may_change() -> None:
    feeds = shaped(6, 4)
    with Session(RESHAPE) as session:
        session.run(None, feeds)
        feeds["s"][:] = (4, 6)
        assert session.run(None, feeds)[0].shape == (4, 6)


@pytest.mark.parametrize(
    ("proto", "bad", "error", "complaint", "good"),
    [
        *(
            (RESHAPE, shaped(*shape), VTensorError, "", shaped(6, 4))
            for shape in ((5, 5), (-1, -1), (-3, 8), (2**40, 2**40))
        ),
        *(
            (
                RANKS,
                shaped(*shape, x=(2, 4)),
                ModelError,
                f"has {len(shape)}",
                shaped(4, 2, x=(2, 4)),
            )
            for shape in ((8,), (2, 2, 2))
        ),
        (FILLED, {"s": np.array([2**30, 2**10])}, BudgetError, "takes 4398046511104 bytes", None),
        (FILLED, {"s": np.array([-2, 3])}, VTensorError, "", None),
        (LONG, shaped(*[1] * 5000, x=(2,)), InputError, "1024 are the most", shaped(2, 1, x=(2,))),
    ],
)
def test_a_value_that_does_not_fit_is_a_typed_error(
    proto: ModelProto, bad: Any, error: type[VTensorError], complaint: str, good: Any
) -> None:
    if proto is RANKS:
        complaint = f"'y' is declared with 2 dims, and {complaint}"
    with Session(proto) as session:
        with pytest.raises(error, match=complaint):
            session.run(None, bad)
        same_as_runtime(session, proto, good or {"s": np.array([2, 3])}, 0)


@pytest.mark.parametrize(
    "after",
    [
        "y = Relu(r)",
        "y = Softmax(r)",
        "y = MaxPool<kernel_shape = [2, 2]>(r)",
        "y = ReduceMean<axes = [1]>(r)",
        "y = Conv<kernel_shape = [2, 2]>(r, k)",
        "c = Concat<axis = 1>(r, r) y = GlobalAveragePool(c)",
        "t = Transpose<perm = [0, 2, 3, 1]>(r) y = Add(t, t)",
        "y = MatMul(r, w)",
        "f = Flatten(r) y = Gemm(f, m)",
        "q = Squeeze(r, zero) y = Unsqueeze(q, zero)",
    ],
)
def test_operators_behind_a_value_whose_rank_is_not_known_yet(after: str) -> None:
    text = f"g (float[16] x, int64[n] s) => (float[] y) {{ r = Reshape(x, s) {after} }}"
    weights = {"w": f32(1, 1, 4, 2), "k": f32(3, 1, 2, 2), "m": f32(16, 3), "zero": np.array([0])}
    text = text.replace("[]", "[a, b]" if "Gemm" in after else "[a, b, c, d]")
    proto = model(text, **weights)
    with Session(proto) as session:
        same_as_runtime(session, proto, shaped(1, 1, 4, 4, x=(16,)), 1e-5, 1e-6)


def test_load_onnx_asks_for_values_and_takes_them() -> None:
    with pytest.raises(ValuesNeededError, match="'s'") as caught:
        load_onnx(RESHAPE)
    assert caught.value.names == ("s",)
    graph = load_onnx(RESHAPE, values={"s": np.array([6, 4])})
    assert list(graph.inputs) == ["x"]
    with pytest.raises(InputError, match="no input 'size'"):
        load_onnx(RESHAPE, values={"size": np.array([6, 4])})
    with pytest.raises(InputError, match="element type f32"):
        load_onnx(RESHAPE, values={"s": np.ones(2, np.float32)})


@pytest.mark.parametrize(
    "text",
    [
        "(float[2] x) => (float[a, b] y) { s = Cast<to = 7>(x) y = Reshape(x, s) }",
        "(int64[2, 1] x) => (int64[a, b] y) <int64[1] zero = {0}> {"
        " s = Flatten<axis = 0>(x) z = Squeeze(s, zero) y = Reshape(x, z) }",
        "(int64[4096] x) => (int64[a, b] y) { y = Reshape(x, x) }",
    ],
    ids=["from floats", "from a matrix", "too long"],
)
def test_what_is_computed_from_data_stays_an_error(text: str) -> None:
    with pytest.raises(UnsupportedOperatorError):
        Session(model(f"g {text}"))


def test_an_operator_that_is_missing_is_said_at_once() -> None:
    text = "g (float[2] x, int64[1] s) => (float[a] y) { z = Bernoulli(x) y = Reshape(z, s) }"
    with pytest.raises(VTensorError, match="Bernoulli"):
        Session(model(text), reference=False)
