"""Random graphs: chains and forks of operators, names of any kind, open sizes, scopes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

import ops
from vtensor import Graph, VTensor
from vtensor.errors import DimError, GraphError

WORDS = ["graph", "input", "as", "@", ":", "=", 'a"b', "a, b", "(x)", "\\", "é ", "\n"]
#: What a name may be: what the text's own words are, too, and what it must put in quotes.
NAMES = st.one_of(
    st.sampled_from(WORDS),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5),
)


@st.composite
def graphs(draw: st.DrawFn, open_sizes: bool = True) -> Graph:
    """Draw a graph of up to eight nodes with one or two inputs."""
    graph = Graph(draw(NAMES))
    sizes = {"A": draw(st.sampled_from([2, None])) if open_sizes else 2, "B": 3, "C": 4}
    values = [graph.input(f"x{i}", sizes) for i in range(draw(st.integers(1, 2)))]
    for _ in range(draw(st.integers(1, 8))):
        with graph.scope(draw(st.sampled_from(["s", "s", "a b"]))):
            x, y = draw(st.sampled_from(values)), draw(st.sampled_from(values))
            name = draw(st.one_of(st.just(""), NAMES))
            try:
                op, *operands = _node(draw, graph, x, y)
                values.append(graph.add(op, *operands, name=name))
            except (DimError, GraphError):
                continue  # the name is taken, or these two do not go together
    for value in draw(st.lists(st.sampled_from(values), min_size=1, max_size=3, unique_by=id)):
        graph.output(value)
    return graph.seal()


def _node(draw: st.DrawFn, graph: Graph, x: VTensor, y: VTensor) -> Any:
    """Draw an operator on x, and on y or a constant."""
    dims = list(x.dims)
    axis = draw(st.sampled_from(dims)) if dims else ""

    def product() -> Any:
        w = graph.constant(np.full((4, 2), 0.5, np.float32), draw(st.sampled_from(["C K", "K C"])))
        return ops.MatMul(draw(st.sampled_from("CK"))), x, w

    flat = tuple((f"{dim}1", size) for dim, size in reversed([*x.dims.items()]))
    ways: list[Callable[[], Any]] = [
        lambda: (ops.Add(), x, y),
        lambda: (ops.Mul(), x, y),
        lambda: (ops.Relu(), x),
        lambda: (ops.Clip(draw(st.sampled_from([-np.inf, -1.0])), 0.5), x),
        lambda: (ops.BiasAdd(), x, graph.constant(np.arange(4, dtype=np.float32), "C")),
        lambda: (ops.Concat(axis), x, y),
        product,
        lambda: (ops.Einsum(tuple(dims)), x, y),
        lambda: (ops.Mean((axis,), draw(st.booleans())), x),
        lambda: (ops.Pad((axis,), (1, 0), value=draw(st.floats(-1, 1, width=32))), x),
        lambda: (ops.Rename(tuple(zip(dims, draw(st.permutations("ABCD")), strict=False))), x),
        lambda: (ops.Reshape(flat), x),
        lambda: (ops.Softmax((axis,)), x),
    ]
    return draw(st.sampled_from(ways))()
