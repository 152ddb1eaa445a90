"""What plans compute with symbols: answers in all sizes, most of them by symbolic plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.frontends.support import f32, model
from tests.planning.cells import TOLERANCE
from tests.planning.rows import Array, numbers, saved
from vtensor import Session
from vtensor.benchmark.agreement import difference
from vtensor.errors import VTensorError
from vtensor.runtime.execution.origin import Origin

#: Networks whose inner values begin, end and are added up at multiples of their sizes: text,
#: constants, and the shapes of the input.
NETS: Mapping[str, tuple[str, Sequence[str], Sequence[tuple[int, ...]]]] = {
    "parts in place": (
        """g (float[4, n, 16] x) => (float[4, n, 16] y) {
        r = Relu(x) a, b = Split<axis = 0>(r, halves0) c = Exp(b) d = Neg(a)
        y = Concat<axis = 0>(c, d) }""",
        ("halves0",),
        [(4, 4, 16), (4, 6, 16), (4, 10, 16), (4, 8, 16), (4, 1, 16), (4, 40, 16)],
    ),
    "joined parts": (
        """g (float[n, 16] x, float[m, 16] z) => (float[k, 16] y) {
        a = Relu(x) b = Neg(z) c = Concat<axis = 0>(a, b) y = Softmax(c) }""",
        (),
        [(4, 7), (5, 3), (9, 1), (2, 8), (33, 4), (4, 40)],
    ),
    "sums and products": (
        """g (float[a, b] x) => (float[c] y) {
        s = Shape(x) m = Gather(s, zero) n = Gather(s, one0) t = Mul(m, n) u = Mul(m, two0)
        v = Mul(m, three) w = Add(n, two0) e = Add(n, m) f = Add(m, three) q = Mul(w, e)
        h = Mul(u, f) o = Add(q, h) i = Add(o, v) j = Add(i, t) d = Sub(j, n)
        l = Unsqueeze(d, zero1) r = Relu(x) p = ReduceMax<keepdims = 0>(r) y = Expand(p, l) }""",
        ("zero", "one0", "two0", "three", "zero1"),
        [(4, 6), (5, 7), (2, 3), (3, 2), (9, 1), (1, 1), (17, 31)],
    ),
    "equal sizes": (
        """g (float[a, b] x, float[c, d] z) => (float[k, l] y) {
        r = Relu(x) t = Neg(z) y = MatMul(r, t) }""",
        (),
        [(4, 4, 4, 4), (4, 5, 5, 6), (4, 5, 4, 5), (3, 3, 3, 8), (8, 2, 2, 8), (7, 7, 8, 7)],
    ),
    "sums of equal sizes": (
        """g (float[a, b] x, float[c, d] z) => (float[k, l] y) {
        s = Add(x, z) y = Softmax(s) }""",
        (),
        [(4, 4, 4, 4), (5, 3, 5, 3), (5, 3, 1, 3), (4, 3, 3, 4), (2, 2, 2, 1), (6, 6, 6, 7)],
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

MORE = {"two0": np.array(2), "three": np.array(3), "halves0": np.array([2, 2])}


def inputs(session: Session, shape: tuple[int, ...]) -> dict[str, Array]:
    """Return arrays for a choice of sizes: by input, in order."""
    if len(session.inputs) == 1:
        return {"x": f32(*shape, seed=sum(shape))}
    sizes = [*shape]
    return {
        port.name: f32(*(sizes.pop(0) if one is None else one for one in port.shape), seed=shape[0])
        for port in session.inputs
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
    text, words, shapes = NETS[name]
    arrays = {**numbers(*(one for one in words if one not in MORE)), **MORE}
    path = saved(model(text, 17, **{one: arrays[one] for one in words}), tmp_path / "net.onnx")
    wanted = list[tuple[dict[str, Array], list[Array] | str]]()
    for shape in shapes:
        with Session(path, libraries=["numpy"], cache_dir=None) as session:
            feeds = inputs(session, shape)
            wanted.append((feeds, answer(session, feeds)))
    for order in (1, -1):
        for cell in ("none", "cold", "warm"):
            cache, origins = None if cell == "none" else tmp_path / str(order), list[Origin]()
            with Session(path, threads=threads, cache_dir=cache) as session:
                for feeds, want in wanted[::order]:
                    found = answer(session, feeds)
                    if isinstance(found, str) or isinstance(want, str):
                        assert found == want
                        continue
                    assert [one.shape for one in found] == [one.shape for one in want]
                    assert difference(found, want) <= TOLERANCE
                    origins.append(session.plan.origin)
            assert "specialised" in {one.way for one in origins}
            assert (origins[0] == Origin("specialised", cached=True)) == (cell == "warm")
