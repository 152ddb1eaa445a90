"""Outputs into the caller's arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import pytest

from ops import Concat, Identity, Relu, Reshape
from ptensor import Layout
from ptensor.dlpack import CPU, export
from tests.frontends.support import model
from tests.session.test_session import image, network
from vtensor import Graph, Session, call, from_array
from vtensor.errors import InputError, NativeError
from vtensor.runtime._replay import Program
from vtensor.runtime.execution.direct import DirectRequest
from vtensor.runtime.execution.executor import Executor

Array = np.ndarray[Any, Any]
SHAPE = (1, 16, 24, 24)


@pytest.fixture(scope="module")
def session() -> Session:
    """Open a small network with the outputs ``y`` and ``last``."""
    return Session(network())


def room(order: tuple[int, ...] = (0, 1, 2, 3)) -> Array:
    """Return an array to write to, whose axes have another order in memory."""
    shape = [SHAPE[axis] for axis in order]
    return np.full(shape, np.nan, np.float32).transpose(np.argsort(order))


@pytest.mark.parametrize(
    "into",
    [
        room(),
        room((0, 2, 3, 1)),
        np.full((1, 32, 24, 48), np.nan, np.float32)[:, ::2, ::-1, ::2],
        np.zeros(4 * 16 * 24 * 24 + 1, np.uint8)[1:].view(np.float32).reshape(SHAPE),
    ],
)
def test_output_of_any_strides_is_written(session: Session, into: Array) -> None:
    expected = session.run(None, {"x": image()})
    outputs = session.run(None, {"x": image()}, out={"last": into})
    assert outputs[1] is into
    for have, want in zip(outputs, expected, strict=True):
        np.testing.assert_array_equal(have, want)


def test_outputs_go_into_tensors_and_into_halves_of_an_array(session: Session) -> None:
    y, last = room(), room()
    expected = session.run(["last", "y"], {"x": image()})
    out = {"y": from_array(y, "N C H W"), "last": last}
    outputs = session.run(["last", "y"], {"x": image()}, out=out)
    assert np.shares_memory(outputs[1], y)
    both = np.zeros((2, *SHAPE), np.float32)
    session.run(None, {"x": image()}, out={"last": both[0], "y": both[1]})
    for half, array, want in zip(both, (last, y), expected, strict=True):
        np.testing.assert_array_equal(array, want)
        np.testing.assert_array_equal(half, want)


class Copies:
    """An object whose ``__array__`` returns a copy each time."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        return self.array.copy()

    class Exported:
        """An object whose ``__dlpack__`` returns a marked copy each time."""

        def __init__(self, array: Array) -> None:
            self.array = array

        def __dlpack__(self, **options: Any) -> object:
            return export(self.array.copy(), copied=True, **(options | {"copy": None}))

        def __dlpack_device__(self) -> tuple[int, int]:
            return CPU


def test_memory_that_cannot_be_written_is_refused_before_the_run(session: Session) -> None:
    x = image()
    read_only = room()
    read_only.flags.writeable = False
    plane = np.zeros((1, 1, 24, 24), np.float32)
    folded = np.lib.stride_tricks.as_strided(plane, SHAPE, (0, 0, 96, 4))
    window = np.lib.stride_tricks.as_strided(np.zeros(10**5, np.float32), SHAPE, (4, 8, 96, 4))
    same = room()
    cases: list[tuple[Any, str]] = [
        ({"z": room()}, "not one of the outputs"),
        ({"y": room()[0]}, "the output has"),
        ({"y": room()[:, :8]}, "the output has"),
        ({"y": room().astype(np.float64)}, "element type f64"),
        ({"y": room().astype(">f4")}, "element type >f4"),
        ({"y": room().astype(object)}, "wanted is"),
        ({"y": read_only}, "read-only"),
        ({"y": folded}, "its elements overlap"),
        ({"y": window}, "its elements overlap"),
        ({"y": same, "last": same}, "that of out 'y'"),
        ({"y": [1.0]}, "out 'y': list is no array; .* an object with __dlpack__$"),
        ({"y": 3}, "out 'y': int is no array"),
        ({"y": np.ma.masked_invalid(room())}, "out 'y': a masked array .* array.data"),
        ({"y": Copies(room())}, "out 'y': Copies is no array"),
        ({"y": Copies.Exported(room())}, "out 'y': Exported copies, with copy=False"),
        ([room()], "is given as"),
    ]
    for out, wanted in cases:
        before = x.copy()
        with pytest.raises(InputError, match=wanted):
            session.run(None, {"x": x}, out=out)
        np.testing.assert_array_equal(x, before)
    with pytest.raises(InputError, match="not one of the outputs"):
        session.run(["y"], {"x": x}, out={"last": room()})
    with pytest.raises(InputError, match="wanted, once"):
        session.run(["y", "y"], {"x": x}, out={"y": room()})


