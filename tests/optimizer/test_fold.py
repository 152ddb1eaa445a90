"""Constant factors and shifts go into the constant before them, and the values stay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ops
from optimizer.constants.computed import Computed, Made
from optimizer.fold import Chain, fold
from tests.optimizer.graphs import operators
from tests.property.strategies import laws
from vtensor import Session
from vtensor.language.graph import Graph
from vtensor.language.tensor import VTensor
from vtensor.runtime.planning.library_options import preferences_of

Array = np.ndarray[Any, Any]
Affine = Callable[[Graph, VTensor, Callable[..., VTensor]], VTensor]

IMAGE = {"N": 2, "C": 4, "H": 5, "W": 4}
#: A linear node, the dims of its input, those of its constant, and the dim that is scaled.
LINEAR: dict[str, tuple[object, dict[str, int], dict[str, int], str]] = {
    "Conv2D": (ops.Conv2D(pads=(1, 1, 1, 1)), IMAGE, {"O": 6, "I": 4, "h": 3, "w": 3}, "C"),
    "groups": (ops.Conv2D(group=2), IMAGE, {"O": 3, "G": 2, "I": 2, "h": 2, "w": 1}, "C"),
    "depthwise": (ops.DepthwiseConv2D(), IMAGE, {"G": 4, "O": 2, "I": 1, "h": 2, "w": 2}, "C"),
    "Conv1D": (ops.Conv1D(), {"N": 1, "C": 3, "W": 7}, {"O": 5, "I": 3, "w": 3}, "C"),
    "Conv3D": (ops.Conv3D(), {"D": 3, **IMAGE}, {"O": 3, "I": 4, "d": 2, "h": 2, "w": 2}, "C"),
    "ConvTranspose": (ops.ConvTranspose(), IMAGE, {"I": 4, "O": 3, "h": 2, "w": 2}, "C"),
    "MatMul": (ops.MatMul("K"), {"M": 3, "K": 4}, {"K": 4, "N": 5}, "N"),
    "batched": (ops.MatMul("K"), {"B": 2, "M": 3, "K": 4}, {"N": 5, "B": 2, "K": 4}, "B"),
}


def normalize(g: Graph, x: VTensor, vector: Callable[..., VTensor]) -> VTensor:
    rows = (vector(), vector(), vector(), vector(np.random.default_rng(1).random))
    y: VTensor = g.add(ops.BatchNorm(), x, *rows)
    return y


#: Affine nodes behind it, as functions of the value and a maker of constant vectors.
AFFINE: dict[str, Affine] = {
    "BatchNorm": normalize,
    "BiasAdd": lambda g, x, vector: g.add(ops.BiasAdd(), x, vector()),
    "Mul": lambda g, x, vector: g.add(ops.Mul(), x, vector()),
    "Add": lambda g, x, vector: g.add(ops.Add(), x, vector()),
    "Sub": lambda g, x, vector: g.add(ops.Sub(), x, vector()),
    "Times": lambda g, x, vector: g.add(ops.Times(-1.5), x),
}


def chain(kind: str, behind: Sequence[str], dtype: str = "f32", seed: int = 0) -> Graph:
    """A linear node, affine ones behind it, and a Relu."""
    op, image, weights, dim = LINEAR[kind]
    rng, real = np.random.default_rng(seed), np.dtype("f4" if dtype == "f32" else "f8")
    g = Graph("chain")
    x = g.input("x", image, dtype)
    array = rng.standard_normal([*weights.values()]).astype("f4").astype(real)
    y = g.add(op, x, g.constant(array, list(weights), "w"), name="lead")

    def vector(draw: Callable[[int], Array] = rng.standard_normal) -> VTensor:
        return g.constant(draw(y.size(dim)).astype("f4").astype(real), dim)

    for name in behind:
        if not (name == "BatchNorm" and dim != "C"):  # which is along C alone
            y = AFFINE[name](g, y, vector)
    g.output(g.add(ops.Relu(), y, name="end"), "y")
    return g.seal()


def feeds(graph: Graph, seed: int = 0) -> dict[str, Array]:
    shape = [*graph.values["x"].dims.values()]
    dtype = "f4" if graph.values["x"].dtype == "f32" else "f8"
    return {"x": np.random.default_rng(seed).standard_normal(shape).astype("f4").astype(dtype)}


def check_same_values(kind: str, behind: Sequence[str], seed: int) -> None:
    """The folded graph in f32 gives the values of the one that is not, in NumPy's f64."""
    graph, exact = chain(kind, behind, seed=seed), chain(kind, behind, "f64", seed)
    folded = fold(graph)
    assert len(folded.nodes) <= 3, "the linear node, a bias, Relu"
    inner = [name for name in exact.values if name not in exact.constants and name != "end"]
    with Session(exact, optimize="none", libraries=["numpy"]) as session:
        expected, *values = session.run(["y", *inner], feeds(exact))
    largest = max(float(abs(value).max()) for value in values)
    for libraries in (["numpy"], None):
        with Session(folded, optimize="none", libraries=libraries) as session:
            [result] = session.run(None, feeds(graph))
        assert abs(result - expected).max() <= 1e-5 * max(largest, 1)


