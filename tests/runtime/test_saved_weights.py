"""Weights of cached plans: turned, cut, cleared of subnormals, and to the bit as the first ones."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from ops import Add, Conv2D, Div, Mul, Rename
from tests.frontends.support import agree, f32, model
from tests.runtime.packed_net import feeds, network
from tests.runtime.waiting import provisional
from vtensor import Graph, Session, save_onnx
from vtensor.errors import ModelError
from vtensor.runtime import _replay
from vtensor.runtime.recording import packing_table

Array = np.ndarray[Any, Any]
CACHED = ["planned", "specialised, read from the cache"]


@pytest.fixture(params=[False, True], ids=["small", "large"])
def large(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether weights are read one at a time; first plans are provisional."""
    provisional(monkeypatch)
    if request.param:
        monkeypatch.setattr(packing_table, "LARGE_BYTES", 1 << 16)
    return bool(request.param)


@pytest.mark.parametrize("beside", [False, True])
def test_a_cached_plan_packs_to_the_bit_as_the_first_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: bool, large: bool
) -> None:
    path, calls, real = network(tmp_path, beside), Counter[str](), _replay.Aside

    class Counting:
        """The thread that packs, whose calls are counted."""

        def __init__(self) -> None:
            self._real = real()

        def __getattr__(self, name: str) -> Any:
            calls[name] += 1
            return getattr(self._real, name)

    monkeypatch.setattr(_replay, "Aside", Counting)

    def answer(threads: int) -> tuple[str, list[bytes]]:
        with Session(path, threads=threads, cache_dir=tmp_path / f"{threads}") as session:
            outputs = [y.tobytes() for y in session.run(None, feeds(2, 9))]
            return str(session.plan.origin), outputs

    first, expected = answer(2)
    calls.clear()
    assert [(first, expected), answer(2)] == [(origin, expected) for origin in CACHED]
    assert calls["read" if large else "run"] >= 2
    calls.clear()
    assert [answer(1)[0] for _ in range(2)] == CACHED
    assert not calls


def test_a_cached_plan_of_a_file_that_was_changed_is_not_taken(tmp_path: Path) -> None:
    path, data = network(tmp_path, beside=True), tmp_path / "data"

    def answer() -> list[bytes]:
        with Session(path, threads=2, cache_dir=tmp_path / "cache") as session:
            return [y.tobytes() for y in session.run(None, feeds(2, 9))]

    first = answer()
    content = np.float32(100).tobytes() + data.read_bytes()[4:]
    data.write_bytes(content)
    assert answer() != first
    data.write_bytes(content[:-9])
    with pytest.raises(ModelError):
        answer()


#: Parts of weights along their first axis, each of which is one row of the file: packed, or read in
#: place, with the options that this takes.
PARTS: dict[str, tuple[str, dict[str, Any]]] = {
    "packed": ("z = Gemm<transB = 1>(p, w) a, b = Split<axis = 1>(z, halves) y = Mul(a, b)", {}),
    "in place": (
        "z = MatMul(w, q) q = Transpose(p) a, b = Split<axis = 0>(z, halves) y = Mul(a, b)",
        {"libraries": ["eigen"]},
    ),
}


@pytest.mark.parametrize("kind", PARTS)
@pytest.mark.usefixtures("large")
def test_parts_along_the_first_axis_are_rows_of_the_file(tmp_path: Path, kind: str) -> None:
    body, options = PARTS[kind]
    text, w = f"net (float[n, 256] p) => (float[a, b] y) {{ {body} }}", f32(512, 256)
    onnx.save(model(text, 17, w=w, halves=np.array([256, 256])), tmp_path / "net.onnx")
    p, origins = f32(6, 256, seed=1), list[str]()
    product = p @ w.T
    expected = product[:, :256] * product[:, 256:]
    for _ in range(2):
        with Session(tmp_path / "net.onnx", threads=2, cache_dir=tmp_path, **options) as session:
            [y] = session.run(None, {"p": p})
            origins.append(str(session.plan.origin))
        y = y if kind == "packed" else y.T
        np.testing.assert_allclose(y, expected, rtol=1e-3, atol=1e-2)
    assert origins == CACHED


@pytest.mark.parametrize("channels", [512, 3])
def test_a_written_graph_whose_constant_is_turned_reads_back(tmp_path: Path, channels: int) -> None:
    """ONNX stores the constant N C as N 1 C; the sum wants it as C N."""
    path, x = tmp_path / "net.onnx", {"x": f32(channels, 3, 64, seed=9)}
    for seed in (1, 2, 1):  # a like model with other weights must not take the first one's
        graph = Graph("turned")
        value = graph.input("x", {"C": channels, "W": 3, "N": 64})
        turned = graph.add(Rename((("N", "N"), ("W", "W"), ("C", "C"))), value)
        weight = graph.constant(f32(64, channels, seed=seed), "N C")
        graph.output(graph.add(Add(), turned, weight), "y")
        with Session(graph.seal()) as session:
            expected = session.run(None, x)
        save_onnx(graph, path)
        for _ in range(2):  # without a cache entry, then with it
            with Session(path, cache_dir=tmp_path / "cache") as session:
                np.testing.assert_array_equal(session.run(None, x), expected)