def test_output_over_an_input_is_copied_there_at_the_end(session: Session) -> None:
    [y, expected] = session.run(None, {"x": image()})
    x = image()
    session.run(None, {"x": x}, out={"last": x})
    np.testing.assert_array_equal(x, expected)
    assert session.copied == {"last"}
    [copy] = session.conversions[len(session.plan.conversions) :]
    assert (copy.node, copy.source, copy.bytes) == ("copy of output last", None, 2 * x.nbytes)
    x = image()
    session.run(None, {"x": x}, out={"y": x})
    np.testing.assert_array_equal(x, y)


def test_output_has_the_sizes_that_the_run_decides() -> None:
    with Session(model("g (float[N, 3] x) => (float[N, 3] y) { y = Relu(x) }")) as session:
        x, y = np.array([[-1, 0, 1], [2, -2, 3]], np.float32), np.zeros((2, 3), np.float32)
        session.run(None, {"x": x}, out={"y": y})
        np.testing.assert_array_equal(y, np.maximum(x, 0))
        wrong = np.full((3, 3), 7, np.float32)
        with pytest.raises(InputError, match="D0=2 D1=3"):
            session.run(None, {"x": x}, out={"y": wrong})
        assert (wrong == 7).all()


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[Array]:
    """Record the memory that native runs are given for inputs and outputs."""
    seen: list[Array] = []
    honest = Executor.served

    def watch(
        self: Executor,
        method: Literal["run", "repeat"],
        program: Program,
        bindings: Sequence[Array],
        *more: Any,
    ) -> Any:
        seen.extend(bindings)
        return honest(self, method, program, bindings, *more)

    monkeypatch.setattr(Executor, "served", watch)
    monkeypatch.setattr(DirectRequest, "run", lambda *_: None)  # whose memory is not seen here
    return seen


def touches(memory: Sequence[Array], array: Array) -> bool:
    """Return whether a step was given exactly an array's memory."""
    start, size = array.__array_interface__["data"][0], array.nbytes
    return any((each.ctypes.data, each.nbytes) == (start, size) for each in memory)


