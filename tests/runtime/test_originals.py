"""Weights of a file are kept as they are packed alone, and are got back from there."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from optimizer.constants.originals import Original, Originals, array_of
from tests.frontends.support import f32, model
from tests.runtime.test_memory import measured
from vtensor import Session, load_onnx
from vtensor.errors import ModelError
from vtensor.frontends.onnx import Model

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


def in_memory(origin: np.ndarray | Original) -> bool:
    return not isinstance(origin, Original) or origin.held


def test_who_asks_for_another_shape_asks_for_the_values() -> None:
    """What is kept of a plan goes by no large array's values, in whatever shape."""
    one = Original(f32(2, 3))
    view = one.reshape((3, 2))
    view.now()
    assert (one.asks, view.asks) == (0, 0)
    assert view.array.shape == (3, 2)
    assert (one.asks, one.reshape((6,)).asks) == (1, 1)


def test_who_turns_an_original_asks_for_nothing() -> None:
    array = f32(2, 3, 4)
    one = Original(array)
    turned = one.turned((2, 0, 1))
    again, other = turned.turned((0, 2, 1)), turned.reshape((8, 3))
    for made, wanted in [
        (turned, array.transpose(2, 0, 1)),
        (again, array.transpose(2, 1, 0)),
        (other, array.transpose(2, 0, 1).reshape(8, 3)),
    ]:
        assert (made.shape, made.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_array_equal(made.now(), wanted)
    assert not one.asks
    assert (turned.root, turned.steps) == (one, (("order", (2, 0, 1)),))
    assert again is one.turned((2, 1, 0))
    assert other.whole is turned
    assert turned.array.flags.c_contiguous
    assert (one.asks, again.asks, other.asks) == (1, 1, 1)
    turned.let_go()
    np.testing.assert_array_equal(turned.now(), array.transpose(2, 0, 1))


def test_what_is_packed_gives_back_every_bit(tmp_path: Path) -> None:
    path, weights = convolutions(tmp_path, odd=True)
    with Session(path, threads=1) as session:
        constants = originals(session)
        for name, array in weights.items():
            assert not in_memory(constants.origin(name))
            again = constants[name]
            assert (again.dtype, again.shape, again.flags.writeable) == ("f4", array.shape, False)
            assert again.tobytes() == array.tobytes()
            assert np.shares_memory(constants[name], again)  # while somebody has it
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


SCALED = """g (float[n, 64, 9, 9] x) => (float[n, 96, 7, 7] y) {
    a = Conv(x, w) b = Mul(a, s) y = Add(b, s)
}"""


def scaled() -> tuple[onnx.ModelProto, np.ndarray]:
    """A model whose weight gets a factor, and that weight."""
    w, s = f32(96, 64, 3, 3), f32(96, 1, 1, seed=1)
    return model(SCALED, 17, w=w, s=s), w


@pytest.mark.parametrize("beside", [False, True])
def test_what_has_a_factor_in_it_is_read_again(tmp_path: Path, beside: bool) -> None:
    """From the file that was opened: whatever has its name meanwhile."""
    proto, w = scaled()
    path, data = tmp_path / "net.onnx", tmp_path / ("net.data" if beside else "net.onnx")
    onnx.save(proto, path, save_as_external_data=beside, location="net.data", size_threshold=0)
    with Session(path, threads=1) as session:
        session.run(None, {"x": f32(1, 64, 9, 9)})
        one = open_originals(session).origin("w")
        assert not in_memory(one)
        assert array_of(one).tobytes() == w.tobytes()
        content = data.read_bytes()
        (tmp_path / "other").write_bytes(content[::-1])
        (tmp_path / "other").rename(data)
        assert not in_memory(one)
        assert array_of(one).tobytes() == w.tobytes()
        data.unlink()
        assert array_of(one).tobytes() == w.tobytes()


@pytest.mark.parametrize("length", [None, 100])
@pytest.mark.parametrize("beside", [False, True])
def test_what_somebody_wrote_to_is_not_read_again(
    tmp_path: Path, beside: bool, length: int | None
) -> None:
    """Neither other bytes, nor bytes that are not there any more."""
    proto, _ = scaled()
    path, data = tmp_path / "net.onnx", tmp_path / ("net.data" if beside else "net.onnx")
    onnx.save(proto, path, save_as_external_data=beside, location="net.data", size_threshold=0)
    x = f32(1, 64, 9, 9)
    with Session(path, threads=1) as session:
        [wanted] = session.run(None, {"x": x})
        os.utime(data, ns=(1, 1))  # whatever the clock's grain is
        data.write_bytes(data.read_bytes()[::-1][:length])
        one = open_originals(session).origin("w")
        with pytest.raises(ModelError, match="was changed since it was opened"):
            array_of(one)
        [again] = session.run(None, {"x": x})
        assert again.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("beside", [False, True])
def test_a_file_that_is_another_before_the_first_run(tmp_path: Path, beside: bool) -> None:
    """What was opened is what runs; where its bytes were exchanged, nothing does."""
    proto, x = scaled()[0], f32(1, 64, 9, 9)
    path, data = tmp_path / "net.onnx", tmp_path / ("net.data" if beside else "net.onnx")
    onnx.save(proto, path, save_as_external_data=beside, location="net.data", size_threshold=0)
    content = data.read_bytes()
    [wanted] = Session(path, threads=1).run(None, {"x": x})
    with Session(path, threads=1) as session:
        assert not in_memory(open_originals(session).origin("w"))
        data.unlink()
        data.write_bytes(content[::-1])
        [found] = session.run(None, {"x": x})
        assert found.tobytes() == wanted.tobytes()
    data.write_bytes(content)
    with Session(path, threads=1) as session:
        data.write_bytes(content[::-1][:-7])
        with pytest.raises(ModelError, match="was changed since it was opened"):
            session.run(None, {"x": x})


@pytest.mark.parametrize("given", [onnx.ModelProto.SerializeToString, onnx.ModelProto])
def test_what_has_a_factor_in_it_and_no_file_is_kept(given: Any) -> None:
    proto, w = scaled()
    whole = onnx.ModelProto()
    whole.CopyFrom(proto)
    with Session(whole if given is onnx.ModelProto else given(proto), threads=1) as session:
        session.run(None, {"x": f32(1, 64, 9, 9)})
        one = open_originals(session).origin("w")
        assert in_memory(one)
        assert array_of(one).tobytes() == w.tobytes()


OPEN = """g (float[n, 64, h, 14] x) => (float[n, 192, h, 14] y) {
    a = Conv<pads = [1, 1, 1, 1]>(x, v)
    b = Mul(a, s)
    c = Relu(b)
    y = Conv<pads = [1, 1, 1, 1]>(c, w)
}"""


def open_model(folder: Path) -> tuple[Path, int]:
    """A model of open sizes with a weight that packing moves and one with a factor; their bytes."""
    weights = {"v": f32(128, 64, 3, 3), "w": f32(192, 128, 3, 3, seed=1)}
    onnx.save(model(OPEN, 17, **weights, s=f32(128, 1, 1, seed=2)), folder / "net.onnx")
    return folder / "net.onnx", sum(array.nbytes for array in weights.values())


def open_originals(session: Session) -> Originals:
    """The constants of the model that a session makes graphs of."""
    loaded = session._runner.open().source._model
    assert loaded is not None
    return loaded._network.arrays


def held(constants: Originals) -> int:
    """The bytes of arrays that are in memory."""
    return sum(one.nbytes for one in constants.origins().values() if in_memory(one))


#: Batches and heights: the second makes an outline, the third may be of a blueprint.
SHAPES = [(1, 14), (2, 14), (3, 9), (1, 30), (4, 5), (1, 14)]


@pytest.mark.parametrize("optimize", ["none", "all"])
@pytest.mark.parametrize("kind", ["file", "bytes", "proto"])
def test_open_sizes_answer_alike_whatever_was_let_go_of(
    tmp_path: Path, kind: str, optimize: str
) -> None:
    path, nbytes = open_model(tmp_path)
    sources: dict[str, Any] = {"file": path, "bytes": path.read_bytes(), "proto": onnx.load(path)}
    feeds = [{"x": f32(n, 64, h, 14, seed=n + h)} for n, h in SHAPES]
    options: dict[str, Any] = {"threads": 1, "optimize": optimize, "deterministic": True}
    with (
        Session(holding(path), **options) as keeping,
        Session(sources[kind], **options) as session,
    ):
        if kind == "file":
            path.unlink()
        for one in feeds:
            [wanted], [found] = keeping.run(None, one), session.run(None, one)
            assert found.tobytes() == wanted.tobytes()
        left = held(open_originals(session))
        factors = 0 if optimize == "none" or kind == "file" else 4 * 128 * 64 * 9
        assert factors <= left <= factors + 4 * 128  # and the factor itself
        assert left < nbytes < held(open_originals(keeping))


def holding(path: Path) -> Any:
    """A model that holds on to its weights."""
    loaded = Model(path)
    arrays = loaded._network.arrays
    for name in arrays:
        arrays[name] = np.array(arrays[name])
    return loaded


def test_many_threads_with_sizes_of_their_own(tmp_path: Path) -> None:
    path, _ = open_model(tmp_path)
    feeds = [{"x": f32(n, 64, h, 14, seed=n)} for n in (1, 2) for h in (4, 5, 6, 7)]
    with Session(holding(path), threads=1) as keeping:
        wanted = [keeping.run(None, one)[0] for one in feeds]
    with Session(path, threads=1) as session, ThreadPoolExecutor(8) as pool:
        found = [one for [one] in pool.map(lambda one: session.run(None, one), feeds)]
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-4)


