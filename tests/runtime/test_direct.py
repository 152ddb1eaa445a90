"""Runs of plain arrays in one call: the same answers, and the same errors."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import numpy as np
import onnx
import pytest
from onnx import helper

from ops import Add, Concat, Gather, Relu
from tests.session.test_session import image, network
from vtensor import Graph, Session
from vtensor.errors import InputError, SessionClosedError
from vtensor.language.dtype import numpy_dtype
from vtensor.runtime import _replay
from vtensor.runtime.execution.direct import DirectRequest

Array = np.ndarray[Any, Any]


def settle(
    session: Session, feeds: dict[str, Any], names: list[str] | None = None
) -> DirectRequest:
    """Run until runs are one call each."""
    for _ in range(4):
        session.run(names, feeds)
    direct = session._runner._direct
    assert direct is not None
    return direct


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each run whether it was one call."""
    found: list[bool] = []
    honest = DirectRequest.run

    def watch(self: DirectRequest, names: object, arrays: object) -> Any:
        answer = honest(self, names, arrays)
        found.append(isinstance(answer, list))
        return answer

    monkeypatch.setattr(DirectRequest, "run", watch)
    return found


@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16", "s64", "s32", "s8", "u8", "bool"])
@pytest.mark.parametrize("sizes", [(3,), (2, 0, 3), (2, 3, 4, 5)])
def test_all_element_types(dtype: str, sizes: tuple[int, ...], answered: list[bool]) -> None:
    graph = Graph("twice")
    x = graph.input("x", dict(zip("NCHW", sizes, strict=False)), dtype=dtype)
    graph.output(graph.add(Concat("N"), x, x), "y")
    given = np.random.default_rng(3).integers(0, 2, sizes).astype(numpy_dtype(dtype))
    with Session(graph, threads=1) as session:
        check_alike(session, given, np.concatenate([given, given]), answered)


def test_numbers_without_axes(answered: list[bool]) -> None:
    graph = Graph("number")
    graph.output(graph.add(Relu(), graph.input("x", {})), "y")
    with Session(graph, threads=1) as session:
        check_alike(session, np.array(-2, np.float32), np.array(0, np.float32), answered)


def check_alike(session: Session, given: Array, want: Array, answered: list[bool]) -> None:
    [first] = session.run(None, {"x": given})
    settle(session, {"x": given})
    [got] = session.run(None, {"x": given})
    assert answered[-1]
    assert (got.dtype, got.shape, got.strides) == (first.dtype, first.shape, first.strides)
    assert got.flags.writeable
    assert got.ctypes.data % 64 == 0
    np.testing.assert_array_equal(got, want)


def test_outputs_lie_as_they_are_delivered(answered: list[bool]) -> None:
    with Session(network(), threads=1, output_layouts={"last": "NHWC"}) as session:
        want = session.run(None, {"x": image()})
        settle(session, {"x": image()})
        got = session.run(None, {"x": image()})
        assert answered[-1]
        for one, other in zip(got, want, strict=True):
            assert one.strides == other.strides
            np.testing.assert_array_equal(one, other)
        assert got[1].transpose(0, 2, 3, 1).flags.c_contiguous


@pytest.mark.parametrize(
    "make",
    [
        lambda x: np.asfortranarray(x),
        lambda x: x[:, :, ::-1][:, :, ::-1].copy()[:, ::1, ::-1],
        lambda x: (
            np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(x.shape)
        ),
        lambda x: x.astype(">f4"),
        lambda x: np.ma.masked_array(x),
        lambda x: x.tolist(),
    ],
    ids=["F order", "backwards", "misaligned", "big-endian", "a subclass", "lists"],
)
def test_other_arrays_are_looked_at(make: Callable[[Array], Any], answered: list[bool]) -> None:
    with Session(network(), threads=1) as session:
        settle(session, {"x": image()})
        given = make(image())
        try:
            want = Session(network(), threads=1).run(None, {"x": given})
        except InputError as error:
            with pytest.raises(InputError, match=str(error).split("\n")[0][:20]):
                session.run(None, {"x": given})
        else:
            for one, other in zip(session.run(None, {"x": given}), want, strict=True):
                np.testing.assert_array_equal(one, other)
        assert not answered[-1]


@pytest.mark.parametrize(
    "feeds", [{}, {"z": image()}, {"x": image(), "z": image()}, {"x": image()[0]}, None, 3]
)
def test_what_is_wrong_is_said(feeds: Any) -> None:
    with Session(network(), threads=1) as session:
        settle(session, {"x": image()})
        with pytest.raises((InputError, TypeError)) as said:
            session.run(None, feeds)
        with Session(network(), threads=1) as other, pytest.raises(said.type) as want:
            other.run(None, feeds)
        assert type(said.value) is type(want.value)
        assert str(said.value) == str(want.value)


def test_a_read_only_input_will_do(answered: list[bool]) -> None:
    with Session(network(), threads=1) as session:
        settle(session, {"x": image()})
        given = image()
        given.flags.writeable = False
        want = session.run(None, {"x": image()})
        for one, other in zip(session.run(None, {"x": given}), want, strict=True):
            np.testing.assert_array_equal(one, other)
        assert answered[-2:] == [True, True]


