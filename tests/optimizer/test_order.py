"""Copies and changes of the order of dims move after element-wise nodes; values stay."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from ops import Add, Conv2D, Exp, Identity, MatMul, Max, Mul, Relu, Rename, Sub, Tanh
from optimizer.bypass import bypass
from optimizer.constants.computed import Computed, origin
from optimizer.constants.originals import Original, Originals
from optimizer.pipeline import simplify
from tests.optimizer.graphs import compared, operators, steps_of
from vtensor.language.graph import Graph
from vtensor.language.records import replace
from vtensor.language.tensor import VTensor
from vtensor.runtime.planning.library_options import preferences_of

SIZES = {"N": 2, "C": 3, "H": 4, "W": 5}


def turned(g: Graph, x: VTensor, dims: str) -> VTensor:
    value: VTensor = g.add(Rename(tuple((dim, dim) for dim in dims)), x)
    return value


def constant(g: Graph, dims: str, random: np.random.Generator, ones: str = "") -> VTensor:
    sizes = [1 if dim in ones else SIZES[dim] for dim in dims]
    return g.constant(random.standard_normal(sizes, np.float32), list(dims))


def scaled_product(outside: bool) -> Graph:
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
            other = constant(g, dims, numbers, random.choice(("", dims[0])))
            pair = [value, random.choice(values) if kind == "binary" else other]
            random.shuffle(pair)
            values.append(g.add(random.choice((Add(), Mul(), Sub(), Max())), *pair))
    for index, value in enumerate({value.name: value for value in values[-3:]}.values()):
        g.output(value, f"y{index}")
    return g.seal()


@pytest.mark.parametrize("seed", range(12))
def test_values_and_orders_stay(seed: int) -> None:
    compared(drawn(seed), 1e-5, 1e-6, {"optimize": []}, optimize=["order"])


@pytest.mark.parametrize("outside", [False, True])
def test_what_is_after_a_change_of_order_is_folded_and_fused(outside: bool) -> None:
    """What is delivered keeps its order."""
    session = compared(scaled_product(outside), plain={"optimize": []}, optimize=["all"])
    steps = [step for step in session.plan.steps if step.kernels and not step.is_transform]
    assert outside or [step.op for step in steps] == ["MatMul + Add"]


def test_without_a_change_of_order_the_graph_is_the_same() -> None:
    g = Graph("plain")
    g.output(g.add(Exp(), g.input("x", SIZES)))
    graph = g.seal()
    assert str(simplify(graph, ["order"])) == str(graph)


def simplified_with(constants: Any, batch: int = 2) -> tuple[str, Graph]:
    """A sum with a constant before a change of order: the constant's new name, and the graph."""
    g = Graph("turned")
    x = g.input("x", {"N": batch, "C": 3, "W": 5})
    c = g.constant(np.zeros((3, batch, 5), np.float32), ["C", "N", "W"], name="c")
    g.output(g.add(Add(), turned(g, x, "CNW"), c), "y")
    simple = simplify(replace(g.seal(), constants=constants), ["order"])
    [node] = [node for node in simple.nodes.values() if node.op_name == "Add"]
    assert [[*simple.values[name].dims] for name in node.inputs] == [["N", "C", "W"]] * 2
    assert isinstance(simple.constants, Computed)
    return node.inputs[1], simple


@pytest.mark.parametrize("batch", [1, 2])
def test_a_graph_is_the_same_whatever_its_sizes_are(batch: int) -> None:
    """Also where a constant's dim has one element, for it may have more in other sizes."""
    name, simple = simplified_with({"c": np.ones((3, batch, 5), np.float32)}, batch)
    assert simple.constants[name].shape == (batch, 3, 5)


def test_an_array_of_a_file_is_turned_without_being_read() -> None:
    """So that a plan is cached that has it, and nothing looks at it before."""
    whole = Original(np.arange(30, dtype=np.float32).reshape(3, 2, 5))
    name, simple = simplified_with(Originals({"c": whole}))
    assert origin(simple.constants, name) == (whole.turned((1, 0, 2)), None)
    assert not whole.asks
    np.testing.assert_array_equal(simple.constants[name], whole.now().transpose(1, 0, 2))


def test_what_is_turned_and_what_is_cut_are_two() -> None:
    """The same numbers say both: a part of an axis, and an order of three."""
    whole = np.arange(30, dtype=np.float32).reshape(3, 2, 5)
    name, simple = simplified_with({"c": whole})
    array, change = origin(simple.constants, name)
    assert array is whole
    assert change == (None, ("turned", (1, 0, 2)))
    np.testing.assert_array_equal(simple.constants[name], whole.transpose(1, 0, 2))


def copies() -> Graph:
    """A convolution, a copy, a relu, and a copy that is delivered."""
    g = Graph("copies")
    w = g.constant(np.ones((4, 3, 1, 1), "f4"), "O I h w")
    y = g.add(Conv2D(), g.input("x", {"N": 1, "C": 3, "H": 5, "W": 5}), w)
    g.output(g.add(Identity(), g.add(Relu(), g.add(Identity(), y))), "y")
    return g.seal()


def test_only_a_copy_that_is_delivered_or_pinned_stays() -> None:
    graph, all_nodes = copies(), ["Conv2D", "Identity", "Relu", "Identity"]
    assert operators(bypass(graph)) == ["Conv2D", "Relu", "Identity"]
    assert operators(graph) == all_nodes, "it is as it was"
    [copy] = next(node for node in graph.nodes.values() if node.op_name == "Relu").inputs
    assert operators(bypass(graph.delivering([copy]))) == all_nodes
    assert operators(bypass(graph, preferences_of(pin={"Identity": "numpy"}))) == all_nodes


def test_what_is_after_a_copy_is_fused() -> None:
    assert "Conv2D + Relu" in steps_of(compared(copies(), 1e-5, 0))
