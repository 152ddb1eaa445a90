"""Short ways to run: plain arrays in one native call, known requests, and what takes neither."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import numpy as np
import pytest

from ops import Add, Concat, Gather, Relu
from ptensor import Layout
from tests.frontends.support import model
from tests.libraries.frames import entered
from tests.native.test_no_python import frames
from tests.session.test_out import room
from tests.session.test_session import Dlpack, image, network
from vtensor import Graph, Session, VTensor, from_array
from vtensor.errors import InputError, SessionClosedError, VTensorError
from vtensor.language.dtype import numpy_dtype
from vtensor.runtime import _replay
from vtensor.runtime._replay import Program
from vtensor.runtime.execution.direct import DirectRequest

Array = np.ndarray[Any, Any]

#: Python functions that a run may enter: with plain arrays, of a binding, and with arrays that are
#: checked one by one.
DIRECT, BOUND, CHECKED = 3, 15, 18


@pytest.fixture
def session() -> Iterator[Session]:
    with Session(network(), threads=1) as session:
        yield session


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each run, whether it was one native call."""
    seen: list[bool] = []
    honest = DirectRequest.run

    def watch(self: DirectRequest, names: object, arrays: object) -> Any:
        answer = honest(self, names, arrays)
        seen.append(isinstance(answer, list))
        return answer

    monkeypatch.setattr(DirectRequest, "run", watch)
    return seen


def settle(
    session: Session, feeds: dict[str, Any], names: list[str] | None = None
) -> DirectRequest:
    """Run until runs are one native call each."""
    for _ in range(4):
        session.run(names, feeds)
    direct = session._runner._direct
    assert direct is not None
    return direct


def graph_of(op: object, *sizes: int | None, count: int = 1, dtype: str = "f32") -> Graph:
    """Return a graph of one node whose operands are all the same input."""
    graph = Graph("one")
    x = graph.input("x", dict(zip("NCHW", sizes, strict=False)), dtype=dtype)
    graph.output(graph.add(op, *[x] * count), "y")
    return graph.seal()


def check_alike(graph: Graph, x: Array, want: Array, answered: list[bool]) -> None:
    """Check that the direct answer is the first one, in memory of its own that outlives all."""
    x.flags.writeable = False
    with Session(graph, threads=1) as session:
        [first] = session.run(None, {"x": x})
        settle(session, {"x": x})
        [y] = session.run(None, {"x": x})
        session.run(None, {"x": np.zeros_like(x)})
    gc.collect()
    assert answered[-2:] == [True, True]
    assert (y.dtype, y.shape, y.strides) == (first.dtype, first.shape, first.strides)
    assert y.flags.writeable
    assert y.ctypes.data % 64 == 0
    np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16", "s64", "s32", "s8", "u8", "bool"])
@pytest.mark.parametrize("sizes", [(3,), (2, 0, 3), (2, 3, 4, 5)])
def test_direct_runs_take_all_element_types(
    dtype: str, sizes: tuple[int, ...], answered: list[bool]
) -> None:
    x = np.random.default_rng(3).integers(0, 2, sizes).astype(numpy_dtype(dtype))
    graph = graph_of(Concat("N"), *sizes, count=2, dtype=dtype)
    check_alike(graph, x, np.concatenate([x, x]), answered)


def test_direct_runs_take_numbers_without_axes(answered: list[bool]) -> None:
    check_alike(graph_of(Relu()), np.array(-2, np.float32), np.array(0, np.float32), answered)


def test_outputs_of_direct_runs_are_laid_out_as_delivered(answered: list[bool]) -> None:
    with Session(network(), threads=1, output_layouts={"last": "NHWC"}) as session:
        expected = session.run(None, {"x": image()})
        settle(session, {"x": image()})
        outputs = session.run(None, {"x": image()})
    assert answered[-1]
    assert [y.strides for y in outputs] == [y.strides for y in expected]
    np.testing.assert_array_equal(outputs, expected)
    assert outputs[1].transpose(0, 2, 3, 1).flags.c_contiguous


def misaligned(x: Array) -> Array:
    return np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(x.shape)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: np.asfortranarray(x),
        lambda x: x[:, :, ::-1][:, :, ::-1].copy()[:, ::1, ::-1],
        misaligned,
        lambda x: x.astype(">f4"),
        lambda x: np.ma.masked_array(x),
        lambda x: x.tolist(),
    ],
    ids=["F order", "backwards", "misaligned", "big-endian", "a subclass", "lists"],
)
def test_other_arrays_are_not_run_directly(
    make: Callable[[Array], Any], session: Session, answered: list[bool]
) -> None:
    settle(session, {"x": image()})
    x = make(image())
    try:
        expected = Session(network(), threads=1).run(None, {"x": x})
    except InputError as error:
        with pytest.raises(InputError, match=str(error).split("\n")[0][:20]):
            session.run(None, {"x": x})
    else:
        np.testing.assert_array_equal(session.run(None, {"x": x}), expected)
    assert not answered[-1]


