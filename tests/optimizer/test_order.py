"""A change of the order of dims is behind element-wise nodes; values and their orders stay."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from ops import Add, Exp, MatMul, Max, Mul, Rename, Sub, Tanh
from optimizer.constants.computed import Computed, origin
from optimizer.constants.originals import Original, Originals
from optimizer.pipeline import simplify
from vtensor import Session
from vtensor.language.graph import Graph
from vtensor.language.records import replace
from vtensor.language.tensor import VTensor

SIZES = {"N": 2, "C": 3, "H": 4, "W": 5}


def turned(g: Graph, x: VTensor, dims: str) -> VTensor:
    made: VTensor = g.add(Rename(tuple((dim, dim) for dim in dims)), x)
    return made


def constant(g: Graph, dims: str, random: np.random.Generator, ones: str = "") -> VTensor:
    sizes = [1 if dim in ones else SIZES[dim] for dim in dims]
    return g.constant(random.standard_normal(sizes, np.float32), list(dims))


def scaled_product(outside: bool = False) -> Graph:
    """A product whose columns become channels, times a number a channel, plus a residual."""
    g, random = Graph("scaled"), np.random.default_rng(0)
    x = g.input("x", {"N": 2, "H": 4, "W": 5, "K": 6})
    residual = g.input("r", SIZES)
    weights = g.constant(random.standard_normal((6, 3), np.float32), ["K", "C"])
    y = turned(g, g.add(MatMul("K"), x, weights), "NCHW")
    if outside:
        g.output(y, "product")
    y = g.add(Mul(), constant(g, "NCHW", random, "NHW"), y)
    g.output(g.add(Add(), y, residual), "y")
    return g.seal()


def drawn(seed: int) -> Graph:
    """Element-wise nodes and changes of order, each on any of the values before."""
    g, random, numbers = Graph("drawn"), Random(seed), np.random.default_rng(seed)
    values = [g.input("x", SIZES), g.input("z", {"W": 5, "C": 3})]
    for _ in range(9):
        value = random.choice(values)
        kind = random.choice(("order", "unary", "binary", "constant"))
        if kind == "order":
            values.append(turned(g, value, "".join(random.sample([*value.dims], len(value.dims)))))
        elif kind == "unary":
            values.append(g.add(random.choice((Exp(), Tanh())), g.add(Tanh(), value)))
        else:
            dims = "".join(random.sample("NCHW", random.randint(1, 4)))
            ones = random.choice(("", dims[0]))
            other = constant(g, dims, numbers, ones)
            pair = [value, random.choice(values) if kind == "binary" else other]
            random.shuffle(pair)
            values.append(g.add(random.choice((Add(), Mul(), Sub(), Max())), *pair))
    for index, value in enumerate({value.name: value for value in values[-3:]}.values()):
        g.output(value, f"y{index}")
    return g.seal()


def run(graph: Graph, optimize: list[str]) -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    feeds = {
        name: random.standard_normal([*graph.values[name].dims.values()], np.float32)
        for name in graph.inputs
    }
    with Session(graph, optimize=optimize) as session:
        return dict(zip(graph.outputs, session.run(None, feeds), strict=True))


@pytest.mark.parametrize("seed", range(12))
def test_values_and_orders_stay(seed: int) -> None:
    graph = drawn(seed)
    found, expected = run(graph, ["order"]), run(graph, [])
    for name, wanted in expected.items():
        assert found[name].shape == wanted.shape
        np.testing.assert_allclose(found[name], wanted, rtol=1e-5, atol=1e-6)


def test_what_is_behind_a_change_of_order_is_folded_and_fused() -> None:
    graph = scaled_product()
    with Session(graph) as session:
        steps = [step for step in session.plan.steps if step.kernels and not step.is_transform]
        assert [step.op for step in steps] == ["MatMul + Add"]
    np.testing.assert_allclose(run(graph, ["all"])["y"], run(graph, [])["y"], rtol=1e-4, atol=1e-5)


def test_what_is_delivered_keeps_its_order() -> None:
    graph = scaled_product(outside=True)
    found, expected = run(graph, ["all"]), run(graph, [])
    for name, wanted in expected.items():
        np.testing.assert_allclose(found[name], wanted, rtol=1e-4, atol=1e-5)


def test_without_a_change_of_order_the_graph_is_the_same() -> None:
    g = Graph("plain")
    g.output(g.add(Exp(), g.input("x", SIZES)))
    graph = g.seal()
    assert str(simplify(graph, ["order"])) == str(graph)


@pytest.mark.parametrize("batch", [1, 2])
def test_a_graph_is_the_same_whatever_its_sizes_are(batch: int) -> None:
    """Also where a constant's dim has one element, for it may have more in other sizes."""
    g = Graph("batch")
    x = g.input("x", {"N": batch, "C": 3, "W": 5})
    added = g.constant(np.ones((3, batch, 5), np.float32), ["C", "N", "W"])
    g.output(g.add(Add(), turned(g, x, "CNW"), added), "y")
    simple = simplify(g.seal(), ["order"])
    [node] = [node for node in simple.nodes.values() if node.op_name == "Add"]
    assert [[*simple.values[name].dims] for name in node.inputs] == [["N", "C", "W"]] * 2
    assert simple.constants[node.inputs[1]].shape == (batch, 3, 5)


def test_an_array_of_a_file_is_turned_as_whoever_keeps_it_knows() -> None:
    """So that a plan is kept that has it, and nobody looks at it before."""
    whole = Original(np.arange(30, dtype=np.float32).reshape(3, 2, 5))
    name, constants = simplified_with(Originals({"c": whole}))
    assert origin(constants, name) == (whole.turned((1, 0, 2)), None)
    assert not whole.asks
    np.testing.assert_array_equal(constants[name], whole.now().transpose(1, 0, 2))


def test_what_is_turned_and_what_is_cut_are_two() -> None:
    """The same numbers say both: a part of an axis, and an order of three."""
    whole = np.arange(30, dtype=np.float32).reshape(3, 2, 5)
    name, constants = simplified_with({"c": whole})
    array, change = origin(constants, name)
    assert array is whole
    assert change == (None, ("turned", (1, 0, 2)))
    np.testing.assert_array_equal(constants[name], whole.transpose(1, 0, 2))


def simplified_with(constants: Any) -> tuple[str, Computed]:
    """A constant behind whose reader is a change of order: its name there, and all constants."""
    g = Graph("turned")
    x = g.input("x", {"N": 2, "C": 3, "W": 5})
    c = g.constant(np.zeros((3, 2, 5), np.float32), ["C", "N", "W"], name="c")
    g.output(g.add(Add(), turned(g, x, "CNW"), c), "y")
    simple = simplify(replace(g.seal(), constants=constants), ["order"])
    [node] = [node for node in simple.nodes.values() if node.op_name == "Add"]
    assert isinstance(simple.constants, Computed)
    return node.inputs[1], simple.constants
