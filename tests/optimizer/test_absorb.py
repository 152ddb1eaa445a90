"""Transforms that go where their readers read the value as it is made; values stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from libdesc.eigen.memory import nested
from libdesc.preferences import EVERY
from ops import Add, Conv2D, Mean, Mul, Relu, Rename, Reshape, Softmax
from optimizer.absorb import _Removal, absorb
from optimizer.pipeline import pass_names, simplify
from optimizer.settings import Settings
from ptensor import Layout
from ptensor.evaluation import Variant
from resolver.evaluate import resolve
from resolver.extend import extend
from resolver.lowered import OpNode
from vtensor import Session
from vtensor.language.graph import Graph
from vtensor.language.tensor import VTensor

WINDOWS = {"N": 1, "A": 3, "B": 5, "P": 2, "Q": 4, "C": 32}


def windows(g: Graph, name: str = "w") -> VTensor:
    """An image of windows A B of places P Q, seen as an image of places H W; not as it lies."""
    x = g.input(name, WINDOWS)
    x = g.add(Rename(tuple((dim, dim) for dim in "NAPBQC")), g.add(Softmax(("C",)), x))
    made: VTensor = g.add(Reshape((("N", 1), ("H", 6), ("W", 20), ("C", 32))), x)
    return made


def image(g: Graph, name: str = "x") -> VTensor:
    return g.input(name, {"N": 1, "H": 6, "W": 20, "C": 32})


def reading(kind: str) -> Graph:
    g = Graph(kind)
    y = windows(g)
    if kind == "sum":
        y = g.add(Add(), y, image(g))
    elif kind == "run":
        y = g.add(Mul(), g.add(Relu(), g.add(Add(), y, image(g))), image(g, "z"))
    elif kind == "twice":
        y = g.add(Mul(), g.add(Add(), y, image(g)), y)
    elif kind == "mean":
        y = g.add(Mean(("H", "W"), keepdims=True), g.add(Add(), y, image(g)))
    g.output(y, "y")
    return g.seal()


def run(graph: Graph, **options: Any) -> tuple[np.ndarray[Any, Any], int]:
    random = np.random.default_rng(0)
    feeds = {
        name: random.standard_normal([*graph.values[name].dims.values()]).astype("f4")
        for name in graph.inputs
    }
    with Session(graph, **options) as session:
        [y] = session.run(None, feeds)
        return y, len(session.plan.conversions)


@pytest.mark.parametrize("kind", ["sum", "run", "twice", "mean"])
def test_what_reads_pieces_needs_no_transform(kind: str) -> None:
    graph = reading(kind)
    found, left = run(graph)
    with_all, before = run(graph, optimize=["all", "-absorb"])
    expected, _ = run(graph, optimize="none", libraries=["numpy"])
    assert before
    assert not left
    for one in (found, with_all):
        np.testing.assert_allclose(one, expected, rtol=1e-5, atol=1e-6)


def heavy() -> Graph:
    """A convolution whose image has another order of memory than it is blocked by, and a sum."""
    g = Graph("heavy")
    x = g.input("x", {"N": 1, "C": 32, "H": 12, "W": 12})
    w = g.constant(np.ones((32, 32, 3, 3), np.float32), "O I h w")
    g.output(g.add(Conv2D(), g.add(Conv2D(), x, w), w), "y")
    return g.seal()


@pytest.mark.parametrize("light", [False, True])
@pytest.mark.parametrize("make", [heavy, lambda: reading("sum")])
def test_heavy_readers_are_not_asked_for_a_first_plan(
    make: Callable[[], Graph], light: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, ask = list[str](), _Removal._variant_for

    def counting(self: _Removal, reader: OpNode) -> Variant | None:
        asked.append(reader.op_name)
        return ask(self, reader)

    monkeypatch.setattr(_Removal, "_variant_for", counting)
    resolved = extend(resolve(simplify(make(), pass_names("none"), EVERY)))
    left = absorb(resolved, Settings(light=light))
    if make is heavy:
        assert any(resolved.transforms())
        assert asked == ([] if light else ["Conv2D"])
    else:
        assert asked
        assert not any(left.transforms())


def test_what_is_delivered_is_still_transformed() -> None:
    found, left = run(reading("none"))
    expected, _ = run(reading("none"), optimize="none", libraries=["numpy"])
    assert left == 1
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_libraries_that_are_given_bind() -> None:
    _, left = run(reading("sum"), libraries=["onednn", "numpy"])
    assert left


def test_single_elements_are_not_picked_from_everywhere() -> None:
    """Read in another order, elements would lie one here, one there."""
    g = Graph("turned")
    x = g.add(Softmax(("C",)), g.input("x", {"N": 1, "C": 32, "H": 8, "W": 8}))
    y = g.add(Softmax(("C",)), g.input("z", {"N": 1, "H": 8, "W": 8, "C": 32}))
    g.output(g.add(Add(), x, y), "y")
    found, _ = run(g.seal())
    expected, _ = run(g, optimize="none", libraries=["numpy"])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_blocks_that_do_not_nest_have_no_common_axes() -> None:
    sizes = {"N": 1, "C": 48}
    assert nested([Layout("NC16c"), Layout("NC12c")], sizes) is None
    assert nested([Layout("NC16c"), Layout("NC32c")], sizes) is None  # the last block is not full
    assert nested([Layout("NC16c"), Layout("NC4c")], sizes) is not None
