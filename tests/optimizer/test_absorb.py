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
from tests.optimizer.graphs import compared
from vtensor.language.graph import Graph
from vtensor.language.tensor import VTensor

WINDOWS = {"N": 1, "A": 3, "B": 5, "P": 2, "Q": 4, "C": 32}


def windows(g: Graph) -> VTensor:
    """An image of windows A B of places P Q, seen as an image of places H W; not as it lies."""
    x = g.add(Softmax(("C",)), g.input("w", WINDOWS))
    x = g.add(Rename(tuple((dim, dim) for dim in "NAPBQC")), x)
    seen: VTensor = g.add(Reshape((("N", 1), ("H", 6), ("W", 20), ("C", 32))), x)
    return seen


def image(g: Graph, name: str = "x") -> VTensor:
    return g.input(name, {"N": 1, "H": 6, "W": 20, "C": 32})


#: What reads the windows.
READERS: dict[str, Callable[[Graph, VTensor], VTensor]] = {
    "sum": lambda g, y: g.add(Add(), y, image(g)),
    "run": lambda g, y: g.add(Mul(), g.add(Relu(), g.add(Add(), y, image(g))), image(g, "z")),
    "twice": lambda g, y: g.add(Mul(), g.add(Add(), y, image(g)), y),
    "mean": lambda g, y: g.add(Mean(("H", "W"), keepdims=True), g.add(Add(), y, image(g))),
    "caller": lambda g, y: y,
}


def reading(kind: str = "sum") -> Graph:
    g = Graph(kind)
    g.output(READERS[kind](g, windows(g)), "y")
    return g.seal()


def conversions(graph: Graph, **options: Any) -> int:
    """How many conversions a run has that gives what NumPy gives."""
    numpy = {"optimize": "none", "libraries": ["numpy"]}
    return len(compared(graph, 1e-5, 1e-6, numpy, **options).plan.conversions)


@pytest.mark.parametrize("kind", READERS)
def test_what_reads_pieces_needs_no_transform(kind: str) -> None:
    """What is delivered is still transformed."""
    graph = reading(kind)
    assert conversions(graph) == (kind == "caller")
    assert conversions(graph, optimize=["all", "-absorb"])


def test_libraries_that_are_given_bind() -> None:
    assert conversions(reading(), libraries=["onednn", "numpy"])


def test_single_elements_are_not_picked_from_everywhere() -> None:
    """Read in another order, elements would lie one here, one there."""
    g = Graph("turned")
    x = g.add(Softmax(("C",)), g.input("x", {"N": 1, "C": 32, "H": 8, "W": 8}))
    y = g.add(Softmax(("C",)), g.input("z", {"N": 1, "H": 8, "W": 8, "C": 32}))
    g.output(g.add(Add(), x, y), "y")
    conversions(g.seal())


def heavy() -> Graph:
    """A convolution whose image has another order of memory than it is blocked by, and a sum."""
    g = Graph("heavy")
    x = g.input("x", {"N": 1, "C": 32, "H": 12, "W": 12})
    w = g.constant(np.ones((32, 32, 3, 3), np.float32), "O I h w")
    g.output(g.add(Conv2D(), g.add(Conv2D(), x, w), w), "y")
    return g.seal()


@pytest.mark.parametrize("light", [False, True])
@pytest.mark.parametrize("make", [heavy, reading])
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


@pytest.mark.parametrize(("other", "nest"), [("NC12c", False), ("NC32c", False), ("NC4c", True)])
def test_blocks_that_do_not_nest_have_no_common_axes(other: str, nest: bool) -> None:
    """The last block of 32 is not full."""
    axes = nested([Layout("NC16c"), Layout(other)], {"N": 1, "C": 48})
    assert (axes is not None) == nest
