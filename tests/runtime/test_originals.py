"""Weights of a file are in memory once, as plans pack them, and are made again from there."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest

from optimizer.constants.originals import Original, Originals, array_of
from tests.frontends.support import f32, model
from tests.runtime.test_memory import measured
from vtensor import Session, load_onnx
from vtensor.errors import ModelError
from vtensor.frontends.onnx import Model

Array = np.ndarray[Any, Any]
MIB = 1 << 20
#: Bits that arithmetic would not keep: NaNs that signal or say something, and -0.
BITS = np.array([0x7FA00001, 0xFFC12345, 0x7F800001, 0x80000000], np.uint32)


def convolutions(folder: Path, odd: bool = False) -> tuple[Path, dict[str, Array]]:
    """Write a file; return it and its weights. The channels of one are no multiple of a block."""
    text = """g (float[1, 64, 14, 14] x) => (float[1, 192, 14, 14] y) {
        a = Conv<pads = [1, 1, 1, 1]>(x, v) y = Conv<pads = [1, 1, 1, 1]>(a, w)
    }"""
    weights = {"v": f32(100, 64, 3, 3), "w": f32(192, 100, 3, 3, seed=1)}
    if odd:
        for array in weights.values():
            array.reshape(-1)[7 :: array.size // 4] = BITS.view(np.float32)
    onnx.save(model(text, 17, **weights), folder / "net.onnx")
    return folder / "net.onnx", weights


def originals(session: Session) -> Originals:
    """Return the constants of the graph, of fixed sizes, that a session has made of a file."""
    graph = session._runner.open().source._graph
    assert graph is not None
    constants = graph.constants
    assert isinstance(constants, Originals)
    return constants


def open_originals(session: Session) -> Originals:
    """Return the constants of the model of which a session makes graphs."""
    loaded = session._runner.open().source._model
    assert loaded is not None
    return loaded._network.arrays


def in_memory(origin: Array | Original) -> bool:
    return not isinstance(origin, Original) or origin.held


def check_same(constants: Any, weights: dict[str, Array]) -> None:
    assert all(constants[name].tobytes() == array.tobytes() for name, array in weights.items())


def test_values_are_asked_for_by_another_shape_too() -> None:
    """A cached plan depends on no large array's values that were not asked for."""
    original = Original(f32(2, 3))
    view = original.reshape((3, 2))
    view.now()
    assert (original.asks, view.asks) == (0, 0)
    assert view.array.shape == (3, 2)
    assert (original.asks, original.reshape((6,)).asks) == (1, 1)


