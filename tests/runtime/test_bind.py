"""Bindings: arrays that a plan takes are used in place, and each copy is reported."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ops import Add, Relu
from ptensor import Layout
from tests.frontends.support import f32, model
from tests.session.test_out import Array, Copies, aliases, room, touches, written
from tests.session.test_session import Dlpack, image, network
from vtensor import Graph, Session
from vtensor.errors import InputError, SessionClosedError
from vtensor.runtime.execution.binding import Binding

assert written  # a fixture
SHAPE = (1, 16, 24, 24)


@pytest.fixture(scope="module")
def session() -> Session:
    return Session(network(), threads=1)


def expected(x: Array) -> dict[str, Array]:
    """Return what a run answers."""
    with Session(network(), threads=1) as session:
        y, last = session.run(None, {"x": np.ascontiguousarray(x)})
    return {"y": y, "last": last}


def check(binding: Binding, x: Array) -> None:
    """Check that runs read the input's memory, and write the same arrays each time."""
    arrays = dict(binding.outputs)
    for scale in (1, -2):
        x[...] = image() * scale
        binding.run()
        for name, want in expected(image() * scale).items():
            assert binding.outputs[name] is arrays[name]
            np.testing.assert_array_equal(arrays[name], want)


def strided() -> Array:
    return np.zeros((1, 32, 24, 48), np.float32)[:, ::2, ::-1, ::2]


def misaligned() -> Array:
    return np.zeros(4 * 16 * 24 * 24 + 1, np.uint8)[1:].view(np.float32).reshape(SHAPE)


def off_a_cache_line() -> Array:
    return np.zeros(16 * 24 * 24 + 1, np.float32)[1:].reshape(SHAPE)


@pytest.mark.parametrize("make", [room, off_a_cache_line])
@pytest.mark.parametrize("wrap", [np.asarray, Dlpack])
@pytest.mark.parametrize("given", [True, False])
def test_dense_arrays_are_used_in_place(
    make: Any, wrap: Any, given: bool, session: Session, written: list[Array]
) -> None:
    """Arrays are made for outputs that are not given."""
    x, y, last = make(), make(), make()
    binding = session.bind({"x": wrap(x)}, {"y": y, "last": last} if given else None)
    assert binding.copies == {}
    assert (binding.outputs["y"] is y) == given
    check(binding, x)
    assert session.copied == set()
    assert all(touches(written, array) for array in (x, *binding.outputs.values()))


def test_channels_last_is_a_plan_of_its_own(session: Session, written: list[Array]) -> None:
    x = room((0, 2, 3, 1))
    x[...] = image()
    binding = session.bind({"x": x})
    binding.run()
    np.testing.assert_allclose(binding.outputs["y"], expected(image())["y"], atol=1e-4)
    assert session.copied == set()
    assert touches(written, x.transpose(0, 2, 3, 1))


@pytest.mark.parametrize(
    ("name", "make"),
    [
        *(("y", make) for make in (strided, misaligned, lambda: room((0, 2, 3, 1)))),
        *(("x", make) for make in (strided, misaligned, lambda: room().astype(">f4"))),
    ],
)
def test_copies_are_reported(name: str, make: Any, session: Session, written: list[Array]) -> None:
    arrays = {"x": room(), "y": room(), name: make()}
    binding = session.bind({"x": arrays["x"]}, {"y": arrays["y"]})
    assert set(binding.copies) == {name}
    check(binding, arrays["x"])
    assert session.copied == {name}
    rows = session.conversions
    if name == "y":
        [copy] = rows[len(session.plan.conversions) :]
        assert (copy.node, copy.bytes) == ("copy of output y", 2 * arrays["y"].nbytes)
    else:
        assert "copy of input x" in [row.node for row in rows]
    assert {other for other in arrays if touches(written, arrays[other])} == {"x", "y"} - {name}


def test_an_output_over_the_input_is_copied_there_after_the_run(session: Session) -> None:
    x = image()
    binding = session.bind({"x": x}, {"y": x})
    assert set(binding.copies) == {"y"}
    for _ in range(2):
        want = expected(x.copy())
        binding.run()
        np.testing.assert_array_equal(x, want["y"])
        np.testing.assert_array_equal(binding.outputs["last"], want["last"])


def test_an_output_between_the_lines_of_the_input_is_copied(session: Session) -> None:
    both = np.zeros((1, 32, 24, 24), np.float32)
    x, y = both[:, ::2], both[:, 1::2]
    binding = session.bind({"x": x}, {"y": y})
    assert set(binding.copies) == {"x", "y"}
    check(binding, x)