@pytest.mark.parametrize(
    "feeds", [{}, {"z": image()}, {"x": image(), "z": image()}, {"x": image()[0]}, None, 3]
)
def test_wrong_inputs_are_refused_as_in_the_first_run(feeds: Any, session: Session) -> None:
    settle(session, {"x": image()})
    with pytest.raises((InputError, TypeError)) as refused:
        session.run(None, feeds)
    with Session(network(), threads=1) as other, pytest.raises(refused.type) as first:
        other.run(None, feeds)
    assert type(refused.value) is type(first.value)
    assert str(refused.value) == str(first.value)


def test_other_names_are_another_request(session: Session, answered: list[bool]) -> None:
    expected = dict(zip(["y", "last"], session.run(None, {"x": image()}), strict=True))
    settle(session, {"x": image()}, ["last"])
    both = ["y", "last"]
    asked: list[tuple[Any, list[str]]] = [(["last"], ["last"]), (both, both), (both[::-1],) * 2]
    asked += [(names, both) for names in (None, np.array(both), tuple(both), iter(both))]
    for names, wanted in asked:
        outputs = session.run(names, {"x": image()})
        direct = names is None or (isinstance(names, list) and names != both[::-1])
        assert answered[-1] is direct
        np.testing.assert_array_equal(outputs, [expected[name] for name in wanted])


def test_a_failing_node_is_named(answered: list[bool]) -> None:
    graph = Graph("gather")
    x, at = graph.input("x", {"N": 4}), graph.input("at", {"M": 2}, dtype="s64")
    graph.output(graph.add(Gather("N"), x, at, name="picks"), "y")
    with Session(graph, threads=1) as session:
        feeds = {"x": np.arange(4, dtype=np.float32), "at": np.array([1, 2])}
        settle(session, feeds)
        with pytest.raises(InputError, match="picks"):
            session.run(None, feeds | {"at": np.array([1, 9])})
        assert not answered[-1]
        assert session.run(None, feeds)[0].tolist() == [1, 2]


def test_an_exception_of_a_signal_handler_is_raised(session: Session) -> None:
    class Late(RuntimeError):
        """As a handler of the program's own raises it."""

    class Signalled:
        def run(self, *_: object) -> None:
            raise Late

    direct = settle(session, {"x": image()})
    direct.requests = cast("Any", dict.fromkeys(direct._lanes.every, Signalled()))
    with pytest.raises(Late):
        session.run(None, {"x": image()})
    assert not direct._lanes.busy


def test_a_closed_session_runs_nothing_directly(session: Session) -> None:
    settle(session, {"x": image()})
    session.close()
    with pytest.raises(SessionClosedError):
        session.run(None, {"x": image()})


def test_copies_are_those_of_the_last_run(session: Session) -> None:
    settle(session, {"x": image()})
    session.bind({"x": np.zeros((1, 32, 24, 24), np.float32)[:, ::2]}).run()
    assert session.copied == {"x"}
    session.run(None, {"x": image()})
    assert not session.copied


def test_threads_share_lanes(answered: list[bool]) -> None:
    graph = Graph("sum")
    x = graph.input("x", {"N": 64})
    graph.output(graph.add(Add(), graph.add(Relu(), x), x), "y")
    with Session(graph, threads=2, streams=2) as session, ThreadPoolExecutor(8) as pool:
        settle(session, {"x": np.ones(64, np.float32)})

        def run(number: int) -> bool:
            [y] = session.run(None, {"x": np.full(64, number, np.float32)})
            return bool((y == 2 * number).all())

        assert all(pool.map(run, range(200)))
        assert not session._runner.workspace.lanes.busy
    assert any(answered)


