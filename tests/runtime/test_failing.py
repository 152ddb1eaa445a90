"""Runs that fail, are interrupted, closed or entered twice: typed errors, then right answers."""

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

import numpy as np
import pytest

from ops import Neg
from ptensor import Layout, PTensor, emit, lib_tagger
from tests.libraries.bench import Bench
from tests.native.conftest import c_steps, cpp_steps
from tests.native.stepping import held, step_of
from tests.runtime.waiting import Waiting
from vtensor import Graph, Session
from vtensor.errors import InvokerError, NativeError, NestedRunError, SessionClosedError
from vtensor.language.operators import Context
from vtensor.language.tensor import VTensor

assert c_steps, cpp_steps  # fixtures


@pytest.mark.parametrize(("first", "node"), [(-5, "before"), (5, "after")])
def test_a_step_that_throws_is_named_and_the_next_run_is_right(
    first: float, node: str, bench: Bench, cpp_steps: Path
) -> None:
    """Steps throw at a negative number; a change of sign is between them."""
    step = held(step_of(cpp_steps, "throws_at_negative"))

    @bench.invoker(python=False)
    def toy(ctx: Context, op: object, x: VTensor, y: VTensor) -> None:
        src, dst = PTensor(x).require(Layout.ANY), PTensor(y).require(Layout.ANY)
        if not lib_tagger("toy", [src], [dst]):
            emit(step, [src, dst])

    graph = Graph("chain")
    value = graph.add(bench.op("Toy"), graph.input("x", {"N": 1, "C": 4}), name="before")
    value = graph.add(Neg(), value, name="sign")
    graph.output(graph.add(bench.op("Toy"), value, name="after"), "y")
    said = f"step of '{node}': throwing: threw an exception: thrown at a negative number"
    wrong, right = (np.array([[number, 1, 2, 3]], np.float32) for number in (first, 0))
    with Session(graph, optimize="none", threads=1, pin={"sign": "onednn"}) as session:
        binding = session.bind({"x": (x := right.copy())})
        y = np.full((1, 4), np.nan, np.float32)
        for _ in range(2):
            x[...] = wrong
            for run in (
                binding.run,
                lambda: session.run(None, {"x": wrong}),
                lambda: session.run(None, {"x": wrong}, out={"y": y}),
            ):
                with pytest.raises(NativeError, match=said):
                    run()
            assert np.isnan(y).all()
            x[...] = right
            binding.run()
            np.testing.assert_array_equal(binding.outputs["y"], -right)
            np.testing.assert_array_equal(session.run(None, {"x": right}), [-right])


@pytest.mark.parametrize("first", [True, False])
def test_a_run_ends_after_its_session_is_closed(first: bool, bench: Bench, c_steps: Path) -> None:
    """No run follows it, and nothing is held any more."""
    waiting = Waiting(bench, c_steps)
    if not first:
        waiting.release()
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
        waiting.release()
        running.result()
        with pytest.raises(SessionClosedError, match="make a new one"):
            queued.result()
    for run in (waiting.run, lambda: waiting.session.run(None, waiting.feeds)):
        with pytest.raises(SessionClosedError):
            run()
    del queued, running  # errors hold references to what was there when they were raised
    gc.collect()
    assert plan() is None


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_a_run_and_the_session_goes_on(bench: Bench, c_steps: Path) -> None:
    waiting = Waiting(bench, c_steps)

    def interrupt() -> None:
        waiting.wait()
        os.kill(os.getpid(), signal.SIGINT)
        threading.Timer(0.2, waiting.release).start()

    with waiting.session:
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            waiting.run()
        waiting.release()
        waiting.run()


def test_a_call_back_may_not_run_its_own_session(bench: Bench) -> None:
    """The error is raised in the call-back; if it is caught, the run goes on."""
    does: Callable[[], object] = int

    @bench.invoker(python=True)
    def toy(ctx: Context, op: object, x: VTensor, y: VTensor) -> None:
        src, dst = PTensor(x).require(Layout.ANY), PTensor(y).require(Layout.ANY)
        if not lib_tagger("toy", [src], [dst]):
            does()
            np.copyto(dst.data(), src.data())

    def fails() -> None:
        raise RuntimeError("of its own") from ValueError("why")

    def tries() -> None:
        for outputs in (None, ["x0"]):  # the second needs another plan, on the same arena
            with pytest.raises(NestedRunError):
                session.run(outputs, feeds)

    feeds = {"x0": np.arange(6, dtype=np.float32).reshape(2, 3)}
    with Session(bench.graph(), optimize="none", threads=1) as session:
        session.run(None, feeds)
        does = lambda: session.run(None, feeds)  # noqa: E731
        with pytest.raises(NestedRunError, match="cannot run its own session"):
            session.run(None, feeds)
        does = fails
        with pytest.raises(InvokerError, match="of its own") as failed:
            session.run(None, feeds)
        does = tries
        np.testing.assert_array_equal(session.run(None, feeds), [feeds["x0"]])
    cause = failed.value.__cause__
    assert isinstance(cause, RuntimeError)
    assert isinstance(cause.__cause__, ValueError)


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
            waiting.release()
            waiting.run()
            os._exit(0)
        waiting.release()
        running.result()
        assert os.waitpid(child, 0)[1] == 0
