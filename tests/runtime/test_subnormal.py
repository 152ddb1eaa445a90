"""Weights below 2^-126, of which trained networks have many: packed, they are zeros."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ops import Conv2D, Div, Mul
from tests.runtime.waiting import provisional
from vtensor import Graph, Session, save_onnx
from vtensor.runtime import _replay

TINY = np.float32(1e-40)


def network() -> tuple[Graph, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((32, 32, 3, 3), np.float32)
    weights[rng.random(weights.shape) < 0.1] = TINY
    g = Graph("subnormal")
    x = g.input("x", {"N": 1, "C": 32, "H": 12, "W": 12})
    g.output(g.add(Conv2D(), x, g.constant(weights, "O I h w", name="w")), "y")
    return g, weights, rng.standard_normal((1, 32, 12, 12), np.float32)


@pytest.mark.parametrize("count", [1, 15, 16, 17, 255, 4096, 4099])
def test_all_are_cleared_and_nothing_else(count: int) -> None:
    given = np.random.default_rng(count).standard_normal(count).astype(np.float32)
    given[::3] = -TINY
    given[1::5] = np.nan
    given[2::7] = -np.inf
    wanted = np.where(np.abs(given) < np.finfo(np.float32).tiny, np.float32(-0.0), given)
    made = given.copy()
    assert _replay.clear_subnormals(made) == (count >= 16)
    assert made.tobytes() == (wanted if count >= 16 else given).tobytes()


def test_few_of_them_stay_where_nobody_looks() -> None:
    given = np.ones(1024, np.float32)
    given[40] = TINY  # the third line; the first and the seventeenth are looked at
    assert not _replay.clear_subnormals(given)
    assert given[40] == TINY


def test_memory_that_cannot_be_written_is_refused() -> None:
    given = np.full(64, TINY)
    given.flags.writeable = False
    with pytest.raises(ValueError, match="writable"):
        _replay.clear_subnormals(given)
    with pytest.raises(TypeError):
        _replay.clear_subnormals(3)


def test_packed_weights_have_none_and_the_model_keeps_its_own() -> None:
    g, weights, x = network()
    with Session(g, deterministic=True, libraries=["onednn"]) as session:
        [y] = session.run(None, {"x": x})
        packed = session.plan.placement.constants()
        assert packed
        for one in packed:
            held = one.buffer.memory.view(np.float32)
            assert not ((held != 0) & (np.abs(held) < np.finfo(np.float32).tiny)).any()
        [own] = session.run(["w"], {"x": x})
    np.testing.assert_array_equal(own, weights)
    with Session(g, libraries=["numpy"]) as plain:
        np.testing.assert_allclose(y, plain.run(None, {"x": x})[0], rtol=1e-4, atol=1e-4)


def test_a_cached_plan_gives_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    provisional(monkeypatch)
    g, _, x = network()
    model, cache = tmp_path / "model.onnx", tmp_path / "cache"
    save_onnx(g, model)
    answers = []
    for _ in range(4):
        with Session(model, cache_dir=cache) as session:
            answers.append(session.run(None, {"x": x})[0].tobytes())
            session.lock()  # the measured choice is saved
            origin = session.plan.origin
    assert origin.cached
    assert len(set(answers)) == 1


def test_only_factors_of_sums_are_cleared() -> None:
    """What divides, multiplies or is compared by itself stays what it is, however it is packed."""
    rng = np.random.default_rng(0)
    k = rng.standard_normal((64, 64, 3, 3), np.float32)
    for op, factor, wanted in ((Div(), 1e-12, 1e27), (Mul(), 1e25, 1e-14)):
        g = Graph("tiny")
        x = g.input("x", {"N": 1, "C": 64, "H": 18, "W": 18})
        weights = g.constant(k, "O I h w")
        c = g.constant(np.full((1, 64, 16, 16), 1e-39, np.float32), "N C H W")
        b = g.add(op, g.add(Conv2D(), x, weights), c)
        g.output(g.add(Conv2D(), b, weights), "y")
        feeds = {"x": rng.standard_normal((1, 64, 18, 18), np.float32) * np.float32(factor)}
        for libraries in (None, ["onednn"]):
            with Session(g, libraries=libraries, cache_dir=None) as session:
                [y] = session.run(None, feeds)
                session.lock()
                [again] = session.run(None, feeds)
            for found in (y, again):
                assert wanted * 1e-2 < np.abs(found).max() < wanted * 1e6
