"""Runs that fail in the middle, are interrupted, closed or entered twice: typed, and then go on."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ops import Neg
from ptensor import Layout, PTensor, emit, lib_tagger
from tests.libraries.bench import Bench
from tests.native.conftest import c_steps, cpp_steps
from tests.native.stepping import held, step_of
from tests.runtime.waiting import Waiting
from tests.session.test_session import image, network
from vtensor import Graph, Session
from vtensor.errors import InvokerError, NativeError, NestedRunError, SessionClosedError
from vtensor.language.operators import Context
from vtensor.language.tensor import VTensor

assert c_steps, cpp_steps  # fixtures
Array = np.ndarray[Any, Any]


def chain(bench: Bench, library: Path) -> Session:
    """``before``, a change of sign, ``behind``: the steps of both throw at a negative number."""
    step = held(step_of(library, "throws_at_negative"))

    @bench.invoker(python=False)
    def toy(ctx: Context, op: object, x: VTensor, y: VTensor) -> None:
        src, dst = PTensor(x).require(Layout.ANY), PTensor(y).require(Layout.ANY)
        if lib_tagger("toy", [src], [dst]):
            return
        emit(step, [src, dst])

    graph = Graph("chain")
    value = graph.add(bench.op("Toy"), graph.input("x", {"N": 1, "C": 4}), name="before")
    value = graph.add(Neg(), value, name="sign")
    graph.output(graph.add(bench.op("Toy"), value, name="behind"), "y")
    return Session(graph, optimize="none", threads=1, pin={"sign": "onednn"})


def numbers(first: float) -> Array:
    return np.array([[first, 1, 2, 3]], np.float32)


@pytest.mark.parametrize(("first", "node"), [(-5, "before"), (5, "behind")])
def test_a_step_that_throws_is_named_and_the_next_run_is_right(
    first: float, node: str, bench: Bench, cpp_steps: Path
) -> None:
    said = f"step of '{node}': throwing: threw an exception: thrown at a negative number"
    with chain(bench, cpp_steps) as session:
        binding = session.bind({"x": (x := numbers(0))})
        y = np.full((1, 4), np.nan, np.float32)
        for _ in range(2):
            x[0, 0] = first
            for run in (
                binding.run,
                lambda: session.run(None, {"x": numbers(first)}),
                lambda: session.run(None, {"x": numbers(first)}, out={"y": y}),
            ):
                with pytest.raises(NativeError, match=said):
                    run()
            assert np.isnan(y).all()
            x[0, 0] = 0
            binding.run()
            np.testing.assert_array_equal(binding.outputs["y"], -numbers(0))
            np.testing.assert_array_equal(session.run(None, {"x": numbers(0)})[0], -numbers(0))


@pytest.mark.parametrize("first", [True, False])
def test_a_session_closed_during_a_run(first: bool, bench: Bench, c_steps: Path) -> None:
    """The run ends as it would have; none follows it, and nothing is held any more."""
    waiting = Waiting(bench, c_steps)
    if not first:
        waiting.checkpoint()
        waiting.run()
        waiting.stop()
    plan = weakref.ref(waiting.session.plan)
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(waiting.run)
        waiting.wait()
        queued = pool.submit(waiting.run)
        while waiting.session._runner.executor.team.waiting < 2:
            time.sleep(0.001)
        waiting.session.close()
        waiting.checkpoint()
        running.result()
        with pytest.raises(SessionClosedError, match="make a new one"):
            queued.result()
    for run in (waiting.run, lambda: waiting.session.run(None, waiting.feeds)):
        with pytest.raises(SessionClosedError):
            run()
    del queued, running  # errors hold on to what was there when they were raised
    gc.collect()
    assert plan() is None


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_a_run_and_the_session_goes_on(bench: Bench, c_steps: Path) -> None:
    waiting = Waiting(bench, c_steps)

    def interrupt() -> None:
        waiting.wait()
        os.kill(os.getpid(), signal.SIGINT)
        threading.Timer(0.2, waiting.checkpoint).start()

    with waiting.session:
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            waiting.run()
        waiting.checkpoint()
        waiting.run()


class Inner:
    """A node that runs something while its own session runs."""

    def __init__(self, bench: Bench) -> None:
        self.does: Callable[[], object] = lambda: None

        @bench.invoker(python=True)
        def toy(ctx: Context, op: object, x: VTensor, y: VTensor) -> None:
            src, dst = PTensor(x).require(Layout.ANY), PTensor(y).require(Layout.ANY)
            if lib_tagger("toy", [src], [dst]):
                return
            self.does()
            np.copyto(dst.data(), src.data())

        self.session = Session(bench.graph(), optimize="none", threads=1)
        self.feeds = {"x0": np.arange(6, dtype=np.float32).reshape(2, 3)}


def test_a_call_back_may_run_another_session(bench: Bench) -> None:
    inner = Inner(bench)
    with Session(network(), threads=1) as other, inner.session as session:
        [want] = other.run(["y"], {"x": image()})
        found: list[Array] = []
        inner.does = lambda: found.extend(other.run(["y"], {"x": image()}))
        for _ in range(2):
            np.testing.assert_array_equal(session.run(None, inner.feeds)[0], inner.feeds["x0"])
        for one in found:
            np.testing.assert_array_equal(one, want)
        assert len(found) == 2


def test_a_call_back_may_not_run_its_own_session(bench: Bench) -> None:
    inner = Inner(bench)
    with inner.session as session:
        session.run(None, inner.feeds)
        inner.does = lambda: session.run(None, inner.feeds)
        with pytest.raises(NestedRunError, match="cannot run its own session"):
            session.run(None, inner.feeds)

        def tries() -> None:
            with pytest.raises(NestedRunError):
                session.run(None, inner.feeds)
            with pytest.raises(NestedRunError):
                session.run(["x0"], inner.feeds)  # another plan, on the same arena

        inner.does = tries
        np.testing.assert_array_equal(session.run(None, inner.feeds)[0], inner.feeds["x0"])


def test_what_a_call_back_raises_keeps_its_cause(bench: Bench) -> None:
    inner = Inner(bench)

    def fails() -> None:
        raise RuntimeError("of its own") from ValueError("why")

    inner.does = fails
    with inner.session as session, pytest.raises(InvokerError, match="of its own") as caught:
        session.run(None, inner.feeds)
    causes = [caught.value.__cause__, caught.value.__cause__.__cause__]  # type: ignore[union-attr]
    assert [type(cause) for cause in causes] == [RuntimeError, ValueError]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_that_is_forked_during_a_run_may_run_too(bench: Bench, c_steps: Path) -> None:
    waiting = Waiting(bench, c_steps)
    with ThreadPoolExecutor(1) as pool, waiting.session:
        running = pool.submit(waiting.run)
        waiting.wait()
        child = os.fork()
        if child == 0:
            signal.alarm(60)  # a child that waits for the run of its parent ends
            waiting.checkpoint()
            waiting.run()
            os._exit(0)
        waiting.checkpoint()
        running.result()
        assert os.waitpid(child, 0)[1] == 0
