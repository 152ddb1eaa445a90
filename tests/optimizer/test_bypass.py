"""Copies of values hide nothing from the simplifications behind."""

from __future__ import annotations

import numpy as np

from ops import Conv2D, Identity, Relu
from optimizer.bypass import bypass
from vtensor import Session
from vtensor.language.graph import Graph
from vtensor.runtime.planning.library_options import preferences_of


def network() -> Graph:
    """A convolution, a copy, a relu, and a copy that is delivered."""
    g = Graph("copies")
    w = g.constant(np.ones((4, 3, 1, 1), "f4"), "O I h w")
    y = g.add(Conv2D(), g.input("x", {"N": 1, "C": 3, "H": 5, "W": 5}), w)
    g.output(g.add(Identity(), g.add(Relu(), g.add(Identity(), y))), "y")
    return g.seal()


def operators(graph: Graph) -> list[str]:
    return [node.op_name for node in graph.nodes.values()]


def test_only_a_copy_that_is_delivered_stays() -> None:
    graph = network()
    assert operators(bypass(graph)) == ["Conv2D", "Relu", "Identity"]
    assert operators(graph) == ["Conv2D", "Identity", "Relu", "Identity"], "it is as it was"
    [copy] = next(node for node in graph.nodes.values() if node.op_name == "Relu").inputs
    assert operators(bypass(graph.delivering([copy]))) == operators(graph)


def test_a_pinned_copy_stays() -> None:
    pinned = preferences_of(pin={"Identity": "numpy"})
    assert operators(bypass(network(), pinned)) == operators(network())


def test_what_is_behind_a_copy_is_fused() -> None:
    x = np.random.default_rng(0).standard_normal((1, 3, 5, 5)).astype(np.float32)
    with Session(network()) as session, Session(network(), optimize="none") as plain:
        np.testing.assert_allclose(session.run(None, {"x": x}), plain.run(None, {"x": x}), 1e-5)
        assert "Conv2D + Relu" in [step.op for step in session.plan.steps]
