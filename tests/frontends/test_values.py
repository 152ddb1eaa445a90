"""Inputs whose values decide shapes: a plan for each value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

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

RESHAPE = model("g (float[2, 3, 4] x, int64[2] shape) => (float[a, b] y) { y = Reshape(x, shape) }")
COMPUTED = model(
    """g (float[n, 3, 4] x, int64[1] rows) => (float[a, b] y) <int64[1] rest = {-1}> {
    s = Concat<axis = 0>(rows, rest) y = Reshape(x, s) }"""
)
SHAPES = ((6, 4), (4, 6), (-1, 3), (0, -1))


def shaped(shape: Sequence[int]) -> dict[str, Any]:
    """Return feeds of ``RESHAPE``."""
    return {"x": f32(2, 3, 4), "shape": np.array(shape)}


@pytest.mark.parametrize("libraries", [None, ["numpy"]])
def test_a_shape_as_an_input(libraries: list[str] | None) -> None:
    with Session(RESHAPE, libraries=libraries) as session:
        assert [port.name for port in session.inputs] == ["x", "shape"]
        for shape in SHAPES:
            same_as_runtime(session, RESHAPE, shaped(shape), 0)


def test_a_shape_computed_from_an_input_and_symbolic_sizes() -> None:
    with Session(COMPUTED) as session:
        for rows, count in ((2, 1), (6, 2), (12, 2)):
            feeds = {"x": f32(count, 3, 4), "rows": np.array([rows])}
            same_as_runtime(session, COMPUTED, feeds, 0)


def test_values_are_part_of_a_plans_key_and_plans_are_bounded() -> None:
    plans = []
    with Session(RESHAPE) as session:
        for shape in (*SHAPES, *SHAPES):
            session.run(None, shaped(shape))
            plans.append(session.plan)
        assert plans[:4] == plans[4:]
        assert len(set(map(id, plans))) == len(SHAPES)
        for rows in range(1, 2 * MOST_PLANS + 1):
            if 24 % rows == 0:
                session.run(None, shaped((rows, -1)))
        assert len(session._runner.open()) <= MOST_PLANS


def test_the_value_is_read_before_the_run_so_the_array_may_change() -> None:
    feeds = shaped((6, 4))
    with Session(RESHAPE) as session:
        session.run(None, feeds)
        feeds["shape"][:] = (4, 6)
        assert session.run(None, feeds)[0].shape == (4, 6)


@pytest.mark.parametrize("shape", [(5, 5), (-1, -1), (-3, 8), (2**40, 2**40)])
def test_a_value_that_does_not_fit_is_a_typed_error(shape: tuple[int, int]) -> None:
    with Session(RESHAPE) as session:
        with pytest.raises(VTensorError):
            session.run(None, shaped(shape))
        assert session.run(None, shaped((6, 4)))[0].shape == (6, 4)


def test_a_rank_that_is_not_the_declared_one_is_a_typed_error() -> None:
    proto = model("g (float[2, 4] x, int64[k] s) => (float[r, q] y) { y = Reshape(x, s) }")
    with Session(proto) as session:
        for value in ([8], [2, 2, 2]):
            expected = f"'y' is declared with 2 dims, and has {len(value)}"
            with pytest.raises(ModelError, match=expected):
                session.run(None, {"x": f32(2, 4), "s": np.array(value)})
        same_as_runtime(session, proto, {"x": f32(2, 4), "s": np.array([4, 2])}, 0)


def test_what_counts_up_to_an_input_or_fills_a_shape_that_is_one() -> None:
    proto = model(
        """g (int64 n, float[4] x) => (int64[a] y, float[4] z) <int64 zero = {0}, int64 one = {1}> {
        y = Range(zero, n, one) z = Relu(x) }"""
    )
    with Session(proto) as session:
        for count in (3, 5, 0):
            same_as_runtime(session, proto, {"n": np.array(count), "x": f32(4)}, 0)
    fill = model("g (int64[2] s) => (float[a, b] y) { y = ConstantOfShape(s) }")
    with Session(fill) as session:
        same_as_runtime(session, fill, {"s": np.array([2, 3])}, 0)
        with pytest.raises(BudgetError, match="takes 4398046511104 bytes"):
            session.run(None, {"s": np.array([2**30, 2**10])})
        with pytest.raises(VTensorError):
            session.run(None, {"s": np.array([-2, 3])})


def test_a_value_of_unknown_size_is_bounded() -> None:
    proto = model("g (float[2] x, int64[n] s) => (float[a, b] y) { y = Reshape(x, s) }")
    with Session(proto) as session:
        assert session.run(None, {"x": f32(2), "s": np.array([2, 1])})[0].shape == (2, 1)
        with pytest.raises(InputError, match="1024 are the most"):
            session.run(None, {"x": f32(2), "s": np.ones(5000, np.int64)})


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
        feeds = {"x": f32(16), "s": np.array([1, 1, 4, 4])}
        same_as_runtime(session, proto, feeds, 1e-5, 1e-6)


def test_load_onnx_asks_for_values_and_takes_them() -> None:
    with pytest.raises(ValuesNeededError, match="'shape'") as caught:
        load_onnx(RESHAPE)
    assert caught.value.names == ("shape",)
    graph = load_onnx(RESHAPE, values={"shape": np.array([6, 4])})
    assert list(graph.inputs) == ["x"]
    with pytest.raises(InputError, match="no input 'size'"):
        load_onnx(RESHAPE, values={"size": np.array([6, 4])})
    with pytest.raises(InputError, match="element type f32"):
        load_onnx(RESHAPE, values={"shape": np.ones(2, np.float32)})


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
