"""NaN, infinities, the ends of each float type, and what is fused are as the definitions say."""

from __future__ import annotations

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from libdesc.onednn import routines_fused
from ops import Relu
from tests.frontends.support import model
from tests.operators.calls import fused, special
from tests.operators.tables.nodes import fed
from vtensor.runtime.session import Session


@pytest.mark.parametrize("wrong", [("relu", 0.0), ("abs", 0.0), ("hardswish", 2.0**127)])
def test_a_wrong_follower_is_seen(
    monkeypatch: pytest.MonkeyPatch, wrong: tuple[str, float]
) -> None:
    """The twin: makes 0 of NaN, is another function, makes NaN of -infinity."""
    monkeypatch.setattr(routines_fused, "bounded", lambda attr, _: attr.eltwise(*wrong))
    monkeypatch.setattr(fused, "LEADS", {"Conv2D": fused.LEADS["Conv2D"]})
    assert any(line.startswith("Conv2D, relu, ") for line in fused.faults())


@pytest.mark.parametrize("wrong", [0.0, np.inf, -np.inf, 1.001])
def test_what_differs_is_seen(wrong: float) -> None:
    """The twin of difference."""
    wanted = np.array([np.nan, 1e300, 1.0])
    assert special.difference(np.array([np.nan, np.inf, 1], np.float32), wanted, "Relu") == ""
    assert special.difference(np.array([wrong, np.inf, 1], np.float32), wanted, "Relu")
    assert special.difference(np.array([np.nan, 3e38, 1], np.float32), wanted, "Relu")
    assert special.difference(np.array([np.nan, np.inf, 1.001], np.float32), wanted, "Relu")


def test_an_operator_that_loses_nan_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin of faults_alone: an expression that makes 0 of NaN."""
    monkeypatch.setattr(special, "operators", lambda: iter([("Relu", Relu())]))
    assert not any(special.faults_alone("eigen"))
    monkeypatch.setattr("vtensor.language.expression.Expression.max", lambda self, other: self * 0)
    assert any(special.faults_alone("eigen"))


X = np.array([np.nan, 3, -3, 0, -0.0, np.inf, -np.inf, 0.5, -0.5, 1, -1, 1e-40] * 3)
LIBRARIES = (None, ("onednn",), ("eigen",), ("numpy",))


@pytest.mark.parametrize("way", ["run", "folded", "fused"])
@pytest.mark.parametrize("dtype", ["float", "float16", "double"])
@pytest.mark.parametrize(
    "call",
    [
        "ThresholdedRelu",
        "ThresholdedRelu<alpha = -1.0>",
        "Shrink",
        "Shrink<lambd = 1.5, bias = 0.5>",
        "Shrink<lambd = -1.0, bias = 0.25>",
    ],
)
def test_a_nan_is_neither_above_nor_below(call: str, dtype: str, way: str) -> None:
    """ONNX says "otherwise 0" of both operators."""
    x = X.astype({"float": np.float32, "float16": np.float16, "double": np.float64}[dtype])
    given = "" if way == "folded" else f"{dtype}[{x.size}] x"
    nodes = f"n = Neg(x) z = {call}(n) y = Abs(z)" if way == "fused" else f"y = {call}(x)"
    text = f"m ({given}) => ({dtype}[{x.size}] y) {{ {nodes} }}"
    proto = model(text, 10, **({} if given else {"x": x}))
    feeds = {"x": x} if given else {}
    with np.errstate(all="ignore"):
        [expected] = ReferenceEvaluator(proto).run(None, feeds)
    for libraries in LIBRARIES:
        with Session(proto, threads=1, libraries=libraries) as session:
            np.testing.assert_array_equal(session.run(None, feeds)[0], expected)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_long_row_has_one_answer_with_two_threads(axis: int) -> None:
    """Rows are completed by a team, in whatever dim they are side by side."""
    x = np.random.default_rng(1).normal(size=(3, 40, 700)).astype(np.float32)
    x[1, 7, 650] = np.nan
    x[2, 3, 0] = np.inf
    odd = ~np.isfinite(x).all(axis, keepdims=True) & np.ones(x.shape, bool)
    for threads in (1, 2):
        [result] = fed("Softmax", 13, x, axis=axis).run(("onednn",), threads)
        np.testing.assert_array_equal(np.isnan(result), odd)


@pytest.mark.parametrize("threads", [1, 2])
def test_gelu_of_many_numbers(threads: int) -> None:
    """A flag of the processor says that some are infinite, in each run that has such numbers."""
    x = np.full(70_000, 0.5, np.float32)
    proto, expected = fed("Gelu", 20, x).model(), np.full_like(x, 0.34573123)
    with Session(proto, threads=threads, libraries=("onednn",)) as session:
        np.testing.assert_allclose(session.run(None, {"x0": x})[0], expected, rtol=1e-5)
        places = [3, 4, 5, 69_997, 69_998, 69_999]
        x[places] = np.inf, 3.4e38, -3.4e38, np.nan, -np.inf, 3e38
        expected[places] = np.inf, 3.4e38, 0, np.nan, np.nan, 3e38
        for _ in range(3):
            np.testing.assert_allclose(session.run(None, {"x0": x})[0], expected, rtol=1e-5)
