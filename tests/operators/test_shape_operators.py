"""What picks, pads and reduces: the corners that cases and spellings do not reach."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ops
from tests.frontends.support import agree, f32, model
from tests.operators.harness import plain, run
from vtensor.errors import (
    DimError,
    InputError,
    NoInvokerError,
    UnsupportedOperatorError,
)
from vtensor.frontends.onnx import load_onnx
from vtensor.language.operators import Context, run_compute
from vtensor.language.tensor import VTensor
from vtensor.runtime.session import Session

Array = np.ndarray[Any, Any]

REDUCTIONS = [name for name in dir(ops) if name.startswith("Reduce")]


@pytest.mark.parametrize("library", ["numpy", "onednn"])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_nan_reaches_the_result(name: str, library: str) -> None:
    x = np.abs(f32(5, 37)) + 1
    for place in range(x.size):
        spoiled = x.copy()
        spoiled.flat[place] = np.nan
        try:
            [y] = run(library, getattr(ops, name)(("B",)), [plain(spoiled, "A B")]).values
        except NoInvokerError:
            assert library == "onednn"
            return
        assert np.isnan(y).sum() == 1


OF_NOTHING = {"ReduceSum": 0, "ReduceProd": 1, "ReduceL2": 0, "ReduceMin": np.inf}
OF_NOTHING |= dict.fromkeys(("ReduceMax", "ReduceLogSum", "ReduceLogSumExp"), -np.inf)


@pytest.mark.parametrize("name", OF_NOTHING)
def test_a_reduction_of_no_elements_has_its_value(name: str) -> None:
    [y] = run("numpy", getattr(ops, name)(("B",)), [plain(f32(3, 0), "A B")]).values
    np.testing.assert_array_equal(y, np.full((3, 1), OF_NOTHING[name], np.float32))


def test_sums_of_exponentials_do_not_overflow() -> None:
    x = np.array([[1000.0, 1001.0], [-np.inf, -np.inf], [np.inf, 0]], np.float32)
    [y] = run("numpy", ops.ReduceLogSumExp(("B",), False), [plain(x, "A B")]).values
    np.testing.assert_allclose(y, [1001.3132617, -np.inf, np.inf], rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8, np.bool_])
def test_extremes_of_integers_keep_their_type(dtype: type) -> None:
    x: Array = (np.arange(12).reshape(3, 4) % 5).astype(dtype)
    for name, expected in (("ReduceMax", x.max(1)), ("ReduceMin", x.min(1))):
        [y] = run("numpy", getattr(ops, name)(("B",), False), [plain(x, "A B")]).values
        assert y.dtype == x.dtype
        np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize(
    ("op", "wrong"),
    [
        (ops.Slice(("A",), (0,), (1,), (0,)), "no step may be 0"),
        (ops.Slice(("A", "A"), (0, 0), (1, 1), (1, 1)), "each once"),
        (ops.Slice(("A",), (0, 1), (1,), (1,)), "must be given for each axis"),
        (ops.Slice(("Z",), (0,), (1,), (1,)), "Z"),
        (ops.Pad(("A",), (1,)), "two pads"),
        (ops.Pad(("A",), (-2, -2)), "take away more"),
        (ops.Pad(("A",), (3, -4)), "take away more"),
        (ops.Pad(("A",), (-2, 1), "reflect"), "has no elements"),
        (ops.Tile((("A", -1),)), "a count from 0 on"),
        (ops.Tile((("Z", 1),)), "Z"),
        (ops.Expand((("A", 5),)), "dim A"),
        (ops.ReduceSum(("A", "A")), "each once"),
        (ops.ReduceSum(("Z",)), "dims of x"),
        (ops.ArgMax("Z"), "Z"),
        (ops.TopK("A", 4), "k=4 elements along A, which has 3"),
        (ops.CumSum("Z"), "Z"),
        (ops.Resize(("A",), (2,), ()), "each axis once"),
        (ops.Resize(("A",), (2,), (0.0,)), "above 0"),
        (ops.Trilu("A", "A"), "two dims"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_a_typed_error(op: object, wrong: str) -> None:
    with pytest.raises(DimError, match=wrong):
        run_compute(Context(node="n"), op, [VTensor("f32", {"A": 3, "B": 4})])


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_nan_stays_where_it_counts(mode: str) -> None:
    x = f32(1, 32)
    x[0, 20] = np.nan
    [y] = run("numpy", ops.Resize(("B",), (64,), (2.0,), mode), [plain(x, "A B")]).values
    assert set(np.flatnonzero(np.isnan(y))) <= set(range(36, 46))
    assert np.isnan(y).any()


def test_resizing_integers_stays_in_range() -> None:
    x = np.array([[0, 255, 255, 0]], np.uint8)
    [y] = run("numpy", ops.Resize(("B",), (8,), (2.0,), "cubic"), [plain(x, "A B")]).values
    assert y.dtype == np.uint8
    assert y.max() == 255
    assert y.min() == 0


INDEXED = "m (float[4, 3] x, int64[2, 2] i) => (float[2, 2, 3] y) { y = Gather(x, i) }"


def test_indices_may_be_data() -> None:
    agree(model(INDEXED), {"x": f32(4, 3), "i": np.array([[0, -1], [3, -4]])})


@pytest.mark.parametrize("place", [4, -5, 2**62])
def test_an_index_outside_is_a_typed_error(place: int) -> None:
    with Session(model(INDEXED)) as session, pytest.raises(InputError, match=str(place)):
        session.run(None, {"x": f32(4, 3), "i": np.array([[0, 1], [2, place]])})


def test_an_output_of_a_split_may_be_unused() -> None:
    proto = model(
        "m (float[2, 6] x) => (float[2, 2] y, float[2, 2] z) "
        "{ y, unused, z = Split<axis = 1, num_outputs = 3>(x) }",
        opset=18,
    )
    assert [node.op_name for node in load_onnx(proto).nodes.values()] == ["Slice", "Slice"]
    agree(proto, {"x": f32(2, 6)})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("m (float[4] x) => (float[8] y) { y = TopKs(x) }", "TopKs"),
        ("m (float[4] x) => (float[?] y, int64[?] i) { k = ArgMax(x) y, i = TopK(x, k) }", "known"),
        ("m (float[4] x) => (float[?] y) { n = ArgMax(x) y = Tile(x, n) }", "known"),
    ],
)
def test_a_size_that_is_data_is_a_typed_error(text: str, reason: str) -> None:
    """In a graph; a session runs such a model in segments."""
    with pytest.raises(UnsupportedOperatorError, match=reason):
        load_onnx(model(text))