def test_step_itself_writes_an_output_that_fits(session: Session, written: list[Array]) -> None:
    x, y, last = image(), room(), room((0, 2, 3, 1))
    outputs = session.run(None, {"x": x}, out={"y": y, "last": last})
    assert touches(written, x)
    assert touches(written, y)
    assert not touches(written, last)
    assert session.copied == {"last"}
    assert outputs[0] is y
    session.run(None, {"x": x}, out={"last": room()})
    assert session.copied == set()
    first = session.run(None, {"x": image()})
    assert all(touches(written, array) for array in first)
    before = [array.copy() for array in first]
    session.run(None, {"x": image() + 1})
    for array, copy in zip(first, before, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_output_layout_of_channels_last_is_written_in_place(written: list[Array]) -> None:
    with Session(network(), output_layouts={"last": "NHWC"}) as session:
        expected = session.run(["last"], {"x": image()})
        last = room((0, 2, 3, 1))
        session.run(["last"], {"x": image()}, out={"last": last})
        assert session.copied == set()
        assert touches(written, last)
        np.testing.assert_array_equal(last, expected[0])
        session.run(["last"], {"x": image()}, out={"last": room()})
        assert session.copied == {"last"}


def test_inputs_are_copied_when_their_memory_has_gaps(
    session: Session, written: list[Array]
) -> None:
    for order in ((0, 1, 2, 3), (0, 2, 3, 1)):
        x = np.zeros([SHAPE[axis] for axis in order], np.float32).transpose(np.argsort(order))
        session.run(None, {"x": x})
        assert touches(written, x)
        assert session.copied == set()
    for gaps in (np.zeros((1, 32, 24, 24), np.float32)[:, ::2], image()[:, :, ::-1]):
        session.run(None, {"x": gaps})
        assert session.copied == {"x"}


def aliases() -> Graph:
    """Return a graph whose outputs are an input, a value twice, and a constant."""
    graph = Graph("aliases")
    x = graph.input("x", {"N": 2, "C": 3})
    y = graph.add(Relu(), x)
    for name, value in {"x_too": x, "y": y, "y_too": y}.items():
        graph.output(graph.add(Identity(), value), name)
    graph.output(graph.constant(np.arange(3, dtype=np.float32), "C"), "constant")
    return graph.seal()


def test_output_without_memory_of_its_own_is_copied() -> None:
    with Session(aliases()) as session:
        x = np.array([[-1, 0, 1], [2, -2, 3]], np.float32)
        for _ in range(2):
            out = {"y_too": np.zeros((2, 3), np.float32)}
            x_too, y, y_too, constant = session.run(None, {"x": x}, out=out)
            np.testing.assert_array_equal(y_too, np.maximum(x, 0))
            np.testing.assert_array_equal(y, y_too)
            assert session.copied == {"x_too", "y_too", "constant"}
            for array in (x_too, y, y_too, constant):
                array += 7  # each is the caller's alone
        np.testing.assert_array_equal(x, [[-1, 0, 1], [2, -2, 3]])


def test_failed_run_releases_the_callers_memory(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    y = room()

    def fail(*_: Any, **__: Any) -> bool:
        raise NativeError("no luck")

    with monkeypatch.context() as patched:
        patched.setattr(Executor, "served", fail)
        with pytest.raises(NativeError, match="no luck"):
            session.run(["y"], {"x": image()}, out={"y": y})
    y[...] = 7
    session.run(["last"], {"x": image()})  # computes y too, in memory of its own
    assert (y == 7).all()


def test_tensors_go_in_and_out_in_their_layout() -> None:
    with Session(network(), output_layouts={"y": "NCHW8c", "last": Layout.ANY}) as session:
        expected = session.run(None, {"x": image()})
        y, last = session.run_tensors(None, {"x": image()})
        assert y.produced_layout == Layout("NCHW8c")
        for have, want in zip((y, last), expected, strict=True):
            np.testing.assert_array_equal(have.numpy(), want)
        [again] = session.run_tensors(["y"], {"x": y})
        assert session.copied == set()
        assert session.plan.graph.values["x"].layout == Layout("NCHW8c")
        want = session.run(["y"], {"x": y.numpy()})[0]
        np.testing.assert_allclose(again.numpy(), want, atol=1e-4)
        wide = call(Concat("W"), y, y)
        parts = [wide.slice(W=(0, 24), copy=False), from_array(wide.numpy(), "N C H W")]
        parts[1] = parts[1].slice(W=(0, 24), copy=False)
        for part in parts:  # rows with gaps between them
            [again] = session.run_tensors(["y"], {"x": part})
            assert session.copied == {"x"}
            np.testing.assert_allclose(again.numpy(), want, atol=1e-4)
        by_name = from_array(np.ascontiguousarray(image().transpose(3, 0, 1, 2)), "W N C H")
        np.testing.assert_allclose(session.run(None, {"x": by_name})[0], expected[0], atol=1e-4)
        by_place = from_array(image(), "A B C D")
        np.testing.assert_array_equal(session.run(None, {"x": by_place})[0], expected[0])
        for wrong in (from_array(image()[0], "C H W"), from_array(image().astype("f8"), "N C H W")):
            with pytest.raises(InputError, match="wanted is x"):
                session.run(None, {"x": wrong})


def passing() -> Graph:
    """Return a graph with the outputs Relu of x, x, x again, and x as one row."""
    graph = Graph("passing")
    x = graph.input("x", {"A": 4, "B": 4})
    graph.output(graph.add(Relu(), x), "y")
    for name in ("i", "j"):
        graph.output(graph.add(Identity(), x), name)
    graph.output(graph.add(Reshape((("F", 16),)), x), "t")
    return graph


#: Arrays to write to, in the memory of x and the four floats behind it.
OVER: dict[str, Callable[[Array], dict[str, Array]]] = {
    "y over x": lambda m: {"y": m[:16].reshape(4, 4)},
    "y and i": lambda m: {"y": m[:16].reshape(4, 4), "i": np.empty((4, 4), np.float32)},
    "i and y": lambda m: {"i": np.empty((4, 4), np.float32), "y": m[:16].reshape(4, 4)},
    "y over a part of x": lambda m: {"y": m[4:].reshape(4, 4)},
    "t over a part of x": lambda m: {"t": m[4:]},
    "i over x in another order": lambda m: {"i": m[:16].reshape(4, 4).T},
    "i over x": lambda m: {"i": m[:16].reshape(4, 4)},
    "j over a part of x, backwards": lambda m: {"j": m[4:].reshape(4, 4)[::-1]},
}


@pytest.mark.parametrize("over", OVER)
@pytest.mark.parametrize("wanted", [["y", "i", "j", "t"], ["t", "j", "i", "y"]], ids="".join)
@pytest.mark.parametrize("library", ["numpy", "eigen"])
def test_outputs_are_right_when_one_overwrites_the_input(
    over: str, wanted: list[str], library: str
) -> None:
    values = np.arange(-10, 10, dtype=np.float32)
    x = values[:16].reshape(4, 4)
    expected = {"y": np.maximum(x, 0), "i": x, "j": x, "t": x.reshape(-1)}
    with Session(passing(), libraries=[library]) as session:
        memory = values.copy()
        source, out = memory[:16].reshape(4, 4), OVER[over](memory)
        outputs = session.run(wanted, {"x": source}, out=out)
        for name, have in zip(wanted, outputs, strict=True):
            np.testing.assert_array_equal(have, expected[name], err_msg=name)
        memory[:] = values
        binding = session.bind({"x": source}, out)
        for _ in range(2):
            memory[:] = values
            binding.run()
            for name, want in expected.items():
                np.testing.assert_array_equal(binding.outputs[name], want, err_msg=name)
