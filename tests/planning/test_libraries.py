"""Invokers of other libraries, which decide by sizes and values: each size has a right answer.

They are registered while a session is in use, look at constants, share memory, call back into
Python, and want other layouts in other sizes: none of that may be carried to sizes it is not for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ops import Relu
from ptensor.evaluation import emit, lib_tagger, share
from ptensor.tensor import PTensor
from tests.frontends.support import Array, f32
from tests.libraries.bench import Bench
from tests.libraries.steps import READ, WRITE, FloatStep
from vtensor import Graph, Session


def copying(library: str, layout: Callable[[Any], str] = lambda _: "NC") -> Callable[..., None]:
    """Return an invoker that copies, from Python, in a layout that may go by sizes."""

    def run(ctx: object, op: object, x: Any, y: Any) -> None:
        src, dst = (PTensor(tensor).require(layout(x)) for tensor in (x, y))
        if not lib_tagger(library, [src], [dst]):
            dst.data()[...] = src.data()

    return run


def toys(bench: Bench, *names: str) -> Graph:
    """Build toy operators one after the other, on any number of rows."""
    g = Graph("open")
    x = g.input("x", {"N": None, "C": 3})
    for name in names:
        x = g.add(bench.op("Toy"), x, name=name)
    g.output(x, "y")
    return g


def check(session: Session, sizes: Sequence[int], expected: Callable[[Array], Array]) -> None:
    """Check the answers of runs in these numbers of rows."""
    for size in sizes:
        x = f32(size, 3)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], expected(x))


@pytest.mark.parametrize("cached", [False, True])
def test_a_layout_that_goes_by_sizes(bench: Bench, tmp_path: Path, cached: bool) -> None:
    bench.invoker()(copying("toy", lambda x: "CN" if x.size("N") > 4 else "NC"))
    for sizes in ((2, 3, 5, 6, 4, 2), (6, 2, 5)):
        with Session(toys(bench, "a", "b"), cache_dir=tmp_path if cached else None) as session:
            for size in sizes:
                check(session, [size], lambda x: x)
                assert session.plan.origin.way in ("recorded on sizes", "in memory")


def test_a_library_that_comes_later_is_asked(bench: Bench, tmp_path: Path) -> None:
    bench.invoker(library="numpy")(copying("numpy"))
    for cache in (None, tmp_path):
        with Session(toys(bench, "a"), cache_dir=cache) as session:
            for size in (2, 3, 4, 5):
                if (size, cache) == (4, None):
                    bench.invoker()(copying("toy"))
                session.run(None, {"x": f32(size, 3)})
                wanted = "numpy" if size < 4 and cache is None else "toy"
                assert [step.library for step in session.plan.steps] == [wanted]


def test_constants_that_are_wanted_otherwise_in_other_sizes(bench: Bench, tmp_path: Path) -> None:
    @bench.invoker("Pair")
    def pair(ctx: object, op: object, a: Any, b: Any, y: Any) -> None:
        few = a.size("N") <= 4
        asked = zip((a, b, y), ("NC", "CK" if few else "KC", "NCK"), strict=True)
        left, right, out = (PTensor(tensor).require(text) for tensor, text in asked)
        if not lib_tagger("toy", [left, right], [out]):
            rows = right.data() if few else right.data().T
            out.data()[...] = left.data()[:, :, None] + rows

    g, weights = Graph("open"), f32(3, 2)
    x, w = g.input("x", {"N": None, "C": 3}), g.constant(weights, "C K", name="w")
    g.output(g.add(Relu(), g.add(bench.op("Pair"), g.add(Relu(), x), w, name="pair")), "y")

    def expected(x: Array) -> Array:
        return np.maximum(np.maximum(x, 0)[:, :, None] + weights, 0)

    for cache in (None, tmp_path, tmp_path):
        with Session(g, cache_dir=cache) as session:
            check(session, (2, 3, 5, 6, 4, 9), expected)


def test_a_step_that_has_a_constant_in_itself(bench: Bench) -> None:
    """Equal calls but for the value of a constant are two steps."""

    @bench.invoker("Pair", python=False)
    def scaled(ctx: object, op: object, a: Any, b: Any, y: Any) -> None:
        tensors = [PTensor(tensor).require("NC") for tensor in (a, b, y)]
        if lib_tagger("toy", tensors[:2], tensors[2:]):
            return
        size, factor = a.num_elements, float(tensors[1].data()[0, 0])

        def run(slots: list[Any]) -> None:
            slots[2][:] = slots[0] * factor

        emit(FloatStep("scaled", [(size, READ), (1, READ), (size, WRITE)], run), tensors)

    g = Graph("scales")
    x = g.input("x", {"N": None, "C": 3})
    for i in (2, 3):
        factor = g.constant(np.full((1, 1), i, np.float32), "N C")
        x = g.add(bench.op("Pair"), x, factor, name=f"times{i}")
    g.output(x, "y")
    with Session(g, threads=1, optimize="none") as session:
        check(session, (1, 2, 1, 3), lambda x: x * 6)


def test_call_backs_see_their_own_operands(bench: Bench) -> None:
    seen: list[str] = []

    @bench.invoker()
    def python(ctx: Any, op: object, x: Any, y: Any) -> None:
        src, dst = PTensor(x).require("NC"), PTensor(y).require("NC")
        if not lib_tagger("toy", [src], [dst]):
            seen.append(ctx.node)
            dst.data()[...] = src.data() + 1

    with Session(toys(bench, "one", "two"), threads=1) as session:
        check(session, (1, 2, 3), lambda x: x + 1 + 1)
    assert seen == ["one", "two"] * 3


def test_memory_that_is_shared_is_each_nodes_own(bench: Bench) -> None:
    @bench.invoker(python=False)
    def alias(ctx: object, op: object, x: Any, y: Any) -> None:
        src, dst = PTensor(x), PTensor(y)
        if not lib_tagger("toy", [src], [dst]):
            share(src, dst)

    g = Graph("shared")
    for name in "ab":
        g.output(g.add(bench.op("Toy"), g.input(name, {"N": None, "C": 3}), name=f"t{name}"), name)
    with Session(g, threads=1) as session:
        for n in (1, 2, 3):
            feeds = {name: f32(n, 3, seed=i) for i, name in enumerate("ab")}
            for y, x in zip(session.run(None, feeds), feeds.values(), strict=True):
                np.testing.assert_array_equal(y, x)
