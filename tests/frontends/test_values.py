"""Inputs whose values decide shapes: a plan for each value."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontends.support import f32, model, runtime
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
    "g (float[n, 3, 4] x, int64[1] rows) => (float[a, b] y) "
    "{ s = Concat<axis = 0>(rows, rest)\n y = Reshape(x, s) }",
    rest=np.array([-1], np.int64),
)
SHAPES = ((6, 4), (4, 6), (-1, 3), (0, -1))


@pytest.mark.parametrize("libraries", [None, ["numpy"]])
def test_a_shape_as_an_input(libraries: list[str] | None) -> None:
    x = f32(2, 3, 4)
    with Session(RESHAPE, libraries=libraries) as session:
        assert [port.name for port in session.inputs] == ["x", "shape"]
        for shape in SHAPES:
            feeds = {"x": x, "shape": np.array(shape)}
            [y] = session.run(None, feeds)
            np.testing.assert_array_equal(y, runtime(RESHAPE, feeds)[0])


def test_a_shape_computed_from_an_input_and_symbolic_sizes() -> None:
    with Session(COMPUTED) as session:
        for rows, count in ((2, 1), (6, 2), (12, 2)):
            feeds = {"x": f32(count, 3, 4), "rows": np.array([rows])}
            [y] = session.run(None, feeds)
            np.testing.assert_array_equal(y, runtime(COMPUTED, feeds)[0])


def test_values_are_part_of_a_plans_key_and_plans_are_bounded() -> None:
    x = f32(2, 3, 4)
    made = []
    with Session(RESHAPE) as session:
        for shape in (*SHAPES, *SHAPES):
            session.run(None, {"x": x, "shape": np.array(shape)})
            made.append(session.plan)
        assert made[:4] == made[4:]
        assert len(set(map(id, made))) == len(SHAPES)
        for size in range(2 * MOST_PLANS):
            feeds = {"x": np.ones((2, 3, 4), np.float32), "shape": np.array([1 + size, -1])}
            if 24 % (1 + size) == 0:
                session.run(None, feeds)
        assert len(session._runner.open()) <= MOST_PLANS


def test_the_value_is_read_before_the_run_so_the_array_may_change() -> None:
    x, shape = f32(2, 3, 4), np.array([6, 4])
    with Session(RESHAPE) as session:
        session.run(None, {"x": x, "shape": shape})
        shape[:] = (4, 6)
        assert session.run(None, {"x": x, "shape": shape})[0].shape == (4, 6)


@pytest.mark.parametrize("shape", [(5, 5), (-1, -1), (-3, 8), (2**40, 2**40)])
def test_a_value_that_does_not_fit_is_a_typed_error(shape: tuple[int, int]) -> None:
    with Session(RESHAPE) as session:
        with pytest.raises(VTensorError):
            session.run(None, {"x": f32(2, 3, 4), "shape": np.array(shape)})
        [y] = session.run(None, {"x": f32(2, 3, 4), "shape": np.array([6, 4])})
        assert y.shape == (6, 4)


def test_a_rank_that_is_not_the_declared_one_is_a_typed_error() -> None:
    text = "g (float[2, 4] x, int64[k] shape) => (float[r, q] y) { y = Reshape(x, shape) }"
    with Session(model(text)) as session:
        for value in ([8], [2, 2, 2]):
            wanted = f"'y' is declared with 2 dims, and has {len(value)}"
            with pytest.raises(ModelError, match=wanted):
                session.run(None, {"x": f32(2, 4), "shape": np.array(value)})
        [y] = session.run(None, {"x": f32(2, 4), "shape": np.array([4, 2])})
        np.testing.assert_array_equal(y, f32(2, 4).reshape(4, 2))


def test_what_counts_up_to_an_input_or_fills_a_shape_that_is_one() -> None:
    text = (
        "g (int64 n, float[4] x) => (int64[a] y, float[4] z) "
        "{ y = Range(zero, n, one) z = Relu(x) }"
    )
    proto = model(text, zero=np.array(0), one=np.array(1))
    with Session(proto) as session:
        for count in (3, 5, 0):
            feeds = {"n": np.array(count), "x": f32(4)}
            y, z = session.run(None, feeds)
            np.testing.assert_array_equal(y, np.arange(count))
            np.testing.assert_array_equal(z, np.maximum(feeds["x"], 0))
    fill = model("g (int64[2] s) => (float[a, b] y) { y = ConstantOfShape(s) }")
    with Session(fill) as session:
        [y] = session.run(None, {"s": np.array([2, 3])})
        np.testing.assert_array_equal(y, np.zeros((2, 3), np.float32))
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
        "y = Conv<kernel_shape = [2, 2]>(r, w)",
        "c = Concat<axis = 1>(r, r) y = GlobalAveragePool(c)",
        "t = Transpose<perm = [0, 2, 3, 1]>(r) y = Add(t, t)",
        "y = MatMul(r, w)",
        "f = Flatten(r) y = Gemm(f, m)",
        "q = Squeeze(r, zero) y = Unsqueeze(q, zero)",
    ],
)
def test_operators_behind_a_value_whose_rank_is_not_known_yet(after: str) -> None:
    text = f"g (float[16] x, int64[n] s) => (float[a, b, c, d] y) {{ r = Reshape(x, s) {after} }}"
    if after.endswith("m)"):
        text = text.replace("[a, b, c, d]", "[a, b]")
    weights = {"w": f32(1, 1, 4, 2), "m": f32(16, 3), "zero": np.array([0])}
    if "Conv" in after:
        weights["w"] = f32(3, 1, 2, 2)
    used = {name: array for name, array in weights.items() if name in after}
    proto = model(text, 17, **used)
    feeds = {"x": f32(16), "s": np.array([1, 1, 4, 4])}
    with Session(proto) as session:
        [y] = session.run(None, feeds)
    np.testing.assert_allclose(y, runtime(proto, feeds)[0], rtol=1e-5, atol=1e-6)


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
        "g (float[2] x) => (float[a, b] y) { s = Cast<to = 7>(x)\n y = Reshape(x, s) }",
        "g (int64[2, 1] x) => (int64[a, b] y) { s = Flatten<axis = 0>(x)\n"
        "z = Squeeze(s, zero)\n y = Reshape(x, z) }",
        "g (int64[4096] x) => (int64[a, b] y) { y = Reshape(x, x) }",
    ],
    ids=["from floats", "from a matrix", "too long"],
)
def test_what_is_computed_from_data_stays_an_error(text: str) -> None:
    with pytest.raises(UnsupportedOperatorError):
        Session(model(text, zero=np.array([0])))


def test_an_operator_that_is_missing_is_said_at_once() -> None:
    text = "g (float[2] x, int64[1] s) => (float[a] y) { z = Bernoulli(x)\n y = Reshape(z, s) }"
    with pytest.raises(VTensorError, match="Bernoulli"):
        Session(model(text), reference=False)
