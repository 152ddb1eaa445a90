"""Weights of a file under another shape, then with their axes in another order, and the cache."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from ops import Add, Rename
from tests.frontends.support import agree, f32, model
from vtensor import Graph, Session, save_onnx

#: The initializer is reshaped, and the order of what it is added to turns it.
RESHAPED = """g (float[n, 350, 96] x) => (float[n, 96, 350] y) {
    a = Transpose<perm = [0, 2, 1]>(x)
    b = Reshape(w, shape)
    y = Add(a, b)
}"""


@pytest.mark.parametrize("channels", [512, 3])
def test_a_written_graph_whose_constant_is_turned_reads_back(tmp_path: Path, channels: int) -> None:
    """ONNX stores the constant N C as N 1 C; the sum wants it as C N."""
    path, feeds = tmp_path / "net.onnx", {"x": f32(channels, 3, 64, seed=9)}
    for seed in (1, 2, 1):  # a like model with other weights must not take the first one's
        graph = Graph("turned")
        x = graph.input("x", {"C": channels, "W": 3, "N": 64})
        turned = graph.add(Rename((("N", "N"), ("W", "W"), ("C", "C"))), x)
        weight = graph.constant(f32(64, channels, seed=seed), "N C")
        graph.output(graph.add(Add(), turned, weight), "y")
        with Session(graph.seal()) as session:
            [expected] = session.run(None, feeds)
        save_onnx(graph, path)
        for _ in range(2):  # without a cache entry, then with it
            with Session(path, cache_dir=tmp_path / "cache") as session:
                [y] = session.run(None, feeds)
            np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("stored", [(350, 96), (33600,), (2, 48, 350)], ids=str)
def test_a_reshaped_weight_that_is_turned(tmp_path: Path, stored: tuple[int, ...]) -> None:
    """The answer is that of the file at hand, whatever the cache holds of a like one."""
    shape = (1, 96, 350)
    path, x = tmp_path / "net.onnx", f32(3, 350, 96, seed=9)
    for seed in (1, 2, 1):  # a like model with other weights must not take the first one's
        proto = model(RESHAPED, 17, w=50 * f32(*stored, seed=seed), shape=np.array(shape))
        onnx.save(proto, path)
        agree(proto, {"x": x})
        expected = x.transpose(0, 2, 1) + 50 * f32(*stored, seed=seed).reshape(shape)
        for _ in range(2):
            with Session(path, cache_dir=tmp_path / "cache") as session:
                [y] = session.run(None, {"x": x})
                [other] = session.run(None, {"x": x[:2]})
            np.testing.assert_array_equal(y, expected)
            np.testing.assert_array_equal(other, expected[:2])
