"""Bindings: what a plan takes as it lies stays where it is, and whatever is copied shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ops import Add, Relu
from ptensor import Layout
from tests.frontends.support import f32, model
from tests.session.test_out import Array, Copies, aliases, room, touches, written
from tests.session.test_session import Dlpack, image, network
from vtensor import Graph, Session, from_array
from vtensor.errors import InputError, SessionClosedError
from vtensor.runtime.execution.binding import Binding

assert written  # a fixture
SHAPE = (1, 16, 24, 24)


@pytest.fixture(scope="module")
def session() -> Session:
    return Session(network(), threads=1)


def expected(x: Array) -> dict[str, Array]:
    """What a run says."""
    with Session(network(), threads=1) as session:
        y, last = session.run(None, {"x": np.ascontiguousarray(x)})
    return {"y": y, "last": last}


def check(binding: Binding, x: Array) -> None:
    """Runs follow what the input's memory holds, and write the same arrays each time."""
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
def test_what_lies_densely_is_used_where_it_is(
    make: Any, session: Session, written: list[Array]
) -> None:
    x, y, last = make(), make(), make()
    binding = session.bind({"x": x}, {"y": y, "last": last})
    assert binding.copies == {}
    assert binding.outputs["y"] is y
    check(binding, x)
    assert session.copied == set()
    assert all(touches(written, one) for one in (x, y, last))


def test_arrays_are_made_for_outputs_that_are_not_given(
    session: Session, written: list[Array]
) -> None:
    x = room()
    binding = session.bind({"x": x})
    check(binding, x)
    assert all(touches(written, one) for one in (x, *binding.outputs.values()))
    assert session.copied == set()


def test_channels_last_is_a_plan_of_its_own(session: Session, written: list[Array]) -> None:
    x = room((0, 2, 3, 1))
    x[...] = image()
    binding = session.bind({"x": x})
    binding.run()
    np.testing.assert_allclose(binding.outputs["y"], expected(image())["y"], atol=1e-4)
    assert session.copied == set()
    assert touches(written, x.transpose(0, 2, 3, 1))


@pytest.mark.parametrize("make", [strided, misaligned, lambda: room((0, 2, 3, 1))])
def test_copies_of_outputs_show(make: Any, session: Session, written: list[Array]) -> None:
    x, y = room(), make()
    binding = session.bind({"x": x}, {"y": y})
    assert set(binding.copies) == {"y"}
    check(binding, x)
    assert session.copied == {"y"}
    [copy] = session.conversions[len(session.plan.conversions) :]
    assert (copy.node, copy.bytes) == ("copy of output y", 2 * y.nbytes)
    assert touches(written, x)
    assert not touches(written, y)


@pytest.mark.parametrize("make", [strided, misaligned, lambda: room().astype(">f4")])
def test_copies_of_inputs_show(make: Any, session: Session, written: list[Array]) -> None:
    x = make()
    binding = session.bind({"x": x})
    assert set(binding.copies) == {"x"}
    check(binding, x)
    assert session.copied == {"x"}
    assert "copy of input x" in [one.node for one in session.conversions]
    assert not touches(written, x)


def test_an_output_over_the_input_is_copied_there_after_the_run(session: Session) -> None:
    x = image()
    binding = session.bind({"x": x}, {"y": x})
    assert set(binding.copies) == {"y"}
    for _ in range(2):
        want = expected(x.copy())
        binding.run()
        np.testing.assert_array_equal(x, want["y"])
        np.testing.assert_array_equal(binding.outputs["last"], want["last"])


def test_an_output_beside_a_copied_input(session: Session) -> None:
    both = np.zeros((1, 32, 24, 24), np.float32)
    x, y = both[:, ::2], both[:, 1::2]
    binding = session.bind({"x": x}, {"y": y})
    assert set(binding.copies) == {"x", "y"}
    check(binding, x)


@pytest.mark.parametrize("given", [(), ("y_too",), ("x_too", "y", "y_too", "constant")])
def test_outputs_without_memory_of_their_own(given: tuple[str, ...]) -> None:
    sizes = {"constant": (3,)}
    out = {name: np.full(sizes.get(name, (2, 3)), np.nan, np.float32) for name in given}
    x = np.zeros((2, 3), np.float32)
    with Session(aliases(), threads=1) as session:
        binding = session.bind({"x": x}, out)
        assert {"x_too", "constant"} < set(binding.copies)
        assert len({"y", "y_too"} & set(binding.copies)) == 1
        for value in (1, -2):
            x[...] = value
            binding.run()
            for array in binding.outputs.values():
                want = np.arange(3) if array.ndim == 1 else x
                want = np.maximum(x, 0) if array is binding.outputs["y"] else want
                want = np.maximum(x, 0) if array is binding.outputs["y_too"] else want
                np.testing.assert_array_equal(array, want)
                array += 7  # nobody else's
            assert (x == value).all()


def test_tensors_in_blocks_are_taken_as_they_lie(session: Session, written: list[Array]) -> None:
    with Session(network(), output_layouts={"y": "NCHW16c", "last": Layout.ANY}) as other:
        tensor, _ = other.run_tensors(None, {"x": image()})
    binding = session.bind({"x": tensor})
    binding.run()
    assert session.copied == set()
    assert touches(written, tensor.data())
    want = expected(tensor.numpy())
    np.testing.assert_allclose(binding.outputs["y"], want["y"], atol=1e-4)


def test_tensors_with_gaps_are_read_anew_each_time(session: Session) -> None:
    wide = np.zeros((1, 16, 24, 48), np.float32)
    binding = session.bind({"x": from_array(wide, "N C H W").slice(W=(0, 24), copy=False)})
    assert set(binding.copies) == {"x"}
    check(binding, wide[..., :24])


def test_blocks_are_unpacked_by_each_run() -> None:
    x = room()
    with Session(network(), threads=1, output_layouts={"y": "NCHW8c"}) as session:
        binding = session.bind({"x": x})
        assert set(binding.copies) == {"y"}
        check(binding, x)


def test_what_exports_its_memory(session: Session, written: list[Array]) -> None:
    x = room()
    binding = session.bind({"x": Dlpack(x)})
    check(binding, x)
    assert touches(written, x)


def test_bfloat16() -> None:
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
def test_plans_with_call_backs(libraries: list[str]) -> None:
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
def test_what_cannot_be_bound(
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


def test_a_closed_session() -> None:
    session = Session(network(), threads=1)
    binding = session.bind({"x": image()})
    session.close()
    with pytest.raises(SessionClosedError):
        binding.run()
    with pytest.raises(SessionClosedError):
        session.bind({"x": image()})


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
