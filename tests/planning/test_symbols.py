"""Symbolic plans: answers in all sizes, and of one image, then several."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.frontends.support import f32, model, run_once
from tests.planning.cells import PATIENCE_S, TOLERANCE
from tests.planning.rows import NUMBERS, Array, saved
from vtensor import Session
from vtensor.benchmark.agreement import difference
from vtensor.errors import VTensorError
from vtensor.runtime.execution.origin import Origin
from vtensor.runtime.planning.choice import MOST_CHOICES

#: Networks whose inner values begin, end and are added up at multiples of their sizes: text, and
#: the open sizes of the inputs.
NETS: Mapping[str, tuple[str, Sequence[tuple[int, ...]]]] = {
    "parts in place": (
        """g (float[4, n, 16] x) => (float[4, n, 16] y) NUMBERS, int64[2] halves = {2, 2}> {
        r = Relu(x) a, b = Split<axis = 0>(r, halves) c = Exp(b) d = Neg(a)
        y = Concat<axis = 0>(c, d) }""",
        [(4,), (6,), (10,), (8,), (1,), (40,)],
    ),
    "joined parts": (
        """g (float[n, 16] x, float[m, 16] z) => (float[k, 16] y) {
        a = Relu(x) b = Neg(z) c = Concat<axis = 0>(a, b) y = Softmax(c) }""",
        [(4, 7), (5, 3), (9, 1), (2, 8), (33, 4), (4, 40)],
    ),
    "sums and products": (
        """g (float[a, b] x) => (float[c] y) NUMBERS, int64 two0 = {2}, int64 three = {3}> {
        s = Shape(x) m = Gather(s, zero) n = Gather(s, one0) t = Mul(m, n) u = Mul(m, two0)
        v = Mul(m, three) w = Add(n, two0) e = Add(n, m) f = Add(m, three) q = Mul(w, e)
        h = Mul(u, f) o = Add(q, h) i = Add(o, v) j = Add(i, t) d = Sub(j, n)
        l = Unsqueeze(d, zero1) r = Relu(x) p = ReduceMax<keepdims = 0>(r) y = Expand(p, l) }""",
        [(4, 6), (5, 7), (2, 3), (3, 2), (9, 1), (1, 1), (17, 31)],
    ),
    "equal sizes": (
        """g (float[a, b] x, float[c, d] z) => (float[k, l] y) {
        r = Relu(x) t = Neg(z) y = MatMul(r, t) }""",
        [(4, 4, 4, 4), (4, 5, 5, 6), (4, 5, 4, 5), (3, 3, 3, 8), (8, 2, 2, 8), (7, 7, 8, 7)],
    ),
    "sums of equal sizes": (
        """g (float[a, b] x, float[c, d] z) => (float[k, l] y) {
        s = Add(x, z) y = Softmax(s) }""",
        [(4, 4, 4, 4), (5, 3, 5, 3), (5, 3, 1, 3), (4, 3, 3, 4), (2, 2, 2, 1), (6, 6, 6, 7)],
    ),
    "sizes that may be equal": (
        """g (float[a, b] x) => (float[c, d] y) NUMBERS> {
        s = Shape(x) m = Gather(s, zero) n = Gather(s, one0) q = Range(zero, m, one0)
        r = Range(zero, n, one0) c = Unsqueeze(q, one) l = LessOrEqual(r, c) f = Cast<to = 1>(l)
        t = Transpose<perm = [1, 0]>(f) p = MatMul(x, t) y = Softmax(p) }""",
        [(4, 4), (4, 5), (5, 4), (5, 5), (9, 2), (1, 1), (1, 6)],
    ),
    "positions of sizes": (
        """g (float[a, b] x) => (float[a, b] y) NUMBERS> {
        s = Shape(x) n = Gather(s, one0) m = Gather(s, zero) d = Sub(n, m) g = Add(n, m)
        e = Cast<to = 1>(d) f = Cast<to = 1>(g) h = Mul(x, e) i = Add(h, f) y = Relu(i) }""",
        [(4, 4), (4, 5), (5, 4), (9, 2), (1, 1), (3, 40)],
    ),
    "rows of a table": (
        """g (float[1, n, 2] x) => (float[1, n, 2] y) NUMBERS,
            uint8[4, 2] table = {1, 2, 3, 4, 5, 6, 7, 8}, float scale = {0.5}, uint8 middle = {3}> {
        s = Shape(x) n = Gather(s, one0) r = Range(zero, n, one0) i = Unsqueeze(r, zero1)
        g = Gather(table, i) a = DequantizeLinear(g, scale, middle) b = Add(x, a) y = Relu(b) }""",
        [(2,), (3,), (4,), (1,)],
    ),
}


def inputs(session: Session, sizes: tuple[int, ...]) -> dict[str, Array]:
    """Return arrays for a choice of the open sizes, in their order."""
    left, seed = [*sizes], sum(sizes)
    return {
        port.name: f32(*(left.pop(0) if n is None else n for n in port.shape), seed=seed + at)
        for at, port in enumerate(session.inputs)
    }


def answer(session: Session, feeds: dict[str, Array]) -> list[Array] | str:
    """Return the outputs; the kind of error if the network does not take these sizes."""
    try:
        return session.run(None, feeds)
    except VTensorError as error:
        return type(error).__name__


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", NETS)
def test_sizes_one_after_the_other(name: str, threads: int, tmp_path: Path) -> None:
    """In one order and in the other, from memory and from the cache."""
    text, choices = NETS[name]
    path = saved(model(text.replace("NUMBERS", NUMBERS[:-1])), tmp_path / "net.onnx")
    wanted = list[tuple[dict[str, Array], list[Array] | str]]()
    for sizes in choices:
        with Session(path, libraries=["numpy"], cache_dir=None) as session:
            feeds = inputs(session, sizes)
            wanted.append((feeds, answer(session, feeds)))
    for order in (1, -1):
        for cell in ("none", "cold", "warm"):
            cache, origins = None if cell == "none" else tmp_path / str(order), list[Origin]()
            with Session(path, threads=threads, cache_dir=cache) as session:
                for feeds, want in wanted[::order]:
                    outputs = answer(session, feeds)
                    if isinstance(outputs, str) or isinstance(want, str):
                        assert outputs == want
                        continue
                    assert [one.shape for one in outputs] == [one.shape for one in want]
                    assert difference(outputs, want) <= TOLERANCE
                    assert session.plan.graph.nodes  # of the plan that ran, for these sizes
                    origins.append(session.plan.origin)
            assert "specialised" in {origin.way for origin in origins}
            assert (origins[0] == Origin("specialised", cached=True)) == (cell == "warm")


#: Networks of ``n`` images, of which none needs another plan for several: sizes of the input and
#: the output, constants and nodes, and weights.
NETWORKS: Mapping[str, tuple[str, str, str, dict[str, Array]]] = {
    "a scale for each channel": (
        *("8,4,4", "8,4,4", "{ a = Relu(x) y = Mul(a, w) }"),
        {"w": f32(1, 8, 1, 1)},
    ),
    "a scale for each channel of each image": (
        *("8,6,6", "8,6,6", "{ m = GlobalAveragePool(x) s = Sigmoid(m) y = Mul(x, s) }"),
        {},
    ),
    "a bias after a product": (
        *("5,16", "5,8", "{ a = MatMul(x, w) y = Add(a, b) }"),
        {"w": f32(16, 8), "b": f32(8)},
    ),
    "positions for all images": (
        *("6,16", "6,16", "{ a = Add(x, w) y = Softmax(a) }"),
        {"w": f32(1, 6, 16)},
    ),
    "heads": (
        *("6,16", "4,6,4"),
        """<int64[4] shape = {0, 6, 4, 4}> {
            r = Reshape(x, shape) y = Transpose<perm = [0, 2, 1, 3]>(r) }""",
        {},
    ),
    "attention": (
        *("6,8", "6,8"),
        """{ t = Transpose<perm = [0, 2, 1]>(x) p = MatMul(x, t) s = Softmax(p)
            y = MatMul(s, x) }""",
        {},
    ),
    "sums": (
        *("8,5", "5", "<int64[1] axes = {1}> { y = ReduceSum<keepdims = 0>(x, axes) }"),
        {},
    ),
    "part of each image": (
        *("8,5", "8,3"),
        """<int64[1] from = {1}, int64[1] to = {4}, int64[1] last = {2}> {
            a = Slice(x, from, to, last) y = Relu(a) }""",
        {},
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_the_plan_for_one_serves_several(name: str) -> None:
    sizes, delivered, nodes, weights = NETWORKS[name]
    proto = model(f"g (float[n,{sizes}] x) => (float[n,{delivered}] y) {nodes}", **weights)
    with Session(proto, threads=1, cache_dir=None) as session:
        for images in (1, 3, 2):
            x = {"x": f32(images, *map(int, sizes.split(",")))}
            [y] = session.run(None, x)
            assert session.plan.origin.way == ("planned" if images == 1 else "specialised")
            [expected] = run_once(proto, x, threads=1, cache_dir=None)
            np.testing.assert_array_equal(y, expected)


#: Two parts of each image: of one image they are contiguous in memory, and nothing is copied.
PARTS = """g (float[n, 16, 4, 4] x) => (float[n, 32, 4, 4] y) {
    a = MaxPool<kernel_shape = [1, 1]>(x)
    b = AveragePool<kernel_shape = [1, 1]>(x) y = Concat<axis = 1>(a, b) }"""


def test_several_are_planned_where_the_plan_for_one_cannot_serve() -> None:
    with Session(model(PARTS), threads=1, cache_dir=None) as session:
        for images, way in ((1, "planned"), (2, "planned"), (5, "specialised"), (1, "in memory")):
            x = f32(images, 16, 4, 4)
            [y] = session.run(None, {"x": x})
            assert session.plan.origin.way == way
            np.testing.assert_array_equal(y, np.concatenate([x, x], 1))


def test_several_are_prepared_where_the_plan_for_one_cannot_serve(tmp_path: Path) -> None:
    """The library takes several images as well; only memory is divided otherwise."""
    proto, until = model(PARTS), time.monotonic() + PATIENCE_S
    with Session(proto, threads=1, cache_dir=tmp_path) as session:
        while len([*tmp_path.rglob("plan-*")]) < 2 and time.monotonic() < until:
            session.run(None, {"x": f32(1, 16, 4, 4)})
            time.sleep(0.02)
    with Session(proto, threads=1, cache_dir=tmp_path) as later:
        later.run(None, {"x": f32(2, 16, 4, 4)})
        assert later.plan.origin == Origin("specialised", cached=True)


def test_a_deterministic_session_finds_every_size_in_the_cache(tmp_path: Path) -> None:
    """Also more of them than choices of one kind of inputs are saved that serve all sizes."""
    proto = model("g (float[n, 4] x) => (float[n, 4] y) { y = Softmax(x) }")
    for cached in (False, True):
        with Session(proto, threads=1, cache_dir=tmp_path, deterministic=True) as session:
            for rows in range(1, MOST_CHOICES + 4):
                session.run(None, {"x": f32(rows, 4)})
                assert session.plan.origin.cached == cached
