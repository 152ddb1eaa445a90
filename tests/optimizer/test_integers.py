"""Quantised networks: integers stay integers, in every form in which a model says so."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ops
from libdesc import without_invoker
from libdesc.preferences import Preferences
from libdesc.registry import registry
from libdesc.schema import Speed
from optimizer.integers import integers as in_integers
from tests.frontends.support import runtime
from tests.optimizer.graphs import operators, steps_of
from tests.optimizer.quantised import NETWORKS, output_step, quantised
from tests.property.strategies import laws
from vtensor import Graph, Session
from vtensor.commands.explain import explain_dict
from vtensor.language.dtype import numpy_dtype
from vtensor.language.tensor import VTensor
from vtensor.runtime.planning.library_options import preferences_of

IMAGE = {"N": 1, "C": 4, "H": 6, "W": 6}


def number(g: Graph, value: float, dtype: str = "f4") -> VTensor:
    return g.constant(np.array(value, dtype), "")


def encoded(g: Graph, x: VTensor, scale: float = 0.1, zero: int = 7) -> VTensor:
    y: VTensor = g.add(ops.QuantizeLinear("u8"), x, number(g, scale), number(g, zero, "u1"))
    return y


def decoded(g: Graph, x: VTensor, scale: float = 0.1, zero: int = 7) -> VTensor:
    y: VTensor = g.add(ops.DequantizeLinear(), x, number(g, scale), number(g, zero, "u1"))
    return y


def of_integers(add: Callable[[Graph, VTensor], VTensor]) -> Graph:
    g = Graph("integers")
    g.output(add(g, g.input("x", IMAGE, "u8")))
    return g.seal()


def agrees(graph: Graph, optimize: Any = "all") -> list[str]:
    """Check that a plan's answers are NumPy's on all that integers may be; return its steps."""
    x = np.resize(np.arange(256, dtype=np.uint8), [*IMAGE.values()])
    with (
        Session(graph, threads=1, optimize=optimize) as session,
        Session(graph, threads=1, optimize="none", libraries=["numpy"]) as plain,
    ):
        answers = zip(session.run(None, {"x": x}), plain.run(None, {"x": x}), strict=True)
        for answer, expected in answers:
            assert answer.dtype == expected.dtype
            np.testing.assert_allclose(answer, expected, rtol=1e-5, atol=1e-5)
        return steps_of(session)


# Kernels that are slower than those of numbers

PRODUCTS = ("ConvInteger", "MatMulInteger")

REASON = (
    r"\S+ is computed in f32: by declared speeds it takes \S+ us on integers, "
    r"\S+ in f32, conversions counted"
)


def declare(patch: pytest.MonkeyPatch, products: float, nbytes: float) -> None:
    """Declare how many times as fast as those of f32 the kernels of integers are."""
    speed = Speed("", products, nbytes)
    code = registry().libraries["narrow"].code
    patch.setitem(code, "speeds_handler", lambda: {"u8": speed, "s8": speed})


@pytest.mark.parametrize(("products", "wide"), [(0.1, True), (3.0, False)])
def test_a_slow_integer_kernel_is_not_used(
    products: float, wide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A product that loses less than the conversion of its operand takes stays on integers. Sums
    of numbers are exact here, so that answers are equal.
    """
    declare(monkeypatch, products, 0.2)
    g, image = Graph("net"), {"N": 1, "C": 32, "H": 16, "W": 16}
    rng = np.random.default_rng(3)
    y = g.input("x", image, "u8")
    for out, inner, size in ((32, 32, 3), (2, 32, 1)):
        w = g.constant(rng.integers(-9, 9, (out, inner, size, size), np.int8), "O I h w")
        w = g.add(ops.DequantizeLinear(), w, number(g, 0.25), number(g, 0, "i1"))
        window = ops.Conv2D(pads=(size // 2,) * 4)
        y = encoded(g, g.add(window, decoded(g, y, scale=0.125), w), scale=4.0)
    g.output(y)
    x = {"x": rng.integers(0, 255, [*image.values()], np.uint8)}
    with (
        Session(g.seal(), threads=1, cache_dir=None) as session,
        Session(g, threads=1, optimize="none", libraries=["numpy"]) as plain,
    ):
        np.testing.assert_array_equal(session.run(None, x)[0], plain.run(None, x)[0])
        names = " ".join(step.op for step in session.plan.steps)
        added = explain_dict(session.plan.graph, "net", others=False)["added"]
    assert names.count("ConvInteger") == (1 if wide else 2)
    assert len(added) == wide
    assert all(re.fullmatch(f"Conv2D {REASON}", row["text"]) for row in added)


@pytest.mark.parametrize("quantized", [True, False])
def test_a_quantization_that_only_numbers_need_counts(
    quantized: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory limits this product. On integers it is the faster one only if it stores bytes, and
    another step would have to quantize the numbers.
    """
    declare(monkeypatch, 3.0, 0.4)
    g = Graph("net")
    x = decoded(g, g.input("x", {"N": 1, "C": 4, "H": 96, "W": 96}, "u8"))
    w = g.constant(np.ones((64, 4, 1, 1), "i1"), "O I h w")
    w = g.add(ops.DequantizeLinear(), w, number(g, 0.25))
    y = g.add(ops.Relu(), g.add(ops.Conv2D(), x, w))
    g.output(encoded(g, y) if quantized else y)
    graph = in_integers(g.seal())
    assert ("ConvInteger" in operators(graph)) == quantized


# Whole networks


def plan_of(model: Any, feeds: Any) -> tuple[list[str], int, Any]:
    """Return the operators of a plan without Python, its Transforms, and its answer."""
    with Session(model, threads=1) as session:
        [answer] = session.run(None, feeds)
        steps = session.plan.steps
        assert not [step.op for step in steps if step.python]
        names = [step.op for step in steps]
        return [n for n in names if n != "Transform"], names.count("Transform"), answer


@pytest.mark.parametrize("per_channel", [False, True], ids=["whole", "channels"])
@pytest.mark.parametrize("types", ["u8 s8", "s8 s8", "u8 u8"])
@pytest.mark.parametrize("name", NETWORKS)
def test_both_forms_of_a_network_are_one_plan(
    name: str, types: str, per_channel: bool, tmp_path: Path
) -> None:
    network, (activations, weights) = NETWORKS[name](), types.split()
    feeds, found = network.feeds(9), []
    for form in ("qdq", "qop"):
        model = quantised(network, tmp_path, form, activations, weights, per_channel)
        steps, transforms, answer = plan_of(model, feeds)
        assert transforms <= 3
        [expected] = runtime(model, feeds, optimised=False)
        assert np.abs(answer - expected).max() <= 1.01 * output_step(model)
        found.append(steps)
    assert found[0] == found[1]
    assert not [step for step in found[0] if step.split(" ")[0] in ("Conv2D", "MatMul")]


@pytest.mark.parametrize("weights", ["s8", "u8"])
@pytest.mark.parametrize("name", NETWORKS)
def test_dynamic_scales(name: str, weights: str, tmp_path: Path) -> None:
    network = NETWORKS[name]()
    model = quantised(network, tmp_path, "dynamic", weights=weights)
    feeds = network.feeds(9)
    steps, _, answer = plan_of(model, feeds)
    [expected] = runtime(model, feeds, optimised=False)
    np.testing.assert_allclose(answer, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())
    assert "Cast" not in " ".join(steps)


def test_without_kernels_a_network_runs_wide(tmp_path: Path) -> None:
    network = NETWORKS["convolutions"]()
    model, feeds = quantised(network, tmp_path, "qdq"), network.feeds(9)
    integers = ("ConvInteger", "MatMulInteger")
    with without_invoker(integers[0], "narrow"), without_invoker(integers[1], "narrow"):
        steps, _, answer = plan_of(model, feeds)
    [expected] = runtime(model, feeds, optimised=False)
    assert np.abs(answer - expected).max() <= 1.01 * output_step(model)
    assert not [step for step in steps if step.split(" ")[0] in integers]


@pytest.mark.parametrize("form", ["qop", "dynamic"])
@pytest.mark.parametrize("name", NETWORKS)
def test_slow_operators_on_integers_run_wide(
    name: str, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums are exact in both types, and what follows them rounds alike."""
    network = NETWORKS[name]()
    model, feeds = quantised(network, tmp_path, form), network.feeds(9)
    steps, _, expected = plan_of(model, feeds)
    products = [step for step in steps if step.startswith(PRODUCTS)]
    declare(monkeypatch, 1e-3, 1e-3)
    wide, _, answer = plan_of(model, feeds)
    assert not [step for step in wide if step.startswith(PRODUCTS)]
    with Session(model, threads=1) as session:
        session.run(None, feeds)
        added = explain_dict(session.plan.graph, "net", others=False)["added"]
    assert len(added) == len(products) > 0
    assert all(re.fullmatch(f"(Conv|MatMul)Integer {REASON}", row["text"]) for row in added)
    if form == "qop":
        np.testing.assert_array_equal(answer, expected)
    np.testing.assert_allclose(answer, expected, rtol=1e-4, atol=1e-5)


@laws(80)
@given(
    terms=st.integers(1, 900),
    types=st.tuples(*[st.sampled_from(["u8", "s8"])] * 2),
    ends=st.tuples(*[st.integers(0, 255)] * 4),
    image=st.booleans(),
    steps=st.sampled_from([0, 1, 40]),
    seed=st.integers(0, 9),
)
def test_sums_of_integers_are_exact_in_f32(
    terms: int, types: Any, ends: Any, image: bool, steps: int, seed: int
) -> None:
    """A product whose sums may exceed 2^24 stays on integers."""
    (x_type, w_type), rng = types, np.random.default_rng(seed)
    bases = [-128 * (dtype == "s8") for dtype in types]
    x_zero, w_zero = (end + base for end, base in zip(ends[:2], bases, strict=True))
    low, high = sorted(end + bases[1] for end in ends[2:])
    w = rng.integers(low, high + 1, (terms, 3)).astype(numpy_dtype(w_type))
    x = rng.integers(bases[0], bases[0] + 256, (2, terms)).astype(numpy_dtype(x_type))
    x[0] = max(bases[0], bases[0] + 255, key=lambda end: abs(end - x_zero))
    g, op = Graph("sums"), ops.ConvInteger() if image else ops.MatMulInteger("C")
    if image:
        given_x = g.input("x", {"N": 2, "C": terms, "H": 1, "W": 1}, x_type)
        weights = g.constant(w.T.reshape(3, terms, 1, 1), "O I h w")
        x = x.reshape(2, terms, 1, 1)
    else:
        given_x = g.input("x", {"N": 2, "C": terms}, x_type)
        weights = g.constant(w, "C O")
    of_w = number(g, w_zero, numpy_dtype(w_type).str)
    if steps:  # a zero point for each output
        w_zero = np.clip(w_zero + steps * np.arange(-1, 2), bases[1], bases[1] + 255)
        of_w = g.constant(w_zero.astype(numpy_dtype(w_type)), "O")
    g.output(g.add(op, given_x, weights, number(g, x_zero, numpy_dtype(x_type).str), of_w))
    with pytest.MonkeyPatch.context() as patch:
        declare(patch, 1e-9, 1e-9)
        graph = in_integers(g.seal())
    sums = x.reshape(2, terms).astype(int) - x_zero, w.astype(int) - w_zero
    most = np.abs(sums[0]).max() * np.abs(sums[1]).sum(0).max()
    stays = op.__class__.__name__ in operators(graph)
    assert stays if most > 1 << 24 else (steps or not stays)
    with Session(graph, threads=1, optimize="none") as session:
        [answer] = session.run(None, {"x": x})
    np.testing.assert_array_equal(answer.reshape(2, 3), sums[0] @ sums[1])


# What moves

MOVERS: list[Callable[[Graph, VTensor], VTensor]] = [
    lambda g, x: g.add(ops.MaxPool((2, 2), (2, 2)), x),
    lambda g, x: g.add(ops.Reshape((("N", 1), ("A", 144))), x),
    lambda g, x: g.add(ops.Rename((("N", "N"), ("H", "H"), ("W", "W"), ("C", "C"))), x),
    lambda g, x: g.add(ops.Slice(("C",), (0,), (2,), (1,)), x),
    lambda g, x: g.add(ops.Concat("C"), x, x),
    lambda g, x: g.add(ops.Expand((("B", 2),)), x),
    lambda g, x: g.add(ops.Tile((("H", 2),)), x),
    lambda g, x: g.add(ops.Pad(("H",), (1, 1), value=0.0), x),
    lambda g, x: g.add(ops.Resize(("H", "W"), (12, 12), (2.0, 2.0)), x),
    lambda g, x: g.add(ops.DepthToSpace(2), x),
    lambda g, x: g.add(ops.SpaceToDepth(2), x),
    lambda g, x: g.add(ops.ReduceMax(("H", "W")), x),
    lambda g, x: g.add(ops.Gather("C"), x, g.constant(np.array([2, 0]), "c")),
]
NAMES = [
    *("MaxPool", "Reshape", "Rename", "Slice", "Concat", "Expand", "Tile", "Pad", "Resize"),
    *("DepthToSpace", "SpaceToDepth", "ReduceMax", "Gather"),
]


@pytest.mark.parametrize("move", MOVERS, ids=NAMES)
def test_what_only_moves_moves_integers(move: Callable[[Graph, VTensor], VTensor]) -> None:
    graph = of_integers(lambda g, x: encoded(g, move(g, decoded(g, x))))
    assert not {"QuantizeLinear", "DequantizeLinear"} & {*operators(in_integers(graph))}
    agrees(graph)


@pytest.mark.parametrize("move", MOVERS, ids=NAMES)
def test_a_dequantization_sinks_below_what_moves(move: Callable[[Graph, VTensor], VTensor]) -> None:
    graph = of_integers(lambda g, x: g.add(ops.Sigmoid(), move(g, decoded(g, x))))
    assert operators(in_integers(graph))[-2:] == ["DequantizeLinear", "Sigmoid"]
    agrees(graph)


def test_other_codes_stay() -> None:
    """The twin: a scale or a zero point that differs is no code that cancels."""
    for scale, zero in ((0.2, 7), (0.1, 8)):
        graph = of_integers(lambda g, x, s=scale, z=zero: encoded(g, decoded(g, x), s, z))  # type: ignore[misc]
        assert operators(in_integers(graph)) == ["DequantizeLinear", "QuantizeLinear"]
        agrees(graph)


def test_parts_of_other_codes_are_requantised_one_by_one() -> None:
    def joined(g: Graph, x: VTensor) -> VTensor:
        parts = decoded(g, x), decoded(g, x, 0.2)
        return encoded(g, g.add(ops.Concat("C"), *parts))

    graph = of_integers(joined)
    assert sorted(operators(in_integers(graph))) == ["Concat", "DequantizeLinear", "QuantizeLinear"]
    agrees(graph)


def test_a_value_is_dequantised_for_each_reader() -> None:
    def read_thrice(g: Graph, x: VTensor) -> VTensor:
        y = decoded(g, x)
        pooled = encoded(g, g.add(ops.MaxPool((2, 2), (2, 2)), y))
        g.output(pooled, "pooled")
        g.output(encoded(g, y), "same")
        last: VTensor = g.add(ops.Sigmoid(), y)
        return last

    graph = of_integers(read_thrice)
    assert sorted(operators(in_integers(graph))) == [
        "DequantizeLinear",
        "Identity",
        "MaxPool",
        "Sigmoid",
    ]
    agrees(graph)


@pytest.mark.parametrize("pin", [{"MaxPool": "onednn"}, {"DequantizeLinear": "eigen"}])
def test_pinned_nodes_stay(pin: dict[str, str]) -> None:
    graph = of_integers(lambda g, x: encoded(g, MOVERS[0](g, decoded(g, x))))
    assert len(operators(in_integers(graph, preferences_of(pin=pin)))) == 3


def test_what_is_delivered_stays() -> None:
    def delivered(g: Graph, x: VTensor) -> VTensor:
        y = decoded(g, x)
        g.output(y, "numbers")
        return encoded(g, MOVERS[0](g, y))

    graph = of_integers(delivered)
    assert sorted(operators(in_integers(graph))) == ["DequantizeLinear", "MaxPool"]
    agrees(graph)


def test_a_border_is_no_integer() -> None:
    """A number between two steps cannot be put around integers below a dequantization."""
    pad = ops.Pad(("H",), (1, 1), value=0.123)
    graph = of_integers(lambda g, x: g.add(pad, decoded(g, x)))
    assert operators(in_integers(graph)) == ["DequantizeLinear", "Pad"]
    agrees(graph)


@pytest.mark.parametrize("level", ["none", "all", ("all", "-integers")])
def test_constants_of_integers_are_constants_at_every_level(level: Any) -> None:
    def add(g: Graph, x: VTensor) -> VTensor:
        w = g.constant(np.arange(-8, 8, dtype=np.int8).reshape(4, 4), "O I")
        scale = g.constant(np.linspace(0.1, 0.4, 4, dtype=np.float32), "O")
        y = g.add(ops.Sigmoid(), decoded(g, x))
        numbers = g.add(ops.DequantizeLinear(), w, scale)
        numbers = g.add(ops.Rename((("I", "C"),)), numbers)
        last: VTensor = g.add(ops.MatMul("C"), y, numbers)
        return last

    steps = agrees(of_integers(add), optimize=level)
    assert len([step for step in steps if "DequantizeLinear" in step]) == 1


def test_a_graph_without_integers_is_the_same() -> None:
    g = Graph("floats")
    g.output(g.add(ops.Relu(), g.input("x", IMAGE)))
    assert operators(in_integers(g.seal(), Preferences())) == ["Relu"]