def test_a_turned_original_asks_for_no_values() -> None:
    array = f32(2, 3, 4)
    one = Original(array)
    turned = one.turned((2, 0, 1))
    again, other = turned.turned((0, 2, 1)), turned.reshape((8, 3))
    for derived, expected in [
        (turned, array.transpose(2, 0, 1)),
        (again, array.transpose(2, 1, 0)),
        (other, array.transpose(2, 0, 1).reshape(8, 3)),
    ]:
        assert (derived.shape, derived.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_array_equal(derived.now(), expected)
    assert not one.asks
    assert (turned.root, turned.steps) == (one, (("order", (2, 0, 1)),))
    assert again is one.turned((2, 1, 0))
    assert other.whole is turned
    assert turned.array.flags.c_contiguous
    assert (one.asks, again.asks, other.asks) == (1, 1, 1)
    turned.let_go()
    np.testing.assert_array_equal(turned.now(), array.transpose(2, 0, 1))


def test_names_of_one_memory_are_released_together() -> None:
    array = f32(8)
    constants = Originals.of({"a": array, "b": array[:], "c": array[::-1]})
    origin = constants.origin("a")
    assert isinstance(origin, Original)
    assert origin is constants.origin("b") is not constants.origin("c")
    origin.recovered_by(lambda: np.zeros(8, np.float32))
    origin.let_go()
    constants["d"] = array.copy()
    del constants["c"], array
    assert not constants["b"].any()
    assert constants["d"].any()
    assert list(constants) == ["a", "b", "d"]


def test_a_packed_weight_gives_back_every_bit(tmp_path: Path) -> None:
    """Also after the plan is gone."""
    path, weights = convolutions(tmp_path, odd=True)
    with Session(path, threads=1) as session:
        constants = originals(session)
        for name, array in weights.items():
            assert not in_memory(constants.origin(name))
            again = constants[name]
            assert (again.dtype, again.shape, again.flags.writeable) == ("f4", array.shape, False)
            assert again.tobytes() == array.tobytes()
            assert np.shares_memory(constants[name], again)  # while it is referenced
            del again
            assert not in_memory(constants.origin(name))
    for kept in (constants, constants.copy(), copy.deepcopy(constants)):
        check_same(kept, weights)
    read_back = pickle.loads(pickle.dumps(constants))
    assert type(read_back) is dict
    check_same(read_back, weights)


def test_other_plans_have_the_weights_after_the_file_is_gone(tmp_path: Path) -> None:
    """Other outputs need a plan of their own. Two sessions of a graph leave it its weights."""
    path, weights = convolutions(tmp_path)
    graph, x = load_onnx(path), {"x": f32(1, 64, 14, 14, seed=2)}
    with Session(graph, libraries=["eigen"], threads=1) as session, Session(graph, threads=1):
        expected = dict(zip("ay", session.run(["a", "y"], x), strict=True))
        assert type(graph.constants) is dict
        check_same(graph.constants, weights)
    with Session(path, threads=1) as session:
        path.unlink()
        for names in (["y"], ["a", "y"], ["y", "a"], ["a"]):
            for name, found in zip(names, session.run(names, x), strict=True):
                np.testing.assert_allclose(found, expected[name], rtol=1e-3, atol=1e-3)
        check_same(originals(session), weights)


@pytest.mark.parametrize("optimize", ["none", "all"])
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("file", [True, False])
def test_one_array_is_two_weights_in_two_orders_of_axes(
    tmp_path: Path, first: int, optimize: str, file: bool
) -> None:
    """Also in plans that share what others have packed."""
    text = f"""g (float[n, 256] x) => (float[n, 256] y, float[n, 256] z) {{
        y = Gemm<transB = {first}>(x, w) z = Gemm<transB = {1 - first}>(x, w)
    }}"""
    w = f32(256, 256)
    proto = model(text, w=w)
    onnx.save(proto, tmp_path / "net.onnx")
    matrix = dict(zip("zy" if first else "yz", (w, w.T), strict=True))
    source = tmp_path / "net.onnx" if file else proto
    with Session(source, threads=1, optimize=optimize) as session:
        for size in (3, 4, 5, 3):
            x = f32(size, 256, seed=1)
            for names in (["y", "z"], ["z"], ["y"]):
                for name, found in zip(names, session.run(names, {"x": x}), strict=True):
                    np.testing.assert_allclose(found, x @ matrix[name], atol=1e-3)
        assert open_originals(session)["w"].tobytes() == w.tobytes()


class Scaled(NamedTuple):
    """A weight with a factor that is multiplied as it is packed, the model, the weight's file."""

    w: Array
    path: Path
    data: Path

    def session(self) -> Session:
        return Session(self.path, threads=1)


X = {"x": f32(1, 64, 9, 9)}


@pytest.fixture(params=[False, True], ids=["inside", "beside"])
def scaled(request: pytest.FixtureRequest, tmp_path: Path) -> Scaled:
    text = """g (float[n, 64, 9, 9] x) => (float[n, 96, 7, 7] y) {
        a = Conv(x, w) b = Mul(a, s) y = Add(b, s)
    }"""
    w, path = f32(96, 64, 3, 3), tmp_path / "net.onnx"
    proto, data = model(text, 17, w=w, s=f32(96, 1, 1, seed=1)), tmp_path / "net.data"
    where: dict[str, Any] = {"save_as_external_data": request.param, "location": data.name}
    onnx.save(proto, path, size_threshold=0, **where)
    return Scaled(w, path, data if request.param else path)


def test_a_weight_with_a_factor_is_read_again(scaled: Scaled, tmp_path: Path) -> None:
    """From the file that was opened, whatever has its name meanwhile."""
    content = scaled.data.read_bytes()
    with scaled.session() as session:
        session.run(None, X)
        origin = open_originals(session).origin("w")
        for change in (
            lambda: None,
            lambda: (tmp_path / "other").rename(scaled.data),
            scaled.data.unlink,
        ):
            (tmp_path / "other").write_bytes(content[::-1])
            assert not in_memory(origin)
            change()
            assert array_of(origin).tobytes() == scaled.w.tobytes()


@pytest.mark.parametrize("length", [None, 100])
def test_a_file_that_was_changed_is_not_read_again(scaled: Scaled, length: int | None) -> None:
    """Neither other bytes, nor bytes that are not there any more."""
    with scaled.session() as session:
        [expected] = session.run(None, X)
        os.utime(scaled.data, ns=(1, 1))  # whatever the clock's grain is
        scaled.data.write_bytes(scaled.data.read_bytes()[::-1][:length])
        with pytest.raises(ModelError, match="was changed since it was opened"):
            array_of(open_originals(session).origin("w"))
        assert session.run(None, X)[0].tobytes() == expected.tobytes()


def test_a_file_that_is_replaced_before_the_first_run(scaled: Scaled) -> None:
    """The opened file is used; if its bytes were changed, nothing runs."""
    content = scaled.data.read_bytes()
    [expected] = scaled.session().run(None, X)
    with scaled.session() as session:
        assert not in_memory(open_originals(session).origin("w"))
        scaled.data.unlink()
        scaled.data.write_bytes(content[::-1])
        assert session.run(None, X)[0].tobytes() == expected.tobytes()
    scaled.data.write_bytes(content)
    with scaled.session() as session:
        scaled.data.write_bytes(content[::-1][:-7])
        with pytest.raises(ModelError, match="was changed since it was opened"):
            session.run(None, X)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no processes that fork")
def test_a_child_reads_the_file_of_its_parent(scaled: Scaled) -> None:
    """Each from where it wants: they share one place in the file otherwise."""
    with scaled.session() as session:
        session.run(None, X)
        origin = open_originals(session).origin("w")
        child = os.fork()
        if not child:
            os._exit(array_of(origin).tobytes() != scaled.w.tobytes())
        assert array_of(origin).tobytes() == scaled.w.tobytes()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def open_model(folder: Path) -> tuple[Path, int]:
    """Write a model of open sizes, with one weight that packing moves and one with a factor.

    Return it and the bytes of these weights.
    """
    text = """g (float[n, 64, h, 14] x) => (float[n, 192, h, 14] y) {
        a = Conv<pads = [1, 1, 1, 1]>(x, v) b = Mul(a, s) c = Relu(b)
        y = Conv<pads = [1, 1, 1, 1]>(c, w)
    }"""
    weights = {"v": f32(128, 64, 3, 3), "w": f32(192, 128, 3, 3, seed=1)}
    onnx.save(model(text, 17, **weights, s=f32(128, 1, 1, seed=2)), folder / "net.onnx")
    return folder / "net.onnx", sum(array.nbytes for array in weights.values())


def bytes_held(constants: Originals) -> int:
    """Return the bytes of arrays that are in memory."""
    return sum(one.nbytes for one in constants.origins().values() if in_memory(one))


def holding(path: Path) -> Any:
    """Return a model that keeps its weights."""
    loaded = Model(path)
    arrays = loaded._network.arrays
    for name in arrays:
        arrays[name] = np.array(arrays[name])
    return loaded


#: Batches and heights: the second is planned on symbols, the third may be specialised.
SHAPES = [(1, 14), (2, 14), (3, 9), (1, 30), (4, 5), (1, 14)]


@pytest.mark.parametrize("optimize", ["none", "all"])
@pytest.mark.parametrize("kind", ["file", "bytes", "proto"])
def test_open_sizes_answer_alike_whatever_was_released(
    tmp_path: Path, kind: str, optimize: str
) -> None:
    path, nbytes = open_model(tmp_path)
    sources: dict[str, Any] = {"file": path, "bytes": path.read_bytes(), "proto": onnx.load(path)}
    options: dict[str, Any] = {"threads": 1, "optimize": optimize, "deterministic": True}
    with (
        Session(holding(path), **options) as keeping,
        Session(sources[kind], **options) as session,
    ):
        if kind == "file":
            path.unlink()
        for n, h in SHAPES:
            x = {"x": f32(n, 64, h, 14, seed=n + h)}
            [expected], [found] = keeping.run(None, x), session.run(None, x)
            assert found.tobytes() == expected.tobytes()
        left = bytes_held(open_originals(session))
        factors = 0 if optimize == "none" or kind == "file" else 4 * 128 * 64 * 9
        assert factors <= left <= factors + 4 * 128  # and the factor itself
        assert left < nbytes < bytes_held(open_originals(keeping))


def test_many_threads_with_sizes_of_their_own(tmp_path: Path) -> None:
    path, _ = open_model(tmp_path)
    feeds = [{"x": f32(n, 64, h, 14, seed=n)} for n in (1, 2) for h in (4, 5, 6, 7)]
    with Session(holding(path), threads=1) as keeping:
        expected = [keeping.run(None, x)[0] for x in feeds]
    with Session(path, threads=1) as session, ThreadPoolExecutor(8) as pool:
        answers = [y for [y] in pool.map(lambda x: session.run(None, x), feeds)]
    for y, other in zip(answers, expected, strict=True):
        np.testing.assert_allclose(y, other, rtol=1e-5, atol=1e-4)


def test_a_table_that_is_read_in_place_stays_once(tmp_path: Path) -> None:
    """Also if it is packed as well, and plans for other sizes read it."""
    text = "g (int64[n] x) => (float[n, 512] y) { a = Gather(w, x) y = Gemm<transB = 1>(a, w) }"
    w, places = f32(512, 256), set()
    onnx.save(model(text, 17, w=w), tmp_path / "net.onnx")
    with Session(tmp_path / "net.onnx", threads=1) as session:
        origin = open_originals(session).origin("w")
        for count in (3, 4, 5, 6):
            x = np.arange(count)
            [y] = session.run(None, {"x": x})
            np.testing.assert_allclose(y, w[x] @ w.T, rtol=1e-3, atol=1e-3)
            places.add(array_of(origin).__array_interface__["data"])
        assert in_memory(origin)
        assert len(places) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="pages are counted in /proc")