def test_a_forked_child_does_not_run_directly(session: Session) -> None:
    settle(session, {"x": image()})
    child = os.fork()
    if child == 0:
        direct = session._runner._direct
        os._exit(0 if direct is not None and direct.run(None, {"x": image()}) is None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_plans_with_call_backs_are_never_direct() -> None:
    with Session(network(), threads=1, pin={"relu0": "numpy"}) as session:
        for _ in range(4):
            session.run(None, {"x": image()})
        assert session._runner._direct is None


def test_values_that_decide_shapes_are_compared_by_the_native_call(answered: list[bool]) -> None:
    text = "g (float[6] x, int64[2] s) => (float[a, b] y) { z = Neg(x) y = Reshape(z, s) }"
    with Session(model(text, 18), threads=1) as session:
        x = np.arange(6, dtype=np.float32)
        shapes = [[2, 3], [2, 3], [2, 3], [3, 2], [1, 6], [2, 3], [3, 2], [3, 2]]
        for run, shape in enumerate(shapes):
            [y] = session.run(None, {"x": x, "s": np.array(shape)})
            assert list(y.shape) == shape
            assert run < 5 or answered[-1]
        shapes = [[size, -1] for size in (1, 2, 3, 6)] + [[-1, size] for size in (1, 2, 3, 6)]
        shapes += [[1, 6], [2, 3], [3, 2], [6, 1]]  # more than there are requests of one kind
        for run, shape in enumerate(2 * shapes):
            session.run(None, {"x": x, "s": np.array(shape)})
            assert run < len(shapes) or answered[-1]
        for wrong in (np.array([3, 2], np.int32), np.array([[3, 2]]), np.array([4, 2]), "3"):
            with pytest.raises(VTensorError):
                session.run(None, {"x": x, "s": wrong})
            assert answered[-1] is False
        [y] = session.run(None, {"x": x, "s": np.array([3, 9, 2])[::2]})  # not dense
        assert y.shape == (3, 2)


REQUESTS: dict[str, tuple[dict[str, Any], str]] = {
    "an input more": ({"inputs": [("x", np.dtype("f4"), [4], 4)] * 2}, "one buffer for each"),
    "no output": ({"own": []}, "one buffer for each"),
    "no such memory": ({"outputs": [(1, np.dtype("f4"), (4,), (4,))]}, "no memory of a run's"),
    "no alignment": ({"inputs": [("x", np.dtype("f4"), [4], 0)]}, "alignment"),
    "too large": ({"own": [2**63 - 1]}, "more bytes than there are addresses"),
    "exponents": ({"exponents": [(4, 0)]}, "exponents for 2"),
}


@pytest.mark.parametrize(("wrong", "said"), REQUESTS.values(), ids=REQUESTS)
def test_native_code_refuses_a_request_that_does_not_fit(wrong: dict[str, Any], said: str) -> None:
    x = np.ones(4, np.float32)
    with Session(graph_of(Relu(), 4), threads=1) as session:
        session.run(None, {"x": x})
        lane = session.plan.lanes.every[0]
        right: dict[str, Any] = {
            "team": lane.executor.team,
            "program": session.plan.program(lane),
            "names": ["y"],
            "every": True,
            "inputs": [("x", np.dtype("f4"), [4], 4)],
            "own": [16],
            "outputs": [(0, np.dtype("f4"), (4,), (4,))],
            "exponents": [],
            "ndarray": np.ndarray,
            "empty": np.empty,
            "uint8": np.dtype(np.uint8),
        }
        [y] = _replay.Request(**right).run(None, {"x": x}) or []
        assert y.tolist() == [1] * 4
        with pytest.raises(ValueError, match=said):
            _replay.Request(**right | wrong)


def test_a_run_with_plain_arrays_enters_few_functions(session: Session) -> None:
    feeds = {"x": image()}
    binding = session.bind(feeds)
    assert len(entered(lambda: session.run(None, feeds))) > BOUND  # the long way
    assert "Request.run" in entered(lambda: session.run(None, feeds))
    session.run(None, feeds)  # which makes what the next ones call
    assert len(entered(lambda: session.run(None, feeds))) == DIRECT
    short = entered(lambda: session.run(None, feeds, out={}))
    assert "Request.run" in short
    assert len(short) <= CHECKED
    assert len(entered(binding.run)) <= BOUND


def dense(order: tuple[int, ...]) -> Array:
    """Return an image in another order of its axes, without gaps."""
    return np.ascontiguousarray(image().transpose(order)).transpose(np.argsort(order))


ASKED: dict[str, Callable[[], tuple[Any, dict[str, Any] | None]]] = {
    "an array": lambda: (image(), None),
    "in another order": lambda: (dense((0, 2, 3, 1)), None),
    "by DLPack": lambda: (Dlpack(image()), None),
    "a tensor": lambda: (from_array(image(), "N C H W"), None),
    "an output": lambda: (image(), {"y": room()}),
    "all outputs": lambda: (dense((0, 2, 3, 1)), {"last": room(), "y": room()}),
    "no output": lambda: (image(), {}),
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_a_request_that_was_answered_before_is_not_checked_again(
    asked: Callable[[], tuple[Any, dict[str, Any] | None]], session: Session
) -> None:
    x, out = asked()
    expected = session.run(None, {"x": x}, out=out)  # the first of its kind may be checked
    for _ in range(3):
        x, out = asked()
        outputs: list[Array] = []
        seen = entered(lambda: outputs.extend(session.run(None, {"x": x}, out=out)))  # noqa: B023
        assert "Runner._run_known" in seen or "DirectRequest.run" in seen
        assert "Runner._run_checked" not in seen
        np.testing.assert_array_equal(outputs, expected)
        for name, y in zip(["y", "last"], outputs, strict=True):
            assert y is (out or {}).get(name, y)
        assert not session.copied


def test_tensors_come_back_by_the_short_way() -> None:
    x, tensors = from_array(image(), "N C H W"), list[VTensor]()
    with Session(network(), threads=1, output_layouts={"y": Layout.ANY}) as session:
        [expected] = session.run(["y"], {"x": image()})
        seen = entered(lambda: tensors.extend(session.run_tensors(["y"], {"x": x})))
        assert "Runner._run_checked" not in seen
        np.testing.assert_array_equal(tensors[0].numpy(), expected)


def test_shapes_in_turn_go_the_short_way() -> None:
    with Session(graph_of(Relu(), None, 3), threads=1) as session:
        batches = [np.full((batch, 3), batch - 2, np.float32) for batch in range(1, 6)]
        for x in batches:
            session.run(None, {"x": x})
        for x in batches[::-1] + batches:
            outputs: list[Array] = []
            seen = entered(lambda: outputs.extend(session.run(None, {"x": x})))  # noqa: B023
            assert "Runner._run_checked" not in seen
            np.testing.assert_array_equal(outputs, [np.maximum(x, 0)])


def test_requests_are_forgotten_with_their_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vtensor.runtime.planning.store.MOST_PLANS", 2)
    with Session(graph_of(Relu(), None, 3), threads=1) as session:
        plans = []
        for batch in (1, 2, 1, 3, 1):
            session.run(None, {"x": np.ones((batch, 3), np.float32)})
            plans.append(weakref.ref(session.plan))
        gc.collect()
        assert [plan() is not None for plan in plans] == [True, False, True, True, True]
        assert plans[0]() is plans[-1]()  # short runs are uses, too


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ({"y": np.broadcast_to(room(), room().shape)}, "read-only"),
        ({"y": room()[:, :8]}, "shape"),
        ({"y": room().astype(np.float64)}, "element type"),
        ({"y": 3}, "no array"),
        ({"z": room()}, "not one of the outputs"),
        (dict.fromkeys(["y", "last"], room()), "give it its own"),
    ],
)
def test_wrong_outputs_are_refused_after_short_runs(
    out: dict[str, Any], said: str, session: Session
) -> None:
    for _ in range(2):
        session.run(None, {"x": image()}, out={"y": room()})
    with pytest.raises(InputError, match=said):
        session.run(None, {"x": image()}, out=out)


