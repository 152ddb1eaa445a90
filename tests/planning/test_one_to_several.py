"""A session that runs one image, and then several: the first plan serves both where it can."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from tests.frontends.support import Array, f32, model, run_once
from tests.planning.cells import PATIENCE_S
from vtensor import Session
from vtensor.runtime.execution.origin import Origin
from vtensor.runtime.planning.choice import MOST_CHOICES

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