def test_a_file_without_factors_is_loaded_with_its_weights_once(tmp_path: Path) -> None:
    count, size = 24, 1280
    nodes = " ".join(f"x{i + 1} = MatMul(x{i}, w{i})" for i in range(count))
    text = f"g (float[4, {size}] x0) => (float[4, {size}] x{count}) {{ {nodes} }}"
    proto = model(text, 17, **{f"w{i}": f32(size, size) for i in range(count)})
    onnx.save(proto, tmp_path / "net.onnx")
    memory, weights = measured("loading", str(tmp_path / "net.onnx")), 4 * size * size * count
    assert weights < memory["grown"] <= weights + 24 * MIB
    assert weights < memory["peak"] <= 1.35 * weights


def test_tensors_in_one_place_of_a_file_are_one(tmp_path: Path) -> None:
    text = "g (float[n, 256] x) => (float[n, 256] z) { y = MatMul(x, v) z = MatMul(y, w) }"
    w, x, path = f32(256, 256), f32(3, 256), tmp_path / "net.onnx"
    proto = model(text, 17, v=w, w=w)
    onnx.save(proto, path, save_as_external_data=True, location="net.data", size_threshold=0)
    for tensor in proto.graph.initializer:
        for entry in tensor.external_data:
            entry.value = "0" if entry.key == "offset" else entry.value
    path.write_bytes(proto.SerializeToString())
    with Session(path, threads=1) as session:
        constants = open_originals(session)
        assert constants.origin("v") is constants.origin("w")
        [z] = session.run(None, {"x": x})
        np.testing.assert_allclose(z, x @ w @ w, rtol=1e-3, atol=1e-2)


@pytest.mark.skipif(sys.platform != "linux", reason="open files are counted in /proc")
def test_a_file_is_open_as_long_as_it_may_be_read(tmp_path: Path) -> None:
    path, _ = open_model(tmp_path)

    def opened() -> int:
        gc.collect()
        links = (Path(link) for link in Path("/proc/self/fd").iterdir())
        return sum(link.is_symlink() and link.readlink() == path for link in links)

    session = Session(path, threads=1)
    session.run(None, {"x": f32(1, 64, 9, 14)})
    assert opened() == 1
    session.close()
    del session
    assert opened() == 0