def test_an_output_over_the_input_is_copied_after_short_runs(session: Session) -> None:
    expected = session.run(None, {"x": image()})
    session.run(None, {"x": image()}, out={"y": room()})
    x = image()
    outputs = session.run(None, {"x": x}, out={"last": x})
    assert outputs[1] is x
    assert session.copied == {"last"}
    np.testing.assert_array_equal(x, expected[1])


@pytest.mark.parametrize(("pin", "inside"), [({}, set()), ({"relu0": "numpy"}, {"PTensor.data"})])
def test_a_run_enters_no_python_inside_but_call_backs(
    pin: dict[str, str], inside: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    feeds, seen = {"x": image()}, set[str]()
    with Session(network(), threads=1, pin=pin) as session:
        honest = session._runner.executor.team

        class Watching:
            call = honest.call

            def run(self, program: Program, bindings: Sequence[Any], *_: object) -> bool:
                seen.update(frames(honest, program, list(bindings)))
                return True

        expected = session.run(None, feeds)
        with monkeypatch.context() as patched:
            patched.setattr(session._runner, "_direct", None)
            patched.setattr(session._runner.executor, "team", Watching())
            np.testing.assert_array_equal(session.run(None, feeds), expected)
    assert seen >= inside
    assert bool(seen) == bool(inside)