@pytest.mark.parametrize("stored", [(350, 96), (33600,), (2, 48, 350)], ids=str)
def test_a_reshaped_weight_that_is_turned(tmp_path: Path, stored: tuple[int, ...]) -> None:
    """The answer is that of the file at hand, whatever the cache holds of a like one."""
    text = """g (float[n, 350, 96] x) => (float[n, 96, 350] y) {
        a = Transpose<perm = [0, 2, 1]>(x) b = Reshape(w, shape) y = Add(a, b)
    }"""
    path, x, shape = tmp_path / "net.onnx", f32(3, 350, 96, seed=9), (1, 96, 350)
    for seed in (1, 2, 1):
        w = 50 * f32(*stored, seed=seed)
        proto = model(text, 17, w=w, shape=np.array(shape))
        onnx.save(proto, path)
        agree(proto, {"x": x})
        expected = x.transpose(0, 2, 1) + w.reshape(shape)
        for _ in range(2):
            with Session(path, cache_dir=tmp_path / "cache") as session:
                for count in (3, 2):
                    [y] = session.run(None, {"x": x[:count]})
                    np.testing.assert_array_equal(y, expected[:count])


#: A subnormal number.
TINY = np.float32(1e-40)


def subnormal() -> tuple[Graph, Array, dict[str, Array]]:
    """Return a graph, its weights, some of them subnormal, and its input."""
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((32, 32, 3, 3), np.float32)
    weights[rng.random(weights.shape) < 0.1] = TINY
    g = Graph("subnormal")
    x = g.input("x", {"N": 1, "C": 32, "H": 12, "W": 12})
    g.output(g.add(Conv2D(), x, g.constant(weights, "O I h w", name="w")), "y")
    return g, weights, {"x": rng.standard_normal((1, 32, 12, 12), np.float32)}


@pytest.mark.parametrize("count", [1, 15, 16, 17, 255, 4096, 4099])
def test_all_subnormals_of_an_array_are_cleared_and_nothing_else(count: int) -> None:
    given = np.random.default_rng(count).standard_normal(count).astype(np.float32)
    given[::3] = -TINY
    given[1::5] = np.nan
    given[2::7] = -np.inf
    cleared = np.where(np.abs(given) < np.finfo(np.float32).tiny, np.float32(-0.0), given)
    array = given.copy()
    assert _replay.clear_subnormals(array) == (count >= 16)
    assert array.tobytes() == (cleared if count >= 16 else given).tobytes()


def test_memory_that_cannot_be_cleared_is_refused() -> None:
    array = np.full(64, TINY)
    array.flags.writeable = False
    with pytest.raises(ValueError, match="writable"):
        _replay.clear_subnormals(array)
    with pytest.raises(TypeError):
        _replay.clear_subnormals(3)


def test_packed_weights_have_no_subnormals_and_the_model_keeps_its_own() -> None:
    g, weights, x = subnormal()
    with Session(g, deterministic=True, libraries=["onednn"]) as session:
        [y] = session.run(None, x)
        packed = session.plan.placement.constants()
        assert packed
        for storage in packed:
            held = storage.buffer.memory.view(np.float32)
            assert not ((held != 0) & (np.abs(held) < np.finfo(np.float32).tiny)).any()
        [w] = session.run(["w"], x)
    np.testing.assert_array_equal(w, weights)
    with Session(g, libraries=["numpy"]) as plain:
        np.testing.assert_allclose(y, plain.run(None, x)[0], rtol=1e-4, atol=1e-4)


def test_a_cached_plan_with_subnormals_gives_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provisional(monkeypatch)
    g, _, x = subnormal()
    save_onnx(g, tmp_path / "model.onnx")
    answers = set[bytes]()
    for _ in range(4):
        with Session(tmp_path / "model.onnx", cache_dir=tmp_path / "cache") as session:
            answers.add(session.run(None, x)[0].tobytes())
            session.lock()  # the measured choice is saved
            origin = session.plan.origin
    assert origin.cached
    assert len(answers) == 1


@pytest.mark.parametrize("libraries", [None, ["onednn"]])
@pytest.mark.parametrize(("op", "factor", "size"), [(Div(), 1e-12, 1e27), (Mul(), 1e25, 1e-14)])
def test_only_factors_of_sums_are_cleared(
    op: object, factor: float, size: float, libraries: list[str] | None
) -> None:
    """A subnormal that divides or multiplies by itself stays, however it is packed."""
    rng = np.random.default_rng(0)
    g = Graph("tiny")
    x = g.input("x", {"N": 1, "C": 64, "H": 18, "W": 18})
    weights = g.constant(rng.standard_normal((64, 64, 3, 3), np.float32), "O I h w")
    c = g.constant(np.full((1, 64, 16, 16), 1e-39, np.float32), "N C H W")
    g.output(g.add(Conv2D(), g.add(op, g.add(Conv2D(), x, weights), c), weights), "y")
    numbers = {"x": rng.standard_normal((1, 64, 18, 18), np.float32) * np.float32(factor)}
    with Session(g, libraries=libraries, cache_dir=None) as session:
        [y] = session.run(None, numbers)
        session.lock()
        [again] = session.run(None, numbers)
    for found in (y, again):
        assert size * 1e-2 < np.abs(found).max() < size * 1e6
