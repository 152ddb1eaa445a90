"""Products of which only slices are read are computed in slices; values stay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from ops import Add, BiasAdd, Gelu, MatMul, Rename, Reshape, Slice
from optimizer.pipeline import simplify
from vtensor import Session
from vtensor.language.graph import Graph
from vtensor.language.tensor import VTensor


def product(g: Graph, columns: int, dims: str = "N T") -> VTensor:
    """x times a matrix of so many columns ``M``."""
    x = g.input("x", {**dict.fromkeys(dims.split(), 3), "K": 20})
    weights = np.random.default_rng(0).standard_normal((20, columns)).astype("f4")
    made: VTensor = g.add(MatMul("K"), x, g.constant(weights, "K M"), name="product")
    return made


def cut(g: Graph, x: VTensor, dim: str, begin: int, end: int) -> VTensor:
    made: VTensor = g.add(Slice((dim,), (begin,), (end,), (1,)), x)
    return made


def heads(parts: int = 3, behind: Sequence[object] = (), axis: str = "P") -> Graph:
    """Queries, keys and values of two heads: a product, reshaped, turned and cut."""
    g = Graph("heads")
    y = product(g, parts * 2 * 32)
    for op in behind:
        bias = np.linspace(-1, 1, parts * 64).astype("f4")
        y = g.add(op, y, g.constant(bias, "M")) if isinstance(op, BiasAdd) else g.add(op, y)
    y = g.add(Reshape((("N", 3), ("T", 3), ("P", parts), ("G", 2), ("D", 32))), y)
    y = g.add(Rename((("P", "Q"), ("N", "N"), ("G", "G"), ("T", "T"), ("D", "D"))), y)
    for i in range(parts):
        g.output(cut(g, y, "Q", i - parts if i == parts - 1 else i, i + 1 if i else 1), f"y{i}")
    return g.seal()


def fitting(graph: Graph) -> list[str]:
    """What is left of the nodes' operators, views aside."""
    nodes = simplify(graph, ["part"]).nodes.values()
    return [node.op_name for node in nodes if node.op_name not in ("Reshape", "Rename")]


def check_values(graph: Graph, **options: Any) -> None:
    feeds = np.random.default_rng(1).standard_normal([*graph.values["x"].dims.values()])
    with Session(graph, **options) as session, Session(graph, optimize="none") as plain:
        found, expected = (one.run(None, {"x": feeds.astype("f4")}) for one in (session, plain))
        for value, wanted in zip(found, expected, strict=True):
            assert value.shape == wanted.shape
            np.testing.assert_allclose(value, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("parts", [2, 3, 5])
@pytest.mark.parametrize("behind", [[], [BiasAdd()], [BiasAdd(), Gelu()]])
def test_queries_keys_and_values_are_products_of_their_own(parts: int, behind: list[Any]) -> None:
    graph = heads(parts, behind)
    assert fitting(graph) == ["MatMul", *(op.__class__.__name__ for op in behind)] * parts
    check_values(graph)
    check_values(graph, optimize=["part"])


def test_what_is_merged_has_an_order_in_every_process() -> None:
    """Entries of the cache go by it."""
    graph = heads(8)
    merged = [*simplify(graph, ["part"]).merged]
    assert len(merged) > 6
    assert merged == [name for name in graph.nodes if name in merged]


@pytest.mark.parametrize(
    "cuts", [[(0, 64), (64, 192)], [(64, 128), (128, 192)], [(-64, 999), (0, 70)]]
)
def test_columns_need_not_be_reshaped_nor_all_be_read(cuts: list[tuple[int, int]]) -> None:
    g = Graph("columns")
    y = product(g, 192, "N")
    for begin, end in cuts:
        g.output(cut(g, y, "M", begin, end))
    graph = g.seal()
    assert fitting(graph) == ["MatMul", "MatMul"]
    check_values(graph)


def test_several_plans_pack_a_matrix_once() -> None:
    """What parts are made of is known, so that plans of other sizes find them packed."""
    g = Graph("open")
    x = g.input("x", {"N": None, "K": 20})
    weights = np.random.default_rng(0).standard_normal((20, 128)).astype("f4")
    y = g.add(MatMul("K"), x, g.constant(weights, "K M"))
    g.output(cut(g, y, "M", 0, 64), "a")
    g.output(cut(g, y, "M", 64, 128), "b")
    with Session(g.seal()) as session:
        first = session.run(None, {"x": np.ones((2, 20), "f4")})
        second = session.run(None, {"x": np.ones((5, 20), "f4")})
    for one, other in zip(first, second, strict=True):
        np.testing.assert_allclose(one, other[:2], rtol=1e-5)


def test_several_plans_have_large_parts_in_memory_once() -> None:
    """Each plan would cut them out of the matrix for itself, which a file may be read for."""
    g = Graph("open")
    x = g.input("x", {"N": None, "K": 512})
    weights = np.random.default_rng(0).standard_normal((512, 256)).astype("f4")
    y = g.add(MatMul("K"), x, g.constant(weights, "K M"))
    g.output(cut(g, y, "M", 0, 128), "a")
    g.output(cut(g, y, "M", 128, 256), "b")
    with Session(g.seal(), threads=1, cache_dir=None, libraries=["eigen"]) as session:
        for size in (2, 5, 9):  # of Eigen, which reads a matrix as it lies
            one, other = session.run(None, {"x": np.ones((size, 512), "f4")})
            np.testing.assert_allclose(one[-1], weights[:, :128].sum(0), atol=1e-3)
            np.testing.assert_allclose(other[-1], weights[:, 128:].sum(0), atol=1e-3)
            assert session.memory.weights == weights.nbytes


def refused(kind: str) -> Graph:
    g = Graph(kind)
    y = product(g, 192 if kind != "thin" else 96)
    if kind == "inner":  # the heads come first: a slice of each
        y = g.add(Reshape((("N", 3), ("T", 3), ("G", 2), ("M", 96))), y)
    if kind == "rows":
        for i in range(3):
            g.output(cut(g, y, "N", i, i + 1), f"y{i}")
        return g.seal()
    if kind == "two values":
        y = g.add(Add(), y, g.input("z", {"N": 3, "T": 3, "M": 192}))
    half = y.size("M") // 2
    over = 1 if kind == "overlap" else 0
    g.output(cut(g, y, "M", 0, half + over), "a")
    g.output(cut(g, y, "M", half, 2 * half), "b")
    if kind == "read":
        g.output(y, "all")
    return g.seal()


@pytest.mark.parametrize("kind", ["inner", "rows", "two values", "thin", "overlap", "read"])
def test_what_cannot_or_should_not_be_cut_stays(kind: str) -> None:
    graph = refused(kind)
    assert str(simplify(graph, ["part"])) == str(graph)


def test_a_pinned_product_stays() -> None:
    with Session(heads(), pin={"product": "onednn"}) as session:
        assert sum(step.op == "Slice" for step in session.plan.steps) == 3