def test_other_names_are_another_request(answered: list[bool]) -> None:
    with Session(network(), threads=1) as session:
        y, last = session.run(None, {"x": image()})
        settle(session, {"x": image()}, ["last"])
        for names in (["last"], ["y", "last"], ["last", "y"], None):
            got = dict(zip(names or ["y", "last"], session.run(names, {"x": image()}), strict=True))
            assert answered[-1] is (names == ["last"])
            for name, one in got.items():
                np.testing.assert_array_equal(one, {"y": y, "last": last}[name])


def test_a_failure_is_said_by_name(answered: list[bool]) -> None:
    graph = Graph("gather")
    x = graph.input("x", {"N": 4})
    at = graph.input("at", {"M": 2}, dtype="s64")
    graph.output(graph.add(Gather("N"), x, at, name="picks"), "y")
    with Session(graph, threads=1) as session:
        feeds = {"x": np.arange(4, dtype=np.float32), "at": np.array([1, 2])}
        settle(session, feeds)
        with pytest.raises(InputError, match="picks"):
            session.run(None, feeds | {"at": np.array([1, 9])})
        assert not answered[-1]
        assert session.run(None, feeds)[0].tolist() == [1, 2]


def test_what_a_signal_raises_meanwhile_is_not_kept_quiet() -> None:
    class Late(RuntimeError):
        """As a handler of the program's own raises it."""

    class Signalled:
        def run(self, *_: object) -> None:
            raise Late

    with Session(network(), threads=1) as session:
        direct = settle(session, {"x": image()})
        direct._requests = cast("Any", dict.fromkeys(direct._lanes.every, Signalled()))
        with pytest.raises(Late):
            session.run(None, {"x": image()})
        assert not direct._lanes.busy


def test_a_closed_session_says_so() -> None:
    session = Session(network(), threads=1)
    settle(session, {"x": image()})
    session.close()
    with pytest.raises(SessionClosedError):
        session.run(None, {"x": image()})


def test_bindings_and_direct_runs_in_turn() -> None:
    with Session(network(), threads=1) as session:
        settle(session, {"x": image()})
        gaps = np.zeros((1, 32, 24, 24), np.float32)[:, ::2]
        binding = session.bind({"x": gaps})
        binding.run()
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


def test_a_forked_child_looks_closer() -> None:
    with Session(network(), threads=1) as session:
        settle(session, {"x": image()})
        child = os.fork()
        if child == 0:
            direct = session._runner._direct
            os._exit(0 if direct is not None and direct.run(None, {"x": image()}) is None else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_call_backs_are_never_direct() -> None:
    with Session(network(), threads=1, pin={"relu0": "numpy"}) as session:
        for _ in range(4):
            session.run(None, {"x": image()})
        assert session._runner._direct is None


def test_an_array_that_decides_shapes_is_never_direct() -> None:
    reshape = helper.make_graph(
        [helper.make_node("Reshape", ["x", "shape"], ["y"])],
        "reshape",
        [
            helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [6]),
            helper.make_tensor_value_info("shape", onnx.TensorProto.INT64, [2]),
        ],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
    )
    model = helper.make_model(reshape, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    with Session(model, threads=1) as session:
        x = np.arange(6, dtype=np.float32)
        for shape in ([2, 3], [2, 3], [2, 3], [3, 2], [1, 6]):
            [y] = session.run(None, {"x": x, "shape": np.array(shape)})
            assert list(y.shape) == shape
        assert session._runner._direct is None


def test_outputs_live_on_by_themselves() -> None:
    with Session(network(), threads=1) as session:
        settle(session, {"x": image()})
        kept = session.run(None, {"x": image()})
        copies = [one.copy() for one in kept]
        session.run(None, {"x": image() + 1})
    gc.collect()
    for one, copy in zip(kept, copies, strict=True):
        np.testing.assert_array_equal(one, copy)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "an input more": ({"inputs": [("x", np.dtype("f4"), [4], 4)] * 2}, "one buffer for each"),
    "no output": ({"own": []}, "one buffer for each"),
    "no such memory": ({"outputs": [(1, np.dtype("f4"), (4,), (4,))]}, "no memory of a run's"),
    "no alignment": ({"inputs": [("x", np.dtype("f4"), [4], 0)]}, "alignment"),
    "too large": ({"own": [2**63 - 1]}, "more bytes than there are addresses"),
    "exponents": ({"exponents": [(4, 0)]}, "exponents for 2"),
}


@pytest.mark.parametrize(("told", "said"), WRONG.values(), ids=WRONG)
def test_what_crosses_into_native_code_is_checked(told: dict[str, Any], said: str) -> None:
    graph = Graph("relu")
    graph.output(graph.add(Relu(), graph.input("x", {"N": 4})), "y")
    with Session(graph, threads=1) as session:
        session.run(None, {"x": np.ones(4, np.float32)})
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
        [y] = _replay.Request(**right).run(None, {"x": np.ones(4, np.float32)}) or []
        assert y.tolist() == [1] * 4
        with pytest.raises(ValueError, match=said):
            _replay.Request(**right | told)
