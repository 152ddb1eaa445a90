"""Random graphs: chains and forks of operators, names of any kind, open sizes, scopes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from ops import (
    Add,
    BiasAdd,
    Clip,
    Concat,
    Einsum,
    MatMul,
    Mean,
    Mul,
    Pad,
    Relu,
    Rename,
    Reshape,
    Softmax,
)
from vtensor import Graph, VTensor
from vtensor.errors import DimError, GraphError

#: What a name may be: what the text's own words are, too, and what it must put in quotes.
NAMES = st.one_of(
    st.sampled_from(
        ["graph", "input", "as", "@", ":", "=", 'a"b', "a, b", "(x)", "\\", "é ", "\n"]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5),
)
DIMS = "ABCD"


@st.composite
def graphs(draw: st.DrawFn, open_sizes: bool = True) -> Graph:
    """A graph of up to eight nodes with one or two inputs."""
    graph = Graph(draw(NAMES))
    leading = draw(st.sampled_from([2, None])) if open_sizes else 2
    values = [
        graph.input(f"x{i}", {"A": leading, "B": 3, "C": 4}) for i in range(draw(st.integers(1, 2)))
    ]
    for _ in range(draw(st.integers(1, 8))):
        with graph.scope(draw(st.sampled_from(["s", "s", "a b"]))):
            x, y = draw(st.sampled_from(values)), draw(st.sampled_from(values))
            name = draw(st.one_of(st.just(""), NAMES))
            try:
                made = _add(draw, graph, x, y, name)
            except (DimError, GraphError):
                continue  # the name is taken, or these two do not go together
            values.append(made)
    for value in draw(st.lists(st.sampled_from(values), min_size=1, max_size=3, unique_by=id)):
        graph.output(value)
    return graph.seal()


def _add(draw: st.DrawFn, graph: Graph, x: VTensor, y: VTensor, name: str) -> Any:
    """One more node on x, and some on y."""
    dims = list(x.dims)
    axis = draw(st.sampled_from(dims)) if dims else ""
    kinds = [Add, Mul, Relu, Clip, BiasAdd, Concat, MatMul, Einsum, Mean, Pad, Rename, Reshape]
    kind = draw(st.sampled_from([*kinds, Softmax]))
    if kind in (Add, Mul):
        return graph.add(kind(), x, y, name=name)
    if kind is BiasAdd:
        bias = np.arange(4, dtype=np.float32)
        return graph.add(BiasAdd(), x, graph.constant(bias, "C"), name=name)
    if kind is Concat:
        return graph.add(Concat(axis), x, y, name=name)
    if kind is MatMul:
        w = graph.constant(np.full((4, 2), 0.5, np.float32), draw(st.sampled_from(["C K", "K C"])))
        return graph.add(MatMul(draw(st.sampled_from("CK"))), x, w, name=name)
    if kind is Einsum:
        return graph.add(Einsum(tuple(dims)), x, y, name=name)
    if kind is Reshape:
        flat = tuple((f"{dim}1", size) for dim, size in reversed([*x.dims.items()]))
        return graph.add(Reshape(flat), x, name=name)
    makes: dict[type, Callable[[], object]] = {
        Relu: lambda: Relu(),
        Clip: lambda: Clip(draw(st.sampled_from([-np.inf, -1.0])), 0.5),
        Mean: lambda: Mean((axis,), draw(st.booleans())),
        Pad: lambda: Pad((axis,), (1, 0), value=draw(st.floats(-1, 1, width=32))),
        Rename: lambda: Rename(tuple(zip(dims, draw(st.permutations(DIMS)), strict=False))),
        Softmax: lambda: Softmax((axis,)),
    }
    return graph.add(makes[kind](), x, name=name)
