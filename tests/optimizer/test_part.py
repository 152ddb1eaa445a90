"""Products of which only slices are read are computed in slices; values stay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from ops import Add, BiasAdd, Gelu, MatMul, Rename, Reshape, Slice
from optimizer.pipeline import simplify
from tests.optimizer.graphs import compared, operators, steps_of
from vtensor import Session
from vtensor.language.graph import Graph
from vtensor.language.tensor import VTensor


def product(g: Graph, columns: int, dims: str = "N T") -> VTensor:
    """x times a matrix of so many columns ``M``."""
    x = g.input("x", {**dict.fromkeys(dims.split(), 3), "K": 20})
    weights = np.random.default_rng(0).standard_normal((20, columns)).astype("f4")
    y: VTensor = g.add(MatMul("K"), x, g.constant(weights, "K M"), name="product")
    return y


def cut(g: Graph, x: VTensor, dim: str, begin: int, end: int) -> VTensor:
    part: VTensor = g.add(Slice((dim,), (begin,), (end,), (1,)), x)
    return part


def heads(parts: int = 3, more: Sequence[object] = ()) -> Graph:
    """Queries, keys and values of two heads: a product, reshaped, turned and cut."""
    g = Graph("heads")
    y = product(g, parts * 2 * 32)
    for op in more:
        bias = np.linspace(-1, 1, parts * 64).astype("f4")
        y = g.add(op, y, g.constant(bias, "M")) if isinstance(op, BiasAdd) else g.add(op, y)
    y = g.add(Reshape((("N", 3), ("T", 3), ("P", parts), ("G", 2), ("D", 32))), y)
    y = g.add(Rename((("P", "Q"), ("N", "N"), ("G", "G"), ("T", "T"), ("D", "D"))), y)
    for i in range(parts):
        g.output(cut(g, y, "Q", i - parts if i == parts - 1 else i, i + 1 if i else 1), f"y{i}")
    return g.seal()


def fitting(graph: Graph) -> list[str]:
    """What is left of the nodes' operators, views aside."""
    return [op for op in operators(simplify(graph, ["part"])) if op not in ("Reshape", "Rename")]


@pytest.mark.parametrize("parts", [2, 3, 5])
@pytest.mark.parametrize("more", [[], [BiasAdd()], [BiasAdd(), Gelu()]])
def test_queries_keys_and_values_are_products_of_their_own(parts: int, more: list[Any]) -> None:
    graph = heads(parts, more)
    assert fitting(graph) == ["MatMul", *(type(op).__name__ for op in more)] * parts
    compared(graph)
    compared(graph, optimize=["part"])


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
    compared(graph)


@pytest.mark.parametrize(("side", "libraries"), [(64, None), (512, ["eigen"])])
def test_several_plans_have_parts_in_memory_once(side: int, libraries: list[str] | None) -> None:
    """What parts are made of is known, so plans of other sizes find them packed, or cut already."""
    g = Graph("open")
    x = g.input("x", {"N": None, "K": side})
    weights = np.random.default_rng(0).standard_normal((side, side // 2)).astype("f4")
    y = g.add(MatMul("K"), x, g.constant(weights, "K M"))
    g.output(cut(g, y, "M", 0, side // 4), "a")
    g.output(cut(g, y, "M", side // 4, side // 2), "b")
    with Session(g.seal(), threads=1, cache_dir=None, libraries=libraries) as session:
        for size in (2, 5, 9):
            parts = session.run(None, {"x": np.ones((size, side), "f4")})
            for part, columns in zip(parts, np.split(weights, 2, axis=1), strict=True):
                np.testing.assert_allclose(part[-1], columns.sum(0), atol=1e-3)
            if libraries:  # Eigen reads a matrix as it lies
                assert session.memory.weights == weights.nbytes


def refused(kind: str) -> Graph:
    """A product that cannot or should not be cut."""
    g = Graph(kind)
    y = product(g, 192 if kind != "thin" else 96)
    if kind == "inner":  # the heads come first: a slice of each
        y = g.add(Reshape((("N", 3), ("T", 3), ("G", 2), ("M", 96))), y)
    if kind == "two values":
        y = g.add(Add(), y, g.input("z", {"N": 3, "T": 3, "M": 192}))
    dim, half = ("N", 2) if kind == "rows" else ("M", y.size("M") // 2)
    g.output(cut(g, y, dim, 0, half + (kind == "overlap")), "a")
    g.output(cut(g, y, dim, half, y.size(dim)), "b")
    if kind == "read":
        g.output(y, "all")
    return g.seal()


@pytest.mark.parametrize("kind", ["inner", "rows", "two values", "thin", "overlap", "read"])
def test_what_cannot_or_should_not_be_cut_stays(kind: str) -> None:
    graph = refused(kind)
    assert str(simplify(graph, ["part"])) == str(graph)


def test_a_pinned_product_stays() -> None:
    with Session(heads(), pin={"product": "onednn"}) as session:
        assert steps_of(session).count("Slice") == 3