@laws(80)
@given(
    st.sampled_from([*LINEAR]),
    st.lists(st.sampled_from([*AFFINE]), min_size=1, max_size=3),
    st.integers(0, 9),
)
def test_values_stay(kind: str, behind: list[str], seed: int) -> None:
    check_same_values(kind, behind, seed)


@pytest.mark.parametrize("wrong", ["scaled", "bias"])
def test_a_wrong_fold_is_found(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    """The twin: what goes into the weights, or the bias, is a thousandth off."""
    right = getattr(Chain, wrong)
    monkeypatch.setattr(Chain, wrong, lambda *args: right(*args) * np.float32(1.001))
    with pytest.raises(AssertionError):
        check_same_values("Conv2D", ["BatchNorm"], 0)


def test_a_batch_normalization_leaves_a_bias_under_its_name() -> None:
    graph = chain("Conv2D", ["BiasAdd", "BatchNorm"])
    folded = fold(graph)
    assert operators(folded) == ["Conv2D", "BiasAdd", "Relu"]
    assert [*folded.nodes] == ["lead", "BatchNorm:0", "end"]
    assert folded.merged == {"BiasAdd:0": "lead", "BatchNorm:0": "lead"}
    assert operators(graph) == ["Conv2D", "BiasAdd", "BatchNorm", "Relu"], "it is as it was"


def test_factors_alone_leave_nothing() -> None:
    folded = fold(chain("MatMul", ["Mul", "Times"]))
    assert operators(folded) == ["MatMul", "Relu"]
    assert folded.nodes["lead"].outputs == folded.nodes["end"].inputs


def test_a_bias_alone_stays_as_it_is() -> None:
    folded = fold(chain("Conv2D", ["BiasAdd"]))
    assert not folded.merged
    assert str(folded) == str(chain("Conv2D", ["BiasAdd"]))


def pointwise(g: Graph) -> VTensor:
    weights = g.constant(np.full((4, 4, 1, 1), 9, "f4"), "O I h w")
    y: VTensor = g.add(ops.Conv2D(), g.input("x", IMAGE), weights)
    return y


def test_a_sum_with_a_constant_along_the_channels_is_a_bias() -> None:
    g = Graph("sum")
    shift = g.constant(np.arange(4, dtype="f4").reshape(1, 4, 1, 1), "N C H W")
    g.output(g.add(ops.Add(), pointwise(g), shift))
    folded = fold(g.seal())
    assert operators(folded) == ["Conv2D", "BiasAdd"]
    [*_, last] = folded.nodes.values()
    assert dict(folded.values[last.inputs[1]].dims) == {"C": 4}


def test_what_is_asked_for_is_not_folded_away() -> None:
    graph = chain("Conv2D", ["BatchNorm"])
    assert fold(graph.delivering(["lead"])).merged == {}
    assert fold(graph.delivering(["w"])).merged == {}
    with Session(graph, optimize=["fold"]) as session:
        assert [session.run([name], feeds(graph))[0].ndim for name in ("lead", "w")] == [4, 4]
        session.run(None, feeds(graph))
        assert session.plan.graph.merged == {"BatchNorm:0": "lead"}


@pytest.mark.parametrize("key", ["BatchNorm:0", "BatchNorm"])
def test_a_pinned_node_stays(key: str) -> None:
    graph = chain("Conv2D", ["BatchNorm"])
    assert fold(graph, preferences_of(pin={key: "numpy"})).merged == {}
    assert fold(graph, preferences_of(pin={"lead": "numpy"})).merged == {"BatchNorm:0": "lead"}


def of_two_readers(g: Graph) -> None:
    y = pointwise(g)
    g.output(g.add(ops.Add(), y, g.add(ops.Mul(), y, g.constant(np.ones(4, "f4"), "C"))))


def with_shared_weights(g: Graph) -> None:
    x, w = g.input("x", IMAGE), g.constant(np.ones((4, 4, 1, 1), "f4"), "O I h w")
    for factor in (2.0, 3.0):
        g.output(g.add(ops.Times(factor), g.add(ops.Conv2D(), x, w)))


def times(array: Array, dim: str = "C") -> Callable[[Graph], None]:
    """Return a maker of a convolution that is multiplied."""
    return lambda g: g.output(g.add(ops.Mul(), pointwise(g), g.constant(array, dim)))


STAYING: dict[str, Callable[[Graph], None]] = {
    "a value of two readers": of_two_readers,
    "shared weights": with_shared_weights,
    "what would not be a number": times(np.full(4, np.nan, "f4")),
    "what would be infinite": times(np.full(4, np.inf, "f4")),
    "what would be too large": times(np.full(4, 3e38, "f4")),
    "along another dim": times(np.ones(5, "f4"), "H"),
}


@pytest.mark.parametrize("kind", STAYING)
def test_what_cannot_be_folded_stays(kind: str) -> None:
    g = Graph(kind)
    STAYING[kind](g)
    assert fold(g.seal()).merged == {}


def test_equal_numbers_along_two_dims_are_two_factors() -> None:
    """They scale one array, which has two names; a plan for other layouts finds both packed."""
    g, rng = Graph("two"), np.random.default_rng(0)
    array, numbers = rng.standard_normal((8, 8), np.float32), np.arange(1, 9, dtype=np.float32)
    for dim in "TF":
        x, scale = g.input(f"x{dim}", {"N": 2, "T": 8, "F": 8}), g.constant(array, "T F")
        y, *_ = g.add(ops.LayerNormalization(("F",)), x, scale)
        g.output(g.add(ops.Mul(), y, g.constant(numbers, dim)))
    values = rng.standard_normal((2, 8, 8), np.float32)
    with Session(g.seal()) as session, Session(g, optimize="none") as plain:
        for array in (values, np.asfortranarray(values)):
            feed = dict.fromkeys(g.inputs, array)
            for got, expected in zip(session.run(None, feed), plain.run(None, feed), strict=True):
                np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_of_no_pictures_nothing_is_folded() -> None:
    """A constant of each picture, of which there are none."""
    g, rng = Graph("empty"), np.random.default_rng(0)
    w = g.constant(rng.standard_normal((4, 4), np.float32), "K C")
    product = g.add(ops.MatMul("K"), g.input("x", {"N": 0, "K": 4}), w)
    g.output(g.add(ops.Add(), product, g.constant(np.zeros((0, 4), np.float32), "N C")), "y")
    [y] = Session(g, threads=1).run(None, {"x": np.zeros((0, 4), np.float32)})
    assert y.shape == (0, 4)


def test_a_nan_comes_through() -> None:
    graph = chain("Conv2D", ["BatchNorm"])
    feed = feeds(graph)
    feed["x"][0, 0, 0, 0] = np.nan
    with Session(graph) as session, Session(graph, optimize="none", libraries=["numpy"]) as plain:
        result, expected = (each.run(None, feed)[0] for each in (session, plain))
        np.testing.assert_array_equal(np.isnan(result), np.isnan(expected))
        assert np.isnan(result).any()


def test_levels_say_whether_constants_are_folded() -> None:
    graph = chain("Conv2D", ["BatchNorm"])
    for optimize, folded in (("all", True), (["fold"], True), ("ewo", False), ("none", False)):
        with Session(graph, optimize=optimize) as session:
            assert ("fold" in session.plan.passes) is folded
            assert bool(session.plan.graph.merged) is folded


def test_new_weights_are_computed_when_they_are_read_and_not_kept() -> None:
    folded = fold(chain("Conv2D", ["BatchNorm"]))
    first, second = folded.constants["w"], folded.constants["w"]
    assert first is not second
    np.testing.assert_array_equal(first, second)
    asked = list[Array]()

    def computed(array: Array) -> Array:
        asked.append(array)
        return array

    constants = Computed({"w": np.ones(2)})
    constants.change("w", Made(computed, "asked"))
    assert "w" in constants
    assert "v" not in constants
    assert not asked
    assert (constants["w"] == 1).all()
    assert len(asked) == 1
