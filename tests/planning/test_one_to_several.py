"""A session that runs one image, and then several: the first plan serves both where it can."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.frontends.support import f32, model
from tests.planning.cells import PATIENCE_S
from vtensor import Session
from vtensor.runtime.execution.origin import Origin
from vtensor.runtime.planning.choice import MOST_CHOICES

#: Networks of ``n`` images, of which none needs another plan for several.
NETWORKS: Mapping[str, tuple[str, dict[str, Any], tuple[int, ...]]] = {
    "a scale for each channel": (
        "g (float[n, 8, 4, 4] x) => (float[n, 8, 4, 4] y) { a = Relu(x) y = Mul(a, w) }",
        {"w": f32(1, 8, 1, 1)},
        (8, 4, 4),
    ),
    "a scale for each channel of each image": (
        """g (float[n, 8, 6, 6] x) => (float[n, 8, 6, 6] y) {
            m = GlobalAveragePool(x) s = Sigmoid(m) y = Mul(x, s) }""",
        {},
        (8, 6, 6),
    ),
    "a bias behind a product": (
        "g (float[n, 5, 16] x) => (float[n, 5, 8] y) { a = MatMul(x, w) y = Add(a, b) }",
        {"w": f32(16, 8), "b": f32(8)},
        (5, 16),
    ),
    "positions for all images": (
        "g (float[n, 6, 16] x) => (float[n, 6, 16] y) { a = Add(x, w) y = Softmax(a) }",
        {"w": f32(1, 6, 16)},
        (6, 16),
    ),
    "heads": (
        """g (float[n, 6, 16] x) => (float[n, 4, 6, 4] y) {
            r = Reshape(x, shape) y = Transpose<perm = [0, 2, 1, 3]>(r) }""",
        {"shape": np.array([0, 6, 4, 4])},
        (6, 16),
    ),
    "attention": (
        """g (float[n, 6, 8] x) => (float[n, 6, 8] y) {
            t = Transpose<perm = [0, 2, 1]>(x) p = MatMul(x, t) s = Softmax(p)
            y = MatMul(s, x) }""",
        {},
        (6, 8),
    ),
    "sums": (
        """g (float[n, 8, 5] x) => (float[n, 5] y) {
            y = ReduceSum<keepdims = 0>(x, axes) }""",
        {"axes": np.array([1])},
        (8, 5),
    ),
    "part of each image": (
        """g (float[n, 8, 5] x) => (float[n, 8, 3] y) {
            a = Slice(x, from, to, last) y = Relu(a) }""",
        {"from": np.array([1]), "to": np.array([4]), "last": np.array([2])},
        (8, 5),
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_the_plan_for_one_serves_several(name: str) -> None:
    body, weights, shape = NETWORKS[name]
    proto = model(body, **weights)
    with Session(proto, threads=1, cache_dir=None) as session:
        for images in (1, 3, 2):
            x = {"x": f32(images, *shape)}
            [found] = session.run(None, x)
            assert session.plan.origin.way == ("planned" if images == 1 else "specialised")
            with Session(proto, threads=1, cache_dir=None) as fresh:
                np.testing.assert_array_equal(found, fresh.run(None, x)[0])


#: Two parts of each image: of one image they are contiguous in memory, and nothing is copied.
PARTS = """g (float[n, 16, 4, 4] x) => (float[n, 32, 4, 4] y) {
    a = MaxPool<kernel_shape = [1, 1]>(x)
    b = AveragePool<kernel_shape = [1, 1]>(x) y = Concat<axis = 1>(a, b) }"""


def test_several_are_planned_where_the_plan_for_one_cannot_serve() -> None:
    with Session(model(PARTS), threads=1, cache_dir=None) as session:
        for images, way in ((1, "planned"), (2, "planned"), (5, "specialised"), (1, "in memory")):
            x = f32(images, 16, 4, 4)
            [found] = session.run(None, {"x": x})
            assert session.plan.origin.way == way
            np.testing.assert_array_equal(found, np.concatenate([x, x], 1))


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