@pytest.mark.parametrize("names", [(), ("y_too",), ("x_too", "y", "y_too", "constant")])
def test_outputs_without_memory_of_their_own_are_copied(names: tuple[str, ...]) -> None:
    sizes = {"constant": (3,)}
    out = {name: np.full(sizes.get(name, (2, 3)), np.nan, np.float32) for name in names}
    x = np.zeros((2, 3), np.float32)
    with Session(aliases(), threads=1) as session:
        binding = session.bind({"x": x}, out)
        assert {"x_too", "constant"} < set(binding.copies)
        assert len({"y", "y_too"} & set(binding.copies)) == 1
        for value in (1, -2):
            x[...] = value
            binding.run()
            y = np.maximum(x, 0)
            answers = {"x_too": x, "y": y, "y_too": y, "constant": np.arange(3)}
            for name, array in binding.outputs.items():
                np.testing.assert_array_equal(array, answers[name])
                array += 7  # the caller's own
            assert (x == value).all()


def test_tensors_in_blocks_are_used_in_place(session: Session, written: list[Array]) -> None:
    with Session(network(), output_layouts={"y": "NCHW16c", "last": Layout.ANY}) as other:
        tensor, _ = other.run_tensors(None, {"x": image()})
    binding = session.bind({"x": tensor})
    binding.run()
    assert session.copied == set()
    assert touches(written, tensor.data())
    want = expected(tensor.numpy())
    np.testing.assert_allclose(binding.outputs["y"], want["y"], atol=1e-4)


def test_blocks_are_unpacked_by_each_run() -> None:
    x = room()
    with Session(network(), threads=1, output_layouts={"y": "NCHW8c"}) as session:
        binding = session.bind({"x": x})
        assert set(binding.copies) == {"y"}
        check(binding, x)


def test_bfloat16_is_bound() -> None:
    graph = Graph("narrow")
    graph.output(graph.add(Relu(), graph.input("x", {"N": 2, "C": 3}, "bf16")), "y")
    x, y = (np.zeros((2, 3), ml_dtypes.bfloat16) for _ in range(2))
    with Session(graph, threads=1) as session:
        binding = session.bind({"x": x}, {"y": y})
        assert binding.copies == {}
        x[...] = np.arange(-3, 3).reshape(2, 3)
        binding.run()
        assert y.tolist() == [[0, 0, 0], [0, 1, 2]]


@pytest.mark.parametrize("libraries", [["numpy"], ["eigen", "numpy"]])
def test_a_plan_with_call_backs_is_bound(libraries: list[str]) -> None:
    x, y = room(), room()
    with Session(network(), threads=1, libraries=libraries, pin={"relu0": "numpy"}) as session:
        binding = session.bind({"x": x}, {"y": y})
        assert binding.copies == {}
        for scale in (1, -2):
            x[...] = image() * scale
            binding.run()
            np.testing.assert_allclose(y, expected(x)["y"], atol=1e-4)


def test_bindings_of_one_session_run_in_turns(session: Session) -> None:
    inputs = [room() for _ in range(3)]
    bindings = [session.bind({"x": x}) for x in inputs]
    for _ in range(2):
        for index, x in enumerate(inputs):
            x[...] = image() * (index + 1)
        for binding in bindings:
            binding.run()
        for index, binding in enumerate(bindings):
            want = expected(image() * (index + 1))
            np.testing.assert_array_equal(binding.outputs["y"], want["y"])


def test_a_binding_keeps_its_plan() -> None:
    text = "g (float[n, 4] x) => (float[n, 4] y) { a = Abs(x) b = Exp(a) y = Neg(b) }"
    x = f32(3, 4)
    with Session(model(text), threads=1) as session:
        binding = session.bind({"x": x})
        for size in range(4, 24):  # more plans than are kept, and a larger arena
            session.run(None, {"x": f32(size, 4)})
        binding.run()
        np.testing.assert_allclose(binding.outputs["y"], -np.exp(np.abs(x)), rtol=1e-5)


