"""Weights of a file are kept as they are packed alone, and are got back from there."""

from __future__ import annotations

import copy
import pickle
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from optimizer.originals import Original, Originals
from tests.frontends.support import f32, model
from tests.runtime.test_memory import measured
from vtensor import Session, load_onnx

MIB = 1 << 20
CONVOLUTIONS = """g (float[1, 64, 14, 14] x) => (float[1, 192, 14, 14] y) {
    a = Conv<pads = [1, 1, 1, 1]>(x, v)
    y = Conv<pads = [1, 1, 1, 1]>(a, w)
}"""
TIED = """g (float[5, 256] x) => (float[5, 256] y, float[5, 256] z) {
    y = Gemm<transB = 0>(x, w)
    z = Gemm<transB = 1>(x, w)
}"""
#: Bits that arithmetic would not keep: NaNs that signal or say something, and -0.
BITS = np.array([0x7FA00001, 0xFFC12345, 0x7F800001, 0x80000000], np.uint32)


def convolutions(folder: Path, odd: bool = False) -> tuple[Path, dict[str, np.ndarray]]:
    """A file, and its weights; the channels of the first are no multiple of a block."""
    weights = {"v": f32(100, 64, 3, 3), "w": f32(192, 100, 3, 3, seed=1)}
    if odd:
        for array in weights.values():
            array.reshape(-1)[7 :: array.size // 4] = BITS.view(np.float32)
    onnx.save(model(CONVOLUTIONS, 17, **weights), folder / "net.onnx")
    return folder / "net.onnx", weights


def originals(session: Session) -> Originals:
    """The constants of the graph that a session has made of a file."""
    graph = session._runner.open().source._graph
    assert graph is not None
    constants = graph.constants
    assert isinstance(constants, Originals)
    return constants


def in_memory(original: Original) -> bool:
    return original._lent() is not None


def test_what_is_packed_gives_back_every_bit(tmp_path: Path) -> None:
    path, weights = convolutions(tmp_path, odd=True)
    with Session(path, threads=1) as session:
        constants = originals(session)
        for name, array in weights.items():
            assert not in_memory(constants.origin(name))
            again = constants[name]
            assert (again.dtype, again.shape, again.flags.writeable) == ("f4", array.shape, False)
            assert again.tobytes() == array.tobytes()
            assert constants[name] is again  # while somebody has it
            del again
            assert not in_memory(constants.origin(name))


def test_another_plan_has_the_weights_after_the_file_is_gone(tmp_path: Path) -> None:
    """Other outputs need a plan of their own; here with other libraries before and after."""
    path, weights = convolutions(tmp_path)
    feeds = {"x": f32(1, 64, 14, 14, seed=2)}
    with Session(load_onnx(path), libraries=["eigen"], threads=1) as session:
        wanted = session.run(["a", "y"], feeds)
    with Session(path, threads=1) as session:
        path.unlink()
        for names in (["y"], ["a", "y"], ["y", "a"], ["a"]):
            found = dict(zip(names, session.run(names, feeds), strict=True))
            for name, array in zip("ay", wanted, strict=True):
                np.testing.assert_allclose(found.get(name, array), array, rtol=1e-3, atol=1e-3)
        assert all(originals(session)[n].tobytes() == w.tobytes() for n, w in weights.items())


@pytest.mark.parametrize("optimize", ["none", "all"])
def test_a_weight_in_two_forms(tmp_path: Path, optimize: str) -> None:
    w, x = f32(256, 256), f32(5, 256, seed=1)
    onnx.save(model(TIED, w=w), tmp_path / "net.onnx")
    with Session(tmp_path / "net.onnx", threads=1, optimize=optimize) as session:
        for names in (["y", "z"], ["z"], ["y"]):
            found = dict(zip(names, session.run(names, {"x": x}), strict=True))
            np.testing.assert_allclose(found.get("y", x @ w), x @ w, rtol=1e-3, atol=1e-3)
            np.testing.assert_allclose(found.get("z", x @ w.T), x @ w.T, rtol=1e-3, atol=1e-3)
        assert originals(session)["w"].tobytes() == w.tobytes()


def test_what_has_a_factor_in_it_is_kept_as_it_was_read(tmp_path: Path) -> None:
    text = """g (float[1, 64, 9, 9] x) => (float[1, 96, 7, 7] y) {
        a = Conv(x, w) b = Mul(a, s) y = Add(b, s)
    }"""
    w, s = f32(96, 64, 3, 3), f32(96, 1, 1, seed=1)
    onnx.save(model(text, w=w, s=s), tmp_path / "net.onnx")
    with Session(tmp_path / "net.onnx", threads=1) as session:
        assert in_memory(originals(session).origin("w"))
        assert originals(session)["w"].tobytes() == w.tobytes()


def test_two_sessions_of_a_graph_leave_it_its_weights(tmp_path: Path) -> None:
    path, weights = convolutions(tmp_path)
    graph = load_onnx(path)
    with Session(graph, threads=1), Session(graph, threads=1):
        assert type(graph.constants) is dict
        assert all(graph.constants[n].tobytes() == w.tobytes() for n, w in weights.items())


def test_the_packed_ones_stay_as_long_as_they_are_needed(tmp_path: Path) -> None:
    """They have the weights also when the plan has gone."""
    path, weights = convolutions(tmp_path)
    with Session(path, threads=1) as session:
        constants = originals(session)
    for kept in (constants, constants.copy(), copy.deepcopy(constants)):
        assert all(kept[n].tobytes() == w.tobytes() for n, w in weights.items())
    written = pickle.loads(pickle.dumps(constants))
    assert type(written) is dict
    assert all(written[n].tobytes() == w.tobytes() for n, w in weights.items())


def test_names_of_one_memory_are_let_go_of_together() -> None:
    array = f32(8)
    constants = Originals({"a": array, "b": array[:], "c": array[::-1]})
    assert constants.origin("a") is constants.origin("b") is not constants.origin("c")
    constants.origin("a").let_go(lambda: np.zeros(8, np.float32))
    constants["d"] = array.copy()
    del constants["c"], array
    assert not constants["b"].any()
    assert constants["d"].any()
    assert list(constants) == ["a", "b", "d"]


@pytest.mark.skipif(sys.platform != "linux", reason="pages are counted in /proc")
def test_a_file_without_factors_is_loaded_with_its_weights_once(tmp_path: Path) -> None:
    names, size = [f"w{place}" for place in range(24)], 1280
    nodes = " ".join(f"x{i + 1} = MatMul(x{i}, {name})" for i, name in enumerate(names))
    text = f"g (float[4, {size}] x0) => (float[4, {size}] x{len(names)}) {{ {nodes} }}"
    proto = model(text, 17, **{name: f32(size, size) for name in names})
    onnx.save(proto, tmp_path / "net.onnx")
    found, weights = measured("loading", str(tmp_path / "net.onnx")), 4 * size * size * len(names)
    assert weights < found["grown"] <= weights + 24 * MIB
    assert weights < found["peak"] <= 1.35 * weights
