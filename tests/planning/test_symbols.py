"""What plans compute with symbols: answers in all sizes, most of them by symbolic plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.frontends.support import f32, model
from tests.planning.cells import TOLERANCE
from tests.planning.rows import Array, numbers, saved
from vtensor import Session
from vtensor.benchmark.agreement import difference

#: Networks whose inner values begin, end and are added up at multiples of their sizes: text,
#: constants, and the shapes of the input.
NETS: Mapping[str, tuple[str, Sequence[str], Sequence[tuple[int, ...]]]] = {
    "parts in place": (
        """g (float[n, 16] x) => (float[m, 16] y) {
        r = Relu(x) s = Shape(x) n = Gather(s, zero) h = Div(n, two0)
        from = Unsqueeze(h, zero1) to = Unsqueeze(n, zero1)
        a = Slice(r, zero1, from, zero1) b = Slice(r, from, to, zero1)
        c = Neg(a) d = Exp(b) y = Concat<axis = 0>(d, c, d) }""",
        ("zero", "zero1", "two0"),
        [(4, 16), (6, 16), (10, 16), (8, 16), (2, 16), (40, 16)],
    ),
    "joined parts": (
        """g (float[n, 16] x, float[m, 16] z) => (float[k, 16] y) {
        a = Relu(x) b = Neg(z) c = Concat<axis = 0>(a, b, a) d = Tanh(c)
        e = Concat<axis = 0>(d, b) y = Neg(e) }""",
        (),
        [(4, 7), (5, 3), (9, 1), (2, 8), (33, 4), (4, 40)],
    ),
    "products and numbers": (
        """g (float[a, b] x) => (float[c] y) {
        s = Shape(x) m = Gather(s, zero) n = Gather(s, one0) t = Mul(m, n) u = Mul(m, two0)
        v = Mul(m, three) w = Add(n, two0) e = Add(n, m) f = Add(m, three) q = Mul(w, e)
        h = Mul(u, f) o = Add(q, h) i = Add(o, v) j = Add(i, t) k = Div(j, two0)
        l = Unsqueeze(k, zero1) r = Relu(x) p = ReduceMax<keepdims = 0>(r) y = Expand(p, l) }""",
        ("zero", "one0", "two0", "three", "zero1"),
        [(4, 6), (5, 7), (2, 3), (3, 2), (9, 1), (1, 1), (17, 31)],
    ),
    "divided and multiplied": (
        """g (float[n, 4, h, w] x) => (float[n, 4, a, b] y) {
        p = MaxPool<kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]>(x)
        s = Shape<start = 2>(p) d = Mul(s, pair0) f = Sub(d, one) m = Concat<axis = 0>(nc, f)
        y = Resize<mode = "nearest", coordinate_transformation_mode = "asymmetric",
                   nearest_mode = "floor">(p, , , m) }""",
        ("pair0", "one", "nc"),
        [(1, 4, 9, 9), (1, 4, 8, 12), (1, 4, 17, 5), (1, 4, 31, 2), (1, 4, 6, 33)],
    ),
    "equal sizes": (
        """g (float[a, b] x, float[c, d] z) => (float[k, l] y) {
        r = Relu(x) t = Neg(z) y = MatMul(r, t) }""",
        (),
        [(4, 4, 4, 4), (4, 5, 5, 4), (4, 5, 5, 6), (3, 3, 3, 8), (8, 2, 2, 8), (7, 7, 7, 7)],
    ),
    "sizes that may be equal": (
        """g (float[a, b] x) => (float[c, d] y) {
        s = Shape(x) m = Gather(s, zero) n = Gather(s, one0) q = Range(zero, m, one0)
        r = Range(zero, n, one0) c = Unsqueeze(q, one) l = LessOrEqual(r, c) f = Cast<to = 1>(l)
        t = Transpose<perm = [1, 0]>(f) p = MatMul(x, t) y = Softmax(p) }""",
        ("zero", "one0", "one"),
        [(4, 4), (4, 5), (5, 4), (5, 5), (9, 2), (1, 1), (1, 6)],
    ),
    "positions of sizes": (
        """g (float[a, b] x) => (float[a, b] y) {
        s = Shape(x) n = Gather(s, one0) m = Gather(s, zero) d = Sub(n, m) g = Add(n, m)
        e = Cast<to = 1>(d) f = Cast<to = 1>(g) h = Mul(x, e) i = Add(h, f) y = Relu(i) }""",
        ("zero", "one0"),
        [(4, 4), (4, 5), (5, 4), (9, 2), (1, 1), (3, 40)],
    ),
}

MORE = {
    "two0": np.array(2),
    "three": np.array(3),
    "pair0": np.array([2, 2]),
    "nc": np.array([1, 4]),
}


def inputs(session: Session, shape: tuple[int, ...]) -> dict[str, Array]:
    """Return arrays for a choice of sizes: by input, in order."""
    sizes, feeds = [*shape], {}
    for port in session.inputs:
        open_sizes = [size if size is not None else sizes.pop(0) for size in port.shape]
        if len(session.inputs) == 1:
            open_sizes = [*shape]
        feeds[port.name] = f32(*open_sizes, seed=sum(shape))
    return feeds


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", NETS)
def test_sizes_one_after_the_other(name: str, threads: int, tmp_path: Path) -> None:
    """In one order and in the other, from memory and from the cache."""
    text, words, shapes = NETS[name]
    arrays = {**numbers(*(one for one in words if one not in MORE)), **MORE}
    path = saved(model(text, 17, **{one: arrays[one] for one in words}), tmp_path / "net.onnx")
    wanted = list[Any]()
    for shape in shapes:
        with Session(path, libraries=["numpy"], cache_dir=None) as session:
            feeds = inputs(session, shape)
            wanted.append((feeds, session.run(None, feeds)))
    specialised = 0
    for order in (1, -1):
        for cache in (None, tmp_path / str(order), tmp_path / str(order)):
            with Session(path, threads=threads, cache_dir=cache) as session:
                for feeds, want in wanted[::order]:
                    found = session.run(None, feeds)
                    assert [one.shape for one in found] == [one.shape for one in want]
                    assert difference(found, want) <= TOLERANCE
                    specialised += session.plan.origin.way == "specialised"
    assert specialised