def read_only() -> Array:
    array = room()
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("inputs", "outputs", "text"),
    [
        ({}, {}, "missing: x"),
        ({"x": room(), "z": room()}, {}, "unknown: z"),
        ({"x": [1.0]}, {}, "input 'x': list is no array"),
        ({"x": Copies(room())}, {}, "input 'x': Copies is no array"),
        ({"x": Copies.Exported(room())}, {}, "input 'x': Exported copies"),
        ({"x": room()[0]}, {}, "rank 3"),
        ({"x": room()[:, :8]}, {}, "shape"),
        ({"x": room().astype(np.float64)}, {}, "element type f64"),
        ({"x": room()}, {"z": room()}, "not one of the outputs"),
        ({"x": room()}, {"y": read_only()}, "read-only"),
        ({"x": room()}, {"y": room()[:, :8]}, "the output has"),
        ({"x": room()}, {"y": room().astype(">f4")}, "element type >f4"),
        ({"x": room()}, {"y": Copies(room())}, "no array"),
        ({"x": room()}, dict.fromkeys(["y", "last"], room()), "that of out 'y' too"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    session: Session, inputs: Mapping[str, Any], outputs: Mapping[str, Any], text: str
) -> None:
    with pytest.raises(InputError, match=text):
        session.bind(inputs, outputs)


def test_a_value_that_decides_shapes_cannot_be_bound() -> None:
    proto = model("g (float[6] x, int64[2] s) => (float[a, b] y) { y = Reshape(x, s) }")
    with (
        Session(proto, threads=1) as session,
        pytest.raises(InputError, match="s decide shapes: they cannot be bound"),
    ):
        session.bind({"x": f32(6), "s": np.array([2, 3])})


def test_a_closed_session_neither_runs_nor_binds() -> None:
    session = Session(network(), threads=1)
    binding = session.bind({"x": image()})
    session.close()
    for use in (binding.run, lambda: session.bind({"x": image()})):
        with pytest.raises(SessionClosedError):
            use()


@pytest.mark.parametrize("library", ["eigen", "numpy"])
def test_an_output_in_the_memory_of_a_constant_is_refused(library: str) -> None:
    w = np.ones((2, 20_000), np.float32)
    graph = Graph("constant")
    x = graph.input("x", {"N": 2, "C": 20_000})
    graph.output(graph.add(Add(), x, graph.constant(w, "N C")), "y")
    with Session(graph, threads=1, libraries=[library]) as session:
        for use in (
            lambda: session.bind({"x": w + 1}, {"y": w}),
            lambda: session.run(None, {"x": w + 1}, out={"y": w}),
        ):
            with pytest.raises(InputError, match="out 'y': its memory is a constant's"):
                use()
        assert (w == 1).all()


NBYTES = image().nbytes


@pytest.mark.parametrize(
    ("make", "free"),
    [
        (lambda: bytearray(NBYTES), lambda memory: memory.clear()),
        (lambda: bytearray(NBYTES), lambda memory: memory.extend(b"more")),
        (lambda: mmap.mmap(-1, NBYTES), lambda memory: memory.close()),
        (lambda: mmap.mmap(-1, NBYTES), lambda memory: memory.resize(2 * NBYTES)),
        (lambda: np.zeros(image().size, np.float32), lambda memory: memory.resize(1)),
    ],
    ids=["clear", "extend", "close", "remap", "resize"],
)
def test_memory_cannot_be_freed_while_it_is_bound(
    make: Callable[[], object], free: Callable[[object], None], session: Session
) -> None:
    memories: list[Any] = [make(), make()]
    views = [np.frombuffer(m, np.float32, image().size).reshape(SHAPE) for m in memories]
    binding = session.bind({"x": views[0]}, {"y": views[1]})
    views[0][...] = image()
    views.clear()  # the binding alone refers to the memory
    for memory in memories:
        with pytest.raises((BufferError, ValueError)):
            free(memory)
    binding.run()
    y = np.frombuffer(memories[1], np.float32, image().size).reshape(SHAPE)
    np.testing.assert_array_equal(y, expected(image())["y"])


@pytest.mark.parametrize("size", [1, 100 * image().size])
@pytest.mark.parametrize("name", ["x", "y"])
@pytest.mark.parametrize("view", [False, True])
def test_an_array_that_was_resized_is_refused(
    size: int, name: str, view: bool, session: Session
) -> None:
    """NumPy does not count references to an array if it is told not to."""
    arrays = {port: np.zeros(SHAPE, np.float32) for port in "xy"}
    bound = {port: array[:, :] if view else array for port, array in arrays.items()}
    want = session.run(["y"], {"x": image()})
    binding = session.bind({"x": bound["x"]}, {"y": bound["y"]})
    before = arrays[name].ctypes.data
    arrays[name].resize(size, refcheck=False)
    grown = size > 1 and arrays[name].ctypes.data == before  # in place: nothing is lost
    for _ in range(2):
        if grown:
            binding.run()
        else:
            with pytest.raises(InputError, match="was resized: bind the session again"):
                binding.run()
    np.testing.assert_array_equal(session.run(["y"], {"x": image()}), want)
