"""A bias goes by the name of its dim, also where all sizes are equal."""

from __future__ import annotations

import numpy as np
import pytest

from ops import BiasAdd, Conv1D, Conv2D, Conv3D, ConvTranspose, DepthwiseConv2D, MatMul
from tests.optimizer.graphs import check_same_values
from vtensor import Session
from vtensor.language.graph import Graph

SIZE = 8
IMAGE = "N C H W"
#: Leads, the dims of input and weights ("O:4" is a size), and the dims along which they take a sum:
#: that of oneDNN's own bias first, then others, where the kernel takes a sum behind its result, as
#: the product of a transposed convolution does, and the product of several matrices.
LEADS: dict[str, tuple[object, str, str, str]] = {
    "Conv1D": (Conv1D(pads=(1, 1)), "N C W", "O I w:3", "C"),
    "Conv2D": (Conv2D(pads=(1,) * 4), IMAGE, "O I h:3 w:3", "C"),
    "Conv3D": (Conv3D(), "N C D H W", "O I d:1 h:1 w:1", "C"),
    "pointwise": (Conv2D(), IMAGE, "O I h:1 w:1", "C"),
    "last": (Conv2D(), "N H W C", "O I h:1 w:1", "C"),
    "groups": (Conv2D(group=2, pads=(1,) * 4), IMAGE, "G:2 O:4 I:4 h:3 w:3", "C"),
    "depthwise": (DepthwiseConv2D(pads=(1,) * 4), IMAGE, "G O:1 I:1 h:3 w:3", "C"),
    "ConvTranspose": (ConvTranspose(), IMAGE, "I O h:1 w:1", "C N H W"),
    "weights": (MatMul("K"), "M K", "K N", "N"),
    "left weights": (MatMul("K"), "K N", "M K", "M"),
    "rows of rows": (MatMul("K"), "B M K", "K N", "N M"),
    "stacks": (MatMul("K"), "B M K", "B K N", "N M"),
}
CASES = [
    (lead, dim)
    for lead, (_, first, second, _) in LEADS.items()
    for dim in dict.fromkeys((f"{first} {second}" if "K" in first else first).split())
    if dim != "K"
]


def dims(spelled: str) -> dict[str, int]:
    """Dims by name, of one size unless they say another."""
    pairs = (name.partition(":") for name in spelled.split())
    return {name: int(size or SIZE) for name, _, size in pairs}


def network(lead: str, dim: str) -> Graph:
    """A lead and a bias along one dim, of whole numbers that are all different."""
    op, first, second, _ = LEADS[lead]
    extents, graph = dims(second), Graph(lead)
    draw = np.random.default_rng(0)
    array = draw.integers(-4, 5, [*extents.values()]).astype(np.float32)
    operands = [graph.input("x", dims(first)), graph.constant(array, tuple(extents))]
    y = graph.add(op, *(operands[::-1] if lead == "left weights" else operands))
    bias = graph.constant(np.arange(1, SIZE + 1, dtype=np.float32), (dim,))
    graph.output(graph.add(BiasAdd(), y, bias), "y")
    return graph.seal()


@pytest.mark.parametrize(("lead", "dim"), CASES)
def test_a_bias_along_any_dim(lead: str, dim: str) -> None:
    graph = network(lead, dim)
    check_same_values(graph, 1, [{"optimize": "none"}, {"optimize": "all"}])
    with Session(graph, threads=1, objective="shared") as session:
        fused = bool(session.plan.graph.merged)
    assert fused == (dim in LEADS[lead][-1].split())