def test_a_table_that_is_read_as_it_lies_stays_once(tmp_path: Path) -> None:
    """Also where it is packed beside that, and plans for other sizes read it."""
    text = "g (int64[n] x) => (float[n, 512] y) { a = Gather(w, x) y = Gemm<transB = 1>(a, w) }"
    w = f32(512, 256)
    onnx.save(model(text, 17, w=w), tmp_path / "net.onnx")
    with Session(tmp_path / "net.onnx", threads=1) as session:
        one = open_originals(session).origin("w")
        places = set()
        for count in (3, 4, 5, 6):
            x = np.arange(count)
            [found] = session.run(None, {"x": x})
            np.testing.assert_allclose(found, w[x] @ w.T, rtol=1e-3, atol=1e-3)
            places.add(array_of(one).__array_interface__["data"])
        assert in_memory(one)
        assert len(places) == 1


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
    constants = Originals.of({"a": array, "b": array[:], "c": array[::-1]})
    one = constants.origin("a")
    assert isinstance(one, Original)
    assert one is constants.origin("b") is not constants.origin("c")
    one.recovered_by(lambda: np.zeros(8, np.float32))
    one.let_go()
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


def test_tensors_of_one_place_are_one(tmp_path: Path) -> None:
    text = "g (float[n, 256] x) => (float[n, 256] z) { y = MatMul(x, v) z = MatMul(y, w) }"
    w = f32(256, 256)
    proto = model(text, 17, v=w, w=w)
    path = tmp_path / "net.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="net.data", size_threshold=0)
    for tensor in proto.graph.initializer:
        for entry in tensor.external_data:
            entry.value = "0" if entry.key == "offset" else entry.value
    path.write_bytes(proto.SerializeToString())
    with Session(path, threads=1) as session:
        constants, x = open_originals(session), f32(3, 256)
        assert constants.origin("v") is constants.origin("w")
        [found] = session.run(None, {"x": x})
        np.testing.assert_allclose(found, x @ w @ w, rtol=1e-3, atol=1e-2)


@pytest.mark.skipif(sys.platform != "linux", reason="open files are counted in /proc")
def test_a_file_is_open_as_long_as_somebody_may_read_it(tmp_path: Path) -> None:
    path, _ = open_model(tmp_path)

    def opened() -> int:
        gc.collect()
        links = (Path(one) for one in Path("/proc/self/fd").iterdir())
        return sum(one.is_symlink() and one.readlink() == path for one in links)

    session = Session(path, threads=1)
    session.run(None, {"x": f32(1, 64, 9, 14)})
    assert opened() == 1
    session.close()
    del session
    assert opened() == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no processes that fork")
def test_a_child_reads_the_file_of_its_parent(tmp_path: Path) -> None:
    """Each from where it wants: they share one place in the file otherwise."""
    proto, w = scaled()
    onnx.save(proto, tmp_path / "net.onnx")
    with Session(tmp_path / "net.onnx", threads=1) as session:
        session.run(None, {"x": f32(1, 64, 9, 9)})
        one = open_originals(session).origin("w")
        child = os.fork()
        if not child:
            os._exit(array_of(one).tobytes() != w.tobytes())
        assert array_of(one).tobytes() == w.tobytes()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
