"""How much Python a run enters: little around the native replay, none inside."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import numpy as np
import pytest

from ops import Relu
from ptensor import Layout
from tests.native.test_no_python import frames
from tests.session.test_session import Dlpack, image, network
from vtensor import Graph, Session, VTensor, from_array
from vtensor.errors import InputError
from vtensor.runtime._replay import Program

Array = np.ndarray[Any, Any]

#: Python functions that a run may enter: with plain arrays, of a binding, and where somebody looks
#: at arrays.
DIRECT, MOST, LOOKED = 3, 15, 18


def entered(run: Callable[[], object]) -> list[str]:
    """The Python functions that a call enters on this thread, itself left out."""
    seen: list[str] = []

    def watch(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            seen.append(frame.f_code.co_qualname)

    sys.setprofile(watch)
    try:
        run()
    finally:
        sys.setprofile(None)
    return seen[1:]


def test_a_run_with_plain_arrays_enters_few_functions() -> None:
    with Session(network(), threads=1) as session:
        binding = session.bind({"x": image()})
        assert len(entered(lambda: session.run(None, {"x": image()}))) > MOST  # the long way
        feeds = {"x": image()}
        session.run(None, feeds)  # which begins what is done for other sizes
        assert "Request.run" in entered(lambda: session.run(None, feeds))
        session.run(None, feeds)  # which makes what the next ones call
        assert len(entered(lambda: session.run(None, feeds))) == DIRECT
        short = entered(lambda: session.run(None, feeds, out={}))
        assert "Request.run" in short
        assert len(short) <= LOOKED
        assert len(entered(binding.run)) <= MOST


def test_other_lists_of_names_take_the_long_way() -> None:
    with Session(network(), threads=1) as session:
        want = session.run(["y", "last"], {"x": image()})
        for names in (np.array(["y", "last"]), ("y", "last"), iter(["y", "last"])):
            for found, one in zip(session.run(names, {"x": image()}), want, strict=True):  # type: ignore[arg-type]
                np.testing.assert_array_equal(found, one)


def ran(
    session: Session, inputs: dict[str, Any], out: dict[str, Any] | None = None
) -> tuple[list[Array], list[str]]:
    """What a run returns, and the functions that it enters."""
    found: list[Array] = []
    seen = entered(lambda: found.extend(session.run(None, inputs, out=out)))
    return found, seen


def dense(order: tuple[int, ...]) -> Array:
    """An image that lies in another order of its axes."""
    return np.ascontiguousarray(image().transpose(order)).transpose(np.argsort(order))


def room() -> Array:
    return np.full((1, 16, 24, 24), np.nan, np.float32)


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
def test_what_lies_as_it_is_taken_goes_the_short_way(
    asked: Callable[[], tuple[Any, dict[str, Any] | None]],
) -> None:
    with Session(network(), threads=1) as session:
        x, out = asked()
        want = session.run(None, {"x": x}, out=out)  # the first of its kind may be looked at
        for _ in range(3):
            x, out = asked()
            got, seen = ran(session, {"x": x}, out)
            assert "Runner._run_known" in seen or "DirectRequest.run" in seen
            assert "Runner._run_checked" not in seen
            for name, have, one in zip(["y", "last"], got, want, strict=True):
                np.testing.assert_array_equal(have, one)
                assert have is (out or {}).get(name, have)
            assert not session.copied


def test_tensors_come_back_by_the_short_way() -> None:
    x = from_array(image(), "N C H W")
    with Session(network(), threads=1, output_layouts={"y": Layout.ANY}) as session:
        [want] = session.run(["y"], {"x": image()})
        got: list[VTensor] = []
        seen = entered(lambda: got.extend(session.run_tensors(["y"], {"x": x})))
        assert "Runner._run_checked" not in seen
        np.testing.assert_array_equal(got[0].numpy(), want)


def test_shapes_and_outputs_in_turn_go_the_short_way() -> None:
    graph = Graph("open")
    graph.output(graph.add(Relu(), graph.input("x", {"N": None, "C": 3})), "y")
    with Session(graph, threads=1) as session:
        batches = [np.full((batch, 3), batch - 2, np.float32) for batch in range(1, 6)]
        for x in batches:
            session.run(None, {"x": x})
        for x in batches[::-1] + batches:
            [y], seen = ran(session, {"x": x})
            assert "Runner._run_checked" not in seen
            np.testing.assert_array_equal(y, np.maximum(x, 0))


def test_requests_are_forgotten_with_their_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vtensor.runtime.planning.store.MOST_PLANS", 2)
    graph = Graph("open")
    graph.output(graph.add(Relu(), graph.input("x", {"N": None, "C": 3})), "y")
    with Session(graph, threads=1) as session:
        plans = []
        for batch in (1, 2, 1, 3, 1):
            session.run(None, {"x": np.ones((batch, 3), np.float32)})
            plans.append(weakref.ref(session.plan))
        gc.collect()
        assert [plan() is not None for plan in plans] == [True, False, True, True, True]
        assert plans[0]() is plans[-1]()  # short runs are uses, too


WRONG: dict[str, tuple[Callable[[Array], Any], str]] = {
    "read-only": (lambda y: np.broadcast_to(y, y.shape), "read-only"),
    "another shape": (lambda y: y[:, :8], "shape"),
    "another type": (lambda y: y.astype(np.float64), "element type"),
    "no array": (lambda _: 3, "no array"),
}


@pytest.mark.parametrize(("make", "said"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_said_after_short_runs(make: Callable[[Array], Any], said: str) -> None:
    with Session(network(), threads=1) as session:
        for _ in range(2):
            session.run(None, {"x": image()}, out={"y": room()})
        with pytest.raises(InputError, match=said):
            session.run(None, {"x": image()}, out={"y": make(room())})
        with pytest.raises(InputError, match="not one of the outputs"):
            session.run(None, {"x": image()}, out={"z": room()})


def test_outputs_that_overlap_are_copied_or_refused_after_short_runs_too() -> None:
    with Session(network(), threads=1) as session:
        want = session.run(None, {"x": image()})
        session.run(None, {"x": image()}, out={"y": room()})
        both = room()
        with pytest.raises(InputError, match="give it its own"):
            session.run(None, {"x": image()}, out={"y": both, "last": both})
        x = image()
        got = session.run(None, {"x": x}, out={"last": x})  # over the input
        assert got[1] is x
        assert session.copied == {"last"}
        np.testing.assert_array_equal(x, want[1])


def inside(session: Session, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The Python functions that a run enters between entry to and return from the native one."""
    honest, seen = session._runner.executor.team, set[str]()

    class Watching:
        call = honest.call

        def run(self, program: Program, bindings: Sequence[Any], *_: object) -> bool:
            seen.update(frames(honest, program, list(bindings)))
            return True

    feeds = {"x": image()}
    want = session.run(None, feeds)
    with monkeypatch.context() as patched:
        patched.setattr(session._runner, "_direct", None)
        patched.setattr(session._runner.executor, "team", Watching())
        got = session.run(None, feeds)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_array_equal(one, other)
    return seen


def test_no_python_function_is_entered_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    with Session(network(), threads=1) as session:
        assert inside(session, monkeypatch) == set()


def test_a_call_back_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    with Session(network(), threads=1, pin={"relu0": "numpy"}) as session:
        assert "PTensor.data" in inside(session, monkeypatch)
